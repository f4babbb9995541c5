//! Rows that have expired are deleted, and only their number and tally are kept: the catalog still
//! counts them. They are deleted only if every query that may still come sees their writes and
//! leaves them out.

use std::sync::Arc;

use chrono::Utc;
use volary_flight_proto::control::TableExpiry;
use volary_flight_proto::fragment::Expiry;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Storage;
use super::segment::Segment;

/// How long the rows of tables are kept, as a gateway has said last.
#[derive(Debug, Default)]
pub(super) struct KnownExpiries {
    /// A time, in microseconds since 1970, before which no query began that may still come.
    time_us: i64,
    tables: Vec<TableExpiry>,
}

impl Storage {
    /// Learns how long the rows of tables are kept, and a time, in microseconds since 1970, before
    /// which no query began that may still come.
    pub(crate) fn note_expiries(&self, time_us: i64, tables: &[TableExpiry]) {
        // A clock that is wrong must not delete rows, so the gateway's and the own one must agree.
        let time_us = time_us.min(Utc::now().timestamp_micros());
        let mut known = self.0.expiries.lock();
        known.time_us = time_us;
        tables.clone_into(&mut known.tables);
        if !tables.is_empty() {
            self.0.expiries_noted.notify_one();
        }
    }

    /// Waits until a gateway says that there are tables whose rows expire.
    pub(crate) async fn await_expiries(&self) {
        self.0.expiries_noted.notified().await;
    }

    /// Returns the tables whose rows expire.
    pub(crate) fn expiring_tables(&self) -> Vec<TableId> {
        let known = self.0.expiries.lock();
        let tables = known.tables.iter();
        tables.map(|table| TableId(table.table_id)).collect()
    }

    /// Returns how long the rows of a table are kept, and the time, in microseconds since 1970, at
    /// which those may be deleted that have expired. Returns `None` if no rows may be deleted.
    pub(crate) fn expiry_of(&self, table: TableId) -> Option<(Expiry, i64)> {
        let known = self.0.expiries.lock();
        let found = known.tables.iter().find(|it| it.table_id == table.0)?;
        Some((found.expiry?, known.time_us))
    }

    /// Returns the segments of a shard of which every query that may still come sees all rows,
    /// without those whose rows the log may still have: a restart needs the list of their writes.
    /// These come second.
    pub(crate) fn settleable(
        &self,
        table: TableId,
        shard: u32,
    ) -> (Vec<Arc<Segment>>, Vec<Arc<Segment>>) {
        let Some(table) = self.known_table(table) else {
            return Default::default();
        };
        let horizon = self.0.horizon.lock().clone();
        let logged = self.writes_in_log();
        let is_logged = |segment: &Arc<Segment>| {
            let mut writes = segment.writes();
            writes.any(|(write, _)| logged.contains(write))
        };
        let segments = table.mergeable(shard, &horizon).into_iter();
        let (logged, settleable) = segments.partition(is_logged);
        (settleable, logged)
    }

    /// Returns the writes whose rows the log may still have.
    pub(super) fn writes_in_log(&self) -> WriteSet {
        let mut logged = WriteSet::default();
        for writes in self.0.shared.log_use.all().values() {
            logged.insert_all(writes);
        }
        logged
    }

    /// Refuses a query that began before rows expired that were deleted.
    ///
    /// # Errors
    /// Returns `DEADLINE_EXCEEDED`.
    pub(super) fn check_as_of(&self, as_of_us: i64) -> Result<()> {
        if as_of_us >= self.0.store.expired_us() {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::DeadlineExceeded,
            "rows of the table have expired since the query began, and were deleted; run it again (if that does not help, the gateway's clock was set back)",
        ))
    }
}
