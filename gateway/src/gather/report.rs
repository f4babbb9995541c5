//! What a gather learned of its workers: rows, bytes, time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volary_flight_proto::frame::EndOfStream;
use volary_flight_proto::ids::WorkerId;

/// One worker's part. Of a stream that was opened again, only the last attempt is told of, except in `total`.
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
    /// Until the stream was open.
    pub open: Duration,
    /// Waiting for messages.
    pub network: Duration,
    /// Decoding them.
    pub decode: Duration,
    /// From the first poll until the last row that was read.
    pub total: Duration,
    /// Streams that failed and were opened again.
    pub retries: u32,
    /// What the worker said at the end; none if the stream was not read so far.
    pub end: Option<EndOfStream>,
}

impl WorkerReport {
    /// Of a worker that is asked now.
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            rows: 0,
            batches: 0,
            bytes: 0,
            open: Duration::ZERO,
            network: Duration::ZERO,
            decode: Duration::ZERO,
            total: Duration::ZERO,
            retries: 0,
            end: None,
        }
    }

    /// The same worker, or another copy, is asked again.
    pub fn begin_again(&mut self, worker: WorkerId) {
        *self = Self {
            retries: self.retries + 1,
            ..Self::new(worker)
        };
    }
}

/// The reports of a gather's workers, filled while it runs.
#[derive(Debug, Clone, Default)]
pub struct Reports(Arc<Mutex<Learned>>);

#[derive(Debug, Default)]
struct Learned {
    workers: Vec<Arc<Mutex<WorkerReport>>>,
    narrowed_to: Option<String>,
}

impl Reports {
    /// A worker's report, to be filled while its stream is read. It counts from now on: an operator above that has enough rows, such
    /// as a limit, drops the stream before its end, and some only after the query's last row is out.
    pub fn begin(&self, worker: WorkerId) -> Arc<Mutex<WorkerReport>> {
        let report = Arc::new(Mutex::new(WorkerReport::new(worker)));
        self.0.lock().workers.push(Arc::clone(&report));
        report
    }

    /// Notes which rows were asked for, of a fragment that joins above narrow.
    pub fn narrowed_to(&self, rows: String) {
        self.0.lock().narrowed_to = Some(rows);
    }

    /// All of them, by worker.
    pub fn all(&self) -> Vec<WorkerReport> {
        let learned = self.0.lock();
        let reports = learned.workers.iter().map(|report| report.lock().clone());
        let mut all: Vec<_> = reports.collect();
        all.sort_by_key(|report| report.worker);
        all
    }

    /// The worker that took longest.
    pub fn slowest(&self) -> Option<WorkerReport> {
        self.all().into_iter().max_by_key(|report| report.total)
    }
}

impl fmt::Display for Reports {
    /// What was asked for, if joins narrowed it, how many streams were not read to their end, the spread over the workers, and the
    /// slowest one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rows) = &self.0.lock().narrowed_to {
            writeln!(f, "narrowed to {rows}")?;
        }
        let all = self.all();
        let Some(slowest) = self.slowest() else {
            return f.write_str("no worker was asked");
        };
        write!(f, "workers={}", all.len())?;
        let stopped = all.iter().filter(|report| report.end.is_none()).count();
        if stopped > 0 {
            write!(f, " stopped={stopped}")?;
        }
        write!(f, " min/median/max:{}", Spreads(&all))?;
        write!(f, "\nslowest: {}", OneWorker(&slowest))
    }
}

/// Minimum, median and maximum over the workers, of what they measured themselves over those that were read to the end.
struct Spreads<'a>(&'a [WorkerReport]);

impl fmt::Display for Spreads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |value: fn(&WorkerReport) -> u64| self.0.iter().map(value).collect();
        let of_end = |value: fn(&EndOfStream) -> u64| {
            let ends = self.0.iter().filter_map(|report| report.end.as_ref());
            ends.map(value).collect()
        };
        write_spread(f, "rows", count, of(|report| report.rows))?;
        write_spread(f, "bytes", bytes, of(|report| report.bytes))?;
        write_spread(f, "scanned_rows", count, of_end(|end| end.scanned_rows))?;
        write_spread(f, "worker_time", time, of_end(|end| end.total_us))?;
        write_spread(f, "worker_compute", time, of_end(|end| end.compute_us))?;
        write_spread(f, "open", time, of(|report| micros(report.open)))?;
        write_spread(f, "network_wait", time, of(|report| micros(report.network)))?;
        write_spread(f, "decode", time, of(|report| micros(report.decode)))?;
        write_spread(f, "total", time, of(|report| micros(report.total)))
    }
}

/// Nothing if there are no values.
fn write_spread(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    show: fn(u64) -> String,
    mut values: Vec<u64>,
) -> fmt::Result {
    values.sort_unstable();
    let (Some(min), Some(max)) = (values.first(), values.last()) else {
        return Ok(());
    };
    let median = values[values.len() / 2];
    write!(f, " {name}={}/{}/{}", show(*min), show(median), show(*max))
}

struct OneWorker<'a>(&'a WorkerReport);

impl fmt::Display for OneWorker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        write!(f, "{} total={}", report.worker, milliseconds(report.total))?;
        match &report.end {
            None => write!(f, " rows={} stopped", report.rows)?,
            Some(end) => write!(
                f,
                " worker_time={} queued={} first_row={} rows={} scanned_rows={} scanned={} segments={}",
                time(end.total_us),
                time(end.queued_us),
                time(end.first_row_us),
                report.rows,
                end.scanned_rows,
                bytes(end.scanned_bytes),
                end.segments,
            )?,
        }
        write!(f, " retries={}", report.retries)
    }
}

fn count(value: u64) -> String {
    value.to_string()
}

fn bytes(value: u64) -> String {
    bytesize::ByteSize(value).to_string()
}

fn time(micros: u64) -> String {
    milliseconds(Duration::from_micros(micros))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2}ms", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_was_not_read_to_its_end_is_told_of() {
        let reports = Reports::default();
        assert_eq!(reports.to_string(), "no worker was asked");
        let (first, second) = (reports.begin(WorkerId(1)), reports.begin(WorkerId(2)));
        first.lock().rows = 3;
        second.lock().rows = 10;
        let text = reports.to_string();
        assert!(
            text.starts_with("workers=2 stopped=2 min/median/max: rows=3/10/10 bytes="),
            "{text}"
        );
        assert!(!text.contains("worker_time"), "{text}");
        second.lock().end = Some(EndOfStream {
            scanned_rows: 40,
            ..EndOfStream::default()
        });
        let text = reports.to_string();
        assert!(text.starts_with("workers=2 stopped=1 "), "{text}");
        assert!(text.contains(" scanned_rows=40/40/40 "), "{text}");
        first.lock().total = Duration::from_millis(7);
        assert!(
            reports
                .to_string()
                .ends_with("\nslowest: w1 total=7.00ms rows=3 stopped retries=0")
        );
        first.lock().end = Some(EndOfStream::default());
        assert!(!reports.to_string().contains("stopped"));
    }

    #[test]
    fn of_a_stream_that_is_opened_again_the_last_attempt_is_told_of() {
        let reports = Reports::default();
        let report = reports.begin(WorkerId(1));
        report.lock().bytes = 200;
        report.lock().begin_again(WorkerId(2));
        report.lock().bytes += 300;
        let again = reports.slowest().unwrap();
        assert_eq!(
            (again.worker, again.bytes, again.retries),
            (WorkerId(2), 300, 1)
        );
    }
}
