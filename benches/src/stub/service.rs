use std::sync::Arc;

use arrow_flight::sql::{ActionCreatePreparedStatementResult, ProstMessageExt};
use arrow_flight::{
    Action, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, PutResult, Ticket,
};
use futures::{StreamExt, stream};
use prost::Message;
use tonic::{Request, Response, Streaming};
use volary_node::flight::{self, Flight, MessageStream};

use super::answer::StubAnswer;

/// The ticket that a Flight SQL client gets.
const CLIENT_TICKET: &[u8] = b"of a client";

/// Answers every DoGet in the same way. It also answers the Flight SQL calls of a prepared
/// statement: the statement is prepared, bound and planned, and its content is ignored.
#[derive(Debug, Clone)]
pub struct StubService {
    answer: Arc<StubAnswer>,
}

impl StubService {
    /// Creates a service with this answer.
    pub fn new(answer: Arc<StubAnswer>) -> Self {
        Self { answer }
    }
}

fn single_message<T: Send + 'static>(answer: T) -> Response<MessageStream<T>> {
    Response::new(stream::iter([Ok(answer)]).boxed())
}

impl Flight for StubService {
    async fn do_get(&self, request: Request<Ticket>) -> flight::Answer<MessageStream<FlightData>> {
        let messages = if request.into_inner().ticket == CLIENT_TICKET {
            self.answer.messages_for_clients().map(Ok).boxed()
        } else {
            self.answer.messages().map(Ok).boxed()
        };
        Ok(Response::new(messages))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> flight::Answer<MessageStream<PutResult>> {
        let mut parameters = request.into_inner();
        while parameters.message().await?.is_some() {}
        Ok(single_message(PutResult::default()))
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> flight::Answer<MessageStream<arrow_flight::Result>> {
        let prepared = ActionCreatePreparedStatementResult::default();
        Ok(single_message(arrow_flight::Result {
            body: prepared.as_any().encode_to_vec().into(),
        }))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> flight::Answer<MessageStream<HandshakeResponse>> {
        Ok(single_message(HandshakeResponse::default()))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> flight::Answer<FlightInfo> {
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(CLIENT_TICKET));
        Ok(Response::new(FlightInfo::new().with_endpoint(endpoint)))
    }
}
