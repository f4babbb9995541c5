use std::collections::VecDeque;

use futures::future::BoxFuture;
use volary_catalog::{BatchContent, DecidedBatch};
use volary_flight_proto::{Error, Result};

use crate::engine::ingest_stream::{IngestStream, LargePlace};
use crate::load::budget::BudgetShare;
use crate::load::group::FittedRows;
use crate::load::ingest_streams::MAX_LARGE_IN_FLIGHT;

/// Number of batches that are read ahead, however small they are. Each of them takes memory beside
/// that of its rows.
const MAX_BATCHES: usize = 1_024;

/// The batches of a stream that are not answered yet. Several of them are written at the same time.
#[derive(Default)]
pub(super) struct BatchQueue {
    /// The batches that are being written, and what is answered between them, in their order.
    begun: VecDeque<Begun>,
    /// The batches after them.
    waiting: VecDeque<Waiting>,
    /// Number of large batches that are being written.
    large_in_flight: usize,
    /// Size of the rows that wait or are being written.
    bytes: usize,
}

enum Begun {
    Running {
        batch: RunningBatch,
        outcome: BoxFuture<'static, Result<()>>,
    },
    Decided(DecidedAnswer),
}

enum Waiting {
    Ready(ReadyBatch),
    Decided(DecidedAnswer),
}

/// A batch that waits until it may be written.
pub(super) struct ReadyBatch {
    pub(super) sequence: u64,
    pub(super) rows: FittedRows,
    /// This batch, and refused ones before it.
    pub(super) decided: Vec<DecidedBatch>,
    pub(super) bytes: usize,
    pub(super) memory: Vec<BudgetShare>,
}

/// A batch that is being written.
pub(super) struct RunningBatch {
    pub(super) sequence: u64,
    pub(super) rows: u64,
    bytes: usize,
    large_place: Option<LargePlace>,
}

/// A batch, or an end of the stream, that is answered without writing.
pub(super) enum DecidedAnswer {
    /// The batch has the number of an earlier one. It is looked up when that one is decided.
    Resent {
        sequence: u64,
        rows: u64,
        content: Option<BatchContent>,
    },
    /// The rows were refused, and the stream goes on.
    Refused { sequence: u64, error: Error },
    /// The stream ends with this error. If it is the fault of a batch, the batch is refused.
    Failed { sequence: Option<u64>, error: Error },
}

/// The future of a place for a large batch, while one is wanted.
pub(super) type WantedPlace = Option<BoxFuture<'static, Option<LargePlace>>>;

impl BatchQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.waiting.is_empty()
    }

    /// Returns whether the queue has room for a batch, of which `incoming` bytes have arrived.
    pub(super) fn has_room(&self, incoming: usize, window: usize) -> bool {
        let batches = self.begun.len() + self.waiting.len();
        self.bytes.saturating_add(incoming) < window && batches < MAX_BATCHES
    }

    /// Queues a batch that is to be written.
    pub(super) fn push_ready(&mut self, batch: ReadyBatch) {
        self.bytes += batch.bytes;
        self.waiting.push_back(Waiting::Ready(batch));
    }

    /// Queues what is answered without writing.
    pub(super) fn push_decided(&mut self, answer: DecidedAnswer) {
        self.waiting.push_back(Waiting::Decided(answer));
    }

    /// Begins to write the batches that may be written now. `place` is for the next large one. If a
    /// large batch needs a place, `wanted` is set to the future of one.
    pub(super) fn begin_ready(
        &mut self,
        stream: &mut IngestStream,
        wanted: &mut WantedPlace,
        mut place: Option<LargePlace>,
    ) {
        while let Some(next) = self.waiting.pop_front() {
            let is_large = match &next {
                Waiting::Ready(batch) => IngestStream::is_large(&batch.rows),
                Waiting::Decided(_) => false,
            };
            let must_wait = match &next {
                Waiting::Ready(_) if is_large => {
                    self.large_in_flight >= MAX_LARGE_IN_FLIGHT || place.is_none()
                }
                // It could be committed before the large ones.
                Waiting::Ready(_) => self.large_in_flight > 0,
                // What comes after it may not be wanted.
                Waiting::Decided(DecidedAnswer::Resent { .. }) => true,
                Waiting::Decided(_) => false,
            };
            if must_wait {
                if is_large && self.large_in_flight < MAX_LARGE_IN_FLIGHT {
                    wanted.get_or_insert_with(|| stream.large_place());
                }
                self.waiting.push_front(next);
                return;
            }
            let begun = match next {
                Waiting::Decided(answer) => Begun::Decided(answer),
                Waiting::Ready(batch) => {
                    let large_place = is_large.then(|| place.take()).flatten();
                    self.large_in_flight += usize::from(large_place.is_some());
                    batch.begin(stream, large_place)
                }
            };
            self.begun.push_back(begun);
        }
    }

    /// Returns the outcome of the batch at the front, if it is being written.
    pub(super) fn front_outcome(&mut self) -> Option<&mut BoxFuture<'static, Result<()>>> {
        match self.begun.front_mut() {
            Some(Begun::Running { outcome, .. }) => Some(outcome),
            _ => None,
        }
    }

    /// Takes the batch at the front, whose write has ended.
    pub(super) fn take_written(&mut self) -> Option<RunningBatch> {
        let front = self
            .begun
            .pop_front_if(|begun| matches!(begun, Begun::Running { .. }));
        let Some(Begun::Running { batch, .. }) = front else {
            return None;
        };
        self.bytes = self.bytes.saturating_sub(batch.bytes);
        self.large_in_flight -= usize::from(batch.large_place.is_some());
        Some(batch)
    }

    /// Takes what is at the front, if it is answered without writing.
    pub(super) fn take_decided(&mut self) -> Option<DecidedAnswer> {
        if self.begun.is_empty() {
            let is_decided = |waiting: &mut Waiting| matches!(waiting, Waiting::Decided(_));
            return match self.waiting.pop_front_if(is_decided) {
                Some(Waiting::Decided(answer)) => Some(answer),
                _ => None,
            };
        }
        let is_decided = |begun: &mut Begun| matches!(begun, Begun::Decided(_));
        match self.begun.pop_front_if(is_decided) {
            Some(Begun::Decided(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Gives up what comes after the batches at the front that are being written.
    pub(super) fn keep_running(&mut self) {
        let is_running = |begun: &&Begun| matches!(begun, Begun::Running { .. });
        let kept = self.begun.iter().take_while(is_running).count();
        self.begun.truncate(kept);
        self.waiting.clear();
    }
}

impl ReadyBatch {
    fn begin(self, stream: &mut IngestStream, large_place: Option<LargePlace>) -> Begun {
        let batch = RunningBatch {
            sequence: self.sequence,
            rows: self.rows.rows(),
            bytes: self.bytes,
            large_place,
        };
        let submitted = stream.submit(self.rows, self.decided, self.memory);
        Begun::Running {
            batch,
            outcome: Box::pin(submitted.outcome()),
        }
    }
}
