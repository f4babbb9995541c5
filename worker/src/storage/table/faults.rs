use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Table;
use crate::storage::shard::{CountedRows, Fault, Orphan};
use crate::storage::store;

impl Table {
    /// Refuses rows for shards that cannot take any.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and `DATA_LOSS` or `UNAVAILABLE` for a shard
    /// with a fault.
    pub(in crate::storage) fn check_shards(&self, shards: impl Iterator<Item = u32>) -> Result<()> {
        self.tombstones.check_table(self.id())?;
        let known = self.shards.read();
        for shard in shards {
            if let Some(fault) = known.get(&shard).and_then(|it| it.fault.as_ref()) {
                return Err(self.fault_error(shard, fault));
            }
        }
        Ok(())
    }

    /// Compares a shard with what the catalog has counted. If they are equal, the files that the
    /// store does not name are garbage, and are deleted. This holds only for files of writes that
    /// the catalog has counted, or would have counted.
    pub(in crate::storage) fn prove(&self, shard: u32, counted: CountedRows<'_>) -> Result<()> {
        let (differs, garbage) = {
            let mut shards = self.shards.write();
            let Some(known) = shards.get_mut(&shard) else {
                return Ok(());
            };
            let differs = counted.mismatched_rows(Some(known));
            let mut garbage = Vec::new();
            if differs.is_none() {
                known.fault = None;
                let is_garbage = |orphan: &mut Orphan| counted.counted_writes.sees(orphan.write);
                garbage.extend(known.orphans.extract_if(.., is_garbage));
            }
            (differs, garbage)
        };
        if let Some(rows) = differs {
            let error = self.note_row_mismatch(shard, counted, rows);
            tracing::debug!(%error, "files that the store does not name are kept");
        }
        garbage
            .iter()
            .for_each(|orphan| self.totals.remove_orphan(orphan.write));
        self.delete_orphans(&garbage)
    }

    fn fault_error(&self, shard: u32, fault: &Fault) -> Error {
        match fault {
            Fault::RowMismatch(difference) => Error::new(ErrorCode::DataLoss, difference.clone()),
            Fault::NothingNamed => Error::unavailable(format!(
                "shard {shard} of table {}: there are files of rows that {} does not name, and the gateway has not said yet whether the shard had rows; retry",
                self.id(),
                store::FILE,
            )),
        }
    }

    /// Notes that the shard now holds the rows that were counted.
    pub(super) fn clear_row_mismatch(&self, shard: u32) {
        if let Some(known) = self.shards.write().get_mut(&shard)
            && matches!(known.fault, Some(Fault::RowMismatch(_)))
        {
            known.fault = None;
        }
    }

    /// Notes that the shard does not hold the rows that were counted, and returns the error. From
    /// now on, rows that are written to the shard are refused: they could be lost with it.
    pub(super) fn note_row_mismatch(
        &self,
        shard: u32,
        counted: CountedRows<'_>,
        rows: u64,
    ) -> Error {
        let error = row_mismatch_error(self.id(), shard, counted.expected, rows);
        let mut shards = self.shards.write();
        let is_new = !shards.contains_key(&shard);
        self.totals.add_shards(usize::from(is_new));
        let known = shards.entry(shard).or_default();
        if !matches!(known.fault, Some(Fault::RowMismatch(_))) {
            tracing::error!(%error, "acknowledged rows are missing: queries that need them fail");
            known.fault = Some(Fault::RowMismatch(error.message().to_owned()));
        }
        error
    }
}

/// Returns the error for a shard that holds other rows than the catalog has counted.
pub(in crate::storage) fn row_mismatch_error(
    table: TableId,
    shard: u32,
    expected: ExpectedRows,
    rows: u64,
) -> Error {
    let rows_text = match expected {
        ExpectedRows::Rows(expected) => {
            format!("it has {rows} of its {expected} acknowledged rows")
        }
        ExpectedRows::Tally(_) => {
            format!("it has {rows} rows, which are not the acknowledged ones")
        }
    };
    Error::new(
        ErrorCode::DataLoss,
        format!(
            "shard {shard} of table {table}: {rows_text}, because {} in the worker's data directory is outdated, or belongs to another worker; restore the data directory from its newest backup and restart the worker (docs/repair.md)",
            store::FILE
        ),
    )
}
