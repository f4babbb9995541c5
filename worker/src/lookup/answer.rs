use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::FlightData;
use bytes::Bytes;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::filter::batch_filter;
use futures::{FutureExt, TryStreamExt, stream};
use volary_exec::batches::{CoalesceBytes, compact, used_bytes};
use volary_exec::client_rows::{client_rows, convert_batch, row_message, schema_message};
use volary_exec::reserve_outgoing;
use volary_flight_proto::{Error, Result, ipc};

use super::cache::LookupCache;
use super::keys::{divide, keys_of_ticket};
use super::request::{KeyedFragment, Output, SchemaMessage};
use super::rows::{Lookup, Refusal, unfit};
use crate::expiry::Cutoff;
use crate::fragment::bind::TicketBindings;
use crate::fragment::decode::decode_expression;
use crate::storage::{Storage, VisibleRows};

/// Size up to which rows are one message without a closer look, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// Size above which rows are better streamed, in bytes: an answer is in memory as a whole.
const MOST_ANSWER_BYTES: usize = 4 << 20;

/// The parts of a worker that lookups use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupParts<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) cache: &'a LookupCache,
    pub(crate) task: &'a TaskContext,
    /// Size up to which a segment is compared with its checksum when it is first needed, in bytes.
    pub(crate) check_bytes: u64,
}

/// The rows that a ticket asks for, and the numbers of [`KeyedAnswer`].
#[derive(Debug)]
pub(super) struct KeyedRows {
    /// The rows, in the fragment's own types.
    pub(super) rows: RecordBatch,
    keys: usize,
    scanned_rows: usize,
    segments: usize,
}

/// The answer to a ticket.
#[derive(Debug)]
pub(crate) struct KeyedAnswer {
    /// The schema and the rows, as the ordinary way of running the fragment encodes them.
    pub(crate) messages: Vec<FlightData>,
    /// Number of messages with rows.
    pub(crate) batches: u64,
    /// Number of rows.
    pub(crate) rows: u64,
    /// Number of keys that the ticket asks for.
    pub(crate) keys: u64,
    /// Number of rows that have one of the keys, before the other conditions.
    pub(crate) scanned_rows: u64,
    /// Number of segments that the snapshot sees.
    pub(crate) segments: u64,
    /// Time that encoding took.
    pub(crate) encoding: Duration,
}

impl KeyedAnswer {
    /// Describes how the rows were found, in place of a plan with its metrics.
    pub(crate) fn describe(&self) -> String {
        format!(
            "RowsByKey: from decoded columns, metrics=[keys={}, found_rows={}, output_rows={}, segments={}]\n",
            self.keys, self.scanned_rows, self.rows, self.segments
        )
    }
}

/// Returns the answer to a ticket, if its rows can be looked up. `None` means that the fragment is
/// to be run in the ordinary way, which also reports all errors. `announced` is the encoded schema
/// that a client expects; it is empty if the rows are sent in the fragment's own types.
pub(crate) async fn answer(
    parts: LookupParts<'_>,
    keyed: &KeyedFragment,
    bindings: &TicketBindings,
    announced: &Bytes,
    batch_bytes: usize,
) -> Option<KeyedAnswer> {
    let totals = &parts.cache.totals;
    let looked_up = look_up(parts, keyed, bindings).await.and_then(|found| {
        let started = Instant::now();
        let messages = encode(keyed, found.rows.clone(), announced, batch_bytes);
        Ok((found, messages.map_err(unfit)?, started.elapsed()))
    });
    match looked_up {
        Ok((found, messages, encoding)) => {
            totals.answered.inc();
            totals.keys.inc_by(found.keys as u64);
            Some(KeyedAnswer {
                batches: messages.len() as u64 - 1,
                messages,
                rows: found.rows.num_rows() as u64,
                keys: found.keys as u64,
                scanned_rows: found.scanned_rows as u64,
                segments: found.segments as u64,
                encoding,
            })
        }
        Err(Refusal::Cold) => {
            totals.cold.inc();
            None
        }
        Err(Refusal::Unfit) => {
            totals.unfit.inc();
            None
        }
    }
}

/// Returns the rows that a ticket asks for.
///
/// # Errors
/// Returns the reason why the fragment is to be run in the ordinary way.
pub(super) async fn look_up(
    parts: LookupParts<'_>,
    keyed: &KeyedFragment,
    bindings: &TicketBindings,
) -> std::result::Result<KeyedRows, Refusal> {
    let ticket = Ticket {
        parts,
        keyed,
        bindings,
    };
    ticket.rows().await
}

