use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use tokio::task::JoinSet;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::WriteContext;
use super::layout::{REFERENCE_SHARD, WriteLayout};
use crate::background::run_blocking;
use crate::segment::{OpenSegment, SegmentProperties};
use crate::storage::{Segment, Storage};

/// Number of files that are made durable while the next one is written.
const FILES_SYNCING: usize = 8;

/// Writes rows that are sorted by shard into segments, one file at a time. Dropping it deletes the
/// files.
pub(super) struct SegmentsWriter {
    storage: Storage,
    layout: Arc<WriteLayout>,
    properties: Arc<SegmentProperties>,
    write: WriteId,
    /// Memory of the encoded part of a row group. The reservation grows even if no memory is left.
    /// The memory is bounded, and a refusal would fail the write while the sort, which could spill,
    /// holds all memory.
    memory: MemoryReservation,
    /// The segment that rows are appended to, and its shard.
    current: Option<(u32, OpenSegment)>,
    syncing: JoinSet<Result<Segment>>,
    complete: Vec<Segment>,
}

impl SegmentsWriter {
    pub(super) fn new(
        context: &WriteContext,
        layout: &Arc<WriteLayout>,
        properties: &Arc<SegmentProperties>,
        write: WriteId,
    ) -> Self {
        let memory = MemoryConsumer::new(format!("segments of write {write}"))
            .register(&context.runtime_env.memory_pool);
        Self {
            storage: context.storage.clone(),
            layout: Arc::clone(layout),
            properties: Arc::clone(properties),
            write,
            memory,
            current: None,
            syncing: JoinSet::new(),
            complete: Vec::new(),
        }
    }

    /// Takes the next rows with their shards. The shards are not below those of earlier rows.
    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let Some(column) = self.layout.shard_column() else {
            return self.append(REFERENCE_SHARD, batch).await;
        };
        let shards = batch
            .column(column)
            .as_primitive::<UInt32Type>()
            .values()
            .clone();
        let mut rows = batch.clone();
        rows.remove_column(column);
        let mut rest = &shards[..];
        while let Some(&shard) = rest.first() {
            let start = shards.len() - rest.len();
            let length = rest.partition_point(|next| *next <= shard);
            self.append(shard, &rows.slice(start, length)).await?;
            rest = &rest[length..];
        }
        Ok(())
    }

    /// Takes the next rows of one shard. The shard is not below that of earlier rows.
    pub(super) async fn append(&mut self, shard: u32, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.current.as_ref().is_some_and(|(of, _)| *of != shard) {
            self.close_segment().await?;
        }
        let segment = match self.current.take() {
            Some((_, segment)) => segment,
            None => self.open_segment(shard).await?,
        };
        let (_, segment) = self.current.insert((shard, segment));
        segment.append(rows)?;
        self.memory.resize(segment.memory_size());
        if segment.size() >= self.properties.segment_bytes {
            self.close_segment().await?;
        }
        Ok(())
    }

    /// Returns all segments, when their files are durable.
    pub(super) async fn finish(mut self) -> Result<Vec<Segment>> {
        self.close_segment().await?;
        while !self.syncing.is_empty() {
            self.take_synced().await?;
        }
        let mut segments = self.complete;
        segments.sort_by_key(Segment::shard);
        Ok(segments)
    }

    // The reference is mutable because the future must be `Send`, and a Parquet writer is not
    // `Sync`.
    async fn open_segment(&mut self, shard: u32) -> Result<OpenSegment> {
        let (storage, properties) = (self.storage.clone(), Arc::clone(&self.properties));
        let (table, write) = (self.layout.table(), self.write);
        run_blocking(move || OpenSegment::create(&storage, &properties, table, shard, write)).await
    }

    /// Ends the current segment, if there is one. Another thread makes it durable.
    async fn close_segment(&mut self) -> Result<()> {
        let Some((_, segment)) = self.current.take() else {
            return Ok(());
        };
        let complete = segment.finish()?;
        self.memory.resize(0);
        if self.syncing.len() >= FILES_SYNCING {
            self.take_synced().await?;
        }
        self.syncing.spawn_blocking(move || complete.sync());
        Ok(())
    }

    async fn take_synced(&mut self) -> Result<()> {
        if let Some(ended) = self.syncing.join_next().await {
            let segment = ended.map_err(|source| {
                Error::with_source(
                    ErrorCode::Internal,
                    "a task that synced a file panicked",
                    source,
                )
            })??;
            self.complete.push(segment);
        }
        Ok(())
    }
}
