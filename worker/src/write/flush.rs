use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::kill_point;

use super::WriteContext;
use super::layout::WriteLayout;
use crate::background::run_blocking;
use crate::segment::{ORDER, OpenSegment, SegmentProperties};
use crate::storage::{Segment, Storage, UnflushedShard};

/// Makes segments of rows of a table that are in the log only, and that the snapshot sees, one for
/// each shard.
///
/// # Errors
/// Returns `NOT_FOUND` if the table was dropped, `RESOURCE_EXHAUSTED` if the disk is full, and the
/// errors of the file system. The rows then stay in the log.
pub(crate) async fn flush(
    context: &WriteContext,
    table: TableId,
    committed: &Snapshot,
) -> Result<()> {
    let _turn = context.storage.flush_turn().await;
    let Some(unflushed) = context.storage.unflushed(table, committed)? else {
        return Ok(());
    };
    let layout = Arc::new(WriteLayout::new(&unflushed.table)?);
    let writes = unflushed.shards.iter().map(|shard| shard.writes().len());
    let properties = SegmentProperties::of_several_writes(
        layout.schema(),
        layout.shard_key(),
        layout.sort_key(),
        &context.config,
        writes.max().unwrap_or_default(),
    );
    let name = unflushed.table.name;
    let in_table = |error: Error| error.at(format!("table {name}"));
    let properties = Arc::new(properties.map_err(in_table)?);
    let mut segments = Vec::new();
    for shard in unflushed.shards {
        let storage = context.storage.clone();
        let (layout, properties) = (Arc::clone(&layout), Arc::clone(&properties));
        let making = move || make_segment(&storage, &layout, &properties, &shard);
        segments.push(run_blocking(making).await.map_err(in_table)?);
    }
    let flushed_bytes: u64 = segments.iter().map(Segment::bytes).sum();
    let storage = context.storage.clone();
    kill_point("flush.before_store");
    run_blocking(move || storage.replace_logged(table, segments)).await?;
    kill_point("flush.after_store");
    context.totals.flushed_bytes.inc_by(flushed_bytes);
    Ok(())
}

fn make_segment(
    storage: &Storage,
    layout: &WriteLayout,
    properties: &SegmentProperties,
    shard: &UnflushedShard,
) -> Result<Segment> {
    let writes = shard.writes();
    let last = writes.last().map_or(WriteId(0), |(write, _)| *write);
    let rows = sorted_rows(properties, layout.sort_key(), shard).map_err(|source| {
        Error::with_source(
            ErrorCode::Internal,
            "rows of the log cannot be sorted",
            source,
        )
    })?;
    let mut open = OpenSegment::create(storage, properties, layout.table(), shard.shard, last)?;
    open.append(&rows)?;
    let complete = open.finish()?;
    kill_point("flush.before_sync");
    let segment = complete.sync()?;
    kill_point("flush.after_sync");
    Ok(segment.with_writes(writes))
}

/// Returns the rows with their writes, sorted. Rows with equal keys stay in the order in which they
/// were written.
fn sorted_rows(
    properties: &SegmentProperties,
    sort_key: &[usize],
    shard: &UnflushedShard,
) -> Result<RecordBatch, ArrowError> {
    let stored = properties.schema();
    let batches = shard.batches().map(|(rows, writes)| {
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from(writes)) as ArrayRef);
        RecordBatch::try_new(Arc::clone(stored), columns)
    });
    let rows = concat_batches(stored, &batches.collect::<Result<Vec<_>, _>>()?)?;
    let fields = sort_key.iter().map(|column| {
        SortField::new_with_options(stored.field(*column).data_type().clone(), ORDER)
    });
    let fields: Vec<_> = fields.collect();
    if fields.is_empty() || !RowConverter::supports_fields(&fields) {
        return Ok(rows);
    }
    let keys: Vec<_> = sort_key
        .iter()
        .map(|column| Arc::clone(rows.column(*column)))
        .collect();
    let keys = RowConverter::new(fields)?.convert_columns(&keys)?;
    let count = u32::try_from(rows.num_rows()).unwrap_or(u32::MAX);
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_by_key(|row| keys.row(*row as usize));
    take_record_batch(&rows, &UInt32Array::from(order))
}
