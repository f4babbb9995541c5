//! Each flush of the log and each write adds segments. Many small segments make queries slow, so
//! the worker merges them: in the background ([`tiers`] says which), or because of an OPTIMIZE.
//!
//! A merge is a matter of this worker alone. The new segments have the same rows, and a column with
//! the write of each row ([`merge`]). So every snapshot, however old, sees the same rows before and
//! after, and the old files can go at once. Rows that have expired are deleted on the occasion, or
//! when there are many of them ([`expiring`]).

/// Deletes rows that have expired.
mod expiring;
/// Writes the rows of several segments into new ones.
mod merge;
#[cfg(test)]
mod tests;
/// Chooses the segments to merge.
mod tiers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use volary_flight_proto::control::{CompactionState, OptimizeResult, StorageState};
use volary_flight_proto::ids::TableId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::background::run_blocking;
use crate::expiry::Cutoff;
use crate::pace::Pace;
use crate::storage::Segment;
use crate::write::{WriteContext, WriteLayout, flush};
use merge::Merge;

/// Merges the segments of a worker.
#[derive(Debug)]
pub(crate) struct Compactor {
    context: WriteContext,
    /// Whoever holds it merges segments. So memory and disk space for one merge suffice.
    turn: tokio::sync::Mutex<()>,
    /// The error of the last merge that failed.
    failure: Mutex<String>,
}

/// Number of listed writes of a shard from which on those that every query sees are settled.
const MOST_LISTED: usize = 256;
/// Pause between two attempts to settle the rows of a shard that does not change.
const SETTLING_PAUSE: Duration = Duration::from_secs(600);

/// What became of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compacted {
    /// There is nothing more to merge.
    Done,
    /// There is more to merge as soon as more writes are known to be committed.
    Waiting,
}

/// Segments that are merged.
struct Inputs {
    segments: Vec<Arc<Segment>>,
    /// The first time at which rows have not expired, and the time, in microseconds since 1970, at
    /// which this holds. `None` if no rows may be deleted.
    cutoff: Option<(Cutoff, i64)>,
}

type Choice = fn(&[u64], u64) -> Option<Vec<usize>>;

