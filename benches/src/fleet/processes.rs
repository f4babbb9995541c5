use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use volary_node::size::MemorySize;

use crate::process::Process;

/// The text that a process prints before its address when it is ready.
const READY_PREFIX: &str = "listening on grpc://";

/// The line that asks a gateway how many bytes it has allocated.
pub const ALLOCATED: &str = "allocated";

/// The size and the directory of a fleet.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// The path of `volary-fleet`, the program that each process runs.
    pub program: PathBuf,
    /// The directory of all data and logs. If it is the directory of an earlier fleet, the tables
    /// of that fleet are available again.
    pub data_dir: PathBuf,
    /// The total number of workers.
    pub workers: usize,
    /// The number of processes that the workers are divided among.
    pub hosts: usize,
    /// The memory limit of each worker.
    pub worker_memory: MemorySize,
    /// The environment variables of the gateway, in addition to those of this process.
    pub gateway_environment: Vec<(&'static str, &'static str)>,
}

/// A gateway and its workers. Dropping the fleet ends them.
#[derive(Debug)]
pub struct Fleet {
    gateway: Process,
    hosts: Vec<Process>,
    address: String,
}

impl Fleet {
    /// Starts all processes. All workers have joined when this returns.
    ///
    /// # Errors
    /// Returns an error if a process cannot be started, or ends before it is ready. Its log says
    /// why.
    pub fn start(options: &FleetOptions) -> Result<Self> {
        std::fs::create_dir_all(&options.data_dir)?;
        let mut gateway = Command::new(&options.program);
        gateway
            .envs(options.gateway_environment.iter().copied())
            .arg("gateway")
            .arg("--data-dir")
            .arg(options.data_dir.join("gateway"));
        let mut gateway = options.start_process(gateway, "gateway")?;
        let line = gateway.await_line(READY_PREFIX)?;
        let (_, address) = line
            .split_once(READY_PREFIX)
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
            hosts.push(options.start_process(command, &format!("host-{host}"))?);
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

    /// Returns the address that clients connect to, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the process id of the gateway.
    pub fn gateway_pid(&self) -> u32 {
        self.gateway.id()
    }

    /// Returns how many bytes the gateway's process has allocated since its start.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn gateway_allocated_bytes(&mut self) -> Result<u64> {
        self.gateway.send_line(ALLOCATED)?;
        let answer = self.gateway.read_line()?;
        let bytes = answer.trim().parse();
        bytes.with_context(|| format!("not a number of bytes: {answer}"))
    }

    /// Returns the process ids of the workers' hosts.
    pub fn host_pids(&self) -> impl Iterator<Item = u32> {
        self.hosts.iter().map(Process::id)
    }

    /// Ends all processes and waits for them. The hosts end first.
    ///
    /// # Errors
    /// Returns an error if a process ended with an error.
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
    /// Starts a process. Its log is a file in the data directory.
    fn start_process(&self, command: Command, name: &str) -> Result<Process> {
        let log = self.data_dir.join(format!("{name}.log"));
        let file = File::create(&log)?;
        Process::start(name, command, file)
            .with_context(|| format!("the log would be {}", log.display()))
    }
}
