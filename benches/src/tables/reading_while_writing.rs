use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use tokio::task::JoinSet;
use tokio::time::{Interval, interval_at};
use volary_cli::client::Client;

use super::BenchTable;
use super::written_cluster;
use crate::bench::Bench;
use crate::clients::{Ask, Clients};
use crate::goals::Goal;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::local_process::LocalProcess;
use crate::results::{Label, Sample, Variant};
use crate::statistics::{Spread, percentile};
use crate::writing;
use crate::writing::WritingClient;
use crate::writing::measured::{Writers, Writing};
use crate::writing::volary::Ingest;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "reading_while_writing",
    title: "Reading while writing",
    method: "Four clients ask one question after another about rows that do not change: nine point queries by key and then a GROUP BY of all of these rows. In every second turn, eight clients write batches of 5,000 other rows into the same table meanwhile, at half of the rate that they reach at the beginning of the run without queries. The cluster has four workers in one process; the clients are in the measuring process.",
    run: |bench| run(bench).boxed_local(),
};

const READERS: usize = 4;
const WRITERS: usize = 8;
const BATCH_ROWS: usize = 5_000;
/// One question of a cycle is a GROUP BY.
const CYCLE: usize = 10;
const QUIET: &str = "without writes";
const WRITTEN: &str = "while writing at half of the peak";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(1_000, 100_000, 1_000_000);
    let batch_rows = bench.size.pick(10, BATCH_ROWS, BATCH_ROWS);
    let peak_time = Duration::from_millis(bench.size.pick(50, 2_000, 5_000));
    let time = Duration::from_millis(bench.size.pick(200, 4_000, 15_000));
    let cluster = Rc::new(written_cluster::start(bench, "reading-while-writing")?);
    let writers = Writers::new(Ingest(Rc::clone(&cluster)));
    let mut peak = Writing {
        writers: &writers,
        clients: WRITERS,
        rows: batch_rows,
        time: peak_time,
        disk: None,
    };
    let mut measured_peak = Variant::new(Label::new("peak of the writes"));
    for _ in 0..bench.turns().counted {
        measured_peak.push(peak.measure().await?);
    }
    let rates = measured_peak.samples_of("rows_per_s");
    let peak_rate = Spread::of(rates).context("no peak")?.median;

    writers.way().empty_table().await?;
    let mut client = Client::connect(cluster.uri()).await?;
    let table = writing::TABLE;
    client
        .collect(&format!(
            "INSERT INTO {table} SELECT value, value % 1000, CAST(value AS DOUBLE), lpad(CAST(value AS VARCHAR), 12, '0') FROM generate_series(1, {rows})"
        ))
        .await?;
    let paced = PacedWriters {
        writers: &writers,
        batch_rows,
        rows_per_s: peak_rate / 2.0,
    };
    let label = |name: &str| Label::new(name).with("writes", name);
    let (quiet_readers, written_readers) = (
        readers_of(&cluster, rows).await?,
        readers_of(&cluster, rows).await?,
    );
    let candidates = vec![
        Candidate::new(
            label(QUIET),
            Reading {
                readers: quiet_readers,
                time,
                paced: None,
            },
        ),
        Candidate::new(
            label(WRITTEN).compared_with(QUIET),
            Reading {
                readers: written_readers,
                time,
                paced: Some(paced),
            },
        ),
    ];
    let measured = measure_in_turns(bench.turns(), candidates).await?;
    let mut variants = vec![measured_peak];
    let mut goals = Vec::new();
    if let [quiet, written] = &measured[..] {
        for metric in ["point_p99_ms", "group_by_p99_ms"] {
            let what = format!("{metric}, {WRITTEN} / {QUIET}");
            let (ours, theirs) = (written.samples_of(metric), quiet.samples_of(metric));
            goals.push(Goal::AtMost(2.0).of(&what, ours, theirs));
        }
    }
    variants.extend(measured);
    variants.extend(goals);
    Ok(variants)
}

async fn readers_of(cluster: &LocalProcess, rows: usize) -> Result<Clients<Reader>> {
    let mut readers = Vec::with_capacity(READERS);
    for cycle_start in 0..READERS {
        readers.push(Reader {
            client: Client::connect(cluster.uri()).await?,
            cycle_start,
            rows,
        });
    }
    Ok(Clients::new(readers))
}

