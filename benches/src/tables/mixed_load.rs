use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use volary_cli::client::Client;

use crate::clients::{Ask, Clients};
use crate::interleaved::Measure;
use crate::results::Sample;
use crate::statistics::percentile;

/// Length of the cycle of questions. One question of a cycle is a GROUP BY, and one is a JOIN.
pub(super) const CYCLE: usize = 10;
const GROUPS: usize = 1_000;
const SHARDS: usize = 16;

/// Returns the statements that make the tables which the questions are about.
pub(super) fn tables(rows: usize) -> [String; 4] {
    [
        format!(
            "CREATE TABLE t (k BIGINT, g BIGINT, v BIGINT) WITH (shard_key = 'k', shards = {SHARDS})"
        ),
        format!(
            "INSERT INTO t SELECT value, value % {GROUPS}, value AS again FROM generate_series(1, {rows})"
        ),
        format!(
            "CREATE TABLE d (g BIGINT, name VARCHAR) WITH (shard_key = 'g', shards = {SHARDS})"
        ),
        format!(
            "INSERT INTO d SELECT value, lpad(CAST(value % 50 AS VARCHAR), 8, '0') FROM generate_series(0, {})",
            GROUPS - 1
        ),
    ]
}

/// Measures how long clients wait for their answers, by kind of question.
pub(super) struct MixedLoad {
    clients: Clients<MixedClient>,
    /// The number of questions that each client asks in a turn.
    questions: usize,
}

impl MixedLoad {
    /// Connects `count` clients to the gateway at `uri`, whose table `t` has `rows` rows.
    pub(super) async fn connect(
        uri: &str,
        count: usize,
        rows: usize,
        questions: usize,
    ) -> Result<Self> {
        let mut clients = Vec::with_capacity(count);
        for cycle_start in 0..count {
            clients.push(MixedClient {
                client: Client::connect(uri).await?,
                cycle_start,
                rows,
            });
        }
        Ok(Self {
            clients: Clients::new(clients),
            questions,
        })
    }
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
