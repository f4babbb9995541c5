//! The processes of a fleet, from their start to their end.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use volary_node::size::MemorySize;

use crate::process::Process;

/// What a process prints when it is ready, before its address.
const LISTENING: &str = "listening on grpc://";

/// How large a fleet is, and where.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// `volary-fleet`, which each process runs.
    pub program: PathBuf,
    /// The directory of all data and logs. That of an earlier fleet has its tables.
    pub data_dir: PathBuf,
    /// Workers in all.
    pub workers: usize,
    /// Processes that they are divided among.
    pub hosts: usize,
    /// What each of them may hold.
    pub worker_memory: MemorySize,
    /// Environment variables of the gateway, besides those that there are.
    pub gateway_environment: Vec<(&'static str, &'static str)>,
}

/// A gateway and its workers. Dropping it ends them.
#[derive(Debug)]
pub struct Fleet {
    gateway: Process,
    hosts: Vec<Process>,
    address: String,
}

impl Fleet {
    /// Starts all processes; all workers have joined when this returns.
    ///
    /// # Errors
    /// If a process cannot be started, or ends before it is ready: its log says why.
    pub fn start(options: &FleetOptions) -> Result<Self> {
        std::fs::create_dir_all(&options.data_dir)?;
        let mut gateway = Command::new(&options.program);
        gateway
            .envs(options.gateway_environment.iter().copied())
            .arg("gateway")
            .arg("--data-dir")
            .arg(options.data_dir.join("gateway"));
        let mut gateway = options.begin(gateway, "gateway")?;
        let line = gateway.await_line(LISTENING)?;
        let (_, address) = line
            .split_once(LISTENING)
            .context("a gateway without an address")?;
        let address = address.trim().to_owned();
        let mut hosts = Vec::new();
        for host in 0..options.hosts {
            let first = host * options.workers / options.hosts;
            let end = (host + 1) * options.workers / options.hosts;
            let mut command = Command::new(&options.program);
            command
                .arg("host")
                .args(["--gateway", &address])
                .args(["--first", &first.to_string()])
                .args(["--workers", &(end - first).to_string()])
                .args(["--worker-memory", &options.worker_memory.to_string()])
                .arg("--data-dir")
                .arg(&options.data_dir);
            hosts.push(options.begin(command, &format!("host-{host}"))?);
        }
        for host in &mut hosts {
            host.await_line("ready")?;
        }
        Ok(Self {
            gateway,
            hosts,
            address,
        })
    }

    /// Where clients connect: `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The gateway's process id.
    pub fn gateway_pid(&self) -> u32 {
        self.gateway.id()
    }

    /// The process ids of the workers' hosts.
    pub fn host_pids(&self) -> impl Iterator<Item = u32> {
        self.hosts.iter().map(Process::id)
    }

    /// Ends all processes, the workers first, and waits for them.
    ///
    /// # Errors
    /// If a process did not end well.
    pub fn shutdown(mut self) -> Result<()> {
        for host in &mut self.hosts {
            host.end_input();
        }
        for host in &mut self.hosts {
            host.await_end()?;
        }
        self.gateway.end_input();
        self.gateway.await_end()
    }
}

impl FleetOptions {
    /// The log is in the data directory.
    fn begin(&self, command: Command, name: &str) -> Result<Process> {
        let log = self.data_dir.join(format!("{name}.log"));
        let file = File::create(&log)?;
        Process::start(name, command, file)
            .with_context(|| format!("the log would be {}", log.display()))
    }
}
