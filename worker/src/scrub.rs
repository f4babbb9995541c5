//! A scrub detects a failing disk while backups still have the data that it lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config;
use crate::pace::Pace;
use crate::storage::Storage;
use crate::totals::WorkerTotals;

/// Scrubs until `stopping` is cancelled, if the settings ask for it.
pub(crate) async fn scrub(
    storage: Storage,
    config: config::StorageConfig,
    totals: Arc<WorkerTotals>,
    stopping: CancellationToken,
) {
    if !config.scrub {
        return;
    }
    let progress = Arc::new(Progress {
        pace: Pace::new(config.scrub_rate.bytes()),
        is_stopping: AtomicBool::new(false),
        totals,
    });
    let scrubbing = async {
        loop {
            scrub_all(&storage, &progress).await;
            sleep(config.scrub_interval).await;
        }
    };
    let _: Option<()> = stopping.run_until_cancelled(scrubbing).await;
    progress.is_stopping.store(true, Ordering::Relaxed);
}

#[derive(Debug)]
struct Progress {
    pace: Pace,
    /// Says whether the worker stops. If it does, the current segment is read to its end without
    /// pauses.
    is_stopping: AtomicBool,
    totals: Arc<WorkerTotals>,
}

impl Progress {
    fn note(&self, read_bytes: usize) {
        self.totals.scrubbed_bytes.inc_by(read_bytes as u64);
        if !self.is_stopping.load(Ordering::Relaxed) {
            std::thread::sleep(self.pace.pause(read_bytes));
        }
    }
}

async fn scrub_all(storage: &Storage, progress: &Arc<Progress>) {
    let mut segments = storage.all_segments();
    // The scrub starts at a random segment. Otherwise, a worker that is often restarted would never
    // reach the last ones.
    let middle = Uuid::new_v4().as_u128() % (segments.len() as u128).max(1);
    segments.rotate_left(usize::try_from(middle).unwrap_or_default());
    let (mut checked, mut damaged, mut unreadable) = (0_u64, 0_u64, 0_u64);
    for segment in segments {
        let progress = Arc::clone(progress);
        let checking = move || {
            let compared = segment.check_content(|bytes| progress.note(bytes));
            (compared, segment.is_damaged())
        };
        match tokio::task::spawn_blocking(checking).await {
            Ok((Ok(()), _)) => checked += 1,
            // The segment has logged its damage.
            Ok((Err(_), true)) => damaged += 1,
            Ok((Err(error), false)) => {
                unreadable += 1;
                tracing::error!(%error, "a segment cannot be compared with its checksums; check the worker's disk");
            }
            Err(error) => tracing::warn!(%error, "comparing a segment with its checksum panicked"),
        }
    }
    tracing::debug!(
        checked,
        damaged,
        unreadable,
        "all segments were compared with their checksums"
    );
}
