use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use moka::policy::EvictionPolicy;
use tokio::sync::{Mutex, MutexGuard};
use volary_node::metrics::Counter;

use super::segment_index::{Bloom, SegmentIndex};
use crate::memory_cache::{DecodedMemory, MemoryCache};

/// Number of row groups that can be decoded at the same time, at most.
const DECODING_LOCKS: usize = 16;

/// The part of a segment that an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// Number of the segment's file.
    pub(super) file: u64,
    pub(super) kind: PartKind,
}

/// A kind of [`Part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PartKind {
    /// The row groups of the segment, and their bounds.
    Index,
    /// The bloom filter of the sorted column of a row group.
    Bloom { group: u32 },
    /// The decoded columns of a row group. They are one entry, because finding an entry takes about
    /// as long as finding a key in a column.
    Columns { group: u32 },
}

/// The decoded columns of a row group, with their positions in the table.
pub(super) type GroupColumns = Arc<[(u32, ArrayRef)]>;

/// What is kept of a part.
#[derive(Debug, Clone)]
enum Entry {
    Index(Arc<SegmentIndex>),
    Bloom(Bloom),
    Columns(GroupColumns),
}

/// Keeps decoded parts of segments within a memory budget. It forgets what was not used for the
/// longest time.
#[derive(Debug)]
pub struct LookupCache {
    entries: MemoryCache<Part, Entry>,
    /// Locks for row groups whose columns are being decoded. Several row groups share a lock.
    decoding: [Mutex<()>; DECODING_LOCKS],
    /// Counts of what lookups found and did.
    pub(crate) totals: LookupTotals,
}

/// Totals of the lookups of a worker, for its metrics.
#[derive(Debug, Default)]
pub(crate) struct LookupTotals {
    /// Fragments that were answered from decoded columns.
    pub(crate) answered: Counter,
    /// Fragments that asked for keys whose rows were not worth decoding yet.
    pub(crate) cold: Counter,
    /// Fragments that asked for keys and could not be answered for another reason.
    pub(crate) unfit: Counter,
    /// Columns of row groups that were needed and kept.
    pub(crate) hits: Counter,
    /// Columns of row groups that were needed and decoded.
    pub(crate) misses: Counter,
    /// Keys that were looked up.
    pub(crate) keys: Counter,
}

impl LookupCache {
    /// Creates a cache in the part of this memory that is for lookups.
    pub fn new(memory: DecodedMemory) -> Self {
        let capacity_bytes = memory.bytes_for_lookups();
        Self {
            entries: MemoryCache::new(capacity_bytes, memory, EvictionPolicy::lru()),
            decoding: std::array::from_fn(|_| Mutex::new(())),
            totals: LookupTotals::default(),
        }
    }

