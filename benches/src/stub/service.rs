//! The Flight service of a stub.

use std::sync::Arc;

use arrow_flight::sql::{ActionCreatePreparedStatementResult, ProstMessageExt};
use arrow_flight::{
    Action, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, PutResult, Ticket,
};
use futures::{StreamExt, stream};
use prost::Message;
use tonic::{Request, Response, Streaming};
use volary_node::flight::{self, Flight, Messages};

use super::answer::Answer;

/// The ticket that a Flight SQL client gets.
const OF_CLIENT: &[u8] = b"of a client";

/// Answers every DoGet in the same way. It also answers the Flight SQL calls of a prepared
/// statement: the statement is prepared, bound and planned, and its content is ignored.
#[derive(Debug, Clone)]
pub struct StubService {
    answer: Arc<Answer>,
}

impl StubService {
    /// Creates a service with this answer.
    pub fn new(answer: Arc<Answer>) -> Self {
        Self { answer }
    }
}

fn one<T: Send + 'static>(answer: T) -> Response<Messages<T>> {
    Response::new(stream::iter([Ok(answer)]).boxed())
}

impl Flight for StubService {
    async fn do_get(&self, request: Request<Ticket>) -> flight::Answer<Messages<FlightData>> {
        let messages = if request.into_inner().ticket == OF_CLIENT {
            self.answer.messages_for_clients().map(Ok).boxed()
        } else {
            self.answer.messages().map(Ok).boxed()
        };
        Ok(Response::new(messages))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> flight::Answer<Messages<PutResult>> {
        let mut parameters = request.into_inner();
        while parameters.message().await?.is_some() {}
        Ok(one(PutResult::default()))
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> flight::Answer<Messages<arrow_flight::Result>> {
        let prepared = ActionCreatePreparedStatementResult::default();
        Ok(one(arrow_flight::Result {
            body: prepared.as_any().encode_to_vec().into(),
        }))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> flight::Answer<Messages<HandshakeResponse>> {
        Ok(one(HandshakeResponse::default()))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> flight::Answer<FlightInfo> {
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(OF_CLIENT));
        Ok(Response::new(FlightInfo::new().with_endpoint(endpoint)))
    }
}
