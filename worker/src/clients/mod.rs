//! Clients that fetch their part of a result here themselves (direct results), instead of through a gateway.
//!
//! A client shows a [`DirectTicket`](volary_flight_proto::direct::DirectTicket) that a gateway has sealed, and what it logs in with. Who that is,
//! and whether it still may, the worker asks a gateway ([`introduction`]): users are none of its business. Then it runs what the
//! ticket says and sends rows as a gateway would ([`part`]).

/// What a gateway says of a client.
mod introduction;
/// The rows of a ticket.
mod part;
/// What clients alone are served.
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
use volary_flight_proto::direct::{DirectTicket, Introduction};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::{Error, Result};
use volary_node::Runtimes;
use volary_node::client_rows::ClientMessages;
use volary_node::deadline::Deadline;
use volary_node::unfinished::Sender;

use crate::context::WorkerContext;
use introduction::Introductions;
pub use service::ClientService;

const AUTHORIZATION: &str = "authorization";

/// The responses of a handshake.
pub type HandshakeMessages = BoxStream<'static, Result<HandshakeResponse, Status>>;

/// What clients are served.
#[derive(Debug, Clone)]
pub struct Clients {
    context: Arc<WorkerContext>,
    introductions: Arc<Introductions>,
}

impl Clients {
    /// Over what all calls share.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the gateway's address is none.
    pub fn new(context: Arc<WorkerContext>, runtimes: &Runtimes) -> Result<Self> {
        let (tls, sealer) = (context.tls.clone(), context.sealer.clone());
        let introductions = Introductions::new(&context.config, tls, sealer, runtimes)?;
        Ok(Self {
            context,
            introductions: Arc::new(introductions),
        })
    }

    /// The rows of a client's ticket. What may take time is done by the stream: its schema comes at once.
    ///
    /// # Errors
    /// Those that a gateway answers, of the client and of its ticket: `UNAUTHENTICATED`, `PERMISSION_DENIED`; those of a ticket for another worker.
    pub async fn rows(&self, request: Request<Ticket>) -> Result<ClientMessages> {
        let introduction = introduction_of(&request, request.get_ref().ticket.clone())?;
        self.refuse_others(&introduction.ticket)?;
        let asked = Deadline::of(request.metadata(), Duration::MAX);
        let introducing = self.introductions.introduce(&introduction);
        let introduced = asked.bound(introducing).await?;
        let ticket = introduced.ticket.ok_or_else(|| {
            Error::internal("a gateway does not say what a ticket for a part of the rows says")
        })?;
        let part = part::Part::of(&self.context, ticket, asked)?;
        part.messages(Arc::clone(&self.context))
    }

    /// Refuses what does not even say of itself that it is a ticket for a part of the rows: no gateway need be asked about that.
    fn refuse_others(&self, ticket: &[u8]) -> Result<()> {
        if Sealer::claims(Purpose::Direct, ticket) {
            return Ok(());
        }
        let opened: Result<DirectTicket> = self.context.sealer.open(Purpose::Direct, ticket);
        opened.map(drop)
    }

    /// Finds out who sends a large message: a user whom a gateway knows, or nobody.
    pub(crate) fn introduced(
        &self,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> volary_node::whole_messages::Introduction {
        let introductions = Arc::clone(&self.introductions);
        let introduction = introduction(headers, peer, Bytes::new());
        async move {
            let introduced = introductions.introduce(&introduction?).await?;
            Ok(Sender::User(introduced.user.into()))
        }
        .boxed()
    }

    /// A client logs in. One that shows a password is told a token, with which it goes on.
    ///
    /// # Errors
    /// Those that a gateway answers.
    pub async fn shake_hands(
        &self,
        introduction: Introduction,
    ) -> Result<Response<HandshakeMessages>> {
        // One that shows nothing is served nothing either, and learns nothing.
        let introduced = match introduction.authorization {
            Some(_) => self.introductions.introduce(&introduction).await?,
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
                .map_err(|_| Error::internal("a gateway answers with a token that is no header"))?;
            response.metadata_mut().insert(AUTHORIZATION, value);
        }
        Ok(response)
    }
}

/// What a client shows, for a gateway; `ticket`: what it wants to redeem, if it does.
///
/// # Errors
/// `INVALID_ARGUMENT` for a header that is no text.
pub fn introduction_of<T>(request: &Request<T>, ticket: Bytes) -> Result<Introduction> {
    introduction(request.metadata().as_ref(), request.remote_addr(), ticket)
}

fn introduction(
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
        .map_err(|_| Error::invalid("the authorization header is no text"))
}
