use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;

use super::BenchTable;
use super::explain::{explain_text, parse_size};
use super::running_fleet::FleetLayout;
use super::stubs::{self, StubReads};
use crate::bench::Bench;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::procfs::ObservedProcess;
use crate::reading::{Reading, Way};
use crate::results::{Label, Sample, Variant};
use crate::stub::StubOptions;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "floor",
    title: "Floor: count(*) with a filter over all workers",
    method: "Real workers in two processes, with one shard each, are behind a gateway in its own process. The statement is sent over Flight SQL, and has run before. It runs once without relays, so that the gateway itself reads all workers, and once as the cost estimate decides. Processor time is that of the whole gateway per query, averaged over many queries, minus the time that the idle gateway uses for the heartbeats of all workers; with_idle does not subtract it. The baseline is a process that opens a bare DoGet to each of the same number of stubs, over open connections, and reads the same answer (one BIGINT); decoded: it also decodes the answer. Plan: the bytes of the plan that were sent to all workers together, also by relays, as EXPLAIN ANALYZE reports them.",
    run: |bench| run(bench).boxed_local(),
};

/// The filter is not on the shard key, so that no worker is pruned, and no statistics can answer
/// the query.
const SQL: &str = "SELECT count(*) FROM t WHERE v > 0";
const ROWS_PER_WORKER: usize = 10;
const CHARACTERS: usize = 32;
/// Size of the answer of a worker, which is a count.
const ANSWER_BYTES: usize = 8;
/// Label of the plan's size in EXPLAIN ANALYZE.
const PLAN_BYTES: &str = "plan_bytes=";
const BARE: &str = "bare DoGets";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let workers = bench.fan_out();
    let layout = FleetLayout::many(bench, "floor", workers);
    let running = layout
        .start_with_rows(workers * ROWS_PER_WORKER, CHARACTERS)
        .await?;
    let stubs = stubs::start(
        bench,
        StubOptions {
            count: workers,
            rows: 1,
            row_bytes: ANSWER_BYTES,
            batches: 1,
            coalesce_bytes: None,
        },
    )?;
    let times = bench.size.pick(2, 10, 20);
    let label = |name: &str| Label::new(name).with("workers", workers);
    let mut candidates = Vec::new();
    for (name, relays) in [
        ("Volary, the gateway alone", "off"),
        ("Volary, relays by cost", "auto"),
    ] {
        let mut client = Client::connect(&format!("grpc://{}", running.address())).await?;
        client.collect(&format!("SET relays = '{relays}'")).await?;
        let queries = Queries {
            gateway: running.gateway(),
            client,
            times,
            idle: Duration::from_millis(bench.size.pick(100, 500, 2_000)),
        };
        candidates.push(Candidate::new(label(name).compared_with(BARE), queries));
    }
    let ways = [
        (BARE, Way::Bare),
        ("bare DoGets, decoded", Way::BareDecoded),
    ];
    for (name, way) in ways {
        let reader = stubs::reader(bench, &stubs, way, bench.partitions())?;
        candidates.push(Candidate::new(
            label(name),
            StubReads::new(reader, times, bare_sample),
        ));
    }
    let measured = measure_in_turns(bench.turns(), candidates).await?;
    running.shutdown()?;
    Ok(measured)
}

fn bare_sample(reading: &Reading) -> Sample {
    Sample::new()
        .with("processor_ms", reading.processor_ms)
        .with("total_ms", reading.total_ms)
}

/// Runs the statement again and again in a session.
struct Queries {
    gateway: ObservedProcess,
    client: Client,
    times: u32,
    /// The time for which the idle gateway is observed.
    idle: Duration,
}

impl Measure for Queries {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let before = self.gateway.work()?;
            tokio::time::sleep(self.idle).await;
            let idle = self.gateway.work()?.since(&before).processor_time;
            let before = self.gateway.work()?;
            let started = Instant::now();
            for _ in 0..self.times {
                self.client.collect(SQL).await?;
            }
            let total = started.elapsed();
            let busy = self.gateway.work()?.since(&before).processor_time;
            let idle = idle.mul_f64(total.as_secs_f64() / self.idle.as_secs_f64());
            let explained = self
                .client
                .collect(&format!("EXPLAIN ANALYZE {SQL}"))
                .await?;
            let per_query = |all: Duration| all.as_secs_f64() * 1e3 / f64::from(self.times);
            Ok(Sample::new()
                .with("processor_ms", per_query(busy.saturating_sub(idle)))
                .with("processor_with_idle_ms", per_query(busy))
                .with("total_ms", per_query(total))
                .with(
                    "plan_kib",
                    plan_bytes(&explain_text(&explained)?)? as f64 / 1024.0,
                ))
        }
        .boxed_local()
    }
}

/// Returns the total number of bytes of the plan that all gathers have sent.
fn plan_bytes(explained: &str) -> Result<u64> {
    let mut sizes = explained
        .split(PLAN_BYTES)
        .skip(1)
        .map(parse_size)
        .peekable();
    if sizes.peek().is_none() {
        bail!("EXPLAIN ANALYZE does not say {PLAN_BYTES}: {explained}");
    }
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_bytes_of_all_gathers_are_added() {
        let text = "Gather: workers=2 plan_bytes=1.5 KiB, x\n  Gather: plan_bytes=512 B\n";
        assert_eq!(plan_bytes(text).unwrap(), 2_048);
        assert_eq!(plan_bytes("plan_bytes=0 B").unwrap(), 0);
        assert!(plan_bytes("nothing is said").is_err());
        assert!(plan_bytes("plan_bytes=many").is_err());
    }
}
