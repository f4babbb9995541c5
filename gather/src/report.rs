use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volary_flight_proto::frame::EndOfStream;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::stage_times::StageTimes;

/// What a gather learned of one worker. If the stream was opened again, only the last attempt
/// counts, except in `total`, `sent_bytes` and `retries`.
#[derive(Debug, Clone)]
pub struct StreamReport {
    /// Id of the worker.
    pub worker: WorkerId,
    /// Number of workers whose rows the worker merges. It is 0 if the rows are the worker's own.
    pub members: u64,
    /// Number of rows that arrived.
    pub rows: u64,
    /// Number of messages with rows.
    pub batches: u64,
    /// Number of bytes that arrived, as encoded.
    pub bytes: u64,
    /// Size of the tickets that were sent, in bytes.
    pub sent_bytes: u64,
    /// Time until the stream was open.
    pub open: Duration,
    /// Time spent waiting for messages.
    pub network: Duration,
    /// Time spent decoding messages.
    pub decode: Duration,
    /// Time from the first poll to the last row that was read.
    pub total: Duration,
    /// Number of times that the stream failed and was opened again.
    pub retries: u32,
    /// What the worker said at the end of its stream. `None` if the stream was not read to its end.
    pub end: Option<EndOfStream>,
}

impl StreamReport {
    /// Creates the report of a worker that is asked now.
    pub fn new(worker: WorkerId, members: u64) -> Self {
        Self {
            worker,
            members,
            rows: 0,
            batches: 0,
            bytes: 0,
            sent_bytes: 0,
            open: Duration::ZERO,
            network: Duration::ZERO,
            decode: Duration::ZERO,
            total: Duration::ZERO,
            retries: 0,
            end: None,
        }
    }

    /// Returns what most of the time was spent on.
    fn slowest_part(&self) -> &'static str {
        let Some(end) = &self.end else {
            return "its reader, which stopped it";
        };
        let on_worker = Duration::from_micros(end.total_us);
        let queued = Duration::from_micros(end.queued_us);
        // In the rest of the time, other streams were read first.
        let read_late = self
            .total
            .saturating_sub(self.open + self.network + self.decode);
        let parts = [
            (queued, "its queue"),
            // A worker whose stream is read late has to wait itself. That time is not its own.
            (on_worker.saturating_sub(queued + read_late), "its scan"),
            (
                self.total
                    .saturating_sub(on_worker + read_late + self.decode),
                "the network",
            ),
            (self.decode, "decoding"),
            (read_late, "its reader, which read others first"),
        ];
        let slowest = parts.into_iter().max_by_key(|(time, _)| *time);
        slowest.map_or("nothing", |(_, part)| part)
    }

    /// Returns how long the stages of the worker took, and those of a relay's members. Returns
    /// `None` if the stream was not read to its end, or if the worker does not measure its stages.
    fn stage_times(&self) -> Option<StageTimes> {
        let stages = self.end.as_ref()?.stages?;
        let wire = StageTimes {
            wire_us: micros(self.wire()?),
            ..StageTimes::default()
        };
        Some(stages.plus(wire))
    }

    /// Returns how long the stream was opened and waited for while the worker itself did nothing
    /// for it. Returns `None` if the stream was not read to its end.
    fn wire(&self) -> Option<Duration> {
        let end = self.end.as_ref()?;
        let on_worker = Duration::from_micros(end.total_us.saturating_sub(end.reader_us));
        Some((self.open + self.network).saturating_sub(on_worker))
    }

    /// Begins the report anew, because the same worker, or another replica, is asked again.
    pub(crate) fn restart(&mut self, worker: WorkerId) {
        *self = Self {
            sent_bytes: self.sent_bytes,
            retries: self.retries + 1,
            ..Self::new(worker, self.members)
        };
    }
}

/// The reports of a gather's workers. They are filled while the gather runs.
#[derive(Debug, Clone, Default)]
pub struct StreamReports(Arc<Mutex<GatherReport>>);

#[derive(Debug, Default)]
struct GatherReport {
    workers: Vec<Arc<Mutex<StreamReport>>>,
    narrowed_to: Option<String>,
    /// Number of streams that were read to their end.
    ended: usize,
    /// The longest time that passed before a message came.
    longest_wait: Duration,
}

