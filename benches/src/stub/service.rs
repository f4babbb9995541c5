//! The Flight service of a stub.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{ActionCreatePreparedStatementResult, ProstMessageExt};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

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

type Messages<T> = BoxStream<'static, Result<T, Status>>;

fn one<T: Send + 'static>(answer: T) -> Response<Messages<T>> {
    Response::new(stream::iter([Ok(answer)]).boxed())
}

fn unimplemented<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented(
        "a stub answers DoGet, and prepared statements, only",
    ))
}

#[tonic::async_trait]
impl FlightService for StubService {
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListFlightsStream = Messages<FlightInfo>;
    type DoGetStream = Messages<FlightData>;
    type DoPutStream = Messages<PutResult>;
    type DoExchangeStream = Messages<FlightData>;
    type DoActionStream = Messages<arrow_flight::Result>;
    type ListActionsStream = Messages<ActionType>;

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
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
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let mut parameters = request.into_inner();
        while parameters.message().await?.is_some() {}
        Ok(one(PutResult::default()))
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        let prepared = ActionCreatePreparedStatementResult::default();
        Ok(one(arrow_flight::Result {
            body: prepared.as_any().encode_to_vec().into(),
        }))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Ok(one(HandshakeResponse::default()))
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        unimplemented()
    }

    async fn get_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(OF_CLIENT));
        Ok(Response::new(FlightInfo::new().with_endpoint(endpoint)))
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        unimplemented()
    }

    async fn get_schema(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        unimplemented()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        unimplemented()
    }

    async fn list_actions(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        unimplemented()
    }
}
