use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::{Error, Result};

use crate::background::run_blocking;
use crate::expiry::Cutoff;
use crate::pace::Pace;
use crate::segment::{ORDER, OpenSegment, SegmentProperties};
use crate::storage::{Segment, SettledRows};
use crate::write::{WriteContext, WriteLayout};

/// Number of rows that are read, merged and written at a time.
const BATCH_ROWS: usize = 8192;
/// Memory for the page, the dictionary and the decoded values of a column that is being read, in
/// bytes, at most.
const COLUMN_BYTES: u64 = 2 << 20;
/// Decoded rows take at most about this many times the space that their file takes.
const DECODED_SHARE: u64 = 8;

/// The sum of the rows that have expired.
type ExpiredRows = Arc<Mutex<Option<SettledRows>>>;

/// Segments of one shard, whose rows become other segments.
#[derive(Debug)]
pub(super) struct Merge {
    layout: Arc<WriteLayout>,
    properties: Arc<SegmentProperties>,
    inputs: Vec<Arc<Segment>>,
    /// Says whether the new segments have a column with the write of each row.
    has_write_column: bool,
    /// The first time at which rows have not expired. Earlier rows are left out.
    cutoff: Option<Cutoff>,
    /// Memory for the pages and rows that are being read. It is held until the merge ends.
    _memory: MemoryReservation,
}

impl Merge {
    /// Prepares the merge of segments, of which there is at least one. Rows before `cutoff` are
    /// left out.
    ///
    /// # Errors
    /// Returns `RESOURCE_EXHAUSTED` if there is no memory to read so many segments at once.
    pub(super) fn new(
        context: &WriteContext,
        layout: &Arc<WriteLayout>,
        inputs: Vec<Arc<Segment>>,
        cutoff: Option<Cutoff>,
    ) -> Result<Self> {
        let memory = MemoryConsumer::new("merging segments".to_owned())
            .register(&context.runtime_env.memory_pool);
        let columns = layout.schema().fields().len() as u64 + 1;
        let needed = inputs.iter().map(|segment| {
            let decoded = segment.bytes().saturating_mul(DECODED_SHARE);
            decoded.min(columns * COLUMN_BYTES)
        });
        memory.try_grow(usize::try_from(needed.sum::<u64>()).unwrap_or(usize::MAX))?;
        let first = inputs.first().map(|segment| segment.write());
        let has_write_column = inputs
            .iter()
            .any(|segment| segment.has_several_writes() || Some(segment.write()) != first);
        let properties = if has_write_column {
            SegmentProperties::of_several_writes(
                layout.schema(),
                layout.shard_key(),
                layout.sort_key(),
                &context.config,
                inputs.iter().map(|segment| segment.write_count()).sum(),
            )
        } else {
            SegmentProperties::new(
                layout.schema(),
                layout.shard_key(),
                layout.sort_key(),
                &context.config,
            )
        };
        Ok(Self {
            layout: Arc::clone(layout),
            properties: Arc::new(properties?),
            inputs,
            has_write_column,
            cutoff,
            _memory: memory,
        })
    }

    /// Returns the segments that are merged.
    pub(super) fn inputs(&self) -> &[Arc<Segment>] {
        &self.inputs
    }

