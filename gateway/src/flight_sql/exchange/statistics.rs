use std::time::Duration;

use serde::Serialize;

use crate::statements::StatementStatus;

/// The time and resources that a statement took. The fields are named like the columns of
/// system.query_log, and what is NULL there is left out. Times are in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Statistics {
    #[serde(skip_serializing_if = "Option::is_none")]
    parsing_us: Option<u128>,
    planning_us: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_found: Option<bool>,
    queued_us: u128,
    running_us: u128,
    #[serde(flatten)]
    stages_of_workers: Option<WorkerStages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encode_us: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_wait_us: Option<u128>,
    rows: u64,
    sent_bytes: u64,
    workers: u64,
    shards: u64,
    segments: u64,
    scanned_rows: u64,
    scanned_bytes: u64,
}

/// The times of the workers' stages, added up over the workers.
#[derive(Debug, Serialize)]
struct WorkerStages {
    worker_queued_us: u64,
    worker_bind_us: u64,
    worker_index_us: u64,
    worker_read_us: u64,
    worker_compute_us: u64,
    worker_encode_us: u64,
    wire_us: u64,
}

impl Statistics {
    /// Takes the statistics of a statement that has returned or written this number of rows.
    pub(super) fn of(status: &StatementStatus, rows: u64) -> Self {
        let microseconds = |time: Duration| time.as_micros();
        let row_times = status.row_times;
        Self {
            parsing_us: status.parsing.map(microseconds),
            planning_us: microseconds(status.planning),
            plan_found: status.plan_found,
            queued_us: microseconds(status.queued),
            running_us: microseconds(status.running),
            stages_of_workers: status.work.stages.map(|stages| WorkerStages {
                worker_queued_us: stages.queued_us,
                worker_bind_us: stages.bind_us,
                worker_index_us: stages.index_us,
                worker_read_us: stages.read_us,
                worker_compute_us: stages.compute_us,
                worker_encode_us: stages.encode_us,
                wire_us: stages.wire_us,
            }),
            encode_us: row_times.map(|times| microseconds(times.encode)),
            client_wait_us: row_times.map(|times| microseconds(times.reader)),
            rows,
            sent_bytes: status.sent_bytes,
            workers: status.work.workers,
            shards: status.work.shards,
            segments: status.work.segments,
            scanned_rows: status.work.scanned_rows,
            scanned_bytes: status.work.scanned_bytes,
        }
    }
}
