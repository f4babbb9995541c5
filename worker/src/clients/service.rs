use arrow_flight::{FlightData, HandshakeRequest, HandshakeResponse, Ticket};
use bytes::Bytes;
use tonic::{Request, Response, Status, Streaming};
use volary_flight_proto::{Error, ErrorCode};
use volary_node::flight::{Answer, Flight, MessageStream};

use super::{ClientCalls, introduction_from_request};

/// The Flight service of a worker for clients, at `worker.clients.listen`.
#[derive(Debug, Clone)]
pub(crate) struct ClientService(ClientCalls);

impl ClientService {
    /// Builds the service, which answers calls with `clients`.
    pub(crate) fn new(clients: ClientCalls) -> Self {
        Self(clients)
    }
}

impl Flight for ClientService {
    fn unserved_error(&self, _call: &'static str) -> Status {
        let error = "this address serves only the rows of tickets; for everything else, connect to a gateway";
        Error::new(ErrorCode::Unimplemented, error).into()
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<MessageStream<HandshakeResponse>> {
        let introduction = introduction_from_request(&request, Bytes::new())?;
        Ok(self.0.shake_hands(introduction).await?)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<MessageStream<FlightData>> {
        Ok(Response::new(self.0.redeem_ticket(request).await?))
    }
}
