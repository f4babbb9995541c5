use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::StubOptions;
use crate::process::Process;

/// A process that runs stubs. Dropping it ends the process.
#[derive(Debug)]
pub struct StubProcess {
    options: StubOptions,
    addresses: Vec<String>,
    _process: Process,
}

impl StubProcess {
    /// Starts the process. `program` is the path of `volary-fleet`. All stubs listen when this
    /// returns.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started, or ends before all stubs listen. Its log
    /// goes to the standard error of this process.
    pub fn start(program: &Path, options: StubOptions) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("stubs").args(options.arguments());
        let mut process = Process::start("the process of the stubs", command, Stdio::inherit())?;
        let addresses = serde_json::from_str(&process.read_line()?)?;
        Ok(Self {
            options,
            addresses,
            _process: process,
        })
    }

    /// Returns the options of the stubs.
    pub fn options(&self) -> &StubOptions {
        &self.options
    }

    /// Returns the addresses of the stubs, as `host:port`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }
}
