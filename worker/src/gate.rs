//! Decides who may send a worker large messages: the nodes of its cluster, and clients that a
//! gateway knows.

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use tonic::Status;
use volary_flight_proto::Result;
use volary_flight_proto::seal::Sealer;
use volary_node::gate::{Admission, CallHeaders, Gate};
use volary_node::node_header::is_of_node;
use volary_node::unfinished::{Sender, Unfinished};

use crate::clients::Clients;

/// Lets everybody begin a call. What is sent is sealed. So the sender need not be known before a
/// message is opened, unless the message is large.
#[derive(Debug)]
pub(crate) struct WorkerGate {
    /// Sealer with the cluster's key; `None` for an address that nodes do not connect to.
    nodes: Option<Sealer>,
    clients: Clients,
    unfinished: Unfinished,
}

impl WorkerGate {
    /// Builds the gate of an address that nodes and clients connect to.
    pub(crate) fn of_all(sealer: Sealer, clients: Clients, unfinished: Unfinished) -> Self {
        Self {
            nodes: Some(sealer),
            clients,
            unfinished,
        }
    }

    /// Builds the gate of an address that only clients connect to.
    pub(crate) fn of_clients(clients: Clients, unfinished: Unfinished) -> Self {
        Self {
            nodes: None,
            clients,
            unfinished,
        }
    }

    fn admission(&self, call: &CallHeaders<'_>) -> Result<Admission> {
        let is_node = match &self.nodes {
            Some(sealer) => is_of_node(sealer, call)?,
            None => false,
        };
        let told = Box::new(());
        if is_node {
            return Ok(Admission {
                told,
                sender: Sender::Node,
                introduction: None,
            });
        }
        Ok(Admission {
            told,
            sender: Sender::stranger(call.peer),
            introduction: Some(self.clients.introduced(call.headers, call.peer)),
        })
    }
}

impl Gate for WorkerGate {
    fn admit<'a>(&'a self, call: &'a CallHeaders<'a>) -> BoxFuture<'a, Result<Admission, Status>> {
        future::ready(self.admission(call).map_err(Status::from)).boxed()
    }

    fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }
}
