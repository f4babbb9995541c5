use std::path::Path;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::client::Client;
use volary_cli::tpch;

use super::BenchTable;
use super::engines::{Engine, compare};
use super::loaded_cluster::LoadedCluster;
use crate::ballista::{BallistaCluster, BallistaOptions, Programs};
use crate::bench::Bench;
use crate::results::Variant;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "ballista",
    title: "TPC-H compared with Ballista",
    method: "Each query runs in turns on an embedded cluster of Volary (a gateway and its workers in one process, real Flight over loopback, 64 shards per table), and on a cluster of Ballista 55.0.0 (its own programs from crates.io) over the Parquet files that were loaded. The same Flight SQL client asks both over loopback. The measured time is the time that this client waits, from sending the query until the last row has arrived. Ballista's scheduler and its executors, one for each of Volary's workers, are separate processes. Each executor has as many vcores as the machine has processors per executor, rounded up: with four executors on two processors, each has one vcore, so that no processor is idle. Both sides have the same processors and memory. All other settings are Ballista's defaults: adaptive planning, 16 partitions, tasks pushed by the scheduler. The start of the processes and CREATE EXTERNAL TABLE are not timed, and the first turn is not counted. The total of a turn is the sum over all queries.",
    run: |bench| run(bench).boxed_local(),
};

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    // This check comes before everything that takes long.
    let programs = Programs::find(&bench.ballista_dir)?;
    let mut loaded = LoadedCluster::start(bench).await?;
    let layout = BallistaOptions {
        programs,
        directory: bench.scratch("ballista"),
        executors: bench.tpch.workers,
        cores: bench.partitions(),
    };
    let mut ballista = Ballista::start(&layout, &loaded.data).await?;
    let measured = compare(bench, &mut loaded, &mut ballista).await?;
    loaded.shutdown().await;
    Ok(measured)
}

/// A cluster of Ballista, and a session with its scheduler.
struct Ballista {
    client: Client,
    cluster: BallistaCluster,
}

impl Ballista {
    /// Starts the cluster, and creates tables over the Parquet files that were loaded.
    async fn start(layout: &BallistaOptions, data: &Path) -> Result<Self> {
        let cluster = BallistaCluster::start(layout).await?;
        let client = Client::connect(&format!("grpc://{}", cluster.address()))
            .await
            .context("Ballista's scheduler gives no session")?;
        let mut ballista = Self { client, cluster };
        // The path must be absolute, because other processes read the files.
        let data = std::path::absolute(data)?;
        for table in tpch::tables() {
            let file = data.join(format!("{table}.parquet"));
            let create = format!(
                "CREATE EXTERNAL TABLE {table} STORED AS PARQUET LOCATION '{}'",
                file.display()
            );
            ballista.answer(&create).await?;
        }
        Ok(ballista)
    }
}

impl Engine for Ballista {
    const NAME: &'static str = "Ballista";

    fn answer<'a>(&'a mut self, sql: &'a str) -> LocalBoxFuture<'a, Result<usize>> {
        async move {
            // Ballista sometimes announces the columns of another stage of the query. `count`
            // accepts that.
            let answer = self.client.count(sql).await;
            if answer.is_err() {
                // If a process has ended, for example for lack of memory, that is the better error.
                self.cluster.ensure_runs()?;
            }
            Ok(answer?)
        }
        .boxed_local()
    }
}