/// Minimum number of sibling streams for a stream to be judged by them.
const MIN_SIBLINGS: usize = 3;
/// A stream may be silent for this many times the longest time that any stream was silent.
const LONGEST_WAIT_FACTOR: u32 = 4;
/// A stream may always be silent for the idle timeout divided by this number. Keep-alive
/// messages come every quarter of the idle timeout.
const MIN_PATIENCE_DIVISOR: u32 = 2;
/// A stream may always be silent for this time, unless the idle timeout is shorter. Machines that
/// are busy, or that are moved to another host, pause for that long.
const MIN_PATIENCE: Duration = Duration::from_secs(1);

impl StreamReports {
    /// Adds the report of a worker and returns it, to be filled while the worker's stream is read.
    /// The report counts from now on, because the stream may not be read to its end: an operator
    /// above the gather that has enough rows, such as a limit, drops it earlier. Some operators
    /// drop it only after they have returned the query's last row.
    pub fn begin(&self, worker: WorkerId, members: u64) -> Arc<Mutex<StreamReport>> {
        let report = Arc::new(Mutex::new(StreamReport::new(worker, members)));
        self.0.lock().workers.push(Arc::clone(&report));
        report
    }

    /// Notes how long a stream waited for a message.
    pub(crate) fn note_wait(&self, wait: Duration) {
        let mut learned = self.0.lock();
        learned.longest_wait = learned.longest_wait.max(wait);
    }

    /// Notes that a stream was read to its end.
    pub fn note_end(&self) {
        self.0.lock().ended += 1;
    }

    /// Returns how long a stream may be silent. When at least half of its siblings have ended, the
    /// limit follows from the longest wait for a message so far. A stream that hangs is then
    /// noticed before the idle timeout, which otherwise is the limit.
    pub(crate) fn silence_limit(&self, idle_timeout: Duration) -> Duration {
        let learned = self.0.lock();
        let siblings = learned.workers.len().saturating_sub(1);
        if siblings < MIN_SIBLINGS || learned.ended * 2 < siblings {
            return idle_timeout;
        }
        let shortest = (idle_timeout / MIN_PATIENCE_DIVISOR).max(MIN_PATIENCE);
        let limit_of_siblings = learned.longest_wait * LONGEST_WAIT_FACTOR;
        limit_of_siblings.max(shortest).min(idle_timeout)
    }

    /// Notes which rows a fragment asks for if joins above it narrow it.
    pub fn note_narrowing(&self, rows: String) {
        self.0.lock().narrowed_to = Some(rows);
    }

    /// Returns all reports, ordered by worker.
    pub fn all(&self) -> Vec<StreamReport> {
        let learned = self.0.lock();
        let reports = learned.workers.iter().map(|report| report.lock().clone());
        let mut all: Vec<_> = reports.collect();
        all.sort_by_key(|report| report.worker);
        all
    }

    /// Calls `visit` for each worker that has ended, with what the worker said and the number of
    /// workers that it stands for: itself, or the members whose rows it merges. Nothing is copied,
    /// because there may be thousands of workers.
    pub fn for_each_end(&self, mut visit: impl FnMut(&EndOfStream, u64)) {
        let learned = self.0.lock();
        for report in &learned.workers {
            let report = report.lock();
            if let Some(end) = &report.end {
                visit(end, report.members.max(1));
            }
        }
    }

    /// Returns the sums of the workers' [stages](StreamReport::stage_times). Returns `None` if no
    /// worker has told how long they took.
    pub fn stage_times(&self) -> Option<StageTimes> {
        let learned = self.0.lock();
        let told = learned.workers.iter();
        let told = told.filter_map(|report| report.lock().stage_times());
        told.reduce(StageTimes::plus)
    }

    /// Returns the sums over all workers, and details of the slowest one. A relay sends them at the
    /// end of its own stream.
    pub fn total(&self) -> EndOfStream {
        let all = self.all();
        let slowest = self.slowest();
        let end_of_slowest = slowest.as_ref().and_then(|slowest| slowest.end.as_ref());
        let total = EndOfStream {
            sent_bytes: sent_bytes(&all),
            plan_metrics: end_of_slowest.map_or_else(String::new, |end| end.plan_metrics.clone()),
            slowest_member: slowest
                .as_ref()
                .map_or_else(String::new, |slowest| ReportLine(slowest).to_string()),
            stages: self.stage_times(),
            ..EndOfStream::default()
        };
        let ends = all.iter().filter_map(|report| report.end.as_ref());
        ends.fold(total, |mut total, end| {
            total.compute_us = total.compute_us.saturating_add(end.compute_us);
            total.scanned_rows = total.scanned_rows.saturating_add(end.scanned_rows);
            total.scanned_bytes = total.scanned_bytes.saturating_add(end.scanned_bytes);
            total.segments = total.segments.saturating_add(end.segments);
            total
        })
    }

