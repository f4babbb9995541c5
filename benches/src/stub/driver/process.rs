use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::DriverStubOptions;
use crate::process::Process;
use crate::procfs::ObservedProcess;

/// What the process prints when it listens, as JSON in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The addresses of the stubs, as `host:port`.
    pub addresses: Vec<String>,
}

/// A process that runs stubs for drivers. Dropping it ends the process.
#[derive(Debug)]
pub struct DriverStubProcess {
    addresses: Vec<String>,
    process: Process,
}

impl DriverStubProcess {
    /// Starts the process. `program` is the path of `volary-fleet`. All stubs listen when this
    /// returns.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started, or ends before all stubs listen. Its log
    /// goes to the standard error of this process.
    pub fn start(program: &Path, options: &DriverStubOptions) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg("driver-stub")
            .args(["--gateway", &options.gateway])
            .args(["--listeners", &options.listeners.to_string()]);
        let mut process = Process::start("the stub for drivers", command, Stdio::inherit())?;
        let listening: Listening = serde_json::from_str(&process.read_line()?)?;
        Ok(Self {
            addresses: listening.addresses,
            process,
        })
    }

    /// Returns the addresses of the stubs, as `host:port`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the process.
    pub fn observed(&self) -> ObservedProcess {
        ObservedProcess::of(self.process.id())
    }
}
