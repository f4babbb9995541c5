//! A client shows a [`DirectTicket`](volary_flight_proto::direct::DirectTicket) that a gateway has
//! sealed, and its credentials. The worker does not manage users. So it asks a gateway who the
//! client is, and whether the client may still redeem the ticket ([`introduction`]). Then it runs
//! what the ticket says and sends rows as a gateway would ([`part`]).

/// Asks a gateway who a client is, and whether the client may redeem a ticket.
mod introduction;
/// Produces the rows of a client's ticket.
mod part;
/// Implements the Flight service that only clients use: it serves the rows of their tickets, and
/// nothing that nodes say to each other.
mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::{HandshakeResponse, Ticket};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tonic::codegen::http::HeaderMap;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};
use volary_exec::client_rows::ClientMessages;
use volary_flight_proto::direct::{DirectTicket, Introduction};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::{Error, Result};
use volary_node::Runtimes;
use volary_node::deadline::Deadline;
use volary_node::message_budget::Sender;

use crate::context::WorkerContext;
use introduction::Introducer;
pub(crate) use service::ClientService;

const AUTHORIZATION: &str = "authorization";

/// The responses of a handshake.
pub type HandshakeMessages = BoxStream<'static, Result<HandshakeResponse, Status>>;

/// Serves the calls of clients.
#[derive(Debug, Clone)]
pub struct ClientCalls {
    context: Arc<WorkerContext>,
    introducer: Arc<Introducer>,
}

impl ClientCalls {
    /// Builds the service for clients from what all calls share.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the gateway's address is not valid.
    pub fn new(context: Arc<WorkerContext>, runtimes: &Runtimes) -> Result<Self> {
        let (tls, sealer) = (context.tls.clone(), context.sealer.clone());
        let introducer = Introducer::new(&context.config, tls, sealer, runtimes)?;
        Ok(Self {
            context,
            introducer: Arc::new(introducer),
        })
    }

    /// Returns the rows of a client's ticket. The stream itself runs the fragment, so that its
    /// schema comes at once.
    ///
    /// # Errors
    /// Returns the gateway's errors about the client and its ticket: `UNAUTHENTICATED`,
    /// `PERMISSION_DENIED`. Returns `UNAVAILABLE` for a ticket that is for another worker.
    pub(crate) async fn redeem_ticket(&self, request: Request<Ticket>) -> Result<ClientMessages> {
        let introduction = introduction_from_request(&request, request.get_ref().ticket.clone())?;
        self.check_is_direct_ticket(&introduction.ticket)?;
        let call_deadline = Deadline::from_metadata(request.metadata(), Duration::MAX);
        let introducing = self.introducer.introduce(&introduction);
        let introduced = call_deadline.run_until(introducing).await?;
        let ticket = introduced.ticket.ok_or_else(|| {
            Error::internal("the gateway's answer does not contain the opened ticket")
        })?;
        let part = part::ResultPart::of(&self.context, ticket, call_deadline)?;
        part.messages(Arc::clone(&self.context))
    }

    /// Refuses a ticket that does not even claim to be a ticket for a part of the rows. No gateway
    /// need be asked about such a ticket.
    fn check_is_direct_ticket(&self, ticket: &[u8]) -> Result<()> {
        if Sealer::claims_purpose(Purpose::Direct, ticket) {
            return Ok(());
        }
        let opened: Result<DirectTicket> = self.context.sealer.open(Purpose::Direct, ticket);
        opened.map(drop)
    }

    /// Finds out who sends a large message. The future yields a user that a gateway knows, or an
    /// error.
    pub(crate) fn identify_sender(
        &self,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> volary_node::unidentified_calls::Introduction {
        let introducer = Arc::clone(&self.introducer);
        let introduction = build_introduction(headers, peer, Bytes::new());
        async move {
            let introduced = introducer.introduce(&introduction?).await?;
            Ok(Sender::User(introduced.user.into()))
        }
        .boxed()
    }

    /// Logs a client in. A client that shows a password receives a token for its next calls.
    ///
    /// # Errors
    /// Returns the errors that the gateway answers with.
    pub async fn shake_hands(
        &self,
        introduction: Introduction,
    ) -> Result<Response<HandshakeMessages>> {
        // No gateway is asked about a client that shows no credentials. Such a client learns
        // nothing here, and gets no rows either.
        let introduced = match introduction.authorization {
            Some(_) => self.introducer.introduce(&introduction).await?,
            None => Default::default(),
        };
        // Older clients read the token from the message.
        let token = introduced.authorization.as_deref().unwrap_or_default();
        let token = token.strip_prefix("Bearer ").unwrap_or_default().to_owned();
        let message = HandshakeResponse {
            payload: token.into(),
            ..HandshakeResponse::default()
        };
        let mut response = Response::new(stream::iter([Ok(message)]).boxed());
        if let Some(authorization) = introduced.authorization {
            let value = MetadataValue::try_from(authorization)
                .map_err(|_| Error::internal("the gateway's token is not a valid header"))?;
            response.metadata_mut().insert(AUTHORIZATION, value);
        }
        Ok(response)
    }
}

/// Builds the introduction of a client, for a gateway, from what the client shows. `ticket` is what
/// the client wants to redeem, or empty if it only logs in.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the authorization header is not text.
pub(crate) fn introduction_from_request<T>(
    request: &Request<T>,
    ticket: Bytes,
) -> Result<Introduction> {
    build_introduction(request.metadata().as_ref(), request.remote_addr(), ticket)
}

fn build_introduction(
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
    ticket: Bytes,
) -> Result<Introduction> {
    Ok(Introduction {
        authorization: authorization(headers)?,
        peer: peer.map(|peer| peer.to_string()).unwrap_or_default(),
        ticket,
    })
}

fn authorization(headers: &HeaderMap) -> Result<Option<String>> {
    let header = headers.get(AUTHORIZATION);
    let text = header.map(|header| header.to_str().map(ToOwned::to_owned));
    text.transpose()
        .map_err(|_| Error::invalid("the authorization header is not plain text"))
}