    /// Writes the rows of all segments into new ones, sorted. Their files are durable. Returns the
    /// new segments, and the sum of the rows that have expired.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if a segment is damaged, `RESOURCE_EXHAUSTED` if memory or the disk is
    /// full, and the errors of the file system.
    pub(super) async fn run(
        &self,
        context: &WriteContext,
        pace: Pace,
    ) -> Result<(Vec<Segment>, Option<SettledRows>)> {
        self.check_inputs(pace).await?;
        let input_bytes: u64 = self.inputs.iter().map(|segment| segment.bytes()).sum();
        let input_rows: u64 = self.inputs.iter().map(|segment| segment.rows()).sum();
        let bytes_per_row = input_bytes as f64 / input_rows.max(1) as f64;
        let expired = ExpiredRows::default();
        let mut rows = self.merged_rows(context, &expired)?;
        let mut outputs = Outputs::new(self);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            outputs.append(context, &batch).await?;
            // What is read is written again.
            let bytes = 2.0 * bytes_per_row * batch.num_rows() as f64;
            tokio::time::sleep(pace.pause(bytes as usize)).await;
        }
        drop(rows);
        let segments = outputs.finish().await?;
        let expired = *expired.lock();
        self.check_outputs(&segments, expired)?;
        Ok((segments, expired))
    }

    /// Compares the files with their checksums. Otherwise damage would get new, valid checksums.
    async fn check_inputs(&self, pace: Pace) -> Result<()> {
        for segment in &self.inputs {
            let (checked, bytes) = (Arc::clone(segment), segment.bytes());
            run_blocking(move || checked.check_content(|_| ())).await?;
            tokio::time::sleep(pace.pause(usize::try_from(bytes).unwrap_or(usize::MAX))).await;
        }
        Ok(())
    }

    /// Compares the rows that were written with those that were to be written.
    fn check_outputs(&self, segments: &[Segment], expired: Option<SettledRows>) -> Result<()> {
        let inputs = self.inputs.iter().map(AsRef::as_ref);
        let (mut rows, mut tally) = sum(segments.iter());
        if let Some(expired) = expired {
            rows += expired.rows;
            tally.add_all(expired.tally);
        }
        if sum(inputs) == (rows, tally) {
            return Ok(());
        }
        Err(Error::internal(format!(
            "merging segments of table {} would have changed its rows, and was given up; please report this",
            self.layout.table()
        )))
    }

    fn merged_rows(
        &self,
        context: &WriteContext,
        expired: &ExpiredRows,
    ) -> Result<SendableRecordBatchStream> {
        let streams = self.inputs.iter();
        let streams = streams.map(|segment| self.rows_of(segment, expired));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let schema = self.properties.schema();
        let keys = self.layout.sort_key().iter().map(|position| {
            let column = Column::new(schema.field(*position).name(), *position);
            PhysicalSortExpr::new(Arc::new(column), ORDER)
        });
        let Some(ordering) = LexOrdering::new(keys) else {
            let rows = stream::iter(streams).flatten();
            let rows = RecordBatchStreamAdapter::new(Arc::clone(schema), rows);
            return Ok(Box::pin(rows));
        };
        let memory = MemoryConsumer::new("rows of merged segments".to_owned())
            .register(&context.runtime_env.memory_pool);
        let merged = StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(Arc::clone(schema))
            .with_expressions(&ordering)
            .with_metrics(BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0))
            .with_batch_size(BATCH_ROWS)
            .with_round_robin_tie_breaker(false)
            .with_reservation(memory)
            .build()?;
        Ok(merged)
    }

    /// Returns the rows of a segment, with the columns of the new segments. Those that have expired
    /// are left out, and added up.
    fn rows_of(
        &self,
        segment: &Arc<Segment>,
        expired: &ExpiredRows,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.schema());
        let lacks_write = self.has_write_column && !segment.has_several_writes();
        let columns: Vec<_> = (0..schema.fields().len() - usize::from(lacks_write)).collect();
        let stored = schema.project(&columns).map_err(DataFusionError::from)?;
        let failed = |error: ParquetError| {
            Error::io_within(
                format!("cannot read segment {}", segment.relative_path()),
                error,
            )
        };
        let reader = open(segment, Arc::new(stored)).map_err(failed)?;
        let (write, kept) = (segment.write(), Arc::clone(segment));
        let (expired, has_write_column) = (Arc::clone(expired), self.has_write_column);
        let condition = self.cutoff.as_ref();
        let condition = condition.map(|cutoff| cutoff.condition(&schema, cutoff.column()));
        let condition = condition.transpose()?;
        let rows = reader.map({
            let schema = Arc::clone(&schema);
            move |batch| {
                let batch = batch?;
                let batch = without_hidden_rows(&kept, batch)?;
                let mut columns = batch.columns().to_vec();
                if lacks_write {
                    let writes = UInt64Array::from_value(write.0, batch.num_rows());
                    columns.push(Arc::new(writes) as ArrayRef);
                }
                let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
                let Some(condition) = &condition else {
                    return Ok(batch);
                };
                let only_write = (!has_write_column).then_some(write);
                without_expired_rows(condition.as_ref(), &batch, only_write, &expired)
            }
        });
        let rows = RecordBatchStreamAdapter::new(schema, stream::iter(rows));
        Ok(Box::pin(rows))
    }
}

/// Returns the number of the rows that count, and their tally.
fn sum<'a>(segments: impl Iterator<Item = &'a Segment>) -> (u64, Tally) {
    let (mut rows, mut tally) = (0, Tally::default());
    for segment in segments {
        rows += segment.rows();
        tally.add_all(segment.tally());
    }
    (rows, tally)
}

