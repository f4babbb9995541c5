//! The gateway of `volary local` calls the workers within the process, by the calls of Flight that
//! the nodes of other clusters send over the network. Workers also listen on loopback: for clients
//! that fetch parts of results, for other workers, and for a gateway that makes no calls within the
//! process (`local.in_process_calls`).

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tracing::Instrument as _;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, Result};
use volary_gateway::Gateway;
use volary_node::disk::LocalDisk;
use volary_node::in_process::InProcessNodes;
use volary_node::operations::ObservedNode;
use volary_node::size::MemorySize;
use volary_node::{Runtimes, durable, open_files, secret, tls};
use volary_worker::Worker;

use crate::args::LocalArgs;
use crate::settings::Settings;
use crate::signals::StopSignals;
use crate::{operations, terminal};

/// Longest time to wait until all workers have joined.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
const GATEWAY_DIR: &str = "gateway";
const WORKER_DIR_PREFIX: &str = "worker-";
/// Name of the file with the cluster's secret, next to the directories of the nodes.
const SECRET_FILE: &str = "secret";
/// Number of files that this process must be able to open for each worker: the worker's listener,
/// the lock of its directory, both ends of three connections from the gateway, and a segment that
/// the worker writes, which is open twice.
const FILES_PER_WORKER: u64 = 10;

/// The options of a [`LocalCluster`].
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Number of workers.
    pub workers: usize,
    /// The directory that holds the directories of the nodes: `gateway`, `worker-0`, `worker-1`, ….
    /// It also holds the cluster's secret, which is created if the settings have no secret.
    pub data_dir: PathBuf,
    /// The gateway's settings. `data_dir` is replaced. `memory.limit` is the limit of the whole
    /// cluster, and the gateway takes half of it.
    pub gateway: volary_gateway::Config,
    /// The settings of each worker. `listen`, `advertise`, `gateway`, `data_dir`, `secret` and
    /// `memory.limit` are replaced. If the parallelism is not set, each worker takes its share of
    /// the cores.
    pub worker: volary_worker::Config,
    /// Says whether the gateway calls the workers without connections.
    pub in_process_calls: bool,
    /// The runtimes that all nodes run on.
    pub runtimes: Runtimes,
}

impl LocalOptions {
    /// Builds the options from the settings.
    pub fn new(settings: Settings, runtimes: Runtimes) -> Self {
        let mut gateway = settings.gateway;
        gateway.listen = settings.local.listen;
        gateway.memory.limit = settings.local.memory;
        Self {
            workers: settings.local.workers,
            data_dir: settings.local.data_dir,
            gateway,
            worker: settings.worker,
            in_process_calls: settings.local.in_process_calls,
            runtimes,
        }
    }
}

/// A gateway and its workers in this process. Worker `i`, counted from 0, has the directory
/// `worker-<i>`.
#[derive(Debug)]
pub struct LocalCluster {
    gateway: Gateway,
    workers: Vec<Option<Worker>>,
    worker_config: volary_worker::Config,
    data_dir: PathBuf,
    /// The workers that the gateway calls without a connection; `None` if it does not.
    in_process: Option<InProcessNodes>,
    runtimes: Runtimes,
}

