//! Clients are asked who they are before their messages are read.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::{Extensions, Status};
use volary_flight_proto::Result;
use volary_node::gate::{Admission, CallHeaders, Gate};

use super::auth::{self, AUTHORIZATION};
use super::cookie;
use crate::login::{Credentials, Login, Principal};

/// The call that workers make, too, which show no credentials: what they say is sealed.
const ACTIONS: &str = "/DoAction";

/// The most that a stranger's action may have: a worker shows a gateway a client's ticket.
const STRANGERS_BYTES: usize = 16 << 20;

/// Lets clients in.
#[derive(Debug)]
pub struct ClientGate {
    login: Arc<Login>,
}

impl ClientGate {
    /// Who shows what this login knows.
    pub fn new(login: Arc<Login>) -> Self {
        Self { login }
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
                Ok::<_, volary_flight_proto::Error>((credentials, principal))
            };
            let known: Result<_, Status> = known.await.map_err(Status::from);
            let most_bytes = match &known {
                Ok(_) => None,
                Err(_) if call.path.ends_with(ACTIONS) => Some(STRANGERS_BYTES),
                Err(refused) => return Err(refused.clone()),
            };
            Ok(Admission {
                told: Box::new(Caller(known)),
                most_bytes,
            })
        }
        .boxed()
    }
}

/// Who calls, or why nobody knows.
#[derive(Debug, Clone)]
struct Caller(Result<(Credentials, Principal), Status>);

/// Who the gate has found to call; `None` where there is no gate.
///
/// # Errors
/// Those of the login.
pub(super) fn caller(extensions: &Extensions) -> Option<Result<(Credentials, Principal)>> {
    let Caller(known) = extensions.get::<Caller>()?;
    Some(known.clone().map_err(Into::into))
}
