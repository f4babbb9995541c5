//! `volary demo`: TPC-H on a local cluster, and a few queries that show the point.

/// TPC-H data: made, and loaded.
pub mod data;
mod queries;

use std::path::{Path, PathBuf};
use std::time::Instant;

use volary_flight_proto::{Error, Result};
use volary_node::Runtimes;

use crate::client::Client;
use crate::local::{LocalCluster, LocalOptions, how_to_connect};
use crate::settings::Settings;
use crate::signals::Stop;
use crate::terminal;

/// What the demo shows.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// TPC-H scale factor.
    pub scale: f64,
    /// Whether it ends after the queries.
    pub exit: bool,
}

/// Starts a cluster, loads it where it is empty, runs the queries, and serves on until a signal.
///
/// # Errors
/// Those of the start, the load and the queries.
pub async fn run(settings: Settings, options: Options, runtimes: Runtimes) -> Result<()> {
    data::check_scale(options.scale)?;
    let mut stop = Stop::listen()?;
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

    let shown = tokio::select! {
        shown = show(&cluster, &files, options) => shown,
        () = stop.requested() => Ok(()),
    };
    if shown.is_ok() && !options.exit {
        stop.requested().await;
    }
    let stopped = stop.finish(cluster.shutdown()).await;
    shown.and(stopped)
}

async fn show(cluster: &LocalCluster, files: &Path, options: Options) -> Result<()> {
    let uri = cluster.uri();
    let mut client = Client::connect(&uri).await?;
    data::load(&mut client, files, options.scale).await?;
    queries::run(&mut client).await?;
    if !options.exit {
        terminal::print_line(&format!(
            "\nThe cluster serves on; Ctrl-C stops it. From another terminal:\n{}",
            how_to_connect(&cluster.uri())
        ))?;
    }
    Ok(())
}

/// Absolute, because COPY takes no other path; the cluster's data directory is made with it.
fn files_dir(data_dir: &Path, scale: f64) -> Result<PathBuf> {
    let dir = data_dir.join(format!("tpch-{scale}"));
    std::fs::create_dir_all(&dir)
        .and_then(|()| dir.canonicalize())
        .map_err(|source| Error::io(format!("cannot create {}", dir.display()), source))
}
