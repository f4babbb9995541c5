//! What a gather learned of its workers: rows, bytes, time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volary_flight_proto::frame::EndOfStream;
use volary_flight_proto::ids::WorkerId;

/// One worker's part.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// The worker.
    pub worker: WorkerId,
    /// Rows that arrived.
    pub rows: u64,
    /// Messages with rows.
    pub batches: u64,
    /// Bytes that arrived, as encoded.
    pub bytes: u64,
    /// From the first poll until the stream was open.
    pub open: Duration,
    /// Waiting for messages.
    pub network: Duration,
    /// Decoding them.
    pub decode: Duration,
    /// From the first poll until the last row.
    pub total: Duration,
    /// Streams that failed and were opened again.
    pub retries: u32,
    /// What the worker said at the end.
    pub end: EndOfStream,
}

/// The reports of a gather's workers, filled while it runs.
#[derive(Debug, Clone, Default)]
pub struct Reports(Arc<Mutex<Learned>>);

#[derive(Debug, Default)]
struct Learned {
    workers: Vec<WorkerReport>,
    narrowed_to: Option<String>,
}

impl Reports {
    /// Adds one worker's.
    pub fn add(&self, report: WorkerReport) {
        self.0.lock().workers.push(report);
    }

    /// Notes which rows were asked for, of a fragment that joins above narrow.
    pub fn narrowed_to(&self, rows: String) {
        self.0.lock().narrowed_to = Some(rows);
    }

    /// All of them, by worker.
    pub fn all(&self) -> Vec<WorkerReport> {
        let mut all = self.0.lock().workers.clone();
        all.sort_by_key(|report| report.worker);
        all
    }

    /// The worker that took longest.
    pub fn slowest(&self) -> Option<WorkerReport> {
        self.0
            .lock()
            .workers
            .iter()
            .max_by_key(|report| report.total)
            .cloned()
    }
}

/// Minimum, median and maximum over the workers.
struct Spread<'a> {
    name: &'static str,
    values: Vec<u64>,
    show: &'a dyn Fn(u64) -> String,
}

impl fmt::Display for Spread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values = self.values.clone();
        values.sort_unstable();
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Ok(());
        };
        let median = values[values.len() / 2];
        let show = self.show;
        write!(
            f,
            "{}={}/{}/{}",
            self.name,
            show(*min),
            show(median),
            show(*max)
        )
    }
}

impl fmt::Display for Reports {
    /// What was asked for, if joins narrowed it, the spread over the workers, and the slowest one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rows) = &self.0.lock().narrowed_to {
            writeln!(f, "narrowed to {rows}")?;
        }
        let all = self.all();
        let Some(slowest) = self.slowest() else {
            return f.write_str("no worker was asked");
        };
        let count = |value: u64| value.to_string();
        let bytes = |value: u64| bytesize::ByteSize(value).to_string();
        let time = |value: u64| milliseconds(Duration::from_micros(value));
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let spread = |name, show: &dyn Fn(u64) -> String, of: &dyn Fn(&WorkerReport) -> u64| {
            Spread {
                name,
                values: all.iter().map(of).collect(),
                show,
            }
            .to_string()
        };
        write!(
            f,
            "workers={} min/median/max: {} {} {} {} {} {} {} {} {}",
            all.len(),
            spread("rows", &count, &|report| report.rows),
            spread("bytes", &bytes, &|report| report.bytes),
            spread("scanned_rows", &count, &|report| report.end.scanned_rows),
            spread("worker_time", &time, &|report| report.end.total_us),
            spread("worker_compute", &time, &|report| report.end.compute_us),
            spread("open", &time, &|report| micros(report.open)),
            spread("network_wait", &time, &|report| micros(report.network)),
            spread("decode", &time, &|report| micros(report.decode)),
            spread("total", &time, &|report| micros(report.total)),
        )?;
        write!(
            f,
            "\nslowest: {} total={} worker_time={} queued={} first_row={} rows={} scanned_rows={} scanned={} segments={} retries={}",
            slowest.worker,
            milliseconds(slowest.total),
            time(slowest.end.total_us),
            time(slowest.end.queued_us),
            time(slowest.end.first_row_us),
            slowest.rows,
            slowest.end.scanned_rows,
            bytes(slowest.end.scanned_bytes),
            slowest.end.segments,
            slowest.retries,
        )
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2}ms", duration.as_secs_f64() * 1000.0)
}
