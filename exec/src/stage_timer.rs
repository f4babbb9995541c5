use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use parking_lot::Mutex;

/// Measures what happens to rows between their source and their reader: how long they are converted
/// and encoded, and how long they wait until the reader asks for them. The time begins when the
/// source is first polled. The clock is read only when the stage changes: four times for a batch.
#[derive(Debug, Clone, Default)]
pub struct StageTimer(Arc<Mutex<Clock>>);

/// The times that a [`StageTimer`] has measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowTimes {
    /// Time in which rows were converted, joined and encoded.
    pub encode: Duration,
    /// Time in which the reader asked for nothing.
    pub reader: Duration,
}

#[derive(Debug, Default)]
struct Clock {
    /// The times of the stages that have ended.
    times: RowTimes,
    /// The current stage, and when it began. `None` before the first poll of the source, and after
    /// the end.
    current: Option<(Stage, Instant)>,
}

/// The stage that rows are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The source computes rows, or waits for them.
    Source,
    /// Rows are converted and encoded.
    Encode,
    /// The reader does not ask for rows.
    Reader,
}

impl StageTimer {
    /// Returns the stream of rows from which the output is made.
    pub fn source<S>(&self, rows: S) -> TimedSource<S> {
        TimedSource {
            rows,
            timer: self.clone(),
        }
    }

    /// Returns the stream that the reader polls. It is made from the [source](Self::source).
    pub fn output<S>(&self, output: S) -> TimedOutput<S> {
        TimedOutput {
            output,
            timer: self.clone(),
        }
    }

    /// Returns the times up to `now`.
    pub fn times(&self, now: Instant) -> RowTimes {
        let clock = self.0.lock();
        let mut times = clock.times;
        if let Some((stage, since)) = clock.current {
            times.add(stage, now.saturating_duration_since(since));
        }
        times
    }

    fn begin(&self, stage: Stage) {
        self.0.lock().change(Some(stage));
    }

    /// Does nothing before the source was polled.
    fn go_on(&self, stage: Option<Stage>) {
        let mut clock = self.0.lock();
        if clock.current.is_some() {
            clock.change(stage);
        }
    }

    /// Notes that the reader asks for rows. If it has asked already, the source is waited for.
    fn note_asked(&self) {
        let mut clock = self.0.lock();
        if let Some((Stage::Reader, _)) = clock.current {
            clock.change(Some(Stage::Encode));
        }
    }
}

impl Clock {
    fn change(&mut self, next: Option<Stage>) {
        if self.current.map(|(stage, _)| stage) == next {
            return;
        }
        let now = Instant::now();
        if let Some((stage, since)) = self.current {
            self.times.add(stage, now.saturating_duration_since(since));
        }
        self.current = next.map(|stage| (stage, now));
    }
}

impl RowTimes {
    fn add(&mut self, stage: Stage, time: Duration) {
        match stage {
            Stage::Source => {}
            Stage::Encode => self.encode += time,
            Stage::Reader => self.reader += time,
        }
    }
}

/// The rows that come from [`StageTimer::source`].
#[derive(Debug)]
pub struct TimedSource<S> {
    rows: S,
    timer: StageTimer,
}

impl<S: Stream + Unpin> Stream for TimedSource<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.timer.begin(Stage::Source);
        let polled = self.rows.poll_next_unpin(cx);
        self.timer.go_on(Some(Stage::Encode));
        polled
    }
}

/// The items that come from [`StageTimer::output`].
#[derive(Debug)]
pub struct TimedOutput<S> {
    output: S,
    timer: StageTimer,
}

impl<S: Stream + Unpin> Stream for TimedOutput<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.timer.note_asked();
        let polled = self.output.poll_next_unpin(cx);
        self.timer.go_on(match &polled {
            Poll::Ready(Some(_)) => Some(Stage::Reader),
            Poll::Ready(None) => None,
            Poll::Pending => Some(Stage::Source),
        });
        polled
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::channel::mpsc::unbounded;

    use super::*;

    /// Time that each of the stages takes at least in these tests.
    const STEP: Duration = Duration::from_millis(2);

    /// Lets time pass, as work that takes a while does.
    fn work() {
        let began = Instant::now();
        while began.elapsed() < STEP {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn each_moment_belongs_to_one_stage() {
        let (timer, began) = (StageTimer::default(), Instant::now());
        let rows = futures::stream::iter([1, 2]).inspect(|_| work());
        let encoded = timer.source(rows).map(|row| {
            work();
            row * 10
        });
        let mut output = timer.output(encoded);
        for expected in [10, 20] {
            assert_eq!(output.next().now_or_never(), Some(Some(expected)));
            work();
        }
        assert_eq!(output.next().now_or_never(), Some(None));
        let passed = began.elapsed();
        let times = timer.times(Instant::now());
        assert!(times.encode >= 2 * STEP, "{times:?}");
        assert!(times.reader >= 2 * STEP, "{times:?}");
        // The source took two steps, too.
        assert!(times.encode + times.reader + 2 * STEP <= passed);
        work();
        assert_eq!(timer.times(Instant::now()), times);
    }

    #[test]
    fn nothing_is_measured_before_the_source_is_asked() {
        let timer = StageTimer::default();
        let schema = futures::stream::iter([0]);
        let rows = timer.source(futures::stream::iter([1]));
        let mut output = timer.output(schema.chain(rows));
        assert_eq!(output.next().now_or_never(), Some(Some(0)));
        work();
        assert_eq!(timer.times(Instant::now()), RowTimes::default());
        assert_eq!(output.next().now_or_never(), Some(Some(1)));
        work();
        // The reader has not come back yet, and the time passes already.
        assert!(timer.times(Instant::now()).reader >= STEP);
    }

    #[test]
    fn rows_that_are_not_there_yet_keep_the_source_waiting_and_not_the_encoder() {
        let (sender, receiver) = unbounded();
        let (timer, began) = (StageTimer::default(), Instant::now());
        let mut output = timer.output(timer.source(receiver));
        assert!(output.next().now_or_never().is_none());
        work();
        sender.unbounded_send(1).unwrap();
        assert_eq!(output.next().now_or_never(), Some(Some(1)));
        drop(sender);
        assert_eq!(output.next().now_or_never(), Some(None));
        let times = timer.times(Instant::now());
        assert!(times.encode + times.reader + STEP <= began.elapsed());
    }
}
