//! What all calls share.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::seal::Sealer;
use volary_gather::{Connections, KnownFragments};
use volary_node::Runtimes;
use volary_node::admission::Admission;
use volary_node::tls::ClientTls;

use crate::config::Config;
use crate::fragment::environment::Environments;
use crate::fragment::kept::KeptFragments;
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
    /// Memory, spill space and caches.
    pub runtime_env: Arc<RuntimeEnv>,
    /// What fragments run in.
    pub environments: Environments,
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
    /// How other nodes are connected to.
    pub tls: Option<ClientTls>,
    /// Connections to other workers.
    pub connections: Connections,
    /// Which of them need not be sent a fragment.
    pub known_fragments: KnownFragments,
}

impl WorkerContext {
    /// Parallelism of one fragment.
    pub fn target_partitions(&self) -> usize {
        self.config
            .execution
            .target_partitions
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}
