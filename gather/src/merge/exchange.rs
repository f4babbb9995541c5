//! Readers wait when enough rows are queued. However, every reader has rows for every partition,
//! and an operator above may want the rows of one partition before it reads another one. The rows
//! that are queued for the unread partition must not keep the other one from getting its rows. So
//! readers that have waited in vain for a while raise their limit if a partition waits for rows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::future::poll_fn;
use parking_lot::Mutex;
use tokio::time::timeout;
use volary_exec::batches::used_bytes;

use super::steps::Steps;

/// If a query has much memory, readers wait when more than this many bytes are queued.
const MAX_QUEUED_BYTES: usize = 8 << 20;
/// If a query has little memory, readers wait when the queued bytes exceed the query's memory
/// divided by this number.
const SHARE_OF_MEMORY: usize = 16;
/// How long a reader waits before it checks whether rows were taken from any queue.
const PATIENCE: Duration = Duration::from_millis(500);

/// Passes rows from the readers to the partitions.
#[derive(Debug)]
pub(super) struct Exchange {
    state: Mutex<ExchangeState>,
    readers: usize,
    rounds: usize,
    memory: usize,
}

#[derive(Debug)]
struct ExchangeState {
    partitions: Vec<Partition>,
    /// Queued bytes, by step. Rows of a later step are of no use before the rows of the step that
    /// is merged.
    queued_bytes: BTreeMap<usize, usize>,
    max_queued_bytes: usize,
    /// Bytes that stay reserved even if less is queued. Aggregates can spill, so they take what is
    /// left.
    min_reserved_bytes: usize,
    /// Number of batches that were taken from a queue.
    taken_batches: u64,
    reservation: MemoryReservation,
    /// Number of readers that have announced how many bytes they have. The sum of these is
    /// `total_bytes`.
    announced_readers: usize,
    total_bytes: usize,
    steps: Option<Steps>,
    /// Number of readers that have sent all rows of a step, by step.
    ended_readers: Vec<usize>,
    waiting_readers: Vec<Waker>,
    error: Option<Arc<DataFusionError>>,
}

#[derive(Debug, Default)]
struct Partition {
    /// The queues, by step. The first one belongs to the partition's `step`.
    queues: VecDeque<VecDeque<RecordBatch>>,
    /// The step that is merged now.
    step: usize,
    waker: Option<Waker>,
    is_closed: bool,
}

impl Exchange {
    /// Creates an exchange. `rounds` is the number of rounds of the buckets. `memory` is the number
    /// of bytes that the query may hold.
    pub(super) fn new(
        readers: usize,
        partitions: usize,
        rounds: usize,
        memory: usize,
        reservation: MemoryReservation,
    ) -> Self {
        let partitions = (0..partitions).map(|_| Partition::default());
        let max_queued_bytes = MAX_QUEUED_BYTES.min(memory / SHARE_OF_MEMORY);
        // If the pool does not have this much, rows that do not fit are refused when they come.
        let _ = reservation.try_grow(max_queued_bytes * 2);
        Self {
            state: Mutex::new(ExchangeState {
                partitions: partitions.collect(),
                queued_bytes: BTreeMap::new(),
                max_queued_bytes,
                min_reserved_bytes: reservation.size(),
                taken_batches: 0,
                reservation,
                announced_readers: 0,
                total_bytes: 0,
                steps: None,
                ended_readers: Vec::new(),
                waiting_readers: Vec::new(),
                error: None,
            }),
            readers,
            rounds,
            memory,
        }
    }

    /// Announces how many bytes a reader's workers have. Waits until all readers have done so, and
    /// returns the steps in which the rows are to be pushed.
    pub(super) async fn announce(&self, bytes: usize) -> Steps {
        {
            let mut state = self.state.lock();
            state.announced_readers += 1;
            state.total_bytes = state.total_bytes.saturating_add(bytes);
            if state.announced_readers == self.readers {
                let steps = Steps::new(self.rounds, state.total_bytes, self.memory);
                state.steps = Some(steps);
                state.ended_readers = vec![0; steps.count()];
                state.wake_all();
            }
        }
        poll_fn(|cx| {
            let mut state = self.state.lock();
            match state.steps {
                Some(steps) => Poll::Ready(steps),
                None => state.wait(cx),
            }
        })
        .await
    }

