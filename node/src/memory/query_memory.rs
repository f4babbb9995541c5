//! A single limit for all queries of a node would let one query take the memory that the others
//! need. Here each query divides its own memory among its spilling operators, as DataFusion's fair
//! pool does. The query takes memory from the node only when its operators need it.
//!
//! The fair pool lets a query exceed its limit for a while. An operator that starts gets its share
//! at once, and operators that had more keep it until they spill. The memory above the limit is not
//! taken from the node's memory: otherwise a query that runs alone could fail.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, TrackConsumersPool,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;

use super::NAMED_CONSUMERS;
use super::process_limited_pool::ProcessLimitedPool;
use crate::size::MemorySize;

/// A limit on memory, and the setting that sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteLimit {
    /// The limit in bytes.
    pub bytes: usize,
    /// Name of the setting that sets the limit.
    pub setting: &'static str,
}

impl ByteLimit {
    /// Returns the lower one of two limits, or `self` if they are equal.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.bytes < self.bytes {
            other
        } else {
            self
        }
    }
}

impl fmt::Display for ByteLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = MemorySize::from(self.bytes);
        write!(f, "{size} ({})", self.setting)
    }
}

/// The memory of a node whose queries have limits of their own.
#[derive(Debug)]
pub struct QueryMemory {
    env: Arc<RuntimeEnv>,
    node: Arc<NodeMemory>,
}

impl QueryMemory {
    /// Creates the memory. `env` is the node's environment, whose own memory pool is not used.
    /// `limit` is the limit of all queries together.
    pub fn new(env: Arc<RuntimeEnv>, limit: ByteLimit) -> Self {
        let node = NodeMemory {
            limit,
            taken_bytes: AtomicUsize::new(0),
        };
        Self {
            env,
            node: Arc::new(node),
        }
    }

    /// Returns the node's environment for one query. When the query's operators end, their memory
    /// returns to the node.
    pub fn env(&self, limit: ByteLimit) -> Arc<RuntimeEnv> {
        let query = QueryPool {
            limit,
            fair: FairSpillPool::new(limit.bytes),
            held_bytes: Mutex::new(0),
            node: Arc::clone(&self.node),
        };
        let mut env = RuntimeEnv::clone(&self.env);
        let pool = ProcessLimitedPool::of_query(query);
        env.memory_pool = Arc::new(TrackConsumersPool::new(pool, NAMED_CONSUMERS));
        Arc::new(env)
    }
}

/// The memory that all queries hold together. Queries take from it on a first-come, first-served
/// basis.
#[derive(Debug)]
struct NodeMemory {
    limit: ByteLimit,
    taken_bytes: AtomicUsize,
}

impl NodeMemory {
    /// Takes this many bytes. If there are fewer, takes none and returns the number of free bytes.
    fn try_take(&self, bytes: usize) -> Result<(), usize> {
        let mut taken = self.taken_bytes.load(Ordering::Relaxed);
        loop {
            let more = taken.saturating_add(bytes);
            if more > self.limit.bytes {
                return Err(self.limit.bytes.saturating_sub(taken));
            }
            match self.taken_bytes.compare_exchange_weak(
                taken,
                more,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => taken = now,
            }
        }
    }
}

/// The memory of one query.
#[derive(Debug)]
struct QueryPool {
    limit: ByteLimit,
    fair: FairSpillPool,
    /// Bytes that all operators of the query hold.
    held_bytes: Mutex<usize>,
    node: Arc<NodeMemory>,
}

impl QueryPool {
    /// Returns the bytes that a query takes from the node's memory if its operators hold `held`
    /// bytes.
    fn node_bytes(&self, held: usize) -> usize {
        held.min(self.limit.bytes)
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        "query"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.fair.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.fair.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.fair.grow(reservation, additional);
        let mut held = self.held_bytes.lock();
        let before = self.node_bytes(*held);
        *held += additional;
        let taken = self.node_bytes(*held) - before;
        self.node.taken_bytes.fetch_add(taken, Ordering::Relaxed);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.fair.shrink(reservation, shrink);
        let mut held = self.held_bytes.lock();
        let before = self.node_bytes(*held);
        *held -= shrink;
        let returned = before - self.node_bytes(*held);
        self.node.taken_bytes.fetch_sub(returned, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.fair
            .try_grow(reservation, additional)
            .map_err(|error| match error {
                DataFusionError::ResourcesExhausted(text) => DataFusionError::ResourcesExhausted(
                    format!("the query may hold {}: {text}", self.limit),
                ),
                other => other,
            })?;
        let mut held = self.held_bytes.lock();
        let taken = self.node_bytes(*held + additional) - self.node_bytes(*held);
        match self.node.try_take(taken) {
            Ok(()) => {
                *held += additional;
                Ok(())
            }
            Err(free) => {
                self.fair.shrink(reservation, additional);
                Err(DataFusionError::ResourcesExhausted(format!(
                    "all queries of the node together may hold {}, of which {} is free: {} needs {} more",
                    self.node.limit,
                    MemorySize::from(free),
                    reservation.consumer().name(),
                    MemorySize::from(additional),
                )))
            }
        }
    }

    /// Returns the bytes that this query holds.
    fn reserved(&self) -> usize {
        *self.held_bytes.lock()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit.bytes)
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(limit: {})", self.name(), self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: ByteLimit = ByteLimit {
        bytes: 100,
        setting: "node.memory",
    };
    const QUERY: ByteLimit = ByteLimit {
        bytes: 60,
        setting: "query.memory",
    };

