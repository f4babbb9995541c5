use std::fmt;
use std::sync::Arc;

use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, Result};
use volary_node::channel::NodeClient;

use crate::connections::Window;
use crate::known_fragments::FragmentHolders;
use crate::totals::GatherTotals;

/// The workers, as they are known to the node that gathers from them.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Returns the id of the cluster.
    fn cluster_id(&self) -> ClusterId;

    /// Returns the sealer for tickets.
    fn sealer(&self) -> &Sealer;

    /// Returns a client of a worker. The client connects when it is used.
    ///
    /// # Errors
    /// `UNAVAILABLE` on a gateway, or `INTERNAL` on a relay, if nothing is known of the worker.
    fn client(&self, worker: WorkerId, window: Window) -> Result<NodeClient>;

    /// Returns the last known address at which a worker listens (`host:port`).
    ///
    /// # Errors
    /// `UNAVAILABLE` on a gateway, or `INTERNAL` on a relay, if nothing is known of the worker.
    fn address(&self, worker: WorkerId) -> Result<String>;

    /// Returns a worker's name and address for messages: `worker w3 at 127.0.0.1:7203`.
    fn name(&self, worker: WorkerId) -> String;

    /// Puts the worker's name in front of an error of the worker.
    fn with_worker_name(&self, worker: WorkerId, error: Error) -> Error {
        error.at(self.name(worker))
    }

    /// Moves the workers that are alive to the front. The order is otherwise unchanged.
    fn sort_live_first(&self, workers: &mut [WorkerId]);

    /// Returns the workers that know a fragment, and need not be sent it again.
    fn fragment_holders(&self, fragment: FragmentId) -> Arc<FragmentHolders>;

    /// Returns the totals over all gathers of this node.
    fn totals(&self) -> &GatherTotals;
}
