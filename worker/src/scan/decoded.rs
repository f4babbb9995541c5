use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use moka::policy::EvictionPolicy;

use crate::memory_cache::{DecodedMemory, MemoryCache};

/// Decoded columns of a segment, with their positions in the table.
type Columns = Arc<[(usize, ArrayRef)]>;

/// Keeps the columns of tiny segments, so that a small table is not decoded by each query.
#[derive(Debug)]
pub struct DecodedSegments(MemoryCache<u64, Columns>);

impl DecodedSegments {
    /// Creates a cache in the part of this memory that is for scans.
    pub fn new(memory: DecodedMemory) -> Self {
        // One scan of thousands of segments must not displace what many queries read.
        let policy = EvictionPolicy::tiny_lfu();
        Self(MemoryCache::new(memory.bytes_for_scans(), memory, policy))
    }

    /// Returns the memory that is held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    /// Returns these columns of a segment as one batch with this schema, if all of them are kept.
    /// `file` is the number of the segment's file.
    pub(super) fn batch(
        &self,
        file: u64,
        columns: &[usize],
        schema: &SchemaRef,
    ) -> Option<RecordBatch> {
        // The number of rows is not known without a column.
        if columns.is_empty() {
            return None;
        }
        let kept = self.0.get(&file)?;
        let column = |wanted: &usize| {
            let mut kept = kept.iter();
            let found = kept.find(|(position, _)| position == wanted)?;
            Some(Arc::clone(&found.1))
        };
        let arrays = columns.iter().map(column).collect::<Option<_>>()?;
        RecordBatch::try_new(Arc::clone(schema), arrays).ok()
    }

    /// Keeps columns of a segment beside those that are kept already. `batch` has all rows of the
    /// segment, with the columns at these positions of the table.
    pub(super) fn keep(&self, file: u64, columns: &[usize], batch: &RecordBatch) {
        if columns.is_empty() {
            return;
        }
        let kept = self.0.get(&file);
        let others = kept.iter().flat_map(|columns| columns.iter());
        let others = others.filter(|(position, _)| !columns.contains(position));
        let new = columns.iter().copied().zip(batch.columns().iter().cloned());
        let columns: Columns = others.cloned().chain(new).collect();
        let sizes = columns.iter();
        let bytes = sizes.map(|(_, values)| values.get_array_memory_size());
        let bytes = bytes.sum();
        self.0.keep(file, columns, bytes);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::*;

    fn schema(columns: &[usize]) -> SchemaRef {
        let fields = columns.iter();
        let fields = fields.map(|column| Field::new(format!("c{column}"), DataType::Int64, false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// A batch in which each value names its segment and its column.
    fn batch(file: u64, columns: &[usize]) -> RecordBatch {
        let values = |column: &usize| -> ArrayRef {
            let value = file as i64 * 100 + *column as i64;
            Arc::new(Int64Array::from(vec![value; 1_000]))
        };
        RecordBatch::try_new(schema(columns), columns.iter().map(values).collect()).unwrap()
    }

    #[test]
    fn a_segment_is_found_if_all_columns_are_kept() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let decoded = DecodedSegments::new(DecodedMemory::new(8 << 20, 1 << 30, &pool));
        let find = |file, columns: &[usize]| decoded.batch(file, columns, &schema(columns));
        assert_eq!(find(1, &[0]), None);
        decoded.keep(1, &[0, 2], &batch(1, &[0, 2]));
        decoded.keep(2, &[0], &batch(2, &[0]));
        assert_eq!(find(1, &[0, 2]), Some(batch(1, &[0, 2])));
        assert_eq!(find(1, &[2]), Some(batch(1, &[2])));
        assert_eq!(find(1, &[0, 1]), None);
        assert_eq!(find(2, &[0]), Some(batch(2, &[0])));
        assert_eq!(find(2, &[0, 2]), None);
        decoded.keep(1, &[0, 1], &batch(1, &[0, 1]));
        assert_eq!(find(1, &[0, 1, 2]), Some(batch(1, &[0, 1, 2])));
        // Without columns, the number of rows would not be known.
        assert_eq!(find(1, &[]), None);
        // A column of another type is not taken for this one.
        let texts = Arc::new(Schema::new(vec![Field::new("c0", DataType::Utf8, false)]));
        assert_eq!(decoded.batch(1, &[0], &texts), None);
    }

    #[test]
    fn what_is_kept_stays_within_its_share_of_the_budget() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let memory = DecodedMemory::new(800_000, 1 << 30, &pool);
        let decoded = DecodedSegments::new(memory);
        for _ in 0..3 {
            for file in 0..100 {
                decoded.keep(file, &[0], &batch(file, &[0]));
                assert!(pool.reserved() <= 100_000);
            }
        }
        let kept = (0..100).filter(|file| decoded.batch(*file, &[0], &schema(&[0])).is_some());
        assert!(kept.count() > 8);
        drop(decoded);
        assert_eq!(pool.reserved(), 0);
    }
}