    fn memory() -> QueryMemory {
        QueryMemory::new(Arc::new(RuntimeEnv::default()), NODE)
    }

    fn taken(memory: &QueryMemory) -> usize {
        memory.node.taken_bytes.load(Ordering::Relaxed)
    }

    fn pool(memory: &QueryMemory) -> Arc<dyn MemoryPool> {
        Arc::clone(&memory.env(QUERY).memory_pool)
    }

    fn consumer(name: &str, pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
        MemoryConsumer::new(name).register(pool)
    }

    fn spilling(name: &str, pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
        MemoryConsumer::new(name)
            .with_can_spill(true)
            .register(pool)
    }

    fn refused(reservation: &MemoryReservation, bytes: usize) -> String {
        let error = reservation.try_grow(bytes).unwrap_err();
        assert!(matches!(error, DataFusionError::ResourcesExhausted(_)));
        error.to_string()
    }

    #[test]
    fn a_query_holds_no_more_than_its_limit_and_all_no_more_than_the_nodes() {
        let memory = memory();
        let pools = [pool(&memory), pool(&memory)];
        let (join, other) = (consumer("Join", &pools[0]), consumer("Other", &pools[1]));
        join.try_grow(60).unwrap();
        let said = refused(&join, 1);
        assert!(said.contains("may hold 60 B (query.memory)"), "{said}");
        // The error names the largest consumer.
        assert!(
            said.contains("Join#") && said.contains("consumed 60"),
            "{said}"
        );
        other.try_grow(40).unwrap();
        let said = refused(&other, 5);
        assert!(
            said.contains("may hold 100 B (node.memory), of which 0 B is free: Other needs 5 B"),
            "{said}"
        );
        assert_eq!((pools[0].reserved(), pools[1].reserved()), (60, 40));
        assert_eq!(taken(&memory), 100);
        drop(join);
        // The bytes that the node has refused are not held by the query either.
        other.try_grow(20).unwrap();
        refused(&other, 1);
        assert_eq!((pools[0].reserved(), pools[1].reserved()), (0, 60));
        drop(other);
        assert_eq!(taken(&memory), 0);
    }

    #[test]
    fn a_query_divides_its_memory_among_those_who_spill() {
        let memory = memory();
        let (pool, another) = (pool(&memory), pool(&memory));
        let (first, second) = (spilling("Sort[0]", &pool), spilling("Sort[1]", &pool));
        // The operators of another query do not count.
        let _others = [spilling("Sort", &another), spilling("Sort", &another)];
        first.try_grow(30).unwrap();
        refused(&first, 1);
        second.try_grow(30).unwrap();
        second.shrink(20);
        let table = consumer("Join", &pool);
        table.try_grow(20).unwrap();
        refused(&second, 11);
        second.try_grow(10).unwrap();
        drop((first, second));
        table.try_grow(40).unwrap();
        drop(table);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_may_not_be_refused_counts_up_to_the_limit_and_returns_in_any_order() {
        let memory = memory();
        let pool = pool(&memory);
        let whole = consumer("Window", &pool);
        whole.grow(150);
        assert_eq!((pool.reserved(), taken(&memory)), (150, 60));
        refused(&whole, 1);
        let part = whole.split(50);
        drop(whole);
        assert_eq!(pool.reserved(), 50);
        drop(pool);
        drop(part);
        assert_eq!(taken(&memory), 0);
    }

    #[test]
    fn an_operator_that_starts_late_gets_its_share_also_when_the_query_has_all_of_the_nodes_memory()
    {
        let memory = memory();
        let pool = Arc::clone(&memory.env(NODE).memory_pool);
        let early = spilling("Sort[0]", &pool);
        early.try_grow(100).unwrap();
        let late = spilling("Sort[1]", &pool);
        late.try_grow(50).unwrap();
        refused(&late, 1);
        early.free();
        assert_eq!(pool.reserved(), 50);
        drop(late);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn the_lower_limit_counts() {
        assert_eq!(NODE.min(QUERY), QUERY);
        assert_eq!(QUERY.min(NODE), QUERY);
        assert_eq!(QUERY.to_string(), "60 B (query.memory)");
    }
}
