/// Generates TPC-H data as Parquet files, and loads them with COPY.
pub mod data;
/// Lists the queries of the demo, each with the property of the system that it shows.
mod queries;

use std::path::{Path, PathBuf};
use std::time::Instant;

use volary_flight_proto::{Error, Result};
use volary_node::Runtimes;

use crate::client::Client;
use crate::local::{LocalCluster, LocalOptions, how_to_connect};
use crate::settings::Settings;
use crate::signals::StopSignals;
use crate::terminal;

/// The options of the demo.
#[derive(Debug, Clone, Copy)]
pub struct DemoOptions {
    /// The TPC-H scale factor.
    pub scale: f64,
    /// Says whether the process ends after the queries.
    pub exits_after_queries: bool,
}

/// Starts a cluster, loads the tables that are empty, runs the queries, and serves until a signal
/// comes.
///
/// # Errors
/// Returns the errors of the start, the load and the queries.
pub async fn run(settings: Settings, options: DemoOptions, runtimes: Runtimes) -> Result<()> {
    data::check_scale(options.scale)?;
    let mut stop = StopSignals::listen()?;
    let mut cluster_options = LocalOptions::new(settings, runtimes);
    let files = files_dir(&cluster_options.data_dir, options.scale)?;
    let roots = &mut cluster_options.gateway.load.allowed_roots;
    roots.push(files.to_string_lossy().into_owned());

    let start = Instant::now();
    let (workers, data_dir) = (cluster_options.workers, cluster_options.data_dir.clone());
    let cluster = tokio::select! {
        cluster = LocalCluster::start(cluster_options) => cluster?,
        () = stop.requested() => return Ok(()),
    };
    terminal::print_line(&format!(
        "volary: listening on grpc://{}\nA gateway and {} in one process, data in {} ({})",
        cluster.address(),
        terminal::plural(workers as u64, "worker"),
        data_dir.display(),
        terminal::duration(start.elapsed()),
    ))?;

    let outcome = tokio::select! {
        shown = load_and_query(&cluster, &files, options) => shown,
        () = stop.requested() => Ok(()),
    };
    if outcome.is_ok() && !options.exits_after_queries {
        stop.requested().await;
    }
    let stopped = stop.finish(cluster.shutdown()).await;
    outcome.and(stopped)
}

async fn load_and_query(cluster: &LocalCluster, files: &Path, options: DemoOptions) -> Result<()> {
    let uri = cluster.uri();
    let mut client = Client::connect(&uri).await?;
    data::load(&mut client, files, options.scale).await?;
    queries::run(&mut client).await?;
    if !options.exits_after_queries {
        terminal::print_line(&format!(
            "\nThe cluster keeps running; Ctrl-C stops it. To connect from another terminal:\n{}",
            how_to_connect(&cluster.uri())
        ))?;
    }
    Ok(())
}

/// Creates the directory of the TPC-H files and returns its absolute path, which COPY requires.
/// Also creates the cluster's data directory, which contains it.
fn files_dir(data_dir: &Path, scale: f64) -> Result<PathBuf> {
    let dir = data_dir.join(format!("tpch-{scale}"));
    std::fs::create_dir_all(&dir)
        .and_then(|()| dir.canonicalize())
        .map_err(|source| Error::io(format!("cannot create {}", dir.display()), source))
}
