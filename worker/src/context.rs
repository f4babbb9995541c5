use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, Result};
use volary_gather::{GatherTotals, KnownFragments, WorkerConnections};
use volary_node::Runtimes;
use volary_node::admission::Admission;
use volary_node::tls::ClientTls;

use crate::config::Config;
use crate::fragment::cache::FragmentCache;
use crate::fragment::environment::FragmentEnvironments;
use crate::fragment::running::RunningFragments;
use crate::history::History;
use crate::lookup::cache::LookupCache;
use crate::scan::decoded::DecodedSegments;
use crate::storage::Storage;
use crate::totals::WorkerTotals;

/// The worker's identity, settings and resources.
#[derive(Debug)]
pub struct WorkerContext {
    /// Id of the worker.
    pub id: WorkerId,
    /// Id of the worker's cluster.
    pub cluster_id: ClusterId,
    /// Settings of the worker.
    pub config: Config,
    /// The shards on disk.
    pub storage: Storage,
    /// The history of writes that the rows on disk belong to.
    pub history: Arc<History>,
    /// Memory, spill space and caches of running plans.
    pub runtime_env: Arc<RuntimeEnv>,
    /// The environments that fragments run in.
    pub environments: FragmentEnvironments,
    /// The running fragments.
    pub running_fragments: RunningFragments,
    /// Cache of fragments that came with earlier tickets.
    pub fragment_cache: FragmentCache,
    /// Columns that stay decoded for fragments that ask for rows by key.
    pub lookups: LookupCache,
    /// Rows of tiny segments that stay decoded for scans.
    pub decoded_segments: Arc<DecodedSegments>,
    /// The runtimes on which work runs.
    pub runtimes: Runtimes,
    /// Opens what gateways and relays sealed, and seals the worker's own messages to other nodes.
    pub sealer: Sealer,
    /// Places for fragments that read the worker's own rows.
    pub fragment_admission: Admission,
    /// Places for fragments that merge the rows of other workers. These fragments wait for
    /// fragments on the other workers. So they must not take places that such fragments wait for.
    pub relay_admission: Admission,
    /// Places for the parts of results that clients fetch themselves. Clients read as slowly as
    /// they like. So they must not take places that gateways wait for.
    pub client_admission: Admission,
    /// URI that clients connect to.
    pub clients_uri: String,
    /// TLS settings for connections to other nodes; `None` without TLS.
    pub tls: Option<ClientTls>,
    /// Connections to other workers.
    pub connections: WorkerConnections,
    /// The fragments that other workers already know, so that they need not be sent again.
    pub known_fragments: KnownFragments,
    /// Totals of what the worker has done.
    pub totals: Arc<WorkerTotals>,
    /// Totals of the rows that the worker has gathered as a relay.
    pub gather_totals: GatherTotals,
}

impl WorkerContext {
    /// Refuses a call that is for another node.
    ///
    /// An address may have belonged to another node before, even to a node of another cluster with
    /// the same secret. The seal alone does not say which node a call is for. Ids of workers,
    /// tables and writes do not say it either, because every cluster uses the same small numbers.
    ///
    /// # Errors
    /// Returns `UNAVAILABLE`, with this worker and the node that the call is for.
    pub(crate) fn check_addressee(&self, cluster_id: &str, worker_id: u64) -> Result<()> {
        if cluster_id != self.cluster_id.to_string() {
            return Err(self.wrong_addressee(worker_id, &format!("cluster {cluster_id}")));
        }
        self.check_worker(worker_id)
    }

    /// Refuses a ticket that is for another node. A ticket contains only the
    /// [short form](ClusterId::short) of the cluster's id. The short form tells clusters apart, but
    /// does not name them.
    ///
    /// # Errors
    /// Returns `UNAVAILABLE`, with this worker and the worker that the ticket is for.
    pub(crate) fn check_ticket_addressee(&self, cluster: u64, worker_id: u64) -> Result<()> {
        if cluster != self.cluster_id.short() {
            return Err(self.wrong_addressee(worker_id, "another cluster"));
        }
        self.check_worker(worker_id)
    }

    fn check_worker(&self, worker_id: u64) -> Result<()> {
        if worker_id == self.id.0 {
            return Ok(());
        }
        let here = format!("cluster {}", self.cluster_id);
        Err(self.wrong_addressee(worker_id, &here))
    }

    fn wrong_addressee(&self, worker_id: u64, cluster: &str) -> Error {
        Error::unavailable(format!(
            "this is worker {} of cluster {}, and the call is for worker {} of {cluster}; the gateway learns the new address when that worker joins again",
            self.id,
            self.cluster_id,
            WorkerId(worker_id)
        ))
    }

    /// Returns the parallelism of one fragment.
    pub fn target_partitions(&self) -> usize {
        self.config
            .execution
            .target_partitions
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}
