use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use volary_node::Runtimes;
use volary_node::size::MemorySize;
use volary_worker::{Config, Worker};

/// Number of workers that start at the same time. Each of them waits for its disk and for its turn
/// at the gateway.
const CONCURRENT_STARTS: usize = 32;
/// Default memory limit of a worker in a fleet of thousands. The queries of such workers are small.
pub const WORKER_MEMORY: MemorySize = MemorySize::Bytes(64 << 20);

/// The workers that a host process runs.
#[derive(Debug, Clone, Args)]
pub struct HostOptions {
    /// Address of the gateway, as host:port.
    #[arg(long)]
    pub gateway: String,
    /// Directory that holds the workers' directories: worker-0, worker-1, …
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Number of the first worker.
    #[arg(long)]
    pub first: usize,
    /// How many workers this process runs.
    #[arg(long)]
    pub workers: usize,
    /// Memory limit of each worker.
    #[arg(long, default_value_t = WORKER_MEMORY)]
    pub worker_memory: MemorySize,
}

/// Starts the workers. All of them have joined when this returns.
///
/// # Errors
/// Returns the errors of the workers.
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
        // All workers share the cores of one machine.
        config.execution.target_partitions = Some(1);
        async move {
            Worker::start(config, runtimes.clone())
                .await
                .with_context(|| format!("worker {number}"))
        }
    });
    stream::iter(starting)
        .buffer_unordered(CONCURRENT_STARTS)
        .try_collect()
        .await
}

/// Stops all workers in an orderly way.
pub async fn shutdown(workers: Vec<Worker>) {
    futures::future::join_all(workers.into_iter().map(Worker::shutdown)).await;
}
