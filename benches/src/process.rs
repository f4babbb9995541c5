//! A controlled process ends when its input ends, which also happens when the process that started
//! it is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A child process. Dropping it ends the process. All calls block, because the caller has nothing
/// else to do meanwhile.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process. `name` is its name in errors. Its standard error, which is its log, goes
    /// to `log`.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn start(name: &str, mut command: Command, log: impl Into<Stdio>) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdin = child.stdin.take();
        let output = child.stdout.take().context("a process without output")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            stdin,
            output: BufReader::new(output),
        })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line that the process prints.
    ///
    /// # Errors
    /// Returns an error if the process ends instead.
    pub fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!(
                "{} has ended before it answered; its log says why",
                self.name
            );
        }
        Ok(line)
    }

    /// Returns the next line that contains the text.
    ///
    /// # Errors
    /// Returns an error if the process ends before it prints such a line.
    pub fn await_line(&mut self, text: &str) -> Result<String> {
        loop {
            let line = self.read_line()?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Sends a line to the process.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        let sent = match &mut self.stdin {
            Some(stdin) => writeln!(stdin, "{line}"),
            None => bail!("{} was told to end", self.name),
        };
        sent.with_context(|| format!("{} no longer reads its input", self.name))
    }

    /// Closes the input of the process, which tells it to end.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// Returns an error if the process ended with an error.
    pub fn await_end(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already. Errors are ignored, because nobody could handle them
        // here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
