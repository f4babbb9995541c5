use std::sync::LazyLock;

use parking_lot::Mutex;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::definition::Metric;
use super::samples::Samples;
use crate::open_files;

/// The release of this process.
const BUILD_INFO: Metric = Metric::gauge(
    "volary_build_info",
    &["version"],
    "The release that runs, in the label `version`; always 1.",
);
/// The names of the following metrics are those that all clients of Prometheus use.
const CPU_SECONDS: Metric = Metric::counter(
    "process_cpu_seconds_total",
    &[],
    "Processor time that the process has used, in seconds.",
);
const RESIDENT_BYTES: Metric = Metric::gauge(
    "process_resident_memory_bytes",
    &[],
    "Memory of the machine that the process has.",
);
const OPEN_FILES: Metric = Metric::gauge("process_open_fds", &[], "Open file descriptors.");
const MAX_FILES: Metric = Metric::gauge("process_max_fds", &[], "Limit on open file descriptors.");
const START_TIME: Metric = Metric::gauge(
    "process_start_time_seconds",
    &[],
    "Start of the process, in seconds since 1970.",
);

/// The metrics of this file.
pub(crate) const METRICS: &[Metric] = &[
    BUILD_INFO,
    CPU_SECONDS,
    RESIDENT_BYTES,
    OPEN_FILES,
    MAX_FILES,
    START_TIME,
];

/// Adds the values of this process. May block.
pub(crate) fn collect(samples: &mut Samples) {
    static SYSTEM: LazyLock<Mutex<System>> = LazyLock::new(Mutex::default);
    samples.gauge(
        BUILD_INFO,
        [("version", env!("CARGO_PKG_VERSION").to_owned())],
        1.0,
    );
    if let Some(limit) = open_files::limit() {
        samples.gauge(MAX_FILES, [], limit as f64);
    }
    let pid = Pid::from_u32(std::process::id());
    let mut system = SYSTEM.lock();
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[pid]),
        false,
        ProcessRefreshKind::nothing().with_memory().with_cpu(),
    );
    let Some(process) = system.process(pid) else {
        return;
    };
    let cpu_seconds = process.accumulated_cpu_time() as f64 / 1000.0;
    samples.seconds(CPU_SECONDS, [], cpu_seconds);
    samples.gauge(RESIDENT_BYTES, [], process.memory() as f64);
    samples.gauge(START_TIME, [], process.start_time() as f64);
    if let Some(open) = process.open_files() {
        samples.gauge(OPEN_FILES, [], open as f64);
    }
}
