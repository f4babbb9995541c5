//! Each shard of the rows in memory is sorted by itself, and every row is copied once.
//!
//! DataFusion's sort does not know that the shards are separate, or that rows often arrive in
//! order. It sorts every batch, copies it, and merges the copies with comparisons of all rows. It
//! also spills early, because for each column of strings it counts the whole message that the
//! strings came in. Here, a row is a position until it is written. Sorting positions is quick where
//! runs of them are in order already.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{DataType, UInt32Type};
use arrow::row::{Row, RowConverter, Rows, SortField};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use volary_flight_proto::Result;

use super::layout::{REFERENCE_SHARD, WriteLayout};
use crate::segment::ORDER;

/// Number of rows that are copied together. They are few enough that a file ends near the size that
/// it should have.
const COPIED_ROWS: usize = 8 * 1024;
/// Divisor of all memory. If the buffer needs more than the quotient, DataFusion's sort takes over,
/// which spills. That sort needs the rest of the memory to begin with.
const MEMORY_SHARE: usize = 2;
/// Memory that sorting needs for each row, in bytes: its position, its keyed position, and half a
/// keyed position for merging.
const POSITION_BYTES: usize = size_of::<Position>() + size_of::<KeyedPosition>() / 2 * 3;

/// The position of a row: the number of its batch, and the row in the batch.
type Position = (u32, u32);

/// The beginning of a row's key, and the row's position. The beginning decides most comparisons
/// without a look at the key.
type KeyedPosition = (u128, Position);

/// Rows that wait in memory until all rows have arrived.
#[derive(Debug)]
pub(super) struct Buffer {
    layout: Arc<WriteLayout>,
    converter: RowConverter,
    arrived: Arrived,
    limit_bytes: usize,
    /// The positions of the rows of each shard, in the order of their arrival.
    positions: BTreeMap<u32, Vec<Position>>,
}

/// The rows that have arrived, and the memory that they take.
#[derive(Debug)]
struct Arrived {
    batches: Vec<RecordBatch>,
    /// The sort keys of each batch's rows, as bytes that compare as the rows do.
    keys: Vec<Rows>,
    reservation: MemoryReservation,
}

impl Buffer {
    /// Creates an empty buffer. Returns `None` if the sort key has a type that cannot become bytes.
    pub(super) fn new(layout: &Arc<WriteLayout>, runtime_env: &RuntimeEnv) -> Result<Option<Self>> {
        let schema = layout.schema();
        let fields: Vec<_> = layout
            .sort_key()
            .iter()
            .map(|column| {
                SortField::new_with_options(schema.field(*column).data_type().clone(), ORDER)
            })
            .collect();
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        let pool = &runtime_env.memory_pool;
        let limit_bytes = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit / MEMORY_SHARE,
            _ => usize::MAX,
        };
        let arrived = Arrived {
            batches: Vec::new(),
            keys: Vec::new(),
            // The buffer counts as something that spills, because the sort that takes over does.
            reservation: MemoryConsumer::new("rows of a write")
                .with_can_spill(true)
                .register(pool),
        };
        Ok(Some(Self {
            layout: Arc::clone(layout),
            converter: RowConverter::new(fields).map_err(DataFusionError::from)?,
            arrived,
            limit_bytes,
            positions: BTreeMap::new(),
        }))
    }

    /// Takes checked rows. Returns false, and takes none, if there is no memory for them.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<bool> {
        let key_columns: Vec<_> = self
            .layout
            .sort_key()
            .iter()
            .map(|column| Arc::clone(batch.column(*column)))
            .collect();
        let keys = if key_columns.is_empty() {
            self.converter.empty_rows(0, 0)
        } else {
            let converted = self.converter.convert_columns(&key_columns);
            converted.map_err(DataFusionError::from)?
        };
        let bytes =
            get_record_batch_memory_size(batch) + keys.size() + batch.num_rows() * POSITION_BYTES;
        let arrived = &mut self.arrived;
        if arrived.reservation.size().saturating_add(bytes) > self.limit_bytes
            || arrived.reservation.try_grow(bytes).is_err()
        {
            return Ok(false);
        }
        // A message is never so small that 2³² of them could be in memory.
        let batch_number = u32::try_from(arrived.batches.len()).unwrap_or(u32::MAX);
        match self.layout.shard_column() {
            Some(column) => {
                let shards = batch.column(column).as_primitive::<UInt32Type>().values();
                for (row, shard) in (0..).zip(shards) {
                    let positions = self.positions.entry(*shard).or_default();
                    positions.push((batch_number, row));
                }
            }
            None => {
                let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
                let positions = self.positions.entry(REFERENCE_SHARD).or_default();
                positions.extend((0..rows).map(|row| (batch_number, row)));
            }
        }
        arrived.batches.push(batch.clone());
        arrived.keys.push(keys);
        Ok(true)
    }

    /// Returns the batches that were taken, for another sort. Their memory is not reserved any
    /// more: whoever takes the batches must reserve it.
    pub(super) fn into_batches(self) -> Vec<RecordBatch> {
        self.arrived.batches
    }

    /// Divides the rows into at most `count` parts of about equal size, which are written at the
    /// same time. Each shard is in one of them.
    pub(super) fn into_parts(mut self, count: usize) -> Result<Vec<ShardGroup>> {
        let columns: Vec<usize> = (0..self.layout.schema().fields().len()).collect();
        for batch in &mut self.arrived.batches {
            // The shard column is not written.
            *batch = batch.project(&columns).map_err(DataFusionError::from)?;
        }
        let arrived = Arc::new(self.arrived);
        let mut parts: Vec<_> = (0..count.max(1))
            .map(|_| ShardGroup {
                arrived: Arc::clone(&arrived),
                shards: Vec::new(),
                rows: 0,
                next: 0,
                current: None,
            })
            .collect();
        for (shard, positions) in self.positions {
            if let Some(part) = parts.iter_mut().min_by_key(|part| part.rows) {
                part.rows += positions.len();
                part.shards.push((shard, positions));
            }
        }
        for part in &mut parts {
            part.shards.reverse();
        }
        parts.retain(|part| part.rows > 0);
        Ok(parts)
    }
}

