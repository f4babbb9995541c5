//! The program `volary-bench`, which runs the tables of the benchmarks.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;
use volary_benches::ballista::MissingProgram;
use volary_benches::bench::{Bench, Size, TpchOptions};
use volary_benches::report;
use volary_benches::tables::{self, BenchTable};
use volary_node::open_files;
use volary_node::runtimes::OwnedRuntimes;

/// Runs experiments whose variants are measured in turns, prints them as tables, and stores every
/// sample.
#[derive(Debug, Parser)]
struct Args {
    /// Names of the tables to run: chunks, readers, fanout, floor, relays, point, lookups,
    /// point_load, groups, slow_client, concurrency, observed, writes, reading_while_writing,
    /// many_inserts, sustained_writes, wide_insert, tpch, ballista, load. Default: all tables,
    /// except those that need a program that is not installed.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Runs smaller experiments: all tables take less than a quarter of an hour.
    #[arg(long, group = "size")]
    quick: bool,
    /// Runs experiments so small that their figures mean nothing. This only shows that everything
    /// works.
    #[arg(long, group = "size")]
    smoke: bool,
    /// Also runs the experiments that take very long.
    #[arg(long, group = "size")]
    full: bool,
    /// Directory for the raw results, one JSON file per table.
    #[arg(long, default_value = "benches/results")]
    results: PathBuf,
    /// Number of counted turns of each variant.
    #[arg(long)]
    rounds: Option<usize>,
    /// Number of workers in the tables with many workers. Default: 2,160 (quick: 64).
    #[arg(long)]
    fan_out: Option<usize>,
    /// TPC-H scale factor. Default: 1 (quick: 0.05).
    #[arg(long)]
    scale: Option<f64>,
    /// Number of workers of the cluster that TPC-H is loaded into.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Runs only the TPC-H queries whose name contains this text.
    #[arg(long, default_value = "")]
    query: String,
    /// Directory that keeps TPC-H data between runs. Default: a directory that is deleted at the
    /// end.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Directory of the TPC-H queries.
    #[arg(long, default_value = "tests/queries/tpch")]
    queries: PathBuf,
    /// Program `volary` of an earlier release, which the tables `observed` and `load` compare with.
    /// It must know the flag `--stop-with-stdin`.
    #[arg(long)]
    earlier_release: Option<PathBuf>,
    /// Directory of Ballista's programs. Default: the directory in which `make ballista` installs
    /// them, in the build directory of this program.
    #[arg(long)]
    ballista: Option<PathBuf>,
}

/// jemalloc takes the place of the system's allocator. The workspace's Cargo.toml says why.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<()> {
    let args = Args::parse();
    let tables = tables::select_tables(&args.only)?;
    // Clients and stubs need many open files.
    open_files::raise_limit();
    let runtimes = OwnedRuntimes::start(None)?;
    let handles = runtimes.handles().clone();
    let temporary = tempfile::tempdir()?;
    let program = std::env::current_exe()?;
    let bench = Bench {
        size: args.size(),
        rounds: args.rounds,
        fan_out: args.fan_out,
        tpch: TpchOptions {
            scale: args.scale,
            workers: args.workers,
            queries: args.queries,
            name_filter: args.query,
        },
        data_dir: args
            .data_dir
            .unwrap_or_else(|| temporary.path().join("data")),
        scratch_dir: temporary.path().join("scratch"),
        fleet_program: program.with_file_name("volary-fleet"),
        earlier_release: args.earlier_release,
        ballista_dir: args
            .ballista
            .unwrap_or_else(|| installed_ballista(&program)),
        runtimes: handles.clone(),
    };
    handles
        .io()
        .block_on(run(&bench, &tables, &args.only, &args.results))
}

/// Returns the directory in which `make ballista` installs the programs. It is `ballista/bin` in
/// the build directory, and `program` is in `release` of the build directory.
fn installed_ballista(program: &Path) -> PathBuf {
    let build = program.ancestors().nth(2).unwrap_or(program);
    build.join("ballista").join("bin")
}

/// Runs one table after another. If a table fails, the others are still measured, and the error
/// names it. A table whose program is not installed is skipped, and fails only if it was asked for
/// by name.
async fn run(
    bench: &Bench,
    tables: &[BenchTable],
    asked_for: &[String],
    results: &Path,
) -> Result<()> {
    let mut failed = Vec::new();
    for table in tables {
        eprintln!("{}: {} run", table.name, bench.size.name());
        match table.run(bench).await {
            Ok(measured) => {
                let path = measured.write(results)?;
                report::write_page(&measured, &path)?;
                println!("{}\n{}\n", report::markdown(&measured), path.display());
            }
            Err(error) if error.is::<MissingProgram>() && asked_for.is_empty() => {
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