    /// Returns the report of the worker that took longest.
    pub fn slowest(&self) -> Option<StreamReport> {
        self.all().into_iter().max_by_key(|report| report.total)
    }
}

impl fmt::Display for StreamReports {
    /// Shows which rows were asked for if joins narrowed them, how many bytes all tickets took, how
    /// many streams were not read to their end, the spread over the workers, and the slowest
    /// worker.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rows) = &self.0.lock().narrowed_to {
            writeln!(f, "narrowed to {rows}")?;
        }
        let all = self.all();
        let Some(slowest) = self.slowest() else {
            return f.write_str("no worker was asked");
        };
        match all.iter().map(|report| report.members).sum::<u64>() {
            0 => write!(f, "workers={}", all.len())?,
            members => write!(f, "relays={} members={members}", all.len())?,
        }
        write!(f, " plan_bytes={}", bytes(sent_bytes(&all)))?;
        let stopped = all.iter().filter(|report| report.end.is_none()).count();
        if stopped > 0 {
            write!(f, " stopped={stopped}")?;
        }
        write!(f, " min/median/max:{}", Spreads(&all))?;
        write!(f, "\nslowest: {}", ReportLine(&slowest))?;
        match slowest.end.as_ref().filter(|_| slowest.members > 0) {
            Some(end) => write!(f, "\nslowest of its members: {}", end.slowest_member),
            None => Ok(()),
        }
    }
}

/// Returns the size of all tickets, including those that relays sent.
fn sent_bytes(all: &[StreamReport]) -> u64 {
    let of_relay = |report: &StreamReport| report.end.as_ref().map_or(0, |end| end.sent_bytes);
    let sent = all
        .iter()
        .map(|report| report.sent_bytes.saturating_add(of_relay(report)));
    sent.fold(0, u64::saturating_add)
}

/// Shows the minimum, the median and the maximum over the workers. Values that workers measured
/// themselves cover only the streams that were read to their end.
struct Spreads<'a>(&'a [StreamReport]);

impl fmt::Display for Spreads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |value: fn(&StreamReport) -> u64| self.0.iter().map(value).collect();
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
        let wires = self.0.iter().filter_map(StreamReport::wire);
        write_spread(f, "wire", time, wires.map(micros).collect())?;
        write_spread(f, "decode", time, of(|report| micros(report.decode)))?;
        write_spread(f, "total", time, of(|report| micros(report.total)))
    }
}

/// Writes nothing if `values` is empty.
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

struct ReportLine<'a>(&'a StreamReport);

