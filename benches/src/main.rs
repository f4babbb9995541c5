//! `volary-bench`: the tables of the benchmarks.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;
use volary_benches::ballista::Missing;
use volary_benches::bench::{Bench, Size, Tpch};
use volary_benches::report;
use volary_benches::tables::{self, Table};
use volary_node::open_files;
use volary_node::runtimes::OwnedRuntimes;

/// Runs experiments, whose variants are measured in turns; prints them as tables, and keeps every sample.
#[derive(Debug, Parser)]
struct Args {
    /// Tables, by name: chunks, readers, fanout, floor, relays, point, groups, slow_client, concurrency, tpch, ballista, load. Default:
    /// all, but for those that need a program which is not installed.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Smaller: all tables in less than ten minutes.
    #[arg(long, group = "size")]
    quick: bool,
    /// So small that figures mean nothing: shows that everything works.
    #[arg(long, group = "size")]
    smoke: bool,
    /// With what takes very long.
    #[arg(long, group = "size")]
    full: bool,
    /// Where raw results go: a JSON file per table.
    #[arg(long, default_value = "benches/results")]
    results: PathBuf,
    /// Counted turns of each variant.
    #[arg(long)]
    rounds: Option<usize>,
    /// Workers, in the tables of many. Default: 2,160 (quick: 64).
    #[arg(long)]
    fan_out: Option<usize>,
    /// TPC-H scale factor. Default: 1 (quick: 0.05).
    #[arg(long)]
    scale: Option<f64>,
    /// Workers of the cluster that TPC-H is loaded into.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Only queries of TPC-H whose name contains this.
    #[arg(long, default_value = "")]
    query: String,
    /// Where TPC-H is kept between runs. Default: a directory that goes away.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Where TPC-H's queries are.
    #[arg(long, default_value = "tests/queries/tpch")]
    queries: PathBuf,
    /// Where Ballista's programs are. Default: where `make ballista` installs them, in the build directory of this program.
    #[arg(long)]
    ballista: Option<PathBuf>,
}

/// See the workspace's Cargo.toml for why it is not the system's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<()> {
    let args = Args::parse();
    let tables = tables::chosen(&args.only)?;
    // Clients and stubs are many.
    open_files::raise();
    let runtimes = OwnedRuntimes::start(None)?;
    let handles = runtimes.handles().clone();
    let temporary = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let bench = Bench {
        size: args.size(),
        rounds: args.rounds,
        fan_out: args.fan_out,
        tpch: Tpch {
            scale: args.scale,
            workers: args.workers,
            queries: args.queries,
            only: args.query,
        },
        data_dir: args
            .data_dir
            .unwrap_or_else(|| temporary.path().join("data")),
        scratch_dir: temporary.path().join("scratch"),
        fleet_program: program.with_file_name("volary-fleet"),
        ballista: args
            .ballista
            .unwrap_or_else(|| installed_ballista(&program)),
        runtimes: handles.clone(),
    };
    handles
        .io()
        .block_on(run(&bench, &tables, &args.only, &args.results))
}

/// Where `make ballista` installs it: `ballista/bin` in the build directory, whose `release` a program is in.
fn installed_ballista(program: &Path) -> PathBuf {
    let build = program.ancestors().nth(2).unwrap_or(program);
    build.join("ballista").join("bin")
}

/// Runs one table after another. One that fails does not keep the others from being measured; nor does one that needs what is not
/// installed, which has failed only if it was asked for by name.
async fn run(bench: &Bench, tables: &[Table], asked_for: &[String], results: &Path) -> Result<()> {
    let mut failed = Vec::new();
    for table in tables {
        eprintln!("{}: {} run", table.name, bench.size.name());
        match table.run(bench).await {
            Ok(measured) => {
                let path = measured.write(results)?;
                report::write_page(&measured, &path)?;
                println!("{}\n{}\n", report::markdown(&measured), path.display());
            }
            Err(error) if error.is::<Missing>() && asked_for.is_empty() => {
                eprintln!("{}: skipped: {error}", table.name);
            }
            Err(error) => {
                eprintln!("{} has failed: {error:#}", table.name);
                failed.push(table.name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("tables that have failed: {}", failed.join(", "));
    }
    Ok(())
}

impl Args {
    fn size(&self) -> Size {
        match (self.smoke, self.quick, self.full) {
            (true, _, _) => Size::Smoke,
            (_, true, _) => Size::Quick,
            (_, _, true) => Size::Full,
            _ => Size::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballista_is_looked_for_in_the_build_directory() {
        let installed = installed_ballista(Path::new("/build/release/volary-bench"));
        assert_eq!(installed, Path::new("/build/ballista/bin"));
    }
}
