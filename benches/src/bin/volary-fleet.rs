//! The program `volary-fleet`. It runs a gateway and thousands of workers on one machine, until
//! Ctrl-C or the end of its standard input. It also runs the other processes that the benchmarks
//! measure or compare with.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines, Stdin};
use volary_benches::allocations;
use volary_benches::fleet::host::{self, HostOptions};
use volary_benches::fleet::{ALLOCATED, Fleet, FleetOptions};
use volary_benches::postgres::hosted::{self, HostedOptions};
use volary_benches::reading::process::{self, ReaderOptions};
use volary_benches::stub::driver::DriverStubOptions;
use volary_benches::stub::driver::process::Listening;
use volary_benches::stub::{StubOptions, Stubs};
use volary_cli::settings::{Layers, Settings, process_environment};
use volary_cli::signals::StopSignals;
use volary_gateway::Gateway;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::{Runtimes, open_files};

/// Runs a fleet, or a process of one.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a gateway and all workers.
    Up(UpArgs),
    /// Runs only the gateway. The environment holds its settings, as for `volary gateway`.
    Gateway(GatewayArgs),
    /// Runs some of the workers in one process.
    Host(HostOptions),
    /// Runs stubs in one process. They stand in for workers, and send messages that were encoded
    /// beforehand.
    Stubs(StubOptions),
    /// Runs stubs for drivers in one process. They stand in for a gateway, and answer as it has
    /// answered the first time.
    DriverStub(DriverStubOptions),
    /// Runs an instance of PostgreSQL, if it is installed. Its data is deleted at the end.
    Postgres(HostedOptions),
    /// Reads from stubs as often as its standard input says, and prints what that took.
    Read(ReaderOptions),
}

#[derive(Debug, Args)]
struct UpArgs {
    /// Total number of workers.
    #[arg(long, default_value_t = 2160)]
    workers: usize,
    /// Number of processes that the workers are divided among.
    #[arg(long, default_value_t = 2)]
    hosts: usize,
    /// Directory of all data and logs.
    #[arg(long)]
    data_dir: PathBuf,
}

#[derive(Debug, Args)]
struct GatewayArgs {
    /// Directory of the catalog.
    #[arg(long)]
    data_dir: PathBuf,
}

/// jemalloc takes the place of the system's allocator. The workspace's Cargo.toml says why.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<()> {
    open_files::raise_limit();
    match Arguments::parse().command {
        Command::Up(up) => run_fleet(up),
        Command::Gateway(args) => serve(|runtimes| run_gateway(args, runtimes)),
        Command::Host(options) => serve(|runtimes| run_host(options, runtimes)),
        Command::Stubs(options) => serve(|_| run_stubs(options)),
        Command::DriverStub(options) => serve(|_| run_driver_stubs(options)),
        Command::Postgres(options) => serve(|_| run_postgres(options)),
        Command::Read(options) => serve(|runtimes| process::run(options, runtimes)),
    }
}

fn serve<F: Future<Output = Result<()>>>(node: impl FnOnce(Runtimes) -> F) -> Result<()> {
    let runtimes = OwnedRuntimes::start(None)?;
    let handles = runtimes.handles().clone();
    handles.io().block_on(node(handles.clone()))
}

fn run_fleet(up: UpArgs) -> Result<()> {
    let started = std::time::Instant::now();
    let fleet = Fleet::start(&FleetOptions {
        program: std::env::current_exe()?,
        data_dir: up.data_dir,
        workers: up.workers,
        hosts: up.hosts,
        worker_memory: host::WORKER_MEMORY,
        gateway_environment: Vec::new(),
    })?;
    println!(
        "volary-fleet: {} workers after {:.1} s, gateway process {}, listening on grpc://{}",
        up.workers,
        started.elapsed().as_secs_f64(),
        fleet.gateway_pid(),
        fleet.address()
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(wait_for_end())?;
    fleet.shutdown()
}

async fn run_gateway(args: GatewayArgs, runtimes: Runtimes) -> Result<()> {
    let mut settings = Settings::load(&Layers {
        environment: process_environment(),
        ..Layers::default()
    })?;
    settings.gateway.data_dir = args.data_dir;
    settings.gateway.listen = ([127, 0, 0, 1], 0).into();
    let gateway = Gateway::start(settings.gateway, runtimes).await?;
    println!("listening on grpc://{}", gateway.address());
    let answering = answer_questions(BufReader::new(tokio::io::stdin()).lines());
    let mut stop = StopSignals::listen()?;
    tokio::select! {
        () = stop.requested() => {}
        asked = answering => asked?,
    }
    gateway.shutdown().await;
    Ok(())
}

/// Answers the lines of standard input, until the input ends.
async fn answer_questions(mut questions: Lines<BufReader<Stdin>>) -> Result<()> {
    while let Some(question) = questions.next_line().await? {
        match question.as_str() {
            ALLOCATED => println!("{}", allocations::allocated_bytes()?),
            other => eprintln!("\"{other}\" is not a question; there is \"{ALLOCATED}\""),
        }
    }
    Ok(())
}

async fn run_host(options: HostOptions, runtimes: Runtimes) -> Result<()> {
    let workers = host::start(&options, &runtimes).await?;
    println!("ready");
    wait_for_end().await?;
    host::shutdown(workers).await;
    Ok(())
}

/// Runs stubs. Prints their addresses as a JSON array in one line.
async fn run_stubs(options: StubOptions) -> Result<()> {
    let stubs = Stubs::listen(&options).await?;
    println!("{}", serde_json::to_string(stubs.addresses())?);
    wait_for_end().await
}

/// Runs stubs for drivers. Prints their addresses as JSON in one line.
async fn run_driver_stubs(options: DriverStubOptions) -> Result<()> {
    let stubs = Stubs::for_drivers(&options)?;
    let addresses = stubs.addresses().iter().map(ToString::to_string).collect();
    println!("{}", serde_json::to_string(&Listening { addresses })?);
    wait_for_end().await
}

/// Runs PostgreSQL. Prints where it listens as JSON in one line, or that it is not installed.
async fn run_postgres(options: HostedOptions) -> Result<()> {
    let (server, announcement) = hosted::start(&options).await?;
    println!("{}", serde_json::to_string(&announcement)?);
    if server.is_some() {
        wait_for_end().await?;
    }
    Ok(())
}

/// Returns at a signal, or at the end of standard input. The input ends when the process that
/// started this one ends.
async fn wait_for_end() -> Result<()> {
    let mut stop = StopSignals::listen()?;
    let mut input = tokio::io::stdin();
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            () = stop.requested() => return Ok(()),
            read = input.read(&mut rest) => {
                if matches!(read, Ok(0) | Err(_)) {
                    return Ok(());
                }
            }
        }
    }
}