impl Arrived {
    fn sort_positions(&self, positions: Vec<Position>) -> Vec<Position> {
        let keyed = |position| (key_prefix(self.key(position).as_ref()), position);
        let mut keyed_positions: Vec<KeyedPosition> = positions.into_iter().map(keyed).collect();
        // A stable sort finds runs that are in order already. If rows arrive in order, there are
        // few runs.
        keyed_positions.sort_by(|(left_key, left), (right_key, right)| {
            let keys = left_key.cmp(right_key);
            keys.then_with(|| self.key(*left).cmp(&self.key(*right)))
        });
        keyed_positions
            .into_iter()
            .map(|(_, position)| position)
            .collect()
    }

    fn key(&self, (batch, row): Position) -> Row<'_> {
        self.keys[batch as usize].row(row as usize)
    }
}

/// Returns the first bytes of a key as a number. Such numbers compare as the bytes do.
fn key_prefix(key: &[u8]) -> u128 {
    let mut bytes = [0; size_of::<u128>()];
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

/// The rows of some shards.
#[derive(Debug)]
pub(super) struct ShardGroup {
    arrived: Arc<Arrived>,
    /// The shards with the positions of their rows. The last shard is written first.
    shards: Vec<(u32, Vec<Position>)>,
    rows: usize,
    /// Index of the next row of the current shard that is to be written.
    next: usize,
    current: Option<(u32, Vec<Position>)>,
}

impl ShardGroup {
    /// Returns the estimated size of the rows, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let arrived = self.arrived.batches.iter();
        let (bytes, rows) = arrived.fold((0, 0), |(bytes, rows), batch| {
            (
                bytes + get_record_batch_memory_size(batch),
                rows + batch.num_rows(),
            )
        });
        bytes * self.rows / rows.max(1)
    }

    /// Returns the types of the columns.
    pub(super) fn data_types(&self) -> Vec<DataType> {
        let first = self.arrived.batches.first();
        let fields = first
            .into_iter()
            .flat_map(|batch| batch.schema_ref().fields());
        fields.map(|field| field.data_type().clone()).collect()
    }

    /// Returns the next rows and their shard. Shards come in ascending order, and the rows of a
    /// shard are sorted. A shard is sorted when its first rows are requested.
    pub(super) fn next_rows(&mut self) -> Result<Option<(u32, RecordBatch)>> {
        if self.current.is_none() {
            let Some((shard, mut positions)) = self.shards.pop() else {
                return Ok(None);
            };
            if self.arrived.keys.iter().any(|keys| keys.num_rows() > 0) {
                positions = self.arrived.sort_positions(positions);
            }
            self.next = 0;
            self.current = Some((shard, positions));
        }
        let Some((shard, positions)) = &self.current else {
            return Ok(None);
        };
        let end = positions.len().min(self.next + COPIED_ROWS);
        let indices: Vec<_> = positions[self.next..end]
            .iter()
            .map(|(batch, row)| (*batch as usize, *row as usize))
            .collect();
        let batches: Vec<_> = self.arrived.batches.iter().collect();
        let rows = interleave_record_batch(&batches, &indices).map_err(DataFusionError::from)?;
        let (shard, is_last) = (*shard, end == positions.len());
        self.next = end;
        if is_last {
            self.current = None;
        }
        Ok(Some((shard, rows)))
    }
}
