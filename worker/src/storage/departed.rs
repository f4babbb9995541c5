//! Tables and writes that are gone, so that rows that are still on their way are not added to them.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

/// How many aborted writes are remembered, the latest ones. Only those matter whose rows were on their way when they were
/// aborted.
const REMEMBERED_WRITES: usize = 64 * 1024;

/// What was dropped and aborted since the worker started, and what the gateway said of it.
#[derive(Debug, Default)]
pub(super) struct Departed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Tables that were dropped and that `live_tables` does not tell of yet.
    dropped_tables: BTreeSet<TableId>,
    /// What exists of the tables up to `last_table`.
    live_tables: BTreeSet<TableId>,
    /// None before the gateway's first answer. Ids begin with 1.
    last_table: Option<TableId>,
    aborted_writes: BTreeSet<WriteId>,
}

impl State {
    fn tells_of(&self, table: TableId) -> bool {
        self.last_table.is_some_and(|last| table <= last) && !self.live_tables.contains(&table)
    }
}

impl Departed {
    /// # Errors
    /// `NOT_FOUND` if the table was dropped.
    pub(super) fn check_table(&self, table: TableId) -> Result<()> {
        let state = self.0.lock();
        if state.dropped_tables.contains(&table) || state.tells_of(table) {
            return Err(Error::not_found(format!(
                "table {table} was dropped; run the statement again"
            )));
        }
        Ok(())
    }

    /// # Errors
    /// `CANCELLED` if the write was aborted.
    pub(super) fn check_write(&self, write: WriteId) -> Result<()> {
        if self.0.lock().aborted_writes.contains(&write) {
            return Err(Error::new(
                ErrorCode::Cancelled,
                format!("write {write} was aborted; run the statement again"),
            ));
        }
        Ok(())
    }

    pub(super) fn drop_table(&self, table: TableId) {
        self.0.lock().dropped_tables.insert(table);
    }

    pub(super) fn abort_writes(&self, writes: &BTreeSet<WriteId>) {
        let mut state = self.0.lock();
        state.aborted_writes.extend(writes);
        while state.aborted_writes.len() > REMEMBERED_WRITES {
            state.aborted_writes.pop_first();
        }
    }

    /// Notes which of the tables up to `last` exist.
    pub(super) fn note_live_tables(&self, live: BTreeSet<TableId>, last: TableId) {
        let mut state = self.0.lock();
        state.live_tables = live;
        state.last_table = Some(last);
        let told: Vec<_> = state
            .dropped_tables
            .iter()
            .copied()
            .filter(|table| state.tells_of(*table))
            .collect();
        for table in told {
            state.dropped_tables.remove(&table);
        }
    }
}
