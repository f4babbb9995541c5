use anyhow::Result;
use futures::FutureExt;

use super::BenchTable;
use super::stubs::{self, StubReads};
use crate::bench::Bench;
use crate::interleaved::{Candidate, measure_in_turns};
use crate::reading::{Reading, Way};
use crate::results::{Label, Sample, Variant};
use crate::stub::StubOptions;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "fanout",
    title: "Thousands of workers, three ways",
    method: "Stub workers in one process answer with messages that were encoded beforehand. Each way of reading has its own process, open connections and the same decoding: one worker after another; a task and a channel per stream; the gateway's gather. The last two use as many partitions as there are processors. Open: the time until the last stream was open. The gather's streams report how long each of them took from its own first poll. The streams of a partition are first polled one after another. Read: the time from then until the last row. Processor time and context switches are those of the whole reading process, per stream. The peak is that of its resident memory.",
    run: |bench| run(bench).boxed_local(),
};

/// The answer of a worker.
#[derive(Clone, Copy)]
struct AnswerShape {
    name: &'static str,
    batches: usize,
    rows: usize,
    row_bytes: usize,
}

const ANSWERS: [AnswerShape; 3] = [
    AnswerShape {
        name: "1 row of 48 bytes",
        batches: 1,
        rows: 1,
        row_bytes: 48,
    },
    AnswerShape {
        name: "10 × 30 rows of 723 bytes",
        batches: 10,
        rows: 30,
        row_bytes: 723,
    },
    AnswerShape {
        name: "1,000 rows of 48 bytes",
        batches: 1,
        rows: 1_000,
        row_bytes: 48,
    },
];
const WAYS: [Way; 3] = [Way::OneByOne, Way::Tasks, Way::Gather];

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let mut measured = Vec::new();
    for answer in ANSWERS {
        measured.extend(measure_answer(bench, answer).await?);
    }
    Ok(measured)
}

async fn measure_answer(bench: &Bench, answer: AnswerShape) -> Result<Vec<Variant>> {
    let workers = bench.fan_out();
    let stubs = stubs::start(
        bench,
        StubOptions {
            count: workers,
            rows: answer.rows,
            row_bytes: answer.row_bytes,
            batches: answer.batches,
            coalesce_bytes: None,
        },
    )?;
    let times = bench.size.pick(1, 3, 5);
    let mut candidates = Vec::new();
    for way in WAYS {
        let mut label = Label::new(name(answer, way))
            .with("answer", answer.name)
            .with("way", way.name())
            .with("workers", workers);
        if way != Way::Gather {
            label = label.compared_with(name(answer, Way::Gather));
        }
        let reader = stubs::reader(bench, &stubs, way, bench.partitions())?;
        let work = StubReads::new(reader, times, move |reading| sample(reading, workers));
        candidates.push(Candidate::new(label, work));
    }
    measure_in_turns(bench.turns(), candidates).await
}

fn name(answer: AnswerShape, way: Way) -> String {
    format!("{}, {}", answer.name, way.name())
}

fn sample(reading: &Reading, workers: usize) -> Sample {
    let per_stream = |value: f64| value / workers as f64;
    Sample::new()
        .with("open_ms", reading.open_ms)
        .with("read_ms", reading.total_ms - reading.open_ms)
        .with("total_ms", reading.total_ms)
        .with(
            "processor_us_per_stream",
            per_stream(reading.processor_ms * 1e3),
        )
        .with("switches_per_stream", per_stream(reading.switches))
        .with("peak_mib", reading.peak_bytes as f64 / f64::from(1 << 20))
}
