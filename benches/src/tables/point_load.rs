use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;

use super::BenchTable;
use crate::bench::Bench;
use crate::clients::Clients;
use crate::exchange::{ExchangeClient, KeyCheck};
use crate::goals::Goal;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::local_process::{IN_PROCESS_CALLS, LocalProcess};
use crate::procfs::ObservedProcess;
use crate::results::{Label, Sample, Variant};
use crate::statistics::percentile;
use crate::stub::driver::DriverStubOptions;
use crate::stub::driver::process::DriverStubProcess;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "point_load",
    title: "Load of point queries: WHERE id = ?, one call each, many connections",
    method: "`volary local` with 4 workers is a process of its own. Its gateway calls the workers over loopback, as between machines, or within the process, as it does unless it is told otherwise. Its table has 4 columns. In the measuring process, clients ask at the same time, each on its own connection. Each client sends one question after another, each for another key. A question is one DoExchange with the statement and its parameter, as the client `volary` sends it. The stub is another process. It gives the answer that the gateway gave to the first question, with the same bytes. Processor time is that of the server's process (server_ms) and of the measuring process (generator_ms), per question. All processes share the processors, so queries_per_s includes the work of the clients.",
    run: |bench| run(bench).boxed_local(),
};

const SQL: &str = "SELECT id, name, grams, kind FROM birds WHERE id = ?";

/// The clusters, by name, with the value of [`IN_PROCESS_CALLS`].
const CLUSTERS: &[(&str, &str)] = &[("Volary", "false"), ("Volary, calls in process", "true")];
const STUB: &str = "stub";

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(1_000, 100_000, 1_000_000);
    let connections = bench.size.pick(4, 64, 64);
    let questions = bench.size.pick(5, 50, 400);
    let program = bench.volary_program();
    let mut clusters = Vec::new();
    for (place, (name, in_process)) in CLUSTERS.iter().enumerate() {
        let directory = bench.scratch(&format!("point_load-{place}"));
        let calls = [(IN_PROCESS_CALLS, (*in_process).to_owned())];
        let cluster = LocalProcess::start(name, &program, &directory, &calls)?;
        let mut loading = Client::connect(cluster.uri()).await?;
        loading.collect(&birds(rows)).await?;
        clusters.push(cluster);
    }
    let address = |cluster: &LocalProcess| cluster.uri().trim_start_matches("grpc://").to_owned();
    let stub = DriverStubProcess::start(
        &bench.fleet_program,
        &DriverStubOptions {
            gateway: address(&clusters[0]),
            listeners: 1,
        },
    )?;
    let stub_address = stub.addresses()[0].clone();
    // The stub asks the gateway once, and then all clients get the same answer.
    ExchangeClient::connect(&stub_address, SQL, KeyCheck::Equal)
        .await?
        .row_of(1)
        .await?;
    let mut servers = vec![(STUB, stub.observed(), stub_address, KeyCheck::Any)];
    servers.extend(CLUSTERS.iter().zip(&clusters).map(|((name, _), cluster)| {
        let address = address(cluster);
        (*name, cluster.observed(), address, KeyCheck::Equal)
    }));
    let mut candidates = Vec::new();
    for (name, server, address, check) in servers {
        let mut label = Label::new(name)
            .with("side", name)
            .with("clients", connections);
        if name != STUB {
            label = label.compared_with(STUB);
        }
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            let client = ExchangeClient::connect(&address, SQL, check).await?;
            clients.push(client.with_keys_up_to(rows));
        }
        let load = Load {
            clients: Clients::new(clients),
            questions,
            server,
        };
        candidates.push(Candidate::new(label, load));
    }
    let mut measured = measure_in_turns(bench.turns(), candidates).await?;
    let (bare, ours) = measured.split_first().context("nothing was measured")?;
    let goals: Vec<_> = ours
        .iter()
        .map(|ours| {
            let what = format!("server's processor time, {} / stub", ours.label.name);
            let (ours, bare) = (ours.samples_of("server_ms"), bare.samples_of("server_ms"));
            Goal::AtMost(2.0).of(&what, ours, bare)
        })
        .collect();
    measured.extend(goals);
    Ok(measured)
}

/// Returns the statement that makes the table. The keys are 1 to `rows`.
fn birds(rows: usize) -> String {
    format!(
        "CREATE TABLE birds WITH (shard_key = 'id') AS SELECT value AS id, 'bird ' || value AS name, value / 2.0 AS grams, CAST(value % 50 AS INT) AS kind FROM generate_series(1, {rows})"
    )
}

/// Measures how many questions a server answers, and what that costs both sides.
struct Load {
    clients: Clients<ExchangeClient>,
    /// The number of questions that each client asks in a turn.
    questions: usize,
    server: ObservedProcess,
}

impl Measure for Load {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let processes = [self.server.clone(), ObservedProcess::this()];
            let before = [processes[0].work()?, processes[1].work()?];
            let answers = self.clients.ask(self.questions).await?;
            let after = [processes[0].work()?, processes[1].work()?];
            let total = answers.total;
            let latencies_ms = answers.all_latencies_ms()?;
            let asked = latencies_ms.len() as f64;
            let processor_ms = |side: usize| {
                let spent = after[side].since(&before[side]).processor_time;
                spent.as_secs_f64() * 1e3 / asked
            };
            Ok(Sample::new()
                .with("queries_per_s", asked / total.as_secs_f64())
                .with("server_ms", processor_ms(0))
                .with("generator_ms", processor_ms(1))
                .with("p50_ms", percentile(&latencies_ms, 50))
                .with("p99_ms", percentile(&latencies_ms, 99)))
        }
        .boxed_local()
    }
}
