use std::sync::Arc;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use tonic::{Extensions, Status};
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::gate::{AdmittedCall, CallHeaders, Gate};
use volary_node::message_budget::{MessageBudget, Sender};
use volary_node::node_header::is_from_node;
use volary_node::unidentified_calls::Introduction;
use volary_node::whole_messages::MAX_UNIDENTIFIED_BYTES;

use super::auth::{self, AUTHORIZATION};
use super::cookie;
use crate::login::{Credentials, Login, Principal};

/// End of the path of the only call that both clients and workers make. Workers show no
/// credentials, because their messages are sealed.
const DO_ACTION_SUFFIX: &str = "/DoAction";

/// Lets in clients, and the workers of the cluster.
#[derive(Debug)]
pub struct ClientGate {
    login: Arc<Login>,
    /// Opens what nodes seal with the cluster's key.
    node_sealer: Sealer,
    unfinished: MessageBudget,
}

impl ClientGate {
    /// Creates a gate. It lets in callers whose credentials the login knows. It lets in all others
    /// for DoAction only, and with large messages only if they show that they are nodes.
    pub fn new(login: Arc<Login>, nodes: Sealer, unfinished: MessageBudget) -> Self {
        Self {
            login,
            node_sealer: nodes,
            unfinished,
        }
    }
}

impl Gate for ClientGate {
    fn admit<'a>(
        &'a self,
        call: &'a CallHeaders<'a>,
    ) -> BoxFuture<'a, Result<AdmittedCall, Status>> {
        async {
            let header = call.headers.get(AUTHORIZATION);
            let header = header.map(|header| header.to_str().unwrap_or_default());
            let identifying = async {
                let cookie = cookie::bearer_token(call.headers);
                let credentials = self
                    .login
                    .newest_credentials(auth::parse_authorization(header)?, cookie);
                let principal = self.login.identify(&credentials, call.peer).await?;
                Ok::<_, Error>((credentials, principal))
            };
            let caller: Result<_, Status> = identifying.await.map_err(Status::from);
            let (sender, introduction) = match &caller {
                Ok((_, principal)) => (Sender::User(principal.name().into()), None),
                Err(refusal) if !call.path.ends_with(DO_ACTION_SUFFIX) => {
                    return Err(refusal.clone());
                }
                Err(_) if is_from_node(&self.node_sealer, call)? => (Sender::Node, None),
                Err(_) => (Sender::stranger(call.peer), Some(refused_introduction())),
            };
            Ok(AdmittedCall {
                extension: Box::new(AdmittedCaller(caller)),
                sender,
                introduction,
            })
        }
        .boxed()
    }

    fn message_budget(&self) -> &MessageBudget {
        &self.unfinished
    }
}

/// Returns an introduction that always refuses. A message of a worker that joins is too small to
/// need an introduction.
fn refused_introduction() -> Introduction {
    let text = format!("log in before you send more than {MAX_UNIDENTIFIED_BYTES} bytes");
    let refusal = Error::new(ErrorCode::Unauthenticated, text);
    future::ready(Err(refusal.into())).boxed()
}

/// The caller, or the error for a caller that could not be identified.
#[derive(Debug, Clone)]
struct AdmittedCaller(Result<(Credentials, Principal), Status>);

/// Returns the caller that the gate has identified. Returns `None` if there is no gate.
///
/// # Errors
/// The errors of the login.
pub(super) fn admitted_caller(extensions: &Extensions) -> Option<Result<(Credentials, Principal)>> {
    let AdmittedCaller(caller) = extensions.get::<AdmittedCaller>()?;
    Some(caller.clone().map_err(Into::into))
}
