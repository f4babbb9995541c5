//! How a node reaches the workers of its cluster.

use std::fmt;
use std::sync::Arc;

use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, Result};
use volary_node::channel::NodeClient;

use crate::connections::Window;
use crate::known_fragments::KnownBy;

/// The workers, as the node that gathers from them knows them.
pub trait Peers: fmt::Debug + Send + Sync {
    /// The cluster's id.
    fn cluster_id(&self) -> ClusterId;

    /// Seals tickets.
    fn sealer(&self) -> &Sealer;

    /// A client of a worker; it connects when it is used.
    ///
    /// # Errors
    /// `UNAVAILABLE` if nothing is known of the worker.
    fn client(&self, worker: WorkerId, window: Window) -> Result<NodeClient>;

    /// Where a worker listens, `host:port`, as far as is known now.
    ///
    /// # Errors
    /// `UNAVAILABLE` if nothing is known of the worker.
    fn address(&self, worker: WorkerId) -> Result<String>;

    /// A worker's name and address, for messages: `worker w3 at 127.0.0.1:7203`.
    fn name(&self, worker: WorkerId) -> String;

    /// What a worker's failure is told as: with the worker's name in front.
    fn failure(&self, worker: WorkerId, error: Error) -> Error {
        error.at(self.name(worker))
    }

    /// Puts workers that live before others; otherwise they stay in their order.
    fn sort_live_first(&self, workers: &mut [WorkerId]);

    /// The workers that have been sent a fragment, and need not be sent it again.
    fn known_by(&self, fragment: FragmentId) -> Arc<KnownBy>;
}
