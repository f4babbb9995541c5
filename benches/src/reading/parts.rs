use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::ReadOutcome;
use super::stubs::{Stub, StubCluster};

/// An equal part of the stubs, which one task reads.
#[derive(Debug, Clone)]
pub struct StubPart {
    /// The cluster of all stubs.
    pub cluster: StubCluster,
    /// The stubs of this part.
    pub stubs: Vec<Stub>,
    /// Records when each stream was opened.
    pub opened: OpenRecorder,
}

/// Records the time at which the last stream was opened.
#[derive(Debug, Clone)]
pub struct OpenRecorder {
    started: Instant,
    last_ns: Arc<AtomicU64>,
}

impl OpenRecorder {
    fn since(started: Instant) -> Self {
        Self {
            started,
            last_ns: Arc::default(),
        }
    }

    /// Records that one more stream is open now.
    pub fn record(&self) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_ns.fetch_max(nanos, Ordering::Relaxed);
    }

    fn last(&self) -> Duration {
        Duration::from_nanos(self.last_ns.load(Ordering::Relaxed))
    }
}

/// Divides the stubs into `parts` parts, and runs `read` on each of them. `read` returns the number
/// of rows that it has read.
pub(super) async fn read_in_parts<F>(
    cluster: &StubCluster,
    parts: usize,
    read: impl Fn(StubPart) -> F,
) -> Result<ReadOutcome>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let started = Instant::now();
    let opened = OpenRecorder::since(started);
    let all = cluster.stubs();
    let mut reading = JoinSet::new();
    for part in 0..parts {
        // The stubs are divided as the partitions of a gather divide the workers.
        let stubs = &all[part * all.len() / parts..(part + 1) * all.len() / parts];
        let part = StubPart {
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
    Ok(ReadOutcome {
        open: opened.last(),
        total: started.elapsed(),
        rows,
    })
}
