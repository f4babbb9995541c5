//! The first line of the reading process's input holds the addresses of the stubs. The process
//! prints `ready` when the stubs have joined. Each further line is a number: the process reads all
//! rows of all stubs that many times, and prints a [`Reading`].

use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use volary_node::Runtimes;

use super::{StubCluster, Way, read};
use crate::process::Process;
use crate::procfs::ObservedProcess;
use crate::rows::RowShape;
use crate::stub::StubProcess;

const READY: &str = "ready";

/// The options of a process that reads.
#[derive(Debug, Clone, Args)]
pub struct ReaderOptions {
    /// The way in which the process reads.
    #[arg(long, value_enum)]
    pub way: Way,
    /// Number of tasks that each read an equal part of the stubs. The way one-by-one always uses
    /// one task.
    #[arg(long)]
    pub partitions: usize,
    /// Payload bytes of a row.
    #[arg(long)]
    pub row_bytes: usize,
}

/// The averages over several readings, and the peak of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Time until the last stream was open, in milliseconds.
    pub open_ms: f64,
    /// Time until the last row had arrived, in milliseconds.
    pub total_ms: f64,
    /// Processor time of the whole process, in milliseconds.
    pub processor_ms: f64,
    /// Number of context switches of all threads of the process.
    pub switches: f64,
    /// Peak of the process's resident memory during the readings, in bytes.
    pub peak_bytes: u64,
    /// Number of rows that arrived in one reading.
    pub rows: u64,
}

/// Reads as the standard input says, until the input ends.
///
/// # Errors
/// Returns the errors of the input and of reading.
pub async fn run(options: ReaderOptions, runtimes: Runtimes) -> Result<()> {
    let shape = RowShape::new(options.row_bytes)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let addresses = lines.next_line().await?.context("no addresses")?;
    let addresses: Vec<String> = serde_json::from_str(&addresses)?;
    let cluster = StubCluster::join(&addresses, shape, &runtimes).await?;
    println!("{READY}");
    while let Some(line) = lines.next_line().await? {
        let reading = read_repeatedly(&options, &cluster, line.trim().parse()?).await?;
        println!("{}", serde_json::to_string(&reading)?);
    }
    Ok(())
}

async fn read_repeatedly(
    options: &ReaderOptions,
    cluster: &StubCluster,
    times: u32,
) -> Result<Reading> {
    ensure!(times > 0, "the number of readings must be at least 1");
    let this = ObservedProcess::this();
    this.reset_peak()?;
    let before = this.work()?;
    let (mut open, mut total, mut rows) = (0.0, 0.0, 0);
    for _ in 0..times {
        let outcome = read(options.way, cluster, options.partitions).await?;
        open += outcome.open.as_secs_f64();
        total += outcome.total.as_secs_f64();
        rows = outcome.rows;
    }
    let done = this.work()?.since(&before);
    let per_reading = |sum: f64| sum / f64::from(times);
    Ok(Reading {
        open_ms: per_reading(open * 1e3),
        total_ms: per_reading(total * 1e3),
        processor_ms: per_reading(done.processor_time.as_secs_f64() * 1e3),
        switches: per_reading(done.switches as f64),
        peak_bytes: this.memory()?.peak_bytes,
        rows,
    })
}

/// A process that reads from the stubs of another process. Dropping it ends the process. The stubs
/// end when no reader uses them any more.
#[derive(Debug)]
pub struct Reader {
    process: Process,
    stubs: Rc<StubProcess>,
}

impl Reader {
    /// Starts the process. `program` is the path of `volary-fleet`.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started, or ends before it is ready. Its log goes
    /// to the standard error of this process.
    pub fn start(
        program: &Path,
        stubs: &Rc<StubProcess>,
        way: Way,
        partitions: usize,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg("read")
            .arg(format!("--way={}", way.name()))
            .arg(format!("--partitions={partitions}"))
            .arg(format!("--row-bytes={}", stubs.options().row_bytes));
        let mut process = Process::start("the process that reads", command, Stdio::inherit())?;
        process.send_line(&serde_json::to_string(stubs.addresses())?)?;
        process.await_line(READY)?;
        Ok(Self {
            process,
            stubs: Rc::clone(stubs),
        })
    }

    /// Reads all rows `times` times, and waits for the result.
    ///
    /// # Errors
    /// Returns the errors of the process, and an error if the number of rows read is not that of
    /// the stubs.
    pub fn read(&mut self, times: u32) -> Result<Reading> {
        self.process.send_line(&times.to_string())?;
        let reading: Reading = serde_json::from_str(&self.process.read_line()?)?;
        let wanted = self.stubs.options().total_rows();
        ensure!(
            reading.rows == wanted,
            "{} of {wanted} rows were read",
            reading.rows
        );
        Ok(reading)
    }

    /// Returns the stubs that the process reads from.
    pub fn stubs(&self) -> &StubProcess {
        &self.stubs
    }
}
