//! A worker that takes rows faster than it can merge them gets slower and slower, and one that
//! fills its disk cannot even delete. So writers are slowed down first, and refused before it is
//! too late. Queries go on.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk_space::DiskSpace;

use crate::background::run_blocking;
use crate::config;
use crate::storage::Storage;

/// Number of small segments of a shard above which writes to its table are delayed. The background
/// leaves fewer than half as many.
const SLOW_SEGMENTS: usize = 64;
/// Number of small segments of a shard at which writes to its table are refused.
const MOST_SEGMENTS: usize = 512;
/// The longest delay of a write.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// How long the free space that was found counts.
const SPACE_IS_KNOWN_FOR: Duration = Duration::from_secs(1);
/// After this time, a client should try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Decides when a write may begin.
#[derive(Debug)]
pub(crate) struct Backpressure {
    storage: Storage,
    config: config::StorageConfig,
    /// The free space of the disk in bytes, and when it was found out.
    free: Mutex<Option<(Instant, u64)>>,
}

impl Backpressure {
    pub(crate) fn new(storage: Storage, config: config::StorageConfig) -> Self {
        Self {
            storage,
            config,
            free: Mutex::default(),
        }
    }

    /// Waits until a write to this table may begin.
    ///
    /// # Errors
    /// Returns `RESOURCE_EXHAUSTED`, with the time after which to try again, if the disk is nearly
    /// full or if too many segments of the table wait to be merged.
    pub(crate) async fn admit(&self, table: TableId) -> Result<()> {
        self.check_space().await?;
        // Without compaction, nothing would get better.
        if !self.config.compaction {
            return Ok(());
        }
        let full_bytes = self.config.segment.bytes() as u64;
        let segments = self.storage.most_small_segments(table, full_bytes / 2);
        let delay = delay_at(segments).ok_or_else(|| {
            let text = format!(
                "a shard has {segments} small segments that wait to be merged, and {MOST_SEGMENTS} are the most; write larger batches, or raise worker.storage.compaction_rate"
            );
            Error::new(ErrorCode::ResourceExhausted, text).with_retry_after(RETRY_AFTER)
        })?;
        if !delay.is_zero() {
            tracing::debug!(%table, segments, ?delay, "a write is delayed until segments are merged");
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    async fn check_space(&self) -> Result<()> {
        let least = self.config.min_free.bytes() as u64;
        if least == 0 {
            return Ok(());
        }
        let free = self.free_bytes().await?;
        if free >= least {
            return Ok(());
        }
        let text = format!(
            "the disk of {} has {} MiB free, and writes are refused below {} MiB (worker.storage.min_free); queries go on; free space, and the next write is taken",
            self.storage.data_dir().display(),
            free >> 20,
            least >> 20
        );
        Err(Error::new(ErrorCode::ResourceExhausted, text).with_retry_after(RETRY_AFTER))
    }

    async fn free_bytes(&self) -> Result<u64> {
        let known = *self.free.lock();
        if let Some((found, free)) = known
            && found.elapsed() < SPACE_IS_KNOWN_FOR
        {
            return Ok(free);
        }
        let path = self.storage.data_dir().to_owned();
        let found = run_blocking(move || {
            DiskSpace::of(&path).map_err(|source| {
                let what = format!("cannot find out the free space of {}", path.display());
                Error::io(what, source)
            })
        });
        let free = found.await?.available_bytes;
        *self.free.lock() = Some((Instant::now(), free));
        Ok(free)
    }
}

/// Returns how long a write waits if a shard has this many small segments. Returns `None` if the
/// write is refused.
fn delay_at(segments: usize) -> Option<Duration> {
    let excess = segments.saturating_sub(SLOW_SEGMENTS);
    let range = MOST_SEGMENTS - SLOW_SEGMENTS;
    (excess < range).then(|| LONGEST_DELAY.mul_f64(excess as f64 / range as f64))
}

#[cfg(test)]
mod tests {
    use volary_node::size::MemorySize;

    use super::*;
    use crate::write::tests::logged::write_keys;
    use crate::write::tests::worker;

    #[test]
    fn writes_wait_longer_and_longer_and_are_refused_in_the_end() {
        assert_eq!(delay_at(0), Some(Duration::ZERO));
        assert_eq!(delay_at(SLOW_SEGMENTS), Some(Duration::ZERO));
        let delays: Vec<_> = (SLOW_SEGMENTS..MOST_SEGMENTS).map(delay_at).collect();
        assert!(delays.is_sorted() && delays.last().unwrap().unwrap() < LONGEST_DELAY);
        assert_eq!(delay_at(MOST_SEGMENTS), None);
    }

    #[tokio::test]
    async fn a_write_is_refused_while_the_disk_is_nearly_full_or_merges_are_behind() {
        let mut worker = worker(256 << 20);
        worker.context.config.segment = MemorySize::Bytes(64 << 20);
        let admit = async |config: config::StorageConfig| {
            let pressure = Backpressure::new(worker.context.storage.clone(), config);
            pressure.admit(TableId(3)).await
        };
        let config = worker.context.config.clone();
        admit(config.clone()).await.unwrap();
        let full = config::StorageConfig {
            min_free: MemorySize::Bytes(u64::MAX),
            ..config.clone()
        };
        let error = admit(full).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(
            error.message().contains("worker.storage.min_free"),
            "{error}"
        );
        for write in 1..=MOST_SEGMENTS as u64 {
            write_keys(&worker, write, &[4]).await;
        }
        let error = admit(config.clone()).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(error.message().contains("512 small segments"), "{error}");
        let alone = config::StorageConfig {
            compaction: false,
            ..config
        };
        admit(alone).await.unwrap();
    }
}
