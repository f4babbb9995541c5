use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use volary_cli::client::Client;

use super::BenchTable;
use super::running_fleet::FleetLayout;
use crate::bench::Bench;
use crate::clients::{Ask, Clients};
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::results::{Label, Sample, Variant};
use crate::statistics::percentile;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "concurrency",
    title: "Concurrency: point, GROUP BY and JOIN at the same time",
    method: "Clients ask at the same time, each in a session on its own connection, and each sends one question after another. Of ten questions, eight read the row of a key, one groups all rows, and one joins them with another table and groups them. The four workers are separate processes. Each client asks the same number of questions, and begins at another position of the ten. The clients are in the measuring process.",
    run: |bench| run(bench).boxed_local(),
};

/// Length of the cycle of questions. One question of a cycle is a GROUP BY, and one is a JOIN.
const CYCLE: usize = 10;
const GROUPS: usize = 1_000;
const SHARDS: usize = 16;

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(5_000, 50_000, 1_000_000);
    let counts = bench.size.pick(vec![1, 4], vec![1, 8], vec![1, 8, 64, 256]);
    let layout = FleetLayout::few(bench, "concurrency");
    let mut running = layout.start().await?;
    running
        .run(&[
            format!("CREATE TABLE t (k BIGINT, g BIGINT, v BIGINT) WITH (shard_key = 'k', shards = {SHARDS})"),
            format!("INSERT INTO t SELECT value, value % {GROUPS}, value AS again FROM generate_series(1, {rows})"),
            format!("CREATE TABLE d (g BIGINT, name VARCHAR) WITH (shard_key = 'g', shards = {SHARDS})"),
            format!(
                "INSERT INTO d SELECT value, lpad(CAST(value % 50 AS VARCHAR), 8, '0') FROM generate_series(0, {})",
                GROUPS - 1
            ),
        ])
        .await?;
    let uri = format!("grpc://{}", running.address());
    let mut candidates = Vec::new();
    for count in counts {
        let mut clients = Vec::with_capacity(count);
        for begins_at in 0..count {
            clients.push(MixedClient {
                client: Client::connect(&uri).await?,
                cycle_start: begins_at,
                rows,
            });
        }
        let label = Label::new(format!("clients: {count}")).with("clients", count);
        let work = MixedLoad {
            clients: Clients::new(clients),
            questions: CYCLE * (bench.size.pick(1, 4, 64) / count).max(1),
        };
        candidates.push(Candidate::new(label, work));
    }
    let measured = measure_in_turns(bench.turns(), candidates).await?;
    running.shutdown()?;
    Ok(measured)
}

/// Measures how long clients wait for their answers, by kind of question.
struct MixedLoad {
    clients: Clients<MixedClient>,
    /// The number of questions that each client asks in a turn.
    questions: usize,
}

impl Measure for MixedLoad {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let answers = self.clients.ask(self.questions).await?;
            for failure in &answers.failures {
                eprintln!("failed: {failure:#}");
            }
            let answered: usize = answers.latencies_ms.values().map(Vec::len).sum();
            let per_s = answered as f64 / answers.total.as_secs_f64();
            let mut sample = Sample::new()
                .with("queries_per_s", per_s)
                .with("failures", answers.failures.len() as f64);
            for (kind, latencies_ms) in &answers.latencies_ms {
                for percent in [50, 99] {
                    let metric = format!("{kind}_p{percent}_ms");
                    sample = sample.with(metric, percentile(latencies_ms, percent));
                }
            }
            Ok(sample)
        }
        .boxed_local()
    }
}

/// A client that asks all kinds of questions.
struct MixedClient {
    client: Client,
    /// The position in the cycle at which the client begins. The positions differ, so that not all
    /// clients ask the large questions at the same time.
    cycle_start: usize,
    rows: usize,
}

impl Ask for MixedClient {
    fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        let (kind, sql) = question(number + self.cycle_start, self.rows);
        let answer = async move {
            let rows = self.client.collect(&sql).await?;
            ensure!(rows.num_rows() > 0, "no rows: {sql}");
            Ok(())
        };
        (kind, answer.boxed())
    }
}

fn question(number: usize, rows: usize) -> (&'static str, String) {
    match number % CYCLE {
        0 => (
            "group_by",
            "SELECT g, count(*), sum(v) FROM t GROUP BY g".to_owned(),
        ),
        5 => (
            "join",
            "SELECT d.name, count(*), sum(t.v) FROM t JOIN d ON t.g = d.g GROUP BY d.name"
                .to_owned(),
        ),
        _ => {
            let key = number % rows + 1;
            ("point", format!("SELECT v FROM t WHERE k = {key}"))
        }
    }
}