/// A ticket that asks for rows by key.
struct Ticket<'a> {
    parts: LookupParts<'a>,
    keyed: &'a KeyedFragment,
    bindings: &'a TicketBindings,
}

impl Ticket<'_> {
    async fn rows(&self) -> std::result::Result<KeyedRows, Refusal> {
        let keyed = self.keyed;
        let schema = keyed.schema().ok_or(Refusal::Cold)?;
        let visible = self.visible_rows().map_err(unfit)?;
        let segments = visible.iter().map(|rows| rows.segments.len()).sum();
        // The segments say by which column they are sorted. Any other comparison is a condition
        // like others.
        let mut refusal = Refusal::Unfit;
        for test in &keyed.tests {
            let data_type = keyed.table_schema.field(test.column).data_type();
            let keys = keys_of_ticket(&test.sources, &self.bindings.values, data_type);
            let keys = keys.ok_or(Refusal::Unfit)?;
            let keys_of_shards = self.divide(test.column, &keys, visible.len());
            let keys_of_shards = keys_of_shards.map_err(unfit)?;
            match self.rows_with(&visible, test.column, &keys_of_shards).await {
                Ok((rows, position)) => {
                    let scanned_rows = rows.num_rows();
                    let rows = self.filter(rows, test.condition, position).map_err(unfit)?;
                    let over = |most| rows.num_rows() as u64 > most;
                    if keyed.most_rows.is_some_and(over) || used_bytes(&rows) > MOST_ANSWER_BYTES {
                        return Err(Refusal::Unfit);
                    }
                    return Ok(KeyedRows {
                        rows: self.project(&rows, schema).map_err(unfit)?,
                        keys: keys.len(),
                        scanned_rows,
                        segments,
                    });
                }
                Err(Refusal::Cold) => return Err(Refusal::Cold),
                Err(Refusal::Unfit) => refusal = Refusal::Unfit,
            }
        }
        Err(refusal)
    }

    /// Returns the rows of the ticket's shards that its snapshot sees.
    fn visible_rows(&self) -> Result<Vec<VisibleRows>> {
        let scan = &self.keyed.scan;
        let shards = self.bindings.scans.get(scan.ordinal as usize);
        let shards = shards.ok_or_else(|| Error::invalid("the ticket has no shards"))?;
        let mut all = Vec::with_capacity(shards.shards.len());
        for (position, shard) in shards.shards.iter().enumerate() {
            let expected = shards.expected(position);
            let storage = self.parts.storage;
            let visible = self
                .bindings
                .visible_rows(storage, scan, *shard, expected)?;
            for segment in &visible.segments {
                segment.check_once(self.parts.check_bytes)?;
            }
            all.push(visible);
        }
        Ok(all)
    }

    /// Returns the keys to look for in each of the ticket's shards.
    fn divide(&self, column: usize, keys: &ArrayRef, places: usize) -> Result<Vec<ArrayRef>> {
        let scan = &self.keyed.scan;
        let of_scan = self.bindings.scans.get(scan.ordinal as usize);
        match (scan.sharding, of_scan) {
            // The gateway has chosen the shard of the only key.
            (Some(sharding), Some(of_scan))
                if sharding.key_column as usize == column && (keys.len() > 1 || places > 1) =>
            {
                divide(keys, &of_scan.shards, sharding.shards)
            }
            _ => Ok(vec![Arc::clone(keys); places]),
        }
    }

    /// Returns the rows with the keys of each shard, with the columns of the scan. If rows expire,
    /// a further column has their times; returns its position.
    async fn rows_with(
        &self,
        visible: &[VisibleRows],
        key_column: usize,
        keys: &[ArrayRef],
    ) -> std::result::Result<(RecordBatch, Option<(Cutoff, usize)>), Refusal> {
        let table_schema = &self.keyed.table_schema;
        let mut columns: Vec<usize> = self
            .keyed
            .scan
            .projection
            .iter()
            .map(|it| *it as usize)
            .collect();
        let mut schema = Arc::clone(&self.keyed.scanned_schema);
        let expiry = self.keyed.scan.expiry.as_ref();
        let cutoff = expiry.and_then(|it| Cutoff::at(self.bindings.as_of_us, it, table_schema));
        let cutoff = cutoff.map(|cutoff| {
            let position = columns.iter().position(|it| *it == cutoff.column());
            let position = position.unwrap_or_else(|| {
                columns.push(cutoff.column());
                let fields = schema.fields().iter().cloned();
                let time = Arc::new(table_schema.field(cutoff.column()).clone());
                schema = Arc::new(Schema::new(fields.chain([time]).collect::<Vec<_>>()));
                columns.len() - 1
            });
            (cutoff, position)
        });
        let lookup = Lookup {
            cache: self.parts.cache,
            runtime_env: &self.parts.task.runtime_env(),
            table_schema,
            key_column,
            keys,
            columns: &columns,
        };
        Ok((lookup.collect(visible, &schema).await?, cutoff))
    }

    /// Applies the conditions besides the one that the rows were found by, one after another. A row
    /// that one condition excludes is not passed to the next, which may fail for that row.
    fn filter(
        &self,
        mut rows: RecordBatch,
        done: usize,
        cutoff: Option<(Cutoff, usize)>,
    ) -> Result<RecordBatch> {
        let schema = rows.schema();
        if let Some((cutoff, position)) = cutoff {
            rows = batch_filter(&rows, &cutoff.condition(&schema, position)?)?;
        }
        for (number, condition) in self.keyed.conditions.iter().enumerate() {
            if number != done && rows.num_rows() > 0 {
                let (values, task) = (&self.bindings.values, self.parts.task);
                let condition = decode_expression(condition, &schema, values, task)?;
                rows = batch_filter(&rows, &condition)?;
            }
        }
        Ok(rows)
    }

    /// Returns the columns that the fragment returns.
    fn project(&self, rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let filtered = rows.project(&self.keyed.columns).map_err(internal)?;
        let columns = match &self.keyed.outputs {
            None => filtered.columns().to_vec(),
            Some(outputs) => {
                let outputs = outputs.iter().map(|output| self.output(output, &filtered));
                outputs.collect::<Result<_>>()?
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(internal)
    }

    fn output(&self, output: &Output, rows: &RecordBatch) -> Result<ArrayRef> {
        match output {
            Output::Column(column) => {
                let column = rows.columns().get(*column);
                column
                    .cloned()
                    .ok_or_else(|| Error::invalid("a projection has no such column"))
            }
            Output::Expression(expression) => {
                let (values, task) = (&self.bindings.values, self.parts.task);
                let expression = decode_expression(expression, &rows.schema(), values, task)?;
                let values = expression.evaluate(rows)?;
                Ok(values.into_array(rows.num_rows())?)
            }
        }
    }
}

fn internal(source: arrow::error::ArrowError) -> Error {
    Error::from(datafusion::error::DataFusionError::from(source))
}

/// Encodes rows as the ordinary way of running a fragment does. The first message is the schema.
fn encode(
    keyed: &KeyedFragment,
    rows: RecordBatch,
    announced: &Bytes,
    batch_bytes: usize,
) -> Result<Vec<FlightData>> {
    let SchemaMessage {
        schema, message, ..
    } = keyed.schema_message(announced, || {
        let schema = match &announced[..] {
            [] => rows.schema(),
            encoded => Arc::new(ipc::schema_from_bytes(encoded)?),
        };
        Ok::<_, Error>(SchemaMessage {
            announced: announced.clone(),
            message: schema_message(Arc::clone(&schema))?,
            schema,
        })
    })?;
    let mut messages = vec![message];
    if rows.num_rows() == 0 {
        return Ok(messages);
    }
    let is_converted = !announced.is_empty();
    let rows = if is_converted {
        convert_batch(&rows, &schema)?
    } else {
        rows
    };
    // Most answers are one message.
    let batches = if used_bytes(&rows) <= batch_bytes.min(MOST_BYTES) {
        vec![compact(rows).map_err(internal)?]
    } else {
        cut(rows, &schema, is_converted, batch_bytes)?
    };
    for batch in &batches {
        messages.push(row_message(batch)?);
    }
    Ok(messages)
}

/// Cuts rows into batches, as the ordinary way of running a fragment does.
fn cut(
    rows: RecordBatch,
    schema: &SchemaRef,
    is_converted: bool,
    batch_bytes: usize,
) -> Result<Vec<RecordBatch>> {
    let schema = Arc::clone(schema);
    let rows = stream::iter([Ok(rows)]);
    // Rows that are in memory are cut without waiting.
    let cut = if is_converted {
        let cut = client_rows(rows, schema, batch_bytes);
        cut.try_collect::<Vec<_>>().now_or_never()
    } else {
        let cut = CoalesceBytes::new(reserve_outgoing(rows), schema, batch_bytes);
        cut.map_err(Error::from)
            .try_collect::<Vec<_>>()
            .now_or_never()
    };
    cut.unwrap_or_else(|| Err(Error::internal("rows in memory were not ready")))
}
