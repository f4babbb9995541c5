//! Identifies clients before their messages are read.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use tonic::{Extensions, Status};
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::gate::{Admission, CallHeaders, Gate};
use volary_node::node_header::is_of_node;
use volary_node::undecided::Introduction;
use volary_node::unfinished::{Sender, Unfinished};
use volary_node::whole_messages::STRANGERS_BYTES;

use super::auth::{self, AUTHORIZATION};
use super::cookie;
use crate::login::{Credentials, Login, Principal};

/// End of the path of the only call that both clients and workers make. Workers show no
/// credentials, because their messages are sealed.
const ACTIONS: &str = "/DoAction";

/// Lets in clients, and the workers of the cluster.
#[derive(Debug)]
pub struct ClientGate {
    login: Arc<Login>,
    /// Opens what nodes seal with the cluster's key.
    nodes: Sealer,
    unfinished: Unfinished,
}

impl ClientGate {
    /// Creates a gate that lets in callers whose credentials the login knows, and callers that show
    /// that they are nodes.
    pub fn new(login: Arc<Login>, nodes: Sealer, unfinished: Unfinished) -> Self {
        Self {
            login,
            nodes,
            unfinished,
        }
    }
}

impl Gate for ClientGate {
    fn admit<'a>(&'a self, call: &'a CallHeaders<'a>) -> BoxFuture<'a, Result<Admission, Status>> {
        async {
            let header = call.headers.get(AUTHORIZATION);
            let header = header.map(|header| header.to_str().unwrap_or_default());
            let known = async {
                let cookie = cookie::bearer_token(call.headers);
                let credentials = self.login.newest(auth::parsed(header)?, cookie);
                let principal = self.login.principal(&credentials, call.peer).await?;
                Ok::<_, Error>((credentials, principal))
            };
            let known: Result<_, Status> = known.await.map_err(Status::from);
            let (sender, introduction) = match &known {
                Ok((_, principal)) => (Sender::User(principal.name().into()), None),
                Err(refusal) if !call.path.ends_with(ACTIONS) => return Err(refusal.clone()),
                Err(_) if is_of_node(&self.nodes, call)? => (Sender::Node, None),
                Err(_) => (Sender::stranger(call.peer), Some(no_introduction())),
            };
            Ok(Admission {
                told: Box::new(Caller(known)),
                sender,
                introduction,
            })
        }
        .boxed()
    }

    fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }
}

/// Returns an introduction that always refuses. A message of a worker that joins is too small to
/// need an introduction.
fn no_introduction() -> Introduction {
    let text = format!("log in before you send more than {STRANGERS_BYTES} bytes");
    let refusal = Error::new(ErrorCode::Unauthenticated, text);
    future::ready(Err(refusal.into())).boxed()
}

/// The caller, or the error for a caller that could not be identified.
#[derive(Debug, Clone)]
struct Caller(Result<(Credentials, Principal), Status>);

/// Returns the caller that the gate has identified. Returns `None` if there is no gate.
///
/// # Errors
/// The errors of the login.
pub(super) fn caller(extensions: &Extensions) -> Option<Result<(Credentials, Principal)>> {
    let Caller(known) = extensions.get::<Caller>()?;
    Some(known.clone().map_err(Into::into))
}
