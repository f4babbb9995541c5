use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use volary_exec::buckets::{BucketPiece, Buckets, DividedRows};
use volary_flight_proto::Error;
use volary_flight_proto::frame::RowsByBucket;

use super::exchange::Exchange;
use super::steps::Steps;
use crate::stream::{DecodedRows, WorkerStream};

/// Reads an equal part of the workers, all in one task.
pub(super) struct MergeReader {
    sources: Vec<WorkerSource>,
    buckets: Buckets,
    exchange: Arc<Exchange>,
    /// One coalescer per partition. It is needed because pieces are small if there are many
    /// workers.
    coalescers: Vec<BatchCoalescer>,
}

/// The rows of one worker.
struct WorkerSource {
    messages: WorkerStream,
    rows: Option<MessagePieces>,
    total_bytes: usize,
    /// Number of rounds that the worker's messages are divided into. `None` before the first
    /// message.
    rounds: Option<usize>,
    /// Bucket of the last rows. All rows of smaller buckets have come.
    last_bucket: usize,
}

/// The rows of a message that were not handed over yet.
struct MessagePieces {
    batch: RecordBatch,
    pieces: std::vec::IntoIter<BucketPiece>,
    next: BucketPiece,
    row: usize,
    rounds: usize,
}

/// State of a source after it has handed over its rows of a step.
enum SourceState {
    /// The source must read its next message.
    NeedsMessage(WorkerSource),
    /// The next rows of the source belong to a later step.
    HasLaterRows(WorkerSource),
}

impl MergeReader {
    /// Creates a reader of workers that send rows with `schema` in the order of `buckets`. It hands
    /// over `batch_rows` rows at a time.
    pub(super) fn new(
        workers: Vec<WorkerStream>,
        buckets: Buckets,
        exchange: Arc<Exchange>,
        schema: &SchemaRef,
        batch_rows: usize,
    ) -> Self {
        let coalescers = (0..buckets.partitions())
            .map(|_| BatchCoalescer::new(Arc::clone(schema), batch_rows.max(1)));
        Self {
            coalescers: coalescers.collect(),
            sources: workers.into_iter().map(WorkerSource::new).collect(),
            buckets,
            exchange,
        }
    }

    /// Hands over all rows. An error ends the merge.
    pub(super) async fn run(mut self) {
        let unfinished = FailOnPanic(Some(Arc::clone(&self.exchange)));
        if let Err(error) = self.read().await {
            self.exchange.fail(error);
        }
        unfinished.finish();
    }

    async fn read(&mut self) -> Result<()> {
        let sources = std::mem::take(&mut self.sources);
        let mut reading: FuturesUnordered<_> = sources
            .into_iter()
            .map(|source| source.read(&self.buckets))
            .collect();
        let mut sources = Vec::with_capacity(reading.len());
        while let Some(source) = reading.next().await {
            sources.extend(source?);
        }
        drop(reading);
        let bytes = sources.iter().map(|source| source.total_bytes);
        let bytes = bytes.fold(0, usize::saturating_add);
        let steps = self.exchange.announce(bytes).await;
        for step in 0..steps.count() {
            sources = self.read_step(step, steps, sources).await?;
            for partition in 0..self.coalescers.len() {
                self.coalescers[partition].finish_buffered_batch()?;
                self.send(partition, step)?;
            }
            self.exchange.end_step(step);
        }
        Ok(())
    }

    /// Reads the sources until they have no more rows of a step. Returns the sources that have rows
    /// of later steps.
    async fn read_step(
        &mut self,
        step: usize,
        steps: Steps,
        sources: Vec<WorkerSource>,
    ) -> Result<Vec<WorkerSource>> {
        let buckets = self.buckets.clone();
        let mut reading = FuturesUnordered::new();
        let mut later = Vec::with_capacity(sources.len());
        for source in sources {
            self.exchange.wait_for_room(step).await;
            match self.hand_over(source, step, steps)? {
                SourceState::NeedsMessage(source) => reading.push(source.read(&buckets)),
                SourceState::HasLaterRows(source) => later.push(source),
            }
        }
        loop {
            if reading.is_empty() {
                return Ok(later);
            }
            // Meanwhile, further messages wait in the windows of their streams, and on the workers.
            self.exchange.wait_for_room(step).await;
            let Some(source) = reading.next().await else {
                return Ok(later);
            };
            let Some(source) = source? else {
                continue;
            };
            match self.hand_over(source, step, steps)? {
                SourceState::NeedsMessage(source) => reading.push(source.read(&buckets)),
                SourceState::HasLaterRows(source) => later.push(source),
            }
        }
    }

