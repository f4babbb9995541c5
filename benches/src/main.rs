//! `volary-bench`: whole statements on an embedded cluster, beside one DataFusion process.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use volary_benches::{load, report, tpch};
use volary_cli::client::Client;
use volary_cli::settings::Settings;
use volary_cli::{LocalCluster, LocalOptions};
use volary_node::runtimes::OwnedRuntimes;

/// Runs TPC-H and a load on a cluster in this process, in turns with DataFusion on the same Parquet files.
#[derive(Debug, Parser)]
struct Args {
    /// TPC-H scale factor.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Workers of the cluster.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Counted turns of each query.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only queries whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Where data is kept between runs. Default: a directory that goes away.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Where the queries are.
    #[arg(long, default_value = "tests/queries/tpch")]
    queries: PathBuf,
    /// Where the raw results go, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// See the workspace's Cargo.toml for why it is not the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args = Args::parse();
    let runtimes = OwnedRuntimes::start(None)?;
    let handles = runtimes.handles().clone();
    handles.io().clone().block_on(run(args, handles))
}

async fn run(args: Args, runtimes: volary_node::Runtimes) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let root = args
        .data_dir
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    let data = root.join(format!("tpch-{}", args.scale));
    if !data.is_dir() {
        std::fs::create_dir_all(&data)?;
        volary_cli::tpch::write_parquet(&data, args.scale, &mut |_, _| {})?;
    }
    let mut settings = Settings::default();
    settings.local.workers = args.workers;
    settings.local.data_dir = root.join(format!("cluster-{}", args.scale));
    settings.local.listen.set_port(0);
    settings.gateway.load.allowed_roots = vec![root.to_string_lossy().into_owned()];
    let fresh = !settings.local.data_dir.is_dir();
    let cluster = LocalCluster::start(LocalOptions::new(settings, runtimes)).await?;
    let mut client = Client::connect(&cluster.uri()).await?;
    if fresh {
        tpch::load(&mut client, &data).await?;
    }
    let context = tpch::datafusion(&data).await?;
    let mut queries = tpch::queries(&args.queries)?;
    queries.retain(|(name, _)| name.contains(&args.only));
    let mut lines = tpch::compare(&mut client, &context, &queries, args.rounds).await?;
    println!("{}", report::markdown(&lines, "DataFusion"));
    if args.only.is_empty() {
        let loaded =
            load::compare(&mut client, &data, temporary.path(), args.rounds.min(3)).await?;
        let theirs = "plain Parquet writing";
        println!(
            "{}",
            report::markdown(std::slice::from_ref(&loaded), theirs)
        );
        let rows = load::rows(&mut client).await?;
        println!("{}", report::rates(&loaded, rows, theirs));
        lines.push(loaded);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_vec_pretty(&report::json(&lines))?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    cluster.shutdown().await;
    Ok(())
}
