use std::path::PathBuf;

use anyhow::Result;
use volary_cli::client::Client;
use volary_node::size::MemorySize;

use crate::bench::Bench;
use crate::fleet::host::WORKER_MEMORY;
use crate::fleet::{Fleet, FleetOptions};
use crate::procfs::ObservedProcess;

/// Number of worker processes of a fleet with many workers.
const HOSTS: usize = 2;
/// Number of workers of a small fleet. Each has a process of its own, and may hold
/// [`MEMORY_OF_FEW`].
const FEW: usize = 4;
const MEMORY_OF_FEW: MemorySize = MemorySize::Bytes(1 << 30);

/// A fleet that can be started again and again, each time with the same rows.
#[derive(Debug, Clone)]
pub(super) struct FleetLayout {
    options: FleetOptions,
}

/// A fleet that runs, and a session with its gateway.
#[derive(Debug)]
pub(super) struct RunningFleet {
    fleet: Fleet,
    pub(super) client: Client,
}

impl FleetLayout {
    /// Creates a fleet of `workers` workers, in few processes.
    pub(super) fn many(bench: &Bench, name: &str, workers: usize) -> Self {
        Self::many_in(bench, name, workers, HOSTS)
    }

    /// Creates a fleet of `workers` workers, in `hosts` processes.
    pub(super) fn many_in(bench: &Bench, name: &str, workers: usize, hosts: usize) -> Self {
        Self::new(bench, bench.scratch(name), workers, hosts, WORKER_MEMORY)
    }

    /// Creates a small fleet of larger workers.
    pub(super) fn few(bench: &Bench, name: &str) -> Self {
        Self::new(bench, bench.scratch(name), FEW, FEW, MEMORY_OF_FEW)
    }

    fn new(
        bench: &Bench,
        data_dir: PathBuf,
        workers: usize,
        hosts: usize,
        worker_memory: MemorySize,
    ) -> Self {
        Self {
            options: FleetOptions {
                program: bench.fleet_program.clone(),
                data_dir,
                workers,
                hosts: hosts.min(workers),
                worker_memory,
                gateway_environment: Vec::new(),
            },
        }
    }

    /// Adds an environment variable for the gateway.
    pub(super) fn with_environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.options.gateway_environment.push((name, value));
        self
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> usize {
        self.options.workers
    }

    /// Starts the fleet. Call it within the I/O runtime.
    pub(super) async fn start(&self) -> Result<RunningFleet> {
        let fleet = Fleet::start(&self.options)?;
        let client = Client::connect(&format!("grpc://{}", fleet.address())).await?;
        Ok(RunningFleet { fleet, client })
    }

    /// Starts the fleet and creates a table `t` (k BIGINT, v BIGINT, s VARCHAR) with a shard for
    /// each worker and `rows` rows. `k` and `v` count from 1. `s` has `characters` characters, and
    /// is different in each row.
    pub(super) async fn start_with_rows(
        &self,
        rows: usize,
        characters: usize,
    ) -> Result<RunningFleet> {
        let mut running = self.start().await?;
        running
            .run(&[
                format!(
                    "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = {})",
                    self.workers()
                ),
                format!(
                    "INSERT INTO t SELECT value, value AS again, lpad(CAST(value AS VARCHAR), {characters}, '0') FROM generate_series(1, {rows})"
                ),
            ])
            .await?;
        Ok(running)
    }
}

impl RunningFleet {
    /// Runs statements one after another.
    pub(super) async fn run(&mut self, statements: &[String]) -> Result<()> {
        for statement in statements {
            self.client.collect(statement).await?;
        }
        Ok(())
    }

    /// Returns the address that clients connect to, as `host:port`.
    pub(super) fn address(&self) -> &str {
        self.fleet.address()
    }

    /// Returns how many bytes the gateway's process has allocated since its start. Start the
    /// gateway with [`EXACT`](crate::allocations::EXACT).
    pub(super) fn gateway_allocated_bytes(&mut self) -> Result<u64> {
        self.fleet.gateway_allocated_bytes()
    }

    /// Returns the gateway's process.
    pub(super) fn gateway(&self) -> ObservedProcess {
        ObservedProcess::of(self.fleet.gateway_pid())
    }

    /// Returns the processes of the workers.
    pub(super) fn hosts(&self) -> Vec<ObservedProcess> {
        self.fleet.host_pids().map(ObservedProcess::of).collect()
    }

    /// Ends the fleet in an orderly way.
    pub(super) fn shutdown(self) -> Result<()> {
        drop(self.client);
        self.fleet.shutdown()
    }
}