fn without_hidden_rows(segment: &Segment, rows: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let hidden = segment.hidden();
    let Some(writes) = rows.columns().last().filter(|_| !hidden.is_empty()) else {
        return Ok(rows);
    };
    let writes = writes.as_primitive::<UInt64Type>().values().iter();
    let counts: Vec<_> = writes
        .map(|write| !hidden.contains(WriteId(*write)))
        .collect();
    filter_record_batch(&rows, &BooleanArray::from(counts))
}

/// Leaves out the rows for which the condition is not true, and adds them to `expired`. All rows
/// are of one write, or the last column has the write of each row.
fn without_expired_rows(
    condition: &dyn PhysicalExpr,
    rows: &RecordBatch,
    only_write: Option<WriteId>,
    expired: &ExpiredRows,
) -> Result<RecordBatch, DataFusionError> {
    let kept = condition.evaluate(rows)?.into_array(rows.num_rows())?;
    let kept = kept.as_boolean();
    if kept.true_count() == rows.num_rows() {
        return Ok(rows.clone());
    }
    let expires = |row: &usize| kept.is_null(*row) || !kept.value(*row);
    let gone = (0..rows.num_rows()).filter(expires);
    let mut by_write: BTreeMap<WriteId, u64> = BTreeMap::new();
    match (only_write, rows.columns().last()) {
        (None, Some(writes)) => {
            let writes = writes.as_primitive::<UInt64Type>();
            for row in gone {
                *by_write.entry(WriteId(writes.value(row))).or_default() += 1;
            }
        }
        (write, _) => {
            let write = write.unwrap_or(WriteId(0));
            by_write.insert(write, gone.count() as u64);
        }
    }
    let by_write = by_write.into_iter();
    let more = by_write.map(|(write, rows)| SettledRows::of_write(write, rows));
    let mut sum = expired.lock();
    *sum = SettledRows::sum(sum.take().into_iter().chain(more));
    Ok(filter_record_batch(rows, kept)?)
}

fn open(
    segment: &Segment,
    columns: SchemaRef,
) -> Result<parquet::arrow::arrow_reader::ParquetRecordBatchReader, ParquetError> {
    let options = ArrowReaderOptions::new().with_schema(columns);
    let file = File::open(segment.path())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?;
    builder.with_batch_size(BATCH_ROWS).build()
}

/// Writes rows of a shard into as many segments as they need.
struct Outputs<'a> {
    merge: &'a Merge,
    shard: u32,
    /// The last write of all rows. It names the files.
    last: WriteId,
    current: Option<Output>,
    complete: Vec<Segment>,
}

struct Output {
    segment: OpenSegment,
    /// Number of rows of each write.
    writes: BTreeMap<WriteId, u64>,
}

impl<'a> Outputs<'a> {
    fn new(merge: &'a Merge) -> Self {
        let last = merge.inputs.iter().map(|segment| segment.write()).max();
        Self {
            merge,
            shard: merge.inputs.first().map_or(0, |segment| segment.shard()),
            last: last.unwrap_or(WriteId(0)),
            current: None,
            complete: Vec::new(),
        }
    }

    async fn append(&mut self, context: &WriteContext, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let current = match self.current.take() {
            Some(current) => current,
            None => self.open_segment(context).await?,
        };
        let current = self.current.insert(current);
        current.segment.append(rows)?;
        match rows
            .columns()
            .last()
            .filter(|_| self.merge.has_write_column)
        {
            Some(writes) => {
                for write in writes.as_primitive::<UInt64Type>().values() {
                    *current.writes.entry(WriteId(*write)).or_default() += 1;
                }
            }
            None => *current.writes.entry(self.last).or_default() += rows.num_rows() as u64,
        }
        if current.segment.size() >= self.merge.properties.segment_bytes {
            self.close_segment().await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Vec<Segment>> {
        self.close_segment().await?;
        Ok(self.complete)
    }

    async fn open_segment(&mut self, context: &WriteContext) -> Result<Output> {
        let (storage, properties) = (context.storage.clone(), Arc::clone(&self.merge.properties));
        let (table, shard, write) = (self.merge.layout.table(), self.shard, self.last);
        let creating = move || OpenSegment::create(&storage, &properties, table, shard, write);
        Ok(Output {
            segment: run_blocking(creating).await?,
            writes: BTreeMap::new(),
        })
    }

    async fn close_segment(&mut self) -> Result<()> {
        let Some(Output { segment, writes }) = self.current.take() else {
            return Ok(());
        };
        let complete = segment.finish()?;
        let segment = run_blocking(move || complete.sync()).await?;
        self.complete.push(match self.merge.has_write_column {
            true => segment.with_writes(writes.into_iter().collect()),
            false => segment,
        });
        Ok(())
    }
}
