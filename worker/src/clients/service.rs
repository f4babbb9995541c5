//! The Flight service that only clients use. It serves the rows of their tickets, and nothing that
//! nodes say to each other.

use arrow_flight::{FlightData, HandshakeRequest, HandshakeResponse, Ticket};
use bytes::Bytes;
use tonic::{Request, Response, Status, Streaming};
use volary_flight_proto::{Error, ErrorCode};
use volary_node::flight::{Answer, Flight, Messages};

use super::{Clients, introduction_of};

/// The Flight service of a worker for clients, at `worker.clients.listen`.
#[derive(Debug, Clone)]
pub(crate) struct ClientService(Clients);

impl ClientService {
    /// Builds the service, which answers calls with `clients`.
    pub(crate) fn new(clients: Clients) -> Self {
        Self(clients)
    }
}

impl Flight for ClientService {
    fn not_served(&self, _call: &'static str) -> Status {
        let error = "this address serves only the rows of tickets; for everything else, connect to a gateway";
        Error::new(ErrorCode::Unimplemented, error).into()
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Messages<HandshakeResponse>> {
        let introduction = introduction_of(&request, Bytes::new())?;
        Ok(self.0.shake_hands(introduction).await?)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Messages<FlightData>> {
        Ok(Response::new(self.0.rows(request).await?))
    }
}