impl fmt::Display for ReportLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        write!(
            f,
            "{} because of {}, total={}",
            report.worker,
            report.slowest_part(),
            milliseconds(report.total)
        )?;
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
        if let Some(stages) = report.stage_times() {
            write!(
                f,
                " bind={} index={} read={} compute={} encode={} wire={}",
                time(stages.bind_us),
                time(stages.index_us),
                time(stages.read_us),
                time(stages.compute_us),
                time(stages.encode_us),
                time(stages.wire_us),
            )?;
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
        let reports = StreamReports::default();
        assert_eq!(reports.to_string(), "no worker was asked");
        let (first, second) = (reports.begin(WorkerId(1), 0), reports.begin(WorkerId(2), 0));
        first.lock().rows = 3;
        second.lock().rows = 10;
        first.lock().sent_bytes = 1000;
        second.lock().sent_bytes = 536;
        let text = reports.to_string();
        assert!(
            text.starts_with(
                "workers=2 plan_bytes=1.5 KiB stopped=2 min/median/max: rows=3/10/10 bytes="
            ),
            "{text}"
        );
        assert!(!text.contains("worker_time"), "{text}");
        second.lock().end = Some(EndOfStream {
            scanned_rows: 40,
            ..EndOfStream::default()
        });
        let text = reports.to_string();
        assert!(text.contains(" stopped=1 "), "{text}");
        assert!(text.contains(" scanned_rows=40/40/40 "), "{text}");
        first.lock().total = Duration::from_millis(7);
        assert!(
            reports
                .to_string()
                .ends_with("\nslowest: w1 because of its reader, which stopped it, total=7.00ms rows=3 stopped retries=0")
        );
        first.lock().end = Some(EndOfStream::default());
        assert!(!reports.to_string().contains("stopped"));
    }

    #[test]
    fn of_a_stream_that_is_opened_again_the_last_attempt_is_told_of() {
        let reports = StreamReports::default();
        let report = reports.begin(WorkerId(1), 0);
        report.lock().bytes = 200;
        report.lock().sent_bytes = 40;
        report.lock().restart(WorkerId(2));
        report.lock().bytes += 300;
        report.lock().sent_bytes += 2;
        let again = reports.slowest().unwrap();
        assert_eq!(
            (again.worker, again.bytes, again.retries),
            (WorkerId(2), 300, 1)
        );
        assert_eq!(again.sent_bytes, 42);
    }

    #[test]
    fn what_made_the_slowest_worker_slow_is_told() {
        let ms = Duration::from_millis;
        let report = |queued_ms: u64, worker_ms: u64, network: u64, total: u64| {
            let mut report = StreamReport::new(WorkerId(1), 0);
            report.end = Some(EndOfStream {
                queued_us: queued_ms * 1000,
                total_us: worker_ms * 1000,
                ..EndOfStream::default()
            });
            (report.network, report.total) = (ms(network), ms(total));
            report.slowest_part()
        };
        assert_eq!(report(90, 100, 105, 110), "its queue");
        assert_eq!(report(5, 100, 105, 110), "its scan");
        assert_eq!(report(1, 10, 105, 110), "the network");
        let read_late = report(1, 100, 10, 110);
        assert_eq!(read_late, "its reader, which read others first");
    }

    #[test]
    fn the_wire_is_what_is_waited_for_while_the_worker_does_nothing() {
        let reports = StreamReports::default();
        assert_eq!(reports.stage_times(), None);
        let (first, second) = (reports.begin(WorkerId(1), 0), reports.begin(WorkerId(2), 3));
        let ms = Duration::from_millis;
        let end = |total_us: u64, reader_us: u64, stages: StageTimes| EndOfStream {
            total_us,
            reader_us,
            stages: Some(stages),
            ..EndOfStream::default()
        };
        // An older worker does not say how long its stages took.
        first.lock().end = Some(EndOfStream::default());
        assert_eq!(reports.stage_times(), None);
        let read = StageTimes {
            read_us: 4_000,
            ..StageTimes::default()
        };
        first.lock().open = ms(2);
        first.lock().network = ms(8);
        first.lock().end = Some(end(9_000, 3_000, read));
        let wire_us = |report: &Mutex<StreamReport>| report.lock().stage_times().unwrap().wire_us;
        assert_eq!(wire_us(&first), 10_000 - (9_000 - 3_000));
        // A stream that is read late is not waited for.
        second.lock().network = ms(1);
        let of_members = StageTimes {
            wire_us: 500,
            ..read
        };
        second.lock().end = Some(end(5_000, 0, of_members));
        assert_eq!(wire_us(&second), 500);
        let all = reports.stage_times().unwrap();
        assert_eq!((all.read_us, all.wire_us), (8_000, 4_500));
        assert_eq!(reports.total().stages, Some(all));
        let text = reports.to_string();
        assert!(text.contains(" wire=0.00ms/4.00ms/4.00ms "), "{text}");
        assert!(text.contains(" read=4.00ms compute=0.00ms "), "{text}");
    }

    #[test]
    fn a_stream_that_lags_behind_its_siblings_is_given_up_sooner() {
        let idle = Duration::from_secs(10);
        let reports = StreamReports::default();
        for worker in 0..5 {
            reports.begin(WorkerId(worker), 0);
        }
        reports.note_wait(Duration::from_millis(20));
        assert_eq!(reports.silence_limit(idle), idle);
        (0..4).for_each(|_| reports.note_end());
        assert_eq!(reports.silence_limit(idle), Duration::from_secs(5));
        assert_eq!(reports.silence_limit(MIN_PATIENCE), MIN_PATIENCE);
        // Another stream was silent for about as long.
        reports.note_wait(Duration::from_secs(2));
        assert_eq!(reports.silence_limit(idle), Duration::from_secs(8));
        reports.note_wait(Duration::from_secs(9));
        assert_eq!(reports.silence_limit(idle), idle);
    }

    #[test]
    fn a_few_streams_are_not_measured_by_each_other() {
        let idle = Duration::from_secs(10);
        let reports = StreamReports::default();
        for worker in 0..3 {
            reports.begin(WorkerId(worker), 0);
            reports.note_end();
        }
        assert_eq!(reports.silence_limit(idle), idle);
    }
}
