//! The process that reads, and the end that tells it to.
//!
//! The first line of its input holds the addresses of the stubs; it prints `ready` when they have joined. Each further line is a number: so
//! often it reads all rows of all stubs, and prints a [`Reading`].

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
use crate::procfs::Observed;
use crate::rows::RowShape;
use crate::stub::StubProcess;

const READY: &str = "ready";

/// How a process reads.
#[derive(Debug, Clone, Args)]
pub struct ReaderOptions {
    /// The way.
    #[arg(long, value_enum)]
    pub way: Way,
    /// Tasks that each read an equal part of the stubs; one-by-one is one task always.
    #[arg(long)]
    pub partitions: usize,
    /// Payload bytes of a row.
    #[arg(long)]
    pub row_bytes: usize,
}

/// What one reading took, on average; and the peak of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Until the last stream was open, in milliseconds.
    pub open_ms: f64,
    /// Until the last row was there, in milliseconds.
    pub total_ms: f64,
    /// Processor time of the whole process, in milliseconds.
    pub processor_ms: f64,
    /// Context switches of all its threads.
    pub switches: f64,
    /// The most real memory that the process had meanwhile, in bytes.
    pub peak_bytes: u64,
    /// Rows that arrived.
    pub rows: u64,
}

/// Reads as its standard input says, until that ends.
///
/// # Errors
/// Those of the input, and of reading.
pub async fn run(options: ReaderOptions, runtimes: Runtimes) -> Result<()> {
    let shape = RowShape::new(options.row_bytes)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let addresses = lines.next_line().await?.context("no addresses")?;
    let addresses: Vec<String> = serde_json::from_str(&addresses)?;
    let cluster = StubCluster::join(&addresses, shape, &runtimes).await?;
    println!("{READY}");
    while let Some(line) = lines.next_line().await? {
        let reading = read_often(&options, &cluster, line.trim().parse()?).await?;
        println!("{}", serde_json::to_string(&reading)?);
    }
    Ok(())
}

async fn read_often(options: &ReaderOptions, cluster: &StubCluster, times: u32) -> Result<Reading> {
    ensure!(times > 0, "reading takes at least one time");
    let this = Observed::this();
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
    let of_one = |sum: f64| sum / f64::from(times);
    Ok(Reading {
        open_ms: of_one(open * 1e3),
        total_ms: of_one(total * 1e3),
        processor_ms: of_one(done.processor_time.as_secs_f64() * 1e3),
        switches: of_one(done.switches as f64),
        peak_bytes: this.memory()?.peak_bytes,
        rows,
    })
}

/// A process that reads from the stubs of another one. Dropping it ends it, and the stubs when nobody else reads from them.
#[derive(Debug)]
pub struct Reader {
    process: Process,
    stubs: Rc<StubProcess>,
}

impl Reader {
    /// Starts it; `program` is `volary-fleet`.
    ///
    /// # Errors
    /// If it ends instead: its log is this process'.
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
        process.tell(&serde_json::to_string(stubs.addresses())?)?;
        process.await_line(READY)?;
        Ok(Self {
            process,
            stubs: Rc::clone(stubs),
        })
    }

    /// Reads so often, and waits for it.
    ///
    /// # Errors
    /// Those of the process; if other rows arrive than there are.
    pub fn read(&mut self, times: u32) -> Result<Reading> {
        self.process.tell(&times.to_string())?;
        let reading: Reading = serde_json::from_str(&self.process.line()?)?;
        let wanted = self.stubs.options().total_rows();
        ensure!(
            reading.rows == wanted,
            "{} of {wanted} rows were read",
            reading.rows
        );
        Ok(reading)
    }

    /// The stubs that it reads from.
    pub fn stubs(&self) -> &StubProcess {
        &self.stubs
    }
}