impl LocalCluster {
    /// Starts all nodes and waits until the workers have joined. If the directory is that of an
    /// earlier cluster, the tables of that cluster are available again.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the earlier cluster had more workers, `RESOURCE_EXHAUSTED` if
    /// the workers need more files than the process may open, and the errors of the nodes. After an
    /// error, no node runs.
    ///
    /// # Cancel safety
    /// If the future is dropped, the nodes that were started are stopped in the background. Their
    /// directories can be used again after that.
    pub fn start(options: LocalOptions) -> BoxFuture<'static, Result<Self>> {
        async move {
            // A node that is dropped while it starts would keep its files open.
            let (sender, started) = oneshot::channel();
            let io = options.runtimes.io().clone();
            let starting = async move {
                if let Err(Ok(cluster)) = sender.send(Self::start_nodes(options).await) {
                    cluster.shutdown().await;
                }
            };
            io.spawn(starting.in_current_span());
            started
                .await
                .unwrap_or_else(|_| Err(Error::internal("the start of the nodes was broken off")))
        }
        .boxed()
    }

    fn start_nodes(options: LocalOptions) -> BoxFuture<'static, Result<Self>> {
        async move {
            let LocalOptions {
                workers,
                data_dir,
                mut gateway,
                worker,
                in_process_calls,
                runtimes,
            } = options;
            let memory_bytes = gateway.memory.limit.bytes();
            gateway.data_dir = gateway_dir(&data_dir);
            gateway.memory.limit = size(memory_bytes / 2);
            refuse_fewer_workers(&data_dir, workers)?;
            check_open_files(workers)?;
            if gateway.secret.is_none() {
                gateway.secret = Some(load_or_create_secret(&data_dir)?);
            }
            let worker_config = worker_config(worker, &gateway, workers, memory_bytes / 2);
            gateway.validate()?;
            worker_config.validate()?;

            let in_process = in_process_calls.then(InProcessNodes::default);
            let gateway =
                Gateway::start_beside(gateway, runtimes.clone(), in_process.clone()).await?;
            let mut cluster = Self {
                worker_config: volary_worker::Config {
                    gateway: reachable_address(gateway.address()).to_string(),
                    ..worker_config
                },
                gateway,
                workers: (0..workers).map(|_| None).collect(),
                data_dir,
                in_process,
                runtimes,
            };
            match cluster.start_all().await {
                Ok(()) => Ok(cluster),
                Err(error) => {
                    cluster.shutdown().await;
                    Err(error)
                }
            }
        }
        .boxed()
    }

    /// Starts the workers one after another, so that worker 0 gets the lowest id in a new
    /// directory.
    async fn start_all(&mut self) -> Result<()> {
        for index in 0..self.workers.len() {
            self.start_worker(index).await?;
        }
        self.gateway
            .wait_for_workers(self.workers.len(), JOIN_TIMEOUT)
            .await
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// Returns a URI by which this machine reaches the gateway.
    pub fn uri(&self) -> String {
        self.gateway.uri_at(reachable_address(self.address()))
    }

    /// Returns the gateway.
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Returns all nodes that run, as monitoring systems see them.
    fn observers(&self) -> impl Iterator<Item = &Arc<dyn ObservedNode>> {
        let workers = self.workers.iter().flatten().map(Worker::observer);
        std::iter::once(self.gateway.observer()).chain(workers)
    }

    /// Returns the id of worker `index`, or `None` if it is stopped or does not exist.
    pub fn worker_id(&self, index: usize) -> Option<WorkerId> {
        self.workers.get(index)?.as_ref().map(Worker::id)
    }

    /// Returns the address of worker `index`, or `None` if it is stopped or does not exist.
    pub fn worker_address(&self, index: usize) -> Option<SocketAddr> {
        self.workers.get(index)?.as_ref().map(Worker::address)
    }

    /// Stops worker `index` in an orderly way. Does nothing if the worker is already stopped.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if there is no such worker.
    pub fn stop_worker(&mut self, index: usize) -> BoxFuture<'_, Result<()>> {
        async move {
            if let Some(worker) = self.slot(index)?.take() {
                worker.shutdown().await;
            }
            Ok(())
        }
        .boxed()
    }

    /// Starts worker `index` with its directory, on a new port. Does nothing if the worker already
    /// runs.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if there is no such worker, and the errors of the worker's start.
    pub async fn start_worker(&mut self, index: usize) -> Result<()> {
        if self.slot(index)?.is_some() {
            return Ok(());
        }
        let config = volary_worker::Config {
            data_dir: worker_dir(&self.data_dir, index),
            ..self.worker_config.clone()
        };
        let nodes = self.in_process.clone();
        let worker = Worker::start_beside(config, self.runtimes.clone(), nodes).await?;
        *self.slot(index)? = Some(worker);
        Ok(())
    }

    /// Stops all nodes. The gateway stops first, because its running queries need the workers.
    pub async fn shutdown(self) {
        self.gateway.shutdown().await;
        let workers = self.workers.into_iter().flatten();
        futures::future::join_all(workers.map(Worker::shutdown)).await;
    }

    fn slot(&mut self, index: usize) -> Result<&mut Option<Worker>> {
        let count = self.workers.len();
        self.workers.get_mut(index).ok_or_else(|| {
            Error::not_found(format!(
                "the cluster has no worker {index}; its workers are 0 to {}",
                count.saturating_sub(1)
            ))
        })
    }
}

