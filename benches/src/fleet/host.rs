//! Many workers in one process.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use volary_node::Runtimes;
use volary_node::size::MemorySize;
use volary_worker::{Config, Worker};

/// Workers that start at the same time: each waits for its disk and for its turn at the gateway.
const STARTING: usize = 32;
/// What a worker of thousands may hold; its queries are small.
pub const WORKER_MEMORY: MemorySize = MemorySize::Bytes(64 << 20);

/// Which workers a host runs.
#[derive(Debug, Clone, Args)]
pub struct HostOptions {
    /// host:port of the gateway.
    #[arg(long)]
    pub gateway: String,
    /// Directory of the workers' directories: worker-0, worker-1, …
    #[arg(long)]
    pub data_dir: PathBuf,
    /// The number of the first worker.
    #[arg(long)]
    pub first: usize,
    /// Workers of this process.
    #[arg(long)]
    pub workers: usize,
    /// What each of them may hold.
    #[arg(long, default_value_t = WORKER_MEMORY)]
    pub worker_memory: MemorySize,
}

/// Starts the workers; all have joined when this returns.
///
/// # Errors
/// Those of the workers.
pub async fn start(options: &HostOptions, runtimes: &Runtimes) -> Result<Vec<Worker>> {
    let numbers = options.first..options.first + options.workers;
    let starting = numbers.map(|number| {
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            gateway: options.gateway.clone(),
            data_dir: options.data_dir.join(format!("worker-{number}")),
            ..Config::default()
        };
        config.memory.limit = options.worker_memory;
        // One machine's cores are shared by all.
        config.execution.target_partitions = Some(1);
        async move {
            Worker::start(config, runtimes.clone())
                .await
                .with_context(|| format!("worker {number}"))
        }
    });
    stream::iter(starting)
        .buffer_unordered(STARTING)
        .try_collect()
        .await
}

/// Stops all of them in an orderly way.
pub async fn shutdown(workers: Vec<Worker>) {
    futures::future::join_all(workers.into_iter().map(Worker::shutdown)).await;
}