    /// Returns the memory that is held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.entries.held_bytes()
    }

    /// Returns the memory that the cache has a part of.
    pub(crate) fn memory(&self) -> &DecodedMemory {
        self.entries.memory()
    }

    pub(super) fn index(&self, file: u64) -> Option<Arc<SegmentIndex>> {
        let kind = PartKind::Index;
        match self.entries.get(&Part { file, kind })? {
            Entry::Index(index) => Some(index),
            _ => None,
        }
    }

    pub(super) fn bloom(&self, file: u64, group: u32) -> Option<Bloom> {
        let kind = PartKind::Bloom { group };
        match self.entries.get(&Part { file, kind })? {
            Entry::Bloom(filter) => Some(filter),
            _ => None,
        }
    }

    /// Returns the columns of a row group that are decoded.
    pub(super) fn columns(&self, file: u64, group: u32) -> Option<GroupColumns> {
        let kind = PartKind::Columns { group };
        match self.entries.get(&Part { file, kind })? {
            Entry::Columns(columns) => Some(columns),
            _ => None,
        }
    }

    pub(super) fn keep_index(&self, file: u64, index: &Arc<SegmentIndex>) {
        let kind = PartKind::Index;
        self.entries.keep(
            Part { file, kind },
            Entry::Index(Arc::clone(index)),
            index.bytes(),
        );
    }

    pub(super) fn keep_bloom(&self, file: u64, group: u32, filter: &Bloom, bytes: usize) {
        let kind = PartKind::Bloom { group };
        let entry = Entry::Bloom(Arc::clone(filter));
        self.entries.keep(Part { file, kind }, entry, bytes);
    }

    /// Waits until nobody else decodes columns of a row group. Whoever gets the lock looks first
    /// whether the column has been decoded meanwhile: many who ask for the same rows at once would
    /// otherwise decode the same columns, each for itself.
    pub(super) async fn lock(&self, file: u64, group: u32) -> MutexGuard<'_, ()> {
        let lock = (file ^ u64::from(group)) as usize % DECODING_LOCKS;
        self.decoding[lock].lock().await
    }

    /// Keeps a column of a row group beside those that are kept already. The caller must hold the
    /// [lock](Self::lock) of the row group.
    pub(super) fn keep_column(&self, file: u64, group: u32, column: u32, values: &ArrayRef) {
        let kind = PartKind::Columns { group };
        let kept = self.columns(file, group);
        let others = kept.iter().flat_map(|columns| columns.iter());
        let others = others.filter(|(other, _)| *other != column).cloned();
        let columns: GroupColumns = others.chain([(column, Arc::clone(values))]).collect();
        let bytes = columns
            .iter()
            .map(|(_, values)| values.get_array_memory_size())
            .sum();
        let entry = Entry::Columns(columns);
        self.entries.keep(Part { file, kind }, entry, bytes);
    }

    /// Returns whether something of about this size can be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.entries.has_room(bytes)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::*;

    const COLUMN_BYTES: usize = 8_000;

    fn column(file: u64) -> ArrayRef {
        Arc::new(Int64Array::from(vec![file as i64; COLUMN_BYTES / 8]))
    }

    fn cache(budget_bytes: usize, limit_bytes: usize) -> (LookupCache, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit_bytes));
        let memory = DecodedMemory::new(budget_bytes, limit_bytes, &pool);
        (LookupCache::new(memory), pool)
    }

    #[test]
    fn what_is_kept_stays_within_the_budget_and_is_reserved_in_the_pool() {
        let (cache, pool) = cache(100_000, 1 << 20);
        for file in 0..50 {
            cache.keep_column(file, 0, 1, &column(file));
            assert!(cache.held_bytes() <= 100_000);
            assert_eq!(cache.held_bytes(), pool.reserved());
        }
        assert_eq!(cache.memory().reserved_by_others(), 0);
        let kept: Vec<u64> = (0..50)
            .filter(|file| cache.columns(*file, 0).is_some())
            .collect();
        assert!(kept.len() > 8, "{kept:?}");
        // The cache keeps the columns that were used last.
        assert_eq!(kept.last(), Some(&49));
        assert!(!kept.contains(&0));
        // What is put in the place of another one is counted once.
        cache.keep_column(49, 0, 1, &column(49));
        assert_eq!(cache.held_bytes(), pool.reserved());
        // So are the columns of one row group.
        cache.keep_column(49, 0, 2, &column(7));
        let columns = cache.columns(49, 0).unwrap();
        let numbers: Vec<u32> = columns.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(columns[1].1.as_ref(), column(7).as_ref());
        assert_eq!(cache.held_bytes(), pool.reserved());
        assert!(cache.held_bytes() <= 100_000);
        drop(cache);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn nothing_is_kept_without_memory() {
        let (small, _) = cache(1_000, 1 << 20);
        assert!(!small.has_room(COLUMN_BYTES));
        small.keep_column(1, 0, 1, &column(1));
        assert_eq!(small.held_bytes(), 0);
        let (cache, pool) = cache(100_000, 100_000);
        let query = MemoryConsumer::new("query").register(&pool);
        query.try_grow(70_000).unwrap();
        assert!(cache.has_room(COLUMN_BYTES));
        query.try_grow(10_000).unwrap();
        assert!(!cache.has_room(COLUMN_BYTES));
        cache.keep_column(1, 0, 1, &column(1));
        assert!(cache.columns(1, 0).is_none());
        assert_eq!(
            (cache.memory().reserved_by_others(), pool.reserved()),
            (80_000, 80_000)
        );
    }
}