    fn hand_over(
        &mut self,
        mut source: WorkerSource,
        step: usize,
        steps: Steps,
    ) -> Result<SourceState> {
        let Some(mut rows) = source.rows.take() else {
            return Ok(SourceState::NeedsMessage(source));
        };
        if rows.rounds == 1 && steps.count() > 1 {
            // This worker had few rows, and sent them in one round. Other workers have so much more
            // that these rows must be divided into rounds, too.
            match MessagePieces::new(self.buckets.divide(&rows.batch)?, self.buckets.rounds()) {
                Some(divided) => rows = divided,
                None => return Ok(SourceState::NeedsMessage(source)),
            }
        }
        let first = step.checked_sub(1).map_or(0, |before| steps.end(before));
        loop {
            let round = self.buckets.round_of(rows.next.bucket);
            if round < first {
                return Err(order_error().into());
            }
            if round >= steps.end(step) {
                source.rows = Some(rows);
                return Ok(SourceState::HasLaterRows(source));
            }
            let partition = self.buckets.partition_of(rows.next.bucket);
            let piece = rows.batch.slice(rows.row, rows.next.rows);
            self.coalescers[partition].push_batch(piece)?;
            self.send(partition, step)?;
            rows.row += rows.next.rows;
            match rows.pieces.next() {
                Some(next) => rows.next = next,
                None => return Ok(SourceState::NeedsMessage(source)),
            }
        }
    }

    fn send(&mut self, partition: usize, step: usize) -> Result<()> {
        while let Some(rows) = self.coalescers[partition].next_completed_batch() {
            self.exchange.push(partition, step, rows)?;
        }
        Ok(())
    }
}

/// Fails the merge if the reader panics. Otherwise, the partitions would wait for the reader
/// forever.
struct FailOnPanic(Option<Arc<Exchange>>);

impl FailOnPanic {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if let Some(exchange) = &self.0 {
            exchange.fail(
                Error::internal("a reader of a merge ended before it had read all rows").into(),
            );
        }
    }
}

impl WorkerSource {
    fn new(messages: WorkerStream) -> Self {
        Self {
            messages,
            rows: None,
            total_bytes: 0,
            rounds: None,
            last_bucket: 0,
        }
    }

    /// Reads the next message with rows. Returns `None` if there is none.
    async fn read(mut self, buckets: &Buckets) -> Result<Option<Self>> {
        while self.rows.is_none() {
            let Some(message) = self.messages.next().await.transpose()? else {
                return Ok(None);
            };
            let DecodedRows { batch, outline } = message;
            let outline = outline.ok_or_else(order_error)?;
            self.total_bytes = usize::try_from(outline.total_bytes).unwrap_or(usize::MAX);
            let pieces = self.pieces_of(&outline, buckets, batch.num_rows())?;
            self.rows = MessagePieces::new(DividedRows { batch, pieces }, outline.rounds as usize);
        }
        Ok(Some(self))
    }

    /// Returns the pieces of a message. The outline comes from the network, so its order is
    /// checked.
    fn pieces_of(
        &mut self,
        outline: &RowsByBucket,
        buckets: &Buckets,
        rows: usize,
    ) -> Result<Vec<BucketPiece>> {
        let rounds = outline.rounds as usize;
        let is_valid = match self.rounds.replace(rounds) {
            None => rounds == 1 || rounds == buckets.rounds(),
            // A worker sends rows in one round as one message, so no second message may follow.
            Some(before) => rounds == before && rounds > 1,
        };
        if !is_valid || outline.buckets.len() != outline.rows.len() {
            return Err(order_error().into());
        }
        let pieces = outline.buckets.iter().zip(&outline.rows);
        let pieces: Vec<_> = pieces
            .map(|(bucket, rows)| BucketPiece {
                bucket: *bucket as usize,
                rows: *rows as usize,
            })
            .collect();
        let mut total_rows = 0_usize;
        for piece in &pieces {
            let is_in_order =
                piece.bucket >= self.last_bucket && piece.bucket < buckets.partitions() * rounds;
            if !is_in_order {
                return Err(order_error().into());
            }
            self.last_bucket = piece.bucket;
            total_rows = total_rows.saturating_add(piece.rows);
        }
        if total_rows != rows {
            return Err(order_error().into());
        }
        Ok(pieces)
    }
}

impl MessagePieces {
    /// Returns `None` if there are no rows.
    fn new(divided: DividedRows, rounds: usize) -> Option<Self> {
        let mut pieces = divided.pieces.into_iter();
        Some(Self {
            batch: divided.batch,
            next: pieces.next()?,
            pieces,
            row: 0,
            rounds,
        })
    }
}

fn order_error() -> Error {
    Error::internal("a worker's rows are not in the order of their buckets")
}