/// Returns the data directory of the gateway in that of the cluster.
pub(crate) fn gateway_dir(data_dir: &Path) -> PathBuf {
    data_dir.join(GATEWAY_DIR)
}

/// Returns the data directory of a worker in that of the cluster.
pub(crate) fn worker_dir(data_dir: &Path, index: usize) -> PathBuf {
    data_dir.join(format!("{WORKER_DIR_PREFIX}{index}"))
}

/// Refuses more workers than this process may open files for.
///
/// # Errors
/// Returns `RESOURCE_EXHAUSTED`, with the limit and the need.
pub(crate) fn check_open_files(workers: usize) -> Result<()> {
    open_files::check_workers("this process", workers, FILES_PER_WORKER)
}

/// Checks that the file with the secret of the cluster can be read, if there is one.
///
/// # Errors
/// Returns the errors of the file system.
pub(crate) fn check_secret(data_dir: &Path) -> Result<()> {
    read_secret(data_dir).map(drop)
}

fn read_secret(data_dir: &Path) -> Result<Option<String>> {
    let file = data_dir.join(SECRET_FILE);
    match fs::read_to_string(&file) {
        Ok(secret) => Ok(Some(secret.trim().to_owned())),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::io(format!("cannot read {}", file.display()), source)),
    }
}

/// Returns the secret of the cluster with the given data directory. The first start creates it.
fn load_or_create_secret(data_dir: &Path) -> Result<String> {
    if let Some(secret) = read_secret(data_dir)? {
        return Ok(secret);
    }
    let file = data_dir.join(SECRET_FILE);
    let secret = secret::generate();
    durable::create_directory(&LocalDisk, data_dir)?;
    durable::replace_file(&LocalDisk, &file, format!("{secret}\n").as_bytes())?;
    Ok(secret)
}

/// Runs a cluster until a signal comes, or until standard input is closed if the arguments say so.
///
/// # Errors
/// Returns an error if the cluster cannot start, and `DEADLINE_EXCEEDED` if the shutdown was cut
/// off.
pub async fn run(mut settings: Settings, args: &LocalArgs, runtimes: Runtimes) -> Result<()> {
    let mut stop = StopSignals::listen()?;
    if args.stop_with_stdin {
        stop.listen_to_standard_input()?;
    }
    // It is removed when this function returns. The nodes have stopped by then.
    let temporary = args.temporary.then(temporary_directory).transpose()?;
    if let Some(directory) = &temporary {
        settings.local.data_dir = directory.path().to_owned();
    }
    let workers = settings.local.workers;
    let operations = operations::start(&settings.operations, workers + 1, &runtimes)?;
    let data_dir = settings.local.data_dir.display().to_string();
    let cluster = tokio::select! {
        cluster = LocalCluster::start(LocalOptions::new(settings, runtimes)) => cluster?,
        () = stop.requested() => return Ok(()),
    };
    for node in cluster.observers() {
        operations.observe(node);
    }
    terminal::print_line(&format!("volary: listening on {}", cluster.gateway().uri()))?;
    terminal::print_line(&format!(
        "{}, data in {data_dir}\n{}\nCtrl-C stops it.",
        terminal::plural(workers as u64, "worker"),
        how_to_connect(&cluster.uri())
    ))?;
    stop.requested().await;
    tracing::info!("stopping");
    operations.set_stopping();
    stop.finish(cluster.shutdown()).await
}

