use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use parquet::arrow::arrow_reader::RowSelection;
use volary_flight_proto::Result;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;

use crate::storage::{Segment, read_writes};

/// Returns the rows of a segment that a snapshot sees, if it does not see all of them. That is
/// rare: the rows of the segment were in the log when the snapshot was taken. May block.
///
/// # Errors
/// Returns `DATA_LOSS` if the file is damaged, and the errors of the file system.
pub(crate) fn visible_rows(
    segment: &Arc<Segment>,
    snapshot: &Snapshot,
) -> Result<ParquetRowSelection> {
    let is_seen = |write| snapshot.sees(write) && !segment.hidden().contains(write);
    let mut filters: Vec<BooleanArray> = Vec::new();
    read_writes(segment, |writes| {
        let seen = writes.iter().map(|write| is_seen(WriteId(*write)));
        filters.push(seen.collect::<Vec<_>>().into());
    })?;
    Ok(ParquetRowSelection::new(RowSelection::from_filters(
        &filters,
    )))
}
