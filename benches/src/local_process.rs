//! The program `volary local` in a process of its own, so that its processor time, memory and
//! metrics can be told from those of the clients in the measuring process.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::Process;
use crate::procfs::ObservedProcess;

const WORKERS: &str = "4";
const METRICS_PREFIX: &str = "volary: metrics at http://";
const READY_PREFIX: &str = "volary: listening on ";

/// Environment variable that says whether calls between the nodes stay within the process. They do
/// in `volary local`, unless it is told otherwise. Here, they pass the network stack as they do
/// between machines, unless the environment has this variable.
pub const IN_PROCESS_CALLS: &str = "VOLARY_LOCAL__IN_PROCESS_CALLS";

/// Environment variables of a process, with their values.
pub type Environment<'a> = &'a [(&'static str, String)];

/// A gateway and four workers in one process, which ends when this value is dropped.
#[derive(Debug)]
pub struct LocalProcess {
    process: Process,
    uri: String,
    metrics: Option<String>,
}

impl LocalProcess {
    /// Starts the program in a new directory, which then also has its log. Clients can connect when
    /// this returns.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started, or ends before it is ready.
    pub fn start(
        name: &str,
        program: &Path,
        directory: &Path,
        environment: Environment<'_>,
    ) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let mut command = Command::new(program);
        // Releases without this setting refuse it. Their calls always pass the network stack.
        if knows_setting(program, "in_process_calls") {
            command.env(IN_PROCESS_CALLS, "false");
        }
        command
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(["local", "--workers", WORKERS])
            .args(["--listen", "127.0.0.1:0", "--stop-with-stdin"])
            .arg("--data-dir")
            .arg(directory.join("data"));
        let log = File::create(directory.join("log"))?;
        let mut process = Process::start(name, command, log)?;
        let mut metrics = None;
        loop {
            let line = process.read_line()?;
            if let Some(rest) = line.strip_prefix(METRICS_PREFIX) {
                let address = rest
                    .split('/')
                    .next()
                    .context("metrics without an address")?;
                metrics = Some(address.to_owned());
            }
            if let Some(uri) = line.strip_prefix(READY_PREFIX) {
                return Ok(Self {
                    uri: uri.trim().to_owned(),
                    process,
                    metrics,
                });
            }
        }
    }

    /// Returns the URI that clients connect to.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns the `host:port` of the metrics, if the environment asked for them.
    pub fn metrics(&self) -> Option<&str> {
        self.metrics.as_deref()
    }

    /// Returns the process.
    pub fn observed(&self) -> ObservedProcess {
        ObservedProcess::of(self.process.id())
    }
}

/// Returns whether the program's reference of settings has this one.
fn knows_setting(program: &Path, key: &str) -> bool {
    Command::new(program)
        .args(["config", "--reference"])
        .output()
        .is_ok_and(|reference| String::from_utf8_lossy(&reference.stdout).contains(key))
}
