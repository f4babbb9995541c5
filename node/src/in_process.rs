//! The gateway and the workers of an embedded cluster are one process. A call between them is given
//! to the service of the called node as it is: no bytes pass a socket, and nothing is cut into
//! frames of HTTP/2. Headers, seals, limits and errors are those of any other call.
//!
//! Such a call has no connection and no window. Its answer is made while the caller reads it, so a
//! caller that reads nothing holds nothing but what the service itself holds.

/// Hands the answer to a call over to its caller.
mod answer;
/// Holds the work that is left of a call.
mod call;
/// Tracks the calls of a node that have not ended.
mod open_calls;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tower::Service;
use volary_flight_proto::{Error, ErrorCode};

use crate::any_service::AnyService;
use crate::gate::{AdmittedCall, CallHeaders, Gate};
use crate::message_budget::Sender;
use crate::message_limit::MessageLimit;
use crate::tls::PeerKind;

pub(crate) use answer::{InProcessBody, PendingAnswer};
use open_calls::OpenCalls;

/// The nodes of this process that can be called without a connection, by the address that they
/// listen on. A node that has stopped is not listed any more. It is then called over a connection,
/// which fails as that of a node in another process does. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct InProcessNodes(Arc<RwLock<HashMap<String, Arc<InProcessNode>>>>);

impl InProcessNodes {
    /// Lists a node that listens on `address` until the returned value is dropped. Its calls are
    /// answered in the runtime `io`.
    pub(crate) fn list(
        &self,
        address: SocketAddr,
        service: FlightServiceServer<AnyService>,
        gate: Option<Arc<dyn Gate>>,
        message_limit: MessageLimit,
        io: Handle,
    ) -> ListedNode {
        let address = address.to_string();
        let node = Arc::new(InProcessNode {
            service,
            gate,
            message_limit,
            calls: Arc::new(OpenCalls::new(io)),
        });
        self.0.write().insert(address.clone(), Arc::clone(&node));
        ListedNode {
            nodes: self.clone(),
            address,
            node,
        }
    }

    /// Returns the node that listens on this address (`host:port`), if it is listed.
    pub(crate) fn at(&self, address: &str) -> Option<Arc<InProcessNode>> {
        self.0.read().get(address).cloned()
    }
}

/// A node that is listed. Dropping this value ends the node's open calls.
#[derive(Debug)]
pub(crate) struct ListedNode {
    nodes: InProcessNodes,
    address: String,
    node: Arc<InProcessNode>,
}

impl ListedNode {
    /// Takes the node from the list, so that nobody calls it any more.
    pub(crate) fn unlist(&self) {
        let mut nodes = self.nodes.0.write();
        // Another node may have got the port meanwhile.
        if nodes
            .get(&self.address)
            .is_some_and(|listed| Arc::ptr_eq(listed, &self.node))
        {
            nodes.remove(&self.address);
        }
    }

    /// Waits until no call is open.
    pub(crate) async fn wait_until_idle(&self) {
        self.node.calls.wait_until_empty().await;
    }
}

impl Drop for ListedNode {
    fn drop(&mut self) {
        self.unlist();
        self.node.calls.break_off();
    }
}

/// A node of this process, as its callers see it.
#[derive(Debug)]
pub(crate) struct InProcessNode {
    service: FlightServiceServer<AnyService>,
    gate: Option<Arc<dyn Gate>>,
    message_limit: MessageLimit,
    calls: Arc<OpenCalls>,
}

impl InProcessNode {
    /// Calls the node. Only a node of this process can do that, so the caller counts as one that
    /// has shown the certificate of a node.
    pub(crate) fn call(self: &Arc<Self>, mut request: Request<Body>) -> PendingAnswer {
        request.extensions_mut().insert(PeerKind::Node);
        let node = Arc::clone(self);
        let answering = async move {
            let response = match node.admit(request).await {
                Ok(request) => {
                    let Ok(response) = node.service.clone().call(request).await;
                    response
                }
                Err(status) => status.into_http(),
            };
            node.message_limit.explain_response(response)
        };
        PendingAnswer::begin(&self.calls, Box::pin(answering))
    }

    /// Returns the request if the gate lets it in. The messages of the request are not collected
    /// here: they are already complete, in the memory of this process.
    async fn admit(&self, mut request: Request<Body>) -> Result<Request<Body>, Status> {
        let Some(gate) = &self.gate else {
            return Ok(request);
        };
        let call = CallHeaders {
            path: request.uri().path(),
            headers: request.headers(),
            peer: None,
            peer_kind: PeerKind::Node,
        };
        let AdmittedCall {
            extension, sender, ..
        } = gate.admit(&call).await?;
        if sender != Sender::Node {
            let error = Error::new(
                ErrorCode::PermissionDenied,
                "only nodes of the cluster may call a node in its own process; connect to its address",
            );
            return Err(error.into());
        }
        extension.insert_into(request.extensions_mut());
        Ok(request)
    }
}
