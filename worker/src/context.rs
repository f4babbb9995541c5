//! What all calls share.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, Result};
use volary_gather::{Connections, KnownFragments};
use volary_node::Runtimes;
use volary_node::admission::Admission;
use volary_node::tls::ClientTls;

use crate::config::Config;
use crate::fragment::environment::Environments;
use crate::fragment::kept::KeptFragments;
use crate::fragment::running::RunningFragments;
use crate::history::History;
use crate::storage::Storage;

/// The worker's identity, settings and resources.
#[derive(Debug)]
pub struct WorkerContext {
    /// The worker.
    pub id: WorkerId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Settings.
    pub config: Config,
    /// Shards on disk.
    pub storage: Storage,
    /// Which history of writes they belong to.
    pub history: Arc<History>,
    /// Memory, spill space and caches.
    pub runtime_env: Arc<RuntimeEnv>,
    /// What fragments run in.
    pub environments: Environments,
    /// The fragments that run.
    pub running: RunningFragments,
    /// Fragments that came with earlier tickets.
    pub fragments: KeptFragments,
    /// Where work runs.
    pub runtimes: Runtimes,
    /// Opens what gateways and relays sealed, and seals what this one asks others for.
    pub sealer: Sealer,
    /// Fragments that run and wait.
    pub admission: Admission,
    /// The same of those that merge the rows of other workers. They wait for fragments there, so that they must not take places that
    /// such fragments wait for.
    pub relaying: Admission,
    /// The parts of results that clients fetch themselves. Clients read as slowly as they like, and must not take places that gateways wait for.
    pub serving_clients: Admission,
    /// Where clients connect to.
    pub clients_uri: String,
    /// How other nodes are connected to.
    pub tls: Option<ClientTls>,
    /// Connections to other workers.
    pub connections: Connections,
    /// Which of them need not be sent a fragment.
    pub known_fragments: KnownFragments,
}

impl WorkerContext {
    /// Refuses what is for another node. An address may have been another node's before, also one of another cluster with the same secret: the
    /// seal alone does not say whom a call is for, and the numbers of workers, tables and writes are small in every cluster.
    ///
    /// # Errors
    /// `UNAVAILABLE`, with both.
    pub fn check_addressee(&self, cluster_id: &str, worker_id: u64) -> Result<()> {
        if cluster_id != self.cluster_id.to_string() {
            return Err(self.not_the_addressee(worker_id, &format!("cluster {cluster_id}")));
        }
        if worker_id != self.id.0 {
            let here = format!("cluster {}", self.cluster_id);
            return Err(self.not_the_addressee(worker_id, &here));
        }
        Ok(())
    }

    /// The same for tickets, which say the cluster [in short](ClusterId::short): that tells apart and does not name.
    ///
    /// # Errors
    /// `UNAVAILABLE`, with both.
    pub fn check_addressee_in_short(&self, cluster: u64, worker_id: u64) -> Result<()> {
        if cluster != self.cluster_id.short() {
            return Err(self.not_the_addressee(worker_id, "another cluster"));
        }
        self.check_addressee(&self.cluster_id.to_string(), worker_id)
    }

    fn not_the_addressee(&self, worker_id: u64, cluster: &str) -> Error {
        Error::unavailable(format!(
            "this is worker {} of cluster {}, and the call is for worker {} of {cluster}; the gateway learns the new address with that worker's next join",
            self.id,
            self.cluster_id,
            WorkerId(worker_id)
        ))
    }

    /// Parallelism of one fragment.
    pub fn target_partitions(&self) -> usize {
        self.config
            .execution
            .target_partitions
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}
