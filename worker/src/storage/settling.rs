//! A worker knows the write of each row, because an old snapshot may see some rows of a segment and
//! not others. With millions of small writes, these lists would become long. When every query that
//! may still come sees a write, its rows are *settled*: only their number and tally are kept in
//! memory and in the store. The file still has the write of each row.

use std::sync::Arc;

use volary_flight_proto::ids::TableId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Storage;
use super::shard::CountedRows;
use super::store::Outcome;

impl Storage {
    /// Notes which writes every query sees that may still come. What is known already is never
    /// taken back by a gateway that knows less.
    pub(crate) fn note_horizon(&self, horizon: &Snapshot) {
        let mut known = self.0.horizon.lock();
        if horizon.covers(&known) {
            known.clone_from(horizon);
        }
    }

    /// Returns the number of writes that are listed for the segments of a shard.
    pub(crate) fn listed_writes(&self, table: TableId, shard: u32) -> usize {
        let table = self.known_table(table);
        table.map_or(0, |table| table.listed_writes(shard))
    }

    /// Settles the rows of a shard that every query sees. A restart must not need the list of their
    /// writes, so rows that the log may still have are left out. No segment of the shard must be
    /// replaced meanwhile. May block.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and the errors of the file system. Nothing is
    /// changed then.
    pub(crate) fn settle(&self, table: TableId, shard: u32) -> Result<()> {
        let Some(table) = self.known_table(table) else {
            return Ok(());
        };
        let _arrangement = self.0.arrangement.read();
        let horizon = self.0.horizon.lock().clone();
        let logged = self.writes_in_log();
        let changed = table.settle(shard, &horizon, &logged);
        if changed.is_empty() {
            return Ok(());
        }
        let settling = Arc::clone(&table);
        self.0.store.change(
            move || {
                let mut delta = table.decide_changes(&changed)?;
                delta.horizon = Some(horizon);
                Ok((changed, delta))
            },
            move |changed, outcome| {
                if outcome == Outcome::Made {
                    settling.change(changed);
                }
            },
        )
    }

    /// Takes writes out of the horizon, because they belong to another history of writes than the
    /// catalog's, and returns the rest.
    pub(super) fn lower_horizon(&self, writes: &WriteSet) -> Snapshot {
        let mut horizon = self.0.horizon.lock();
        *horizon = horizon.without(writes);
        horizon.clone()
    }

    /// Refuses snapshots that do not see all settled rows.
    ///
    /// # Errors
    /// Returns `DEADLINE_EXCEEDED`.
    pub(super) fn check_horizon(
        &self,
        snapshot: &Snapshot,
        counted: Option<CountedRows<'_>>,
    ) -> Result<()> {
        let counted = counted.map_or(snapshot, |counted| counted.counted_writes);
        if self.0.store.is_covered_by(snapshot) && self.0.store.is_covered_by(counted) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::DeadlineExceeded,
            "the query reads a state of the cluster that is too old, because it began longer ago than gateway.query.ticket_lifetime; run it again",
        ))
    }
}