    /// Queues rows of a step for a partition.
    ///
    /// # Errors
    /// Fails if the query may not hold the rows.
    pub(super) fn push(&self, partition: usize, step: usize, rows: RecordBatch) -> Result<()> {
        // The rows share the buffers of their message with other rows. Only the bytes that these
        // rows use are counted.
        let bytes = used_bytes(&rows);
        let mut state = self.state.lock();
        let state = &mut *state;
        let to = &mut state.partitions[partition];
        if to.is_closed {
            return Ok(());
        }
        let queued = state.queued_bytes.values().sum::<usize>() + bytes;
        let more = queued.saturating_sub(state.reservation.size());
        state.reservation.try_grow(more)?;
        *state.queued_bytes.entry(step).or_default() += bytes;
        let queue = step - to.step;
        if to.queues.len() <= queue {
            to.queues.resize_with(queue + 1, VecDeque::new);
        }
        to.queues[queue].push_back(rows);
        if queue == 0
            && let Some(waker) = to.waker.take()
        {
            waker.wake();
        }
        Ok(())
    }

    /// Waits until there is room for more rows of a step. There is none while enough rows of the
    /// step, and of the steps before it, are queued. Later steps do not count: a reader that is
    /// ahead must not block the readers that it waits for.
    pub(super) async fn wait_for_room(&self, step: usize) {
        let mut more = 0;
        loop {
            let taken = self.state.lock().taken_batches;
            let room = poll_fn(|cx| {
                let mut state = self.state.lock();
                if state.queued_until(step) <= state.max_queued_bytes + more {
                    Poll::Ready(())
                } else {
                    state.wait(cx)
                }
            });
            if timeout(PATIENCE, room).await.is_ok() {
                return;
            }
            let state = self.state.lock();
            let has_starving = || state.partitions.iter().any(|other| other.is_starving(step));
            if state.taken_batches == taken && has_starving() {
                more = state.queued_until(step);
            }
        }
    }

    /// Notes that a reader has sent all rows of a step.
    pub(super) fn end_step(&self, step: usize) {
        let mut state = self.state.lock();
        state.ended_readers[step] += 1;
        if state.ended_readers[step] == self.readers {
            state.wake_all();
        }
    }

    /// Fails the merge, because a reader cannot go on.
    pub(super) fn fail(&self, error: DataFusionError) {
        let mut state = self.state.lock();
        state.error.get_or_insert_with(|| Arc::new(error));
        state.wake_all();
    }

    /// Returns the steps of the merge, when they are known.
    ///
    /// # Errors
    /// The error of a reader that failed.
    pub(super) async fn wait_for_steps(&self, partition: usize) -> Result<Steps> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if let Some(error) = &state.error {
                return Poll::Ready(Err(DataFusionError::from(error)));
            }
            match state.steps {
                Some(steps) => Poll::Ready(Ok(steps)),
                None => state.wait_for_rows(partition, cx),
            }
        })
        .await
    }

    /// Returns the next rows of the step that a partition merges now. Returns `None` if the
    /// partition has got all rows of the step, and moves the partition to the next step.
    pub(super) fn poll_rows(
        &self,
        partition: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(error) = &state.error {
            return Poll::Ready(Some(Err(DataFusionError::from(error))));
        }
        let from = &mut state.partitions[partition];
        if let Some(rows) = from.queues.front_mut().and_then(VecDeque::pop_front) {
            let step = from.step;
            state.release(step, &rows);
            return Poll::Ready(Some(Ok(rows)));
        }
        if state.ended_readers.get(from.step) == Some(&self.readers) {
            from.queues.pop_front();
            from.step += 1;
            return Poll::Ready(None);
        }
        state.wait_for_rows(partition, cx)
    }

    /// Notes that nobody reads the partition any more, and drops its rows.
    pub(super) fn close(&self, partition: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let from = &mut state.partitions[partition];
        from.is_closed = true;
        let first = from.step;
        for (step, queue) in (first..).zip(std::mem::take(&mut from.queues)) {
            for rows in &queue {
                state.release(step, rows);
            }
        }
        state.wake_all();
    }
}

impl Partition {
    /// Returns whether the partition waits for rows of this step.
    fn is_starving(&self, step: usize) -> bool {
        !self.is_closed
            && self.step == step
            && self.waker.is_some()
            && self.queues.front().is_none_or(VecDeque::is_empty)
    }
}

impl ExchangeState {
    /// Returns the queued bytes of a step and of the steps before it.
    fn queued_until(&self, step: usize) -> usize {
        self.queued_bytes
            .range(..=step)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    fn release(&mut self, step: usize, rows: &RecordBatch) {
        let bytes = used_bytes(rows);
        if let Entry::Occupied(mut queued) = self.queued_bytes.entry(step) {
            *queued.get_mut() -= bytes;
            if *queued.get() == 0 {
                queued.remove();
            }
        }
        let queued = self.queued_bytes.values().sum::<usize>();
        let needed = queued.max(self.min_reserved_bytes);
        let reserved = self.reservation.size();
        self.reservation.shrink(reserved.saturating_sub(needed));
        self.taken_batches += 1;
        self.wake_readers();
    }

    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.waiting_readers.push(cx.waker().clone());
        Poll::Pending
    }

