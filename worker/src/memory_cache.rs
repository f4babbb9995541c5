use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

/// Estimated memory of an entry besides its content, in bytes.
const ENTRY_BYTES: usize = 256;
/// Share of the memory of all fragments, in percent, above which nothing more is kept. So caches
/// never take the last memory that queries need.
const MAX_POOL_USE_PERCENT: usize = 80;

/// Number of equal parts of the memory for decoded columns. Scans have one of them.
const PARTS: usize = 8;

/// The part of a worker's memory in which decoded columns are kept. It is reserved in the pool that
/// fragments use.
#[derive(Debug, Clone)]
pub struct DecodedMemory {
    budget_bytes: usize,
    pool: Arc<dyn MemoryPool>,
    limit_bytes: usize,
    reservation: Arc<MemoryReservation>,
}

impl DecodedMemory {
    /// Creates a budget of `budget_bytes` bytes, which are part of the `limit_bytes` bytes of the
    /// pool.
    pub fn new(budget_bytes: usize, limit_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Self {
        let consumer = MemoryConsumer::new("decoded columns");
        Self {
            budget_bytes,
            pool: Arc::clone(pool),
            limit_bytes,
            reservation: Arc::new(consumer.register(pool)),
        }
    }

    /// Returns the memory that may be held for lookups, in bytes.
    pub(crate) fn bytes_for_lookups(&self) -> usize {
        self.budget_bytes - self.bytes_for_scans()
    }

    /// Returns the memory that may be held for scans, in bytes.
    pub(crate) fn bytes_for_scans(&self) -> usize {
        self.budget_bytes / PARTS
    }

    /// Returns the memory that is held, in bytes.
    fn held_bytes(&self) -> usize {
        self.reservation.size()
    }

    /// Returns the memory that fragments and writes hold of the pool, in bytes. What is kept here
    /// is not theirs.
    pub(crate) fn reserved_by_others(&self) -> usize {
        self.pool.reserved().saturating_sub(self.held_bytes())
    }

    /// Returns whether queries leave room for something of this size.
    fn has_room(&self, bytes: usize) -> bool {
        let most = self.limit_bytes / 100 * MAX_POOL_USE_PERCENT;
        // What is kept already makes room.
        let held_then = self.held_bytes().saturating_add(bytes);
        let held_then = held_then.min(self.budget_bytes);
        self.reserved_by_others().saturating_add(held_then) <= most
    }
}

/// A cache whose entries are kept within a share of a [`DecodedMemory`].
pub(crate) struct MemoryCache<K, V> {
    entries: Cache<K, (V, u32)>,
    capacity_bytes: usize,
    memory: DecodedMemory,
}

impl<K, V> fmt::Debug for MemoryCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

impl<K, V> MemoryCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates a cache of at most `capacity_bytes` bytes. `policy` says what makes room for new
    /// entries.
    pub(crate) fn new(
        capacity_bytes: usize,
        memory: DecodedMemory,
        policy: EvictionPolicy,
    ) -> Self {
        let released = Arc::clone(&memory.reservation);
        let entries = Cache::builder()
            .max_capacity(capacity_bytes as u64)
            .weigher(|_, (_, bytes): &(V, u32)| *bytes)
            .eviction_policy(policy)
            .eviction_listener(move |_, (_, bytes), _| released.shrink(bytes as usize))
            .build();
        Self {
            entries,
            capacity_bytes,
            memory,
        }
    }

    /// Returns the budget that the cache belongs to.
    pub(crate) fn memory(&self) -> &DecodedMemory {
        &self.memory
    }

    /// Returns the memory that the cache holds, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        usize::try_from(self.entries.weighted_size()).unwrap_or(usize::MAX)
    }

    /// Returns an entry, if it is kept.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Returns whether something of about this size can be kept.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes.saturating_add(ENTRY_BYTES) <= self.capacity_bytes && self.memory.has_room(bytes)
    }

    /// Keeps something of this size, unless there is no memory for it.
    pub(crate) fn keep(&self, key: K, value: V, bytes: usize) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        let Ok(weight) = u32::try_from(bytes) else {
            return;
        };
        if !self.has_room(bytes) || self.memory.reservation.try_grow(bytes).is_err() {
            return;
        }
        self.entries.insert(key, (value, weight));
        // Otherwise, evicted entries would keep their memory until somebody uses the cache again.
        // Decoding takes much longer than this.
        self.entries.run_pending_tasks();
    }
}
