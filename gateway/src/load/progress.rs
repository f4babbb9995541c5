use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volary_catalog::RelationName;
use volary_flight_proto::ids::QueryId;

/// The list of running loads, and the totals of those that have ended. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadRegistry {
    running: Arc<Mutex<HashMap<QueryId, Entry>>>,
    totals: Arc<LoadTotals>,
}

/// Totals over all loads that have ended since the gateway's start.
#[derive(Debug, Default)]
struct LoadTotals {
    committed: AtomicU64,
    aborted: AtomicU64,
    /// Number of rows of the committed writes.
    rows: AtomicU64,
}

#[derive(Debug, Clone)]
struct Entry {
    table: RelationName,
    rows: Arc<AtomicU64>,
    started: Instant,
}

/// The current state of a load.
#[derive(Debug, Clone)]
pub struct LoadStatus {
    /// Id of the statement.
    pub query_id: QueryId,
    /// Name of the table.
    pub table: RelationName,
    /// Number of rows that were assigned to workers. The last of them may not be sent yet.
    pub rows: u64,
    /// How long the load has been running.
    pub running_for: Duration,
}

/// Counts the rows of one load. The load is listed as long as a clone of this value exists.
#[derive(Debug, Clone)]
pub(crate) struct LoadProgress {
    rows: Arc<AtomicU64>,
    _listed: Arc<ListedLoad>,
}

#[derive(Debug)]
struct ListedLoad {
    loads: LoadRegistry,
    query_id: QueryId,
}

impl Drop for ListedLoad {
    fn drop(&mut self) {
        self.loads.running.lock().remove(&self.query_id);
    }
}

impl LoadRegistry {
    /// Counts a committed write of `rows` rows.
    pub(super) fn note_commit(&self, rows: u64) {
        self.totals.committed.fetch_add(1, Ordering::Relaxed);
        self.totals.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts an aborted write.
    pub(super) fn note_abort(&self) {
        self.totals.aborted.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many writes were committed, how many were aborted, and how many rows the
    /// committed ones have.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let LoadTotals {
            committed,
            aborted,
            rows,
        } = &*self.totals;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(committed), load(aborted), load(rows))
    }

    /// Returns the number of running loads.
    pub(crate) fn running(&self) -> usize {
        self.running.lock().len()
    }

    /// Adds a load to the list.
    pub(crate) fn start(&self, query_id: QueryId, table: &RelationName) -> LoadProgress {
        let rows = Arc::new(AtomicU64::new(0));
        let entry = Entry {
            table: table.clone(),
            rows: Arc::clone(&rows),
            started: Instant::now(),
        };
        self.running.lock().insert(query_id, entry);
        let listed = ListedLoad {
            loads: self.clone(),
            query_id,
        };
        LoadProgress {
            rows,
            _listed: Arc::new(listed),
        }
    }

    /// Returns the running loads, the oldest first.
    pub(crate) fn all(&self) -> Vec<LoadStatus> {
        let mut all: Vec<_> = self
            .running
            .lock()
            .iter()
            .map(|(query_id, entry)| LoadStatus {
                query_id: *query_id,
                table: entry.table.clone(),
                rows: entry.rows.load(Ordering::Relaxed),
                running_for: entry.started.elapsed(),
            })
            .collect();
        all.sort_by_key(|load| load.query_id);
        all
    }
}

impl LoadProgress {
    /// Counts `rows` more rows.
    pub(crate) fn add(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}
