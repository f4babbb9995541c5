//! The process that stubs run in.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::StubOptions;
use crate::process::Process;

/// Stubs in a process of their own. Dropping it ends them.
#[derive(Debug)]
pub struct StubProcess {
    options: StubOptions,
    addresses: Vec<String>,
    _process: Process,
}

impl StubProcess {
    /// Starts it; `program` is `volary-fleet`. All stubs listen when this returns.
    ///
    /// # Errors
    /// If it ends instead: its log is this process'.
    pub fn start(program: &Path, options: StubOptions) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("stubs").args(options.arguments());
        let mut process = Process::start("the process of the stubs", command, Stdio::inherit())?;
        let addresses = serde_json::from_str(&process.line()?)?;
        Ok(Self {
            options,
            addresses,
            _process: process,
        })
    }

    /// What was asked for.
    pub fn options(&self) -> &StubOptions {
        &self.options
    }

    /// Where the stubs listen: `host:port`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }
}
