use arrow::compute::concat_batches;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use volary_exec::batches::compact;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write::{ShardWritten, TableDescription};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::buffer::ShardGroup;
use super::segments::SegmentsWriter;
use crate::config::StorageConfig;
use crate::segment::to_stored_rows;
use crate::storage::{Segment, SmallWrite};

/// Returns whether rows are few enough for the log, and have types that it keeps.
pub(super) fn is_small(parts: &[ShardGroup], config: &StorageConfig) -> bool {
    let bytes: usize = parts.iter().map(ShardGroup::bytes).sum();
    let mut columns = parts.iter().flat_map(ShardGroup::data_types);
    bytes > 0
        && bytes <= config.logged_write.bytes()
        && !columns.any(|data_type| has_dictionary(&data_type))
}

fn has_dictionary(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => has_dictionary(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_dictionary(field.data_type())),
        _ => false,
    }
}

/// Returns the rows of all parts, by ascending shard.
pub(super) fn collect(
    parts: Vec<ShardGroup>,
    table: TableDescription,
    write: WriteId,
    incarnation: u32,
) -> Result<SmallWrite> {
    let mut by_shard = Vec::new();
    for mut part in parts {
        while let Some(rows) = part.next_rows()? {
            by_shard.push(rows);
        }
    }
    // The sort is stable: the rows of a shard stay in their order.
    by_shard.sort_by_key(|(shard, _)| *shard);
    let mut shards: Vec<(u32, usize)> = Vec::new();
    for (shard, rows) in &by_shard {
        match shards.last_mut() {
            Some((last, count)) if last == shard => *count += rows.num_rows(),
            _ => shards.push((*shard, rows.num_rows())),
        }
    }
    let Some((_, first)) = by_shard.first() else {
        return Err(Error::internal("a small write has no rows"));
    };
    let rows = concat_batches(first.schema_ref(), by_shard.iter().map(|(_, rows)| rows));
    // Texts of the rows of other shards would be logged with each shard.
    let rows = rows
        .and_then(compact)
        .and_then(|rows| to_stored_rows(&rows))
        .map_err(internal)?;
    Ok(SmallWrite {
        table,
        write,
        incarnation,
        shards,
        rows,
    })
}

/// Returns what the catalog learns of rows in the log.
pub(super) fn summary(small: &SmallWrite) -> Vec<ShardWritten> {
    let bytes = small.rows.get_array_memory_size() as u64;
    let all = (small.rows.num_rows() as u64).max(1);
    let shards = small.shards.iter().map(|(shard, rows)| ShardWritten {
        shard: *shard,
        rows: *rows as u64,
        bytes: bytes * *rows as u64 / all,
        segments: 0,
    });
    shards.collect()
}

/// Makes segments of rows for which the log has no room.
pub(super) async fn write_segments(
    small: SmallWrite,
    mut writer: SegmentsWriter,
) -> Result<Vec<Segment>> {
    let mut start = 0;
    for (shard, rows) in small.shards {
        writer.append(shard, &small.rows.slice(start, rows)).await?;
        start += rows;
    }
    writer.finish().await
}

fn internal(source: ArrowError) -> Error {
    Error::with_source(ErrorCode::Internal, "rows cannot be put together", source)
}
