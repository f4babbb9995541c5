use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};

use super::BenchTable;
use super::running_fleet::FleetLayout;
use crate::bench::Bench;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::procfs::PeakGrowth;
use crate::results::{Label, Sample, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "slow_client",
    title: "Gateway memory by fan-out, with a slow client",
    method: "SELECT * of rows of about 723 bytes from real workers in two processes, with SET query_memory = '256MiB'. The client takes one batch, waits 100 ms, and takes the next. Each turn restarts all processes on the same rows, and first asks all workers for a count. Growth is the difference between the peak of the gateway's resident memory and its memory before.",
    run: |bench| run(bench).boxed_local(),
};

const LIMIT: &str = "256MiB";
/// Length of the text in a row. The row also has two numbers.
const CHARACTERS: usize = 707;
const PAUSE: Duration = Duration::from_millis(100);

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let fan_out = bench.fan_out();
    let [some, more] = bench.size.pick([2, 4], [4, 16], [16, 256]);
    let rows = bench.size.pick(5_000, 50_000, 1_500_000);
    let mut layouts = Vec::new();
    for workers in [some, more, fan_out] {
        let layout = FleetLayout::many(bench, &format!("slow-client-{workers}"), workers);
        layout.start_with_rows(rows, CHARACTERS).await?.shutdown()?;
        layouts.push(layout);
    }
    let reading_time = Duration::from_millis(bench.size.pick(300, 2_000, 15_000));
    let candidates = layouts.iter().map(|layout| {
        let workers = layout.workers();
        let label = Label::new(format!("workers: {workers}")).with("workers", workers);
        let work = SlowClient {
            layout,
            reading_time,
        };
        Candidate::new(label, work)
    });
    measure_in_turns(bench.long_turns(), candidates.collect()).await
}

/// Reads slowly for some time, and then disconnects.
struct SlowClient<'a> {
    layout: &'a FleetLayout,
    reading_time: Duration,
}

impl Measure for SlowClient<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let mut running = self.layout.start().await?;
            running
                .run(&[
                    format!("SET query_memory = '{LIMIT}'"),
                    "SELECT count(*) FROM t WHERE v > 0".to_owned(),
                ])
                .await?;
            let growth = PeakGrowth::begin(running.gateway())?;
            let started = Instant::now();
            let mut rows = running.client.run("SELECT * FROM t").await?;
            let mut rows_read = 0;
            while started.elapsed() < self.reading_time {
                let Some(batch) = rows.batches.next().await else {
                    break;
                };
                rows_read += batch?.num_rows();
                tokio::time::sleep(PAUSE).await;
            }
            let bytes = growth.bytes()? as f64;
            drop(rows);
            running.shutdown()?;
            Ok(Sample::new()
                .with("growth_mib", bytes / f64::from(1 << 20))
                .with("rows_read", rows_read as f64))
        }
        .boxed_local()
    }
}
