use std::fmt;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use super::process::{Allowance, ProcessMemory};

/// Bytes that an operator may hold in any case, so that small queries do not fail because of large
/// ones.
const SMALL_BYTES: usize = 1 << 20;

/// Wraps a memory pool. It allows growth only while the process has no more memory than it may.
/// Operators that are refused spill or fail.
#[derive(Debug)]
pub(super) struct ProcessLimitedPool<P> {
    inner: P,
    process: Arc<ProcessMemory>,
    /// The allowance of the node that owns the pool. It is `None` for a part of a node's pool.
    _allowance: Option<Allowance>,
}

impl<P> ProcessLimitedPool<P> {
    /// Wraps the pool of a node of this process. The node's operators may hold `limit_bytes`.
    pub(super) fn of_node(within: P, limit_bytes: usize) -> Self {
        let process = ProcessMemory::this();
        Self {
            _allowance: Some(process.add_node(limit_bytes)),
            ..Self::new(within, process)
        }
    }

    /// Wraps a part of a node's pool.
    pub(super) fn of_query(within: P) -> Self {
        Self::new(within, ProcessMemory::this())
    }

    fn new(within: P, process: &Arc<ProcessMemory>) -> Self {
        Self {
            inner: within,
            process: Arc::clone(process),
            _allowance: None,
        }
    }
}

impl<P: MemoryPool> MemoryPool for ProcessLimitedPool<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        // The memory of the process is not even looked at for small reservations: asking the
        // allocator for it took 3 % of the time of point queries.
        let is_small = reservation.size().saturating_add(additional) <= SMALL_BYTES;
        if !is_small && let Some(excess) = self.process.excess() {
            return Err(DataFusionError::ResourcesExhausted(excess.to_string()));
        }
        self.inner.try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}

impl<P: MemoryPool> fmt::Display for ProcessLimitedPool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;
    use crate::memory::process::tests::process;

    #[test]
    fn a_process_that_has_too_much_gives_no_more_and_takes_back() {
        let (process, set_used) = process();
        let _node = process.add_node(0);
        let pool = ProcessLimitedPool::new(GreedyMemoryPool::new(10 * SMALL_BYTES), &process);
        let pool: Arc<dyn MemoryPool> = Arc::new(pool);
        let reservation = MemoryConsumer::new("Sort").register(&pool);
        reservation.try_grow(6 * SMALL_BYTES).unwrap();
        assert!(reservation.try_grow(6 * SMALL_BYTES).is_err());
        set_used(1 << 40);
        let small = MemoryConsumer::new("Gather").register(&pool);
        small.try_grow(SMALL_BYTES).unwrap();
        let error = reservation.try_grow(1).unwrap_err();
        assert!(
            matches!(error, DataFusionError::ResourcesExhausted(_)),
            "{error}"
        );
        reservation.free();
        assert_eq!(pool.reserved(), SMALL_BYTES);
        set_used(0);
        reservation.try_grow(6 * SMALL_BYTES).unwrap();
    }
}
