//! The processes of a fleet, from their start to their end.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};

/// What a process prints when it is ready, before its address.
const LISTENING: &str = "listening on grpc://";

/// How large a fleet is, and where.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// `volary-fleet`, which each process runs.
    pub program: PathBuf,
    /// The directory of all data and logs.
    pub data_dir: PathBuf,
    /// Workers in all.
    pub workers: usize,
    /// Processes that they are divided among.
    pub hosts: usize,
}

/// A gateway and its workers. Dropping it ends them.
#[derive(Debug)]
pub struct Fleet {
    gateway: Node,
    hosts: Vec<Node>,
    address: String,
}

/// A process that ends when its standard input does: also when this one is killed.
#[derive(Debug)]
struct Node {
    process: Child,
    stdin: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
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
            .arg("gateway")
            .arg("--data-dir")
            .arg(options.data_dir.join("gateway"));
        let mut gateway = Node::start(gateway, &options.data_dir, "gateway")?;
        let address = gateway.await_address()?;
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
                .arg("--data-dir")
                .arg(&options.data_dir);
            hosts.push(Node::start(
                command,
                &options.data_dir,
                &format!("host-{host}"),
            )?);
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
        self.gateway.process.id()
    }

    /// Ends all processes, the workers first, and waits for them.
    ///
    /// # Errors
    /// If a process did not end well.
    pub fn shutdown(mut self) -> Result<()> {
        for node in &mut self.hosts {
            node.stdin = None;
        }
        for node in &mut self.hosts {
            node.await_end()?;
        }
        self.gateway.stdin = None;
        self.gateway.await_end()
    }
}

impl Node {
    fn start(mut command: Command, logs: &Path, name: &str) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdin = process.stdin.take();
        let output = process.stdout.take().context("a process without output")?;
        Ok(Self {
            process,
            stdin,
            output: BufReader::new(output),
        })
    }

    fn await_address(&mut self) -> Result<String> {
        let line = self.await_line(LISTENING)?;
        let (_, address) = line.split_once(LISTENING).unwrap_or_default();
        Ok(address.trim().to_owned())
    }

    /// The first line with that text.
    fn await_line(&mut self, text: &str) -> Result<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.contains(text) {
                return Ok(line);
            }
            line.clear();
        }
        bail!(
            "a process of the fleet has ended before it was ready; its log, in the data directory, says why"
        )
    }

    fn await_end(&mut self) -> Result<()> {
        let status = self.process.wait()?;
        if !status.success() {
            bail!("a process of the fleet ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already; and nobody is left to be told.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