    fn wait_for_rows<T>(&mut self, partition: usize, cx: &Context<'_>) -> Poll<T> {
        self.partitions[partition].waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn wake_readers(&mut self) {
        for waker in self.waiting_readers.drain(..) {
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        self.wake_readers();
        for partition in &mut self.partitions {
            if let Some(waker) = partition.waker.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use futures::FutureExt;

    use super::*;

    const READERS: usize = 2;
    const PARTITIONS: usize = 2;

    fn pool(bytes: usize) -> Arc<dyn MemoryPool> {
        Arc::new(GreedyMemoryPool::new(bytes))
    }

    fn exchange(pool: &Arc<dyn MemoryPool>, memory: usize) -> Exchange {
        let reservation = MemoryConsumer::new("test").register(pool);
        Exchange::new(READERS, PARTITIONS, 4, memory, reservation)
    }

    fn rows(count: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    async fn next(exchange: &Exchange, partition: usize) -> Option<usize> {
        let next = poll_fn(|cx| exchange.poll_rows(partition, cx)).await;
        next.map(|rows| rows.unwrap().num_rows())
    }

    async fn two_steps(exchange: &Exchange) {
        let both = futures::join!(exchange.announce(1 << 20), exchange.announce((1 << 20) + 1));
        assert_eq!(both.0, both.1);
        assert_eq!(both.0.count(), 3);
    }

    #[tokio::test]
    async fn a_step_ends_when_all_readers_have_ended_it() {
        let pool = pool(1 << 20);
        let exchange = exchange(&pool, 0);
        assert!(exchange.wait_for_steps(0).now_or_never().is_none());
        two_steps(&exchange).await;
        exchange.push(0, 0, rows(3)).unwrap();
        exchange.end_step(0);
        // This reader is ahead of the other one.
        exchange.push(0, 1, rows(5)).unwrap();
        assert_eq!(next(&exchange, 0).await, Some(3));
        assert!(next(&exchange, 0).now_or_never().is_none());
        exchange.push(0, 0, rows(4)).unwrap();
        exchange.end_step(0);
        assert_eq!(next(&exchange, 0).await, Some(4));
        assert_eq!(next(&exchange, 0).await, None);
        assert_eq!(next(&exchange, 0).await, Some(5));
        assert_eq!(next(&exchange, 1).await, None);
        assert_eq!(pool.reserved(), 0);
    }

    #[tokio::test]
    async fn readers_wait_while_enough_is_queued_and_not_for_a_partition_that_nobody_reads() {
        let pool = pool(1 << 20);
        let exchange = exchange(&pool, 0);
        two_steps(&exchange).await;
        exchange.wait_for_room(0).await;
        exchange.push(0, 0, rows(100)).unwrap();
        assert!(exchange.wait_for_room(0).now_or_never().is_none());
        let (room, taken) = futures::join!(exchange.wait_for_room(0), next(&exchange, 0));
        assert_eq!((room, taken), ((), Some(100)));
        // The first partition has rows that nobody takes. The second one has none, and is read.
        exchange.push(0, 0, rows(100)).unwrap();
        assert!(next(&exchange, 1).now_or_never().is_none());
        exchange.wait_for_room(0).await;
    }

    #[tokio::test]
    async fn a_reader_that_is_ahead_does_not_stop_the_others() {
        let exchange = exchange(&pool(1 << 20), 0);
        two_steps(&exchange).await;
        exchange.push(0, 1, rows(100)).unwrap();
        assert!(exchange.wait_for_room(1).now_or_never().is_none());
        assert!(exchange.wait_for_room(0).now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_nobody_reads_any_more_is_dropped() {
        let pool = pool(1 << 20);
        let exchange = exchange(&pool, 0);
        two_steps(&exchange).await;
        exchange.push(0, 0, rows(100)).unwrap();
        exchange.close(0);
        exchange.push(0, 0, rows(100)).unwrap();
        assert_eq!(pool.reserved(), 0);
        exchange.wait_for_room(0).await;
    }

    #[tokio::test]
    async fn a_reader_that_fails_fails_all_partitions() {
        let exchange = exchange(&pool(1 << 20), 0);
        exchange.fail(DataFusionError::Execution("lost".to_owned()));
        for partition in 0..PARTITIONS {
            let error = exchange.wait_for_steps(partition).await.unwrap_err();
            assert!(error.to_string().contains("lost"));
            let next = poll_fn(|cx| exchange.poll_rows(partition, cx)).await;
            assert!(next.unwrap().is_err());
        }
    }

    #[tokio::test]
    async fn rows_that_may_not_be_held_are_refused() {
        let exchange = exchange(&pool(100), 0);
        two_steps(&exchange).await;
        assert!(exchange.push(0, 0, rows(100)).is_err());
    }
}
