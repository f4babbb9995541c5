use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volary_catalog::RelationName;
use volary_flight_proto::ids::QueryId;

/// The list of running loads. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LoadRegistry(Arc<Mutex<HashMap<QueryId, Entry>>>);

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
pub struct LoadProgress {
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
        self.loads.0.lock().remove(&self.query_id);
    }
}

impl LoadRegistry {
    /// Adds a load to the list.
    pub fn start(&self, query_id: QueryId, table: &RelationName) -> LoadProgress {
        let rows = Arc::new(AtomicU64::new(0));
        let entry = Entry {
            table: table.clone(),
            rows: Arc::clone(&rows),
            started: Instant::now(),
        };
        self.0.lock().insert(query_id, entry);
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
    pub fn all(&self) -> Vec<LoadStatus> {
        let mut all: Vec<_> = self
            .0
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
    pub fn add(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}
