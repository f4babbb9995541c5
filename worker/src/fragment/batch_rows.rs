use volary_flight_proto::fragment::MAX_BATCH_ROWS;
use volary_flight_proto::{Error, Result};

/// Refuses batches with too many rows. Operators reserve memory for the rows of a batch before the
/// rows exist.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` for more rows than any gateway asks for.
pub(super) fn check_batch_rows(rows: u32) -> Result<()> {
    if rows <= MAX_BATCH_ROWS {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the fragment asks for batches of {rows} rows; the maximum is {MAX_BATCH_ROWS}"
    )))
}
