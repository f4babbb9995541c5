use std::collections::BTreeMap;

use parking_lot::Mutex;
use volary_flight_proto::Result;
use volary_flight_proto::ids::{TableId, WorkerId, WriteId};
use volary_flight_proto::write_set::WriteSet;

use super::Catalog;
use super::draft::Draft;
use super::records::{AbortRecord, TableState};
use super::state::CatalogState;

/// The abort up to which each worker has deleted the rows of failed writes. It is known only since
/// the gateway started: a worker says it with each report.
#[derive(Debug, Default)]
pub(super) struct DeletedThrough(Mutex<BTreeMap<WorkerId, u64>>);

impl Catalog {
    /// Records that a worker has deleted the rows of all failed writes up to an abort. An abort is
    /// forgotten when no worker holds rows of its writes.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn record_deletions(&self, worker: WorkerId, through: u64) -> Result<()> {
        let all = &self.inner.deleted_through.0;
        all.lock().insert(worker, through);
        if self.state().aborts.is_empty() {
            return Ok(()); // the usual case
        }
        let deleted_through = all.lock().clone();
        let is_deleted = move |abort: &AbortRecord| {
            let has_deleted = |worker: &WorkerId| {
                deleted_through
                    .get(worker)
                    .is_some_and(|through| *through >= abort.number)
            };
            abort.workers.iter().all(has_deleted)
        };
        let has_deleted = {
            let state = self.state();
            state.aborts.values().any(|abort| is_deleted(abort))
        };
        if !has_deleted {
            return Ok(());
        }
        self.change_with_ballast(move |draft| {
            let aborts = draft.state().aborts.values();
            let deleted = aborts.filter(|abort| is_deleted(abort));
            for number in deleted.map(|abort| abort.number).collect::<Vec<_>>() {
                draft.remove_abort(number);
            }
            Ok(())
        })
        .await
    }
}

/// Counts all writes that a former gateway left open as failed, and removes the tables that they
/// were creating.
pub(super) fn abort_all_undecided(draft: &mut Draft) -> Result<()> {
    for table in tables_being_created(draft.state()) {
        if let Some(table) = draft.state().tables.get(&table).cloned() {
            draft.remove_table(&table);
        }
    }
    draft.abort_all_undecided()
}

fn tables_being_created(state: &CatalogState) -> Vec<TableId> {
    let tables = state.all_tables();
    let being_created = tables.filter(|table| table.state() != TableState::Live);
    being_created.map(|table| table.id()).collect()
}

/// Aborts a write to a table, which is `None` if it was never created. Returns false if the write
/// is not open.
pub(super) fn abort(draft: &mut Draft, write: WriteId, table: Option<TableId>) -> Result<bool> {
    if !draft.state().is_undecided(write) {
        return Ok(false);
    }
    draft.decide(write);
    let table = table.and_then(|id| draft.state().tables.get(&id).cloned());
    match table {
        // Workers delete all files of dropped tables anyway.
        None => {}
        Some(table) if table.state() == TableState::Creating(write) => draft.remove_table(&table),
        Some(table) => {
            let writes = WriteSet::of_range(write, write);
            draft.put_abort(writes, Some(table.id()), table.workers().to_vec())?;
        }
    }
    Ok(true)
}