fn temporary_directory() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("volary-")
        .tempdir()
        .map_err(|source| Error::io("cannot create a temporary directory", source))
}

/// Returns the lines that show a user how to connect to the cluster.
pub fn how_to_connect(uri: &str) -> String {
    let (scheme, address) = uri.split_once("://").unwrap_or(("grpc", uri));
    let is_encrypted = scheme == "grpc+tls";
    [
        format!("  shell    volary sql --gateway {uri}"),
        format!(
            "  Python   import volary; volary.connect(\"{uri}\").sql(\"SHOW TABLES\").to_pandas()"
        ),
        format!("  ADBC     adbc_driver_flightsql.dbapi.connect(\"{uri}\")"),
        format!("  JDBC     jdbc:arrow-flight-sql://{address}?useEncryption={is_encrypted}"),
    ]
    .join("\n")
}

fn worker_config(
    worker: volary_worker::Config,
    gateway: &volary_gateway::Config,
    workers: usize,
    memory_bytes: usize,
) -> volary_worker::Config {
    let workers = workers.max(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut config = volary_worker::Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        advertise: None,
        secret: gateway.secret.clone(),
        // All nodes are one process. The workers can therefore use the gateway's certificate and
        // trust the same authorities.
        tls: tls::Config {
            client_authorities: None,
            require_client_certificates: false,
            ..gateway.tls.clone()
        },
        ..worker
    };
    config.memory.limit = size(memory_bytes / workers);
    // The workers share the cores. If each worker used all cores, a query over all workers would
    // have far too many partitions.
    config
        .execution
        .target_partitions
        .get_or_insert(cores.div_ceil(workers));
    config
}

fn size(bytes: usize) -> MemorySize {
    MemorySize::from(bytes.max(1))
}

/// Returns an address by which this machine reaches the gateway. A gateway that listens on all
/// addresses is reached at loopback.
pub(crate) fn reachable_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Refuses to start fewer workers than an earlier cluster in this directory had. Every query would
/// miss the shards of a worker that is not started.
pub(crate) fn refuse_fewer_workers(data_dir: &Path, workers: usize) -> Result<()> {
    let Ok(entries) = fs::read_dir(data_dir) else {
        // The directory is new. If it cannot be read, opening the nodes' directories says why.
        return Ok(());
    };
    let previous_workers = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let index = name.to_str()?.strip_prefix(WORKER_DIR_PREFIX)?;
            Some(index.parse::<usize>().ok()? + 1)
        })
        .max()
        .unwrap_or(0);
    if previous_workers > workers {
        return Err(Error::invalid(format!(
            "{} holds the data of {previous_workers} workers, not of {workers}; start it with --workers {previous_workers}, or give another --data-dir",
            data_dir.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_more_workers_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["gateway", "worker-0", "worker-3", "tpch-0.1"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let error = refuse_fewer_workers(dir.path(), 3).unwrap_err();
        assert!(error.message().contains("--workers 4"), "{error}");
        refuse_fewer_workers(dir.path(), 4).unwrap();
        refuse_fewer_workers(&dir.path().join("new"), 1).unwrap();
    }

    #[test]
    fn the_workers_share_half_of_the_memory() {
        let config = worker_config(
            volary_worker::Config::default(),
            &volary_gateway::Config::default(),
            4,
            4 << 20,
        );
        assert_eq!(config.memory.limit, MemorySize::Bytes(1 << 20));
        assert_eq!(config.listen.port(), 0);
    }

    #[test]
    fn what_listens_everywhere_is_reached_at_loopback() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(
            reachable_address(address("0.0.0.0:7")),
            address("127.0.0.1:7")
        );
        assert_eq!(reachable_address(address("[::]:7")), address("[::1]:7"));
        assert_eq!(
            reachable_address(address("10.0.0.1:7")),
            address("10.0.0.1:7")
        );
    }
}
