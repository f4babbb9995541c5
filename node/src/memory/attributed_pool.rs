//! The fragments of a worker share one pool, so that none is created for each fragment. When an
//! operator registers with the pool, the thread that starts the operator knows which work it
//! belongs to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

use crate::runtimes::turns::{self, WorkUsage};

/// Wraps a memory pool and records what the operators of each work hold.
#[derive(Debug)]
pub(super) struct AttributedPool<P> {
    inner: P,
    /// The work of each consumer, by the consumer's number.
    usage_by_consumer: Mutex<HashMap<usize, Arc<WorkUsage>>>,
}

impl<P> AttributedPool<P> {
    pub(super) fn new(within: P) -> Self {
        Self {
            inner: within,
            usage_by_consumer: Mutex::default(),
        }
    }

    fn note(&self, reservation: &MemoryReservation, note: impl FnOnce(&WorkUsage)) {
        if let Some(usage) = self
            .usage_by_consumer
            .lock()
            .get(&reservation.consumer().id())
        {
            note(usage);
        }
    }
}

impl<P: MemoryPool> MemoryPool for AttributedPool<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if let Some(usage) = turns::current_usage() {
            self.usage_by_consumer.lock().insert(consumer.id(), usage);
        }
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.usage_by_consumer.lock().remove(&consumer.id());
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
        self.note(reservation, |usage| usage.hold(additional));
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
        self.note(reservation, |usage| usage.release(shrink));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.inner.try_grow(reservation, additional)?;
        self.note(reservation, |usage| usage.hold(additional));
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}

impl<P: MemoryPool> fmt::Display for AttributedPool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;
    use crate::runtimes::turns::UserPermits;

    #[test]
    fn each_work_has_what_its_operators_hold() {
        let turns = UserPermits::new(1);
        let (first, second) = (turns.work(), turns.work());
        let pool: Arc<dyn MemoryPool> = Arc::new(AttributedPool::new(GreedyMemoryPool::new(100)));
        let register = || MemoryConsumer::new("Sort").register(&pool);
        let (sort, other) = (first.run(register), second.run(register));
        let nobodys = register();
        sort.try_grow(60).unwrap();
        other.grow(20);
        nobodys.grow(5);
        sort.try_grow(60).unwrap_err();
        assert_eq!((first.held_bytes(), second.held_bytes()), (60, 20));
        sort.shrink(10);
        drop((other, nobodys));
        assert_eq!((first.held_bytes(), second.held_bytes()), (50, 0));
        assert_eq!(pool.reserved(), 50);
    }
}
