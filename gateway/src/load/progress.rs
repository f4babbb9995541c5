//! Loads that run, for system.loads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volary_flight_proto::ids::QueryId;

/// The loads that run.
#[derive(Debug, Clone, Default)]
pub struct Loads(Arc<Mutex<HashMap<QueryId, Entry>>>);

#[derive(Debug, Clone)]
struct Entry {
    table: String,
    rows: Arc<AtomicU64>,
    started: Instant,
}

/// One load as it stands.
#[derive(Debug, Clone)]
pub struct LoadStatus {
    /// The statement.
    pub query_id: QueryId,
    /// The table.
    pub table: String,
    /// Rows that were sent to workers.
    pub rows: u64,
    /// How long it runs.
    pub running: Duration,
}

/// Counts the rows of one load; it is listed as long as a clone of this lives.
#[derive(Debug, Clone)]
pub struct Progress {
    rows: Arc<AtomicU64>,
    _listed: Arc<Listed>,
}

#[derive(Debug)]
struct Listed {
    loads: Loads,
    query_id: QueryId,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.loads.0.lock().remove(&self.query_id);
    }
}

impl Loads {
    /// Lists a load from now on.
    pub fn start(&self, query_id: QueryId, table: &str) -> Progress {
        let rows = Arc::new(AtomicU64::new(0));
        let entry = Entry {
            table: table.to_owned(),
            rows: Arc::clone(&rows),
            started: Instant::now(),
        };
        self.0.lock().insert(query_id, entry);
        let listed = Listed {
            loads: self.clone(),
            query_id,
        };
        Progress {
            rows,
            _listed: Arc::new(listed),
        }
    }

    /// The loads that run, oldest first.
    pub fn all(&self) -> Vec<LoadStatus> {
        let mut all: Vec<_> = self
            .0
            .lock()
            .iter()
            .map(|(query_id, entry)| LoadStatus {
                query_id: *query_id,
                table: entry.table.clone(),
                rows: entry.rows.load(Ordering::Relaxed),
                running: entry.started.elapsed(),
            })
            .collect();
        all.sort_by_key(|load| load.query_id);
        all
    }
}

impl Progress {
    /// Counts rows that were sent.
    pub fn add(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}
