use std::collections::VecDeque;
use std::time::Instant;

use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use volary_flight_proto::{Error, Result};
use volary_node::deadline::Deadline;

use super::answers::AnswerMessage;
use crate::engine::lookup_stream::MAX_RUNNING;
use crate::lookup::keys::Keys;

/// Number of batches that are read ahead, however small they are. Each of them takes memory beside
/// that of its keys.
const MAX_BATCHES: usize = 1_024;
/// Batches that wait are joined to one lookup as long as they have at most this many keys together.
/// A worker is then asked once for all of them.
const MAX_JOINED_KEYS: u32 = 8_192;

/// The batches of a stream that are not answered yet.
#[derive(Default)]
pub(super) struct LookupQueue {
    waiting: VecDeque<WaitingBatch>,
    running: FuturesOrdered<BoxFuture<'static, Vec<AnswerMessage>>>,
    /// The beginning, the number of batches and the size of each running lookup.
    begun: VecDeque<RunningLookup>,
    /// Number of batches and size of the keys that wait or are looked up.
    batches: usize,
    bytes: usize,
}

/// A batch that waits until it may be looked up.
pub(super) struct WaitingBatch {
    pub(super) sequence: u64,
    /// The keys, or why they cannot be looked up.
    pub(super) keys: Result<Keys>,
    pub(super) bytes: usize,
    pub(super) memory: Option<MemoryReservation>,
    pub(super) deadline: Deadline,
}

struct RunningLookup {
    since: Instant,
    batches: usize,
    bytes: usize,
}

impl LookupQueue {
    /// Returns whether nothing waits and nothing runs.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Returns whether a batch waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether a lookup runs.
    pub(super) fn has_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Returns whether another lookup may begin.
    pub(super) fn may_begin(&self) -> bool {
        self.running.len() < MAX_RUNNING
    }

    /// Returns when the oldest running lookup began.
    pub(super) fn running_since(&self) -> Option<Instant> {
        self.begun.front().map(|lookup| lookup.since)
    }

    /// Returns the deadline of the batch that waits longest.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.waiting.front().map(|batch| batch.deadline)
    }

    /// Returns whether the queue has room for a batch. A window that is smaller than one batch has
    /// room for one.
    pub(super) fn has_room(&self, window: usize) -> bool {
        self.is_empty() || self.bytes < window && self.batches < MAX_BATCHES
    }

    /// Queues a batch.
    pub(super) fn push(&mut self, batch: WaitingBatch) {
        self.bytes += batch.bytes;
        self.batches += 1;
        self.waiting.push_back(batch);
    }

    /// Takes the next batches, which are looked up together.
    pub(super) fn take_joined(&mut self) -> Vec<WaitingBatch> {
        let mut taken = Vec::new();
        let mut keys = 0_u32;
        while let Some(next) = self.waiting.pop_front_if(|next| {
            keys = keys.saturating_add(next.keys.as_ref().map_or(0, Keys::count));
            taken.is_empty() || keys <= MAX_JOINED_KEYS
        }) {
            self.batches -= 1;
            self.bytes -= next.bytes;
            taken.push(next);
        }
        taken
    }

    /// Adds a lookup of batches that were taken: of so many batches, with so many bytes. `messages`
    /// answers all of them.
    pub(super) fn run(
        &mut self,
        (batches, bytes): (usize, usize),
        messages: BoxFuture<'static, Vec<AnswerMessage>>,
    ) {
        self.batches += batches;
        self.bytes += bytes;
        self.begun.push_back(RunningLookup {
            since: Instant::now(),
            batches,
            bytes,
        });
        self.running.push_back(messages);
    }

    /// Waits for the answers of the lookup that began first. Must not be called if none runs.
    pub(super) async fn next_answers(&mut self) -> Vec<AnswerMessage> {
        let answers = self.running.next().await.unwrap_or_default();
        if let Some(ended) = self.begun.pop_front() {
            self.batches -= ended.batches;
            self.bytes -= ended.bytes;
        }
        answers
    }

    /// Takes all batches that wait, to refuse them.
    pub(super) fn take_waiting(&mut self) -> Vec<WaitingBatch> {
        let taken: Vec<_> = self.waiting.drain(..).collect();
        self.batches -= taken.len();
        self.bytes -= taken.iter().map(|batch| batch.bytes).sum::<usize>();
        taken
    }

    /// Takes the batch that waits longest, to refuse it with the error of its deadline.
    pub(super) fn take_expired(&mut self) -> Option<(WaitingBatch, Error)> {
        let expired = self.waiting.pop_front()?;
        self.batches -= 1;
        self.bytes -= expired.bytes;
        let error = expired.deadline.error();
        Some((expired, error))
    }
}