/// A client that asks about the rows with the keys from 1 to `rows`.
struct Reader {
    client: Client,
    /// The position in the cycle at which the client begins.
    cycle_start: usize,
    rows: usize,
}

impl Ask for Reader {
    fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        let (table, rows) = (writing::TABLE, self.rows);
        let (kind, sql, expected) = if (number + self.cycle_start).is_multiple_of(CYCLE) {
            let sql = format!(
                "SELECT a, count(*), sum(b), max(s) FROM {table} WHERE k <= {rows} GROUP BY a"
            );
            ("group_by", sql, rows.min(1_000))
        } else {
            let key = number % rows + 1;
            let sql = format!("SELECT a, b, s FROM {table} WHERE k = {key}");
            ("point", sql, 1)
        };
        let answer = async move {
            let found = self.client.collect(&sql).await?.num_rows();
            ensure!(found == expected, "{found} rows, not {expected}: {sql}");
            Ok(())
        };
        (kind, answer.boxed())
    }
}

/// Reads for a while, with or without writes at the same time.
struct Reading<'a> {
    readers: Clients<Reader>,
    time: Duration,
    paced: Option<PacedWriters<'a>>,
}

impl Measure for Reading<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let writing = match &self.paced {
                Some(paced) => Some(paced.start().await?),
                None => None,
            };
            let answers = self.readers.ask_for(self.time, CYCLE).await?;
            let written_rows_per_s = match writing {
                Some(writing) => Some(writing.stop().await?),
                None => None,
            };
            if let Some(failure) = answers.failures.into_iter().next() {
                return Err(failure);
            }
            let mut sample = Sample::new();
            for (kind, latencies_ms) in &answers.latencies_ms {
                for percent in [50, 99] {
                    let metric = format!("{kind}_p{percent}_ms");
                    sample = sample.with(metric, percentile(latencies_ms, percent));
                }
            }
            if let Some(rate) = written_rows_per_s {
                sample = sample.with("rows_per_s", rate);
            }
            Ok(sample)
        }
        .boxed_local()
    }
}

/// Clients that write at a fixed rate together.
struct PacedWriters<'a> {
    writers: &'a Writers,
    batch_rows: usize,
    rows_per_s: f64,
}

/// Clients that write until they are stopped. Dropping this ends them, too.
struct RunningWriters {
    ends: Arc<AtomicBool>,
    started: Instant,
    batch_rows: usize,
    /// Each task returns the number of batches that it has written.
    tasks: JoinSet<Result<usize>>,
}

impl PacedWriters<'_> {
    async fn start(&self) -> Result<RunningWriters> {
        let clients = self.writers.clients(WRITERS, self.batch_rows).await?;
        let batches_per_s = self.rows_per_s / self.batch_rows as f64;
        let period = Duration::from_secs_f64(WRITERS as f64 / batches_per_s.max(0.1));
        let ends = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        // The clients write one after another, and not all at the same time.
        let gap = period / WRITERS as u32;
        let mut first = tokio::time::Instant::now();
        for client in clients.into_clients() {
            let ticks = interval_at(first, period);
            tasks.spawn(write_until(client, ticks, Arc::clone(&ends)));
            first += gap;
        }
        Ok(RunningWriters {
            ends,
            started: Instant::now(),
            batch_rows: self.batch_rows,
            tasks,
        })
    }
}

/// Writes a batch at each tick. A late batch is made up for.
async fn write_until(
    mut client: WritingClient,
    mut ticks: Interval,
    ends: Arc<AtomicBool>,
) -> Result<usize> {
    let mut batches = 0;
    while !ends.load(Ordering::Relaxed) {
        ticks.tick().await;
        client.write().await?;
        batches += 1;
    }
    Ok(batches)
}

impl RunningWriters {
    /// Ends the clients, and returns how many rows they have written per second.
    async fn stop(mut self) -> Result<f64> {
        self.ends.store(true, Ordering::Relaxed);
        let mut batches = 0;
        while let Some(ended) = self.tasks.join_next().await {
            batches += ended??;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        Ok((batches * self.batch_rows) as f64 / seconds)
    }
}
