use std::time::{Duration, Instant};

use datafusion::physical_plan::metrics::Time;
use volary_exec::stage_timer::StageTimer;
use volary_flight_proto::stage_times::StageTimes;

use super::work::Work;

/// Measures the stages of a fragment, except those that its operators measure.
#[derive(Debug, Default)]
pub(super) struct StageTimers {
    /// Time from the ticket's arrival until the fragment had a place and a thread.
    pub(super) queued: Duration,
    /// Time in which the fragment was decoded, bound and optimised.
    pub(super) bind: Duration,
    /// Time in which rows were brought into the order of their buckets.
    pub(super) ordering: Time,
    /// Measures the joining and conversion of batches, on the CPU runtime.
    pub(super) batches: StageTimer,
    /// Measures the encoding of batches as messages.
    pub(super) messages: StageTimer,
}

impl StageTimers {
    /// Returns the times of the stages up to `now`, and how long messages waited for their reader.
    /// `work` is what the operators have measured.
    pub(super) fn times(&self, work: &Work, now: Instant) -> (StageTimes, Duration) {
        let messages = self.messages.times(now);
        let ordering = Duration::from_nanos(self.ordering.value() as u64);
        let times = StageTimes {
            queued_us: micros(self.queued),
            bind_us: micros(self.bind),
            // What is answered from the index has no plan that runs.
            index_us: 0,
            read_us: micros(work.read()),
            compute_us: micros(work.compute_without_scans() + ordering),
            encode_us: micros(self.batches.times(now).encode + messages.encode),
            // The reader knows it.
            wire_us: 0,
        };
        (times, messages.reader)
    }
}

/// Returns a duration in microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