impl Compactor {
    /// Builds the compactor of a worker.
    pub(crate) fn new(context: WriteContext) -> Self {
        Self {
            context,
            turn: tokio::sync::Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Deletes rows that have expired, and merges segments if the settings ask for it, in the
    /// background until `stopping` is cancelled.
    pub(crate) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let merging = async {
            if self.context.config.compaction {
                self.run_forever().await;
            }
        };
        let running = Box::pin(async { tokio::join!(merging, self.delete_expired_rows_forever()) });
        let _ = stopping.run_until_cancelled(running).await;
    }

    async fn run_forever(&self) {
        let storage = &self.context.storage;
        let pause = self.context.config.compaction_interval;
        let mut waiting: BTreeSet<(TableId, u32)> = BTreeSet::new();
        let mut unsettled: BTreeSet<(TableId, u32)> = BTreeSet::new();
        let mut committed = Snapshot::default();
        loop {
            if waiting.is_empty() {
                // Thousands of workers may run on one machine, so an idle one does not look at its
                // shards.
                let changed = storage.take_changed_shards();
                waiting = match unsettled.is_empty() {
                    true => changed.await,
                    false => timeout(SETTLING_PAUSE, changed).await.unwrap_or_default(),
                };
            }
            sleep(pause).await;
            waiting.extend(storage.changed_shards());
            waiting.append(&mut unsettled);
            // A query that does not see all rows of a merged segment must read the write of each
            // row. Nearly all queries see what was committed a while ago.
            let long_committed = std::mem::replace(&mut committed, storage.committed());
            for (table, shard) in std::mem::take(&mut waiting) {
                match self.compact(table, shard, &long_committed).await {
                    Ok(Compacted::Done) => {}
                    Ok(Compacted::Waiting) => {
                        waiting.insert((table, shard));
                    }
                    Err(error) => self.note_failure(table, shard, &error),
                }
                match self.settle(table, shard).await {
                    Ok(true) => {}
                    Ok(false) => {
                        unsettled.insert((table, shard));
                    }
                    Err(error) => self.note_failure(table, shard, &error),
                }
            }
        }
    }

    /// Settles the rows of a shard if many writes are listed. Returns whether few are listed then.
    async fn settle(&self, table: TableId, shard: u32) -> Result<bool> {
        let _turn = self.turn.lock().await;
        let storage = self.context.storage.clone();
        if storage.listed_writes(table, shard) >= MOST_LISTED {
            run_blocking(move || storage.settle(table, shard)).await?;
        }
        Ok(self.context.storage.listed_writes(table, shard) < MOST_LISTED)
    }

    /// Merges segments of a shard until no tier has too many.
    async fn compact(&self, table: TableId, shard: u32, committed: &Snapshot) -> Result<Compacted> {
        let Some(description) = self.context.storage.table_description(table) else {
            return Ok(Compacted::Done);
        };
        let layout = Arc::new(WriteLayout::new(&description)?);
        while self
            .merge_once(&layout, shard, committed, tiers::choose)
            .await?
        {}
        let storage = &self.context.storage;
        let may_merge = |sizes: &[u64]| tiers::choose(sizes, self.full_bytes()).is_some();
        let mergeable = storage.mergeable(table, shard, committed);
        let mergeable: Vec<_> = mergeable.iter().map(|segment| segment.bytes()).collect();
        let all = storage.sizes_of(table, shard);
        Ok(match !may_merge(&mergeable) && may_merge(&all) {
            true => Compacted::Waiting,
            false => Compacted::Done,
        })
    }

    /// Makes as few segments as possible of all rows of a table that the snapshot sees, also of
    /// those that are in the log only.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, `DATA_LOSS` if a segment is damaged,
    /// `RESOURCE_EXHAUSTED` if memory or the disk is full, and the errors of the file system. What
    /// was merged until then stays merged.
    pub(crate) async fn optimize(
        &self,
        description: TableDescription,
        committed: Snapshot,
    ) -> Result<OptimizeResult> {
        let storage = &self.context.storage;
        let layout = Arc::new(WriteLayout::new(&description)?);
        let table = layout.table();
        storage.note_table(&description);
        let segments_before = storage.segment_count(table);
        flush(&self.context, table, &committed).await?;
        if storage.expiry_of(table).is_some() {
            self.forget_logged_writes().await?;
        }
        for shard in storage.shards_of(table) {
            self.delete_expired_rows(table, shard).await?;
            while self
                .merge_once(&layout, shard, &committed, tiers::choose_all)
                .await?
            {}
        }
        Ok(OptimizeResult {
            segments_before,
            segments_after: storage.segment_count(table),
        })
    }

    /// Merges segments of a shard once. Returns false if there is nothing to gain.
    async fn merge_once(
        &self,
        layout: &Arc<WriteLayout>,
        shard: u32,
        committed: &Snapshot,
        choose: Choice,
    ) -> Result<bool> {
        let _turn = self.turn.lock().await;
        let storage = &self.context.storage;
        let mergeable = storage.mergeable(layout.table(), shard, committed);
        let sizes: Vec<_> = mergeable.iter().map(|segment| segment.bytes()).collect();
        let Some(chosen) = choose(&sizes, self.full_bytes()) else {
            return Ok(false);
        };
        let segments = chosen
            .into_iter()
            .map(|position| Arc::clone(&mergeable[position]));
        let segments: Vec<_> = segments.collect();
        let cutoff = self.cutoff_of(layout, shard, &segments);
        let inputs = Inputs { segments, cutoff };
        self.merge_inputs(layout, shard, inputs).await
    }

    /// Returns the [cutoff](Self::cutoff) of these segments, if their expired rows may be deleted.
    fn cutoff_of(
        &self,
        layout: &WriteLayout,
        shard: u32,
        segments: &[Arc<Segment>],
    ) -> Option<(Cutoff, i64)> {
        let cutoff = self.cutoff(layout)?;
        let (settleable, _) = self.context.storage.settleable(layout.table(), shard);
        let may_lose_rows = |segment| settleable.iter().any(|it| Arc::ptr_eq(it, segment));
        segments.iter().all(may_lose_rows).then_some(cutoff)
    }

    /// Merges these segments of a shard. Returns false if there is nothing to gain. Whoever calls
    /// this has the turn.
    async fn merge_inputs(
        &self,
        layout: &Arc<WriteLayout>,
        shard: u32,
        inputs: Inputs,
    ) -> Result<bool> {
        let storage = &self.context.storage;
        let time_us = inputs.cutoff.as_ref().map(|(_, time_us)| *time_us);
        let merge = self.prepare(layout, inputs)?;
        let read_bytes: u64 = merge.inputs().iter().map(|segment| segment.bytes()).sum();
        let inputs = merge.inputs().to_vec();
        let pace = Pace::new(self.context.config.compaction_rate.bytes());
        let context = self.context.clone();
        let merging = async move { merge.run(&context, pace).await };
        let (outputs, expired) = self.context.runtimes.on_cpu(merging).await?;
        if outputs.len() >= inputs.len() && expired.is_none() {
            return Ok(false); // Otherwise this would go on forever.
        }
        let written_bytes: u64 = outputs.iter().map(Segment::bytes).sum();
        tracing::debug!(
            table = %layout.table(),
            shard,
            inputs = inputs.len(),
            outputs = outputs.len(),
            read_bytes,
            written_bytes,
            expired_rows = expired.map_or(0, |rows| rows.rows),
            "segments were merged"
        );
        let (storage, table) = (storage.clone(), layout.table());
        let with_time = expired.zip(time_us);
        run_blocking(move || storage.replace(table, inputs, outputs, with_time)).await?;
        self.count_expired(expired);
        let totals = &self.context.totals;
        totals.merges.inc();
        totals.merged_bytes.inc_by(read_bytes);
        totals.compacted_bytes.inc_by(written_bytes);
        Ok(true)
    }

    /// Prepares the merge of these segments, or of fewer if there is too little memory for all.
    fn prepare(&self, layout: &Arc<WriteLayout>, inputs: Inputs) -> Result<Merge> {
        let cutoff = inputs.cutoff.map(|(cutoff, _)| cutoff);
        let mut inputs = inputs.segments;
        loop {
            match Merge::new(&self.context, layout, inputs.clone(), cutoff.clone()) {
                Err(error) if error.code() == ErrorCode::ResourceExhausted && inputs.len() > 3 => {
                    inputs.truncate(inputs.len() / 2);
                }
                prepared => return prepared,
            }
        }
    }

    fn full_bytes(&self) -> u64 {
        self.context.config.segment.bytes() as u64
    }

    fn note_failure(&self, table: TableId, shard: u32, error: &Error) {
        // The table was dropped, or its rows went away.
        if matches!(error.code(), ErrorCode::NotFound | ErrorCode::Cancelled) {
            return;
        }
        tracing::warn!(%table, shard, %error, "segments cannot be merged; the worker tries again when the shard has new rows");
        *self.failure.lock() = error.to_string();
    }

    /// Returns what the worker stores, and what it has written for it. Visits all segments.
    pub(crate) fn describe_storage(&self) -> StorageState {
        let (storage, totals) = (&self.context.storage, &self.context.totals);
        let stored = storage.totals();
        StorageState {
            segments: stored.segments,
            rows: stored.rows,
            bytes: stored.bytes,
            log_rows: stored.logged_rows,
            log_bytes: storage.log_bytes(),
            expired_rows: stored.expired_rows,
            logged_bytes: totals.logged_bytes.get(),
            flushed_bytes: totals.flushed_bytes.get(),
            written_bytes: totals.written_bytes.get(),
            compaction: Some(self.state()),
        }
    }

    /// Returns what was merged, and what is to be merged. Visits all segments.
    fn state(&self) -> CompactionState {
        let (mut waiting_segments, mut waiting_bytes) = (0, 0);
        for sizes in self.context.storage.sizes_of_all() {
            let chosen = tiers::choose(&sizes, self.full_bytes()).unwrap_or_default();
            waiting_segments += chosen.len() as u64;
            waiting_bytes += chosen
                .into_iter()
                .map(|position| sizes[position])
                .sum::<u64>();
        }
        let totals = &self.context.totals;
        CompactionState {
            merges: totals.merges.get(),
            read_bytes: totals.merged_bytes.get(),
            written_bytes: totals.compacted_bytes.get(),
            waiting_segments,
            waiting_bytes,
            failure: self.failure.lock().clone(),
        }
    }
}
