//! Parts of the workers, each read by a task, as all ways but the gather divide them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::Outcome;
use super::stubs::{Stub, StubCluster};

/// An equal part of the stubs, which one task reads.
#[derive(Debug, Clone)]
pub struct Part {
    /// All of them.
    pub cluster: StubCluster,
    /// Those of the part.
    pub stubs: Vec<Stub>,
    /// To be told of every stream that is open.
    pub opened: Opened,
}

/// When the last stream was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    started: Instant,
    last_ns: Arc<AtomicU64>,
}

impl Opened {
    fn since(started: Instant) -> Self {
        Self {
            started,
            last_ns: Arc::default(),
        }
    }

    /// One more is open now.
    pub fn note(&self) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.fetch_max(nanos, Ordering::Relaxed);
    }

    fn last(&self) -> Duration {
        Duration::from_nanos(self.last_ns.load(Ordering::Relaxed))
    }
}

/// Runs `read`, which says how many rows there were, on each of so many parts.
pub(super) async fn in_parts<F>(
    cluster: &StubCluster,
    parts: usize,
    read: impl Fn(Part) -> F,
) -> Result<Outcome>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let started = Instant::now();
    let opened = Opened::since(started);
    let all = cluster.stubs();
    let mut reading = JoinSet::new();
    for part in 0..parts {
        // As a gather's partitions divide the workers.
        let stubs = &all[part * all.len() / parts..(part + 1) * all.len() / parts];
        let part = Part {
            cluster: cluster.clone(),
            stubs: stubs.to_vec(),
            opened: opened.clone(),
        };
        reading.spawn_on(read(part), cluster.cpu());
    }
    let mut rows = 0;
    while let Some(read) = reading.join_next().await {
        rows += read??;
    }
    Ok(Outcome {
        open: opened.last(),
        total: started.elapsed(),
        rows,
    })
}
