use futures::FutureExt;
use futures::future::{self, BoxFuture};
use tonic::Status;
use volary_flight_proto::Result;
use volary_flight_proto::seal::Sealer;
use volary_node::gate::{AdmittedCall, CallHeaders, Gate};
use volary_node::message_budget::{MessageBudget, Sender};
use volary_node::node_header::is_from_node;

use crate::clients::ClientCalls;

/// Lets callers begin a call before they are known. Messages are sealed, so the worker learns the
/// sender when it opens one. Only the sender of a large message must be identified earlier.
#[derive(Debug)]
pub(crate) struct WorkerGate {
    /// Sealer with the cluster's key; `None` for an address that nodes do not connect to.
    nodes: Option<Sealer>,
    clients: ClientCalls,
    unfinished: MessageBudget,
}

impl WorkerGate {
    /// Builds the gate of an address that nodes and clients connect to.
    pub(crate) fn for_nodes_and_clients(
        sealer: Sealer,
        clients: ClientCalls,
        unfinished: MessageBudget,
    ) -> Self {
        Self {
            nodes: Some(sealer),
            clients,
            unfinished,
        }
    }

    /// Builds the gate of an address that only clients connect to.
    pub(crate) fn for_clients_only(clients: ClientCalls, unfinished: MessageBudget) -> Self {
        Self {
            nodes: None,
            clients,
            unfinished,
        }
    }

    fn admission(&self, call: &CallHeaders<'_>) -> Result<AdmittedCall> {
        let is_node = match &self.nodes {
            Some(sealer) => is_from_node(sealer, call)?,
            None => false,
        };
        let extension = Box::new(());
        if is_node {
            return Ok(AdmittedCall {
                extension,
                sender: Sender::Node,
                introduction: None,
            });
        }
        Ok(AdmittedCall {
            extension,
            sender: Sender::stranger(call.peer),
            introduction: Some(self.clients.identify_sender(call.headers, call.peer)),
        })
    }
}

impl Gate for WorkerGate {
    fn admit<'a>(
        &'a self,
        call: &'a CallHeaders<'a>,
    ) -> BoxFuture<'a, Result<AdmittedCall, Status>> {
        future::ready(self.admission(call).map_err(Status::from)).boxed()
    }

    fn message_budget(&self) -> &MessageBudget {
        &self.unfinished
    }
}
