use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::time::sleep;
use volary_node::channel::Transport;

use super::BenchTable;
use super::running_fleet::{FleetLayout, RunningFleet};
use crate::allocations;
use crate::bench::Bench;
use crate::goals::Goal;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::results::{Label, Sample, Variant};
use crate::statistics::percentile;
use crate::writing::volary::flight_sql_client;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "wide_insert",
    title: "One-row INSERT, by the number of workers",
    method: "A client inserts one row after another (INSERT … VALUES, DoPut of a CommandStatementUpdate), into a table with four shards for each worker. A few workers and many workers are two fleets that run at the same time and take turns; all workers of a fleet are in two processes. Allocated: what the gateway's process allocates for an insert, whether it frees it again or not. What it allocates in an equally long time without inserts was subtracted, and is a metric of its own. The gateways' allocator has no caches of threads, so that its counts are exact; this makes both fleets a little slower.",
    run: |bench| run(bench).boxed_local(),
};

const FEW: usize = 4;
const SHARDS_PER_WORKER: usize = 4;
const MIB: f64 = 1024.0;

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let inserts = bench.size.pick(5, 50, 300);
    let workers = [FEW, bench.fan_out()];
    let mut fleets = Vec::new();
    for (index, workers) in workers.into_iter().enumerate() {
        let name = format!("wide-insert-{index}");
        let layout = FleetLayout::many(bench, &name, workers);
        let (variable, value) = allocations::EXACT;
        let layout = layout.with_environment(variable, value);
        let mut fleet = layout.start().await?;
        let shards = workers * SHARDS_PER_WORKER;
        let create = format!(
            "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = {shards})"
        );
        fleet.run(&[create]).await?;
        fleets.push((workers, fleet));
    }
    let mut names = Vec::new();
    let mut candidates = Vec::new();
    for (workers, fleet) in &mut fleets {
        let shards = *workers * SHARDS_PER_WORKER;
        let name = format!("{workers} workers, {shards} shards");
        let label = Label::new(name.clone()).with("workers", *workers);
        let label = match names.first() {
            Some(few) => label.compared_with(few),
            None => label,
        };
        names.push(name);
        let client = flight_sql_client(fleet.address()).await?;
        let work = Inserts {
            fleet,
            client,
            next_key: 0,
            inserts,
        };
        candidates.push(Candidate::new(label, work));
    }
    let mut measured = measure_in_turns(bench.turns(), candidates).await?;
    let mut goals = Vec::new();
    if let [few, many] = &measured[..] {
        let allocated = many.samples_of("allocated_kib_per_insert");
        let mebibytes = vec![MIB; allocated.len()];
        goals.push(Goal::AtMost(1.0).of("many workers, allocated / 1 MiB", allocated, &mebibytes));
        let (ours, theirs) = (many.samples_of("p50_ms"), few.samples_of("p50_ms"));
        goals.push(Goal::AtMost(3.0).of("many workers / few workers, p50", ours, theirs));
    }
    measured.extend(goals);
    for (_, fleet) in fleets {
        fleet.shutdown()?;
    }
    Ok(measured)
}

/// Inserts rows, and counts what the gateway allocates.
struct Inserts<'a> {
    fleet: &'a mut RunningFleet,
    client: FlightSqlServiceClient<Transport>,
    next_key: usize,
    inserts: usize,
}

impl Inserts<'_> {
    async fn insert(&mut self) -> Result<Duration> {
        let key = self.next_key;
        self.next_key += 1;
        let sql = format!("INSERT INTO t VALUES ({key}, {key}, 'of one row')");
        let started = Instant::now();
        let rows = self.client.execute_update(sql, None).await?;
        ensure!(rows == 1, "{rows} rows were inserted, not 1");
        Ok(started.elapsed())
    }

    async fn measure_inserts(&mut self) -> Result<Sample> {
        let before = self.fleet.gateway_allocated_bytes()?;
        let started = Instant::now();
        let mut latencies_ms = Vec::with_capacity(self.inserts);
        for _ in 0..self.inserts {
            latencies_ms.push(self.insert().await?.as_secs_f64() * 1e3);
        }
        let took = started.elapsed();
        let after = self.fleet.gateway_allocated_bytes()?;
        sleep(took).await;
        let idle = self.fleet.gateway_allocated_bytes()? - after;
        let bytes = (after - before) as f64 - idle as f64;
        let kib = |bytes: f64| bytes / 1024.0;
        Ok(Sample::new()
            .with("p50_ms", percentile(&latencies_ms, 50))
            .with("p99_ms", percentile(&latencies_ms, 99))
            .with(
                "allocated_kib_per_insert",
                kib(bytes / self.inserts as f64).max(0.0),
            )
            .with(
                "idle_allocated_kib_per_s",
                kib(idle as f64 / took.as_secs_f64()),
            ))
    }
}

impl Measure for Inserts<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        self.measure_inserts().boxed_local()
    }
}
