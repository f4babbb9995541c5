use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::time::sleep;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use volary_cli::client::Client;

use super::BenchTable;
use super::mixed_load::{CYCLE, MixedLoad, tables};
use crate::bench::Bench;
use crate::interleaved::{Candidate, Measure, measure_in_turns};
use crate::local_process::{Environment, LocalProcess};
use crate::metrics::scrape;
use crate::procfs::ObservedProcess;
use crate::results::{Label, Sample, Variant};

pub(super) const TABLE: BenchTable = BenchTable {
    name: "observed",
    title: "Being watched: metrics and traces",
    method: "Eight clients ask the questions of `concurrency` at the same time. Each variant is a `volary local` process with four workers and the same rows: nobody watches it; Prometheus' place is taken by a client that scrapes all metrics each second; all statements are traced, and a collector in the measuring process takes the spans. The processes of the other variants run and have nothing to do. Processor time is that of the cluster's process per query. An earlier release is measured, too, if its program is given.",
    run: |bench| run(bench).boxed_local(),
};

const CLIENTS: usize = 8;
/// Time between two scrapes. Prometheus usually scrapes every 15 seconds or less often.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let rows = bench.size.pick(5_000, 50_000, 200_000);
    let questions = CYCLE * bench.size.pick(1, 10, 40);
    let collector = start_collector().await?;
    let listens = [("VOLARY_OPERATIONS__LISTEN", "127.0.0.1:0".to_owned())];
    let traces = [("VOLARY_TRACES__ENDPOINT", format!("http://{collector}"))];
    let program = bench.volary_program();
    let mut variants: Vec<(&str, &PathBuf, Environment<'_>)> = vec![
        ("nobody watches", &program, &[]),
        ("scraped each second", &program, &listens),
        ("all statements traced", &program, &traces),
    ];
    variants.extend(
        bench
            .earlier_release
            .as_ref()
            .map(|program| ("an earlier release", program, [].as_slice())),
    );
    let mut clusters = Vec::new();
    let mut candidates = Vec::new();
    for (name, program, environment) in &variants {
        let directory = bench.scratch(&format!("observed-{}", name.replace(' ', "-")));
        let cluster = LocalProcess::start(name, program, &directory, environment)?;
        let mut client = Client::connect(cluster.uri()).await?;
        for statement in tables(rows) {
            client.collect(&statement).await?;
        }
        let label = Label::new(*name).with("watched", *name);
        let label = if clusters.is_empty() {
            label
        } else {
            label.compared_with(variants[0].0)
        };
        let work = WatchedLoad {
            load: MixedLoad::connect(cluster.uri(), CLIENTS, rows, questions).await?,
            queries: CLIENTS * questions,
            server: cluster.observed(),
            metrics: cluster.metrics().map(str::to_owned),
        };
        candidates.push(Candidate::new(label, work));
        clusters.push(cluster);
    }
    measure_in_turns(bench.short_turns(), candidates).await
}

/// Measures the load while somebody scrapes the metrics, if they are served.
struct WatchedLoad {
    load: MixedLoad,
    /// Number of queries in a turn.
    queries: usize,
    server: ObservedProcess,
    metrics: Option<String>,
}

impl WatchedLoad {
    async fn measure_load(&mut self) -> Result<Sample> {
        let Some(address) = &self.metrics else {
            return self.load.measure().await;
        };
        tokio::select! {
            sample = self.load.measure() => sample,
            failure = scrape_again_and_again(address) => Err(failure),
        }
    }
}

impl Measure for WatchedLoad {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let before = self.server.work()?;
            let sample = self.measure_load().await?;
            let spent = self.server.work()?.since(&before).processor_time;
            let spent_ms = spent.as_secs_f64() * 1e3 / self.queries as f64;
            Ok(sample.with("server_processor_ms_per_query", spent_ms))
        }
        .boxed_local()
    }
}

/// Scrapes until a scrape fails, and returns the error.
async fn scrape_again_and_again(address: &str) -> anyhow::Error {
    loop {
        if let Err(error) = scrape(address).await {
            return error;
        }
        sleep(SCRAPE_INTERVAL).await;
    }
}

/// A collector of traces that forgets them.
struct ForgetfulCollector;

#[tonic::async_trait]
impl TraceService for ForgetfulCollector {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Starts the collector on a free port, and returns its address. It runs until this process ends.
async fn start_collector() -> Result<SocketAddr> {
    let incoming = TcpIncoming::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = incoming.local_addr()?;
    let server = Server::builder().add_service(TraceServiceServer::new(ForgetfulCollector));
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(address)
}
