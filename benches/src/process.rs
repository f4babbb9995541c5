//! A process that is told what to do by its standard input, answers on its standard output, and ends with its input: also when the
//! one that started it is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// The process. Dropping it ends it. All its calls block; what starts it has nothing else to do.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it. `name` is for errors; its log, standard error, goes to `log`.
    ///
    /// # Errors
    /// Those of the operating system.
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

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    ///
    /// # Errors
    /// If it ends instead.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!(
                "{} has ended before it answered; its log says why",
                self.name
            );
        }
        Ok(line)
    }

    /// The next line with that text.
    ///
    /// # Errors
    /// If it ends before.
    pub fn await_line(&mut self, text: &str) -> Result<String> {
        loop {
            let line = self.line()?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// If it has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let told = match &mut self.stdin {
            Some(stdin) => writeln!(stdin, "{line}"),
            None => bail!("{} was told to end", self.name),
        };
        told.with_context(|| format!("{} does not listen any more", self.name))
    }

    /// Tells it to end.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it did not end well.
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
        // It may have ended already; and nobody is left to be told.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
