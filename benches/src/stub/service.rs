//! The Flight service of a stub.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::answer::Answer;

/// Answers every DoGet in the same way, and nothing else.
#[derive(Debug, Clone)]
pub struct StubService {
    answer: Arc<Answer>,
}

impl StubService {
    /// With this answer.
    pub fn new(answer: Arc<Answer>) -> Self {
        Self { answer }
    }
}

type Messages<T> = BoxStream<'static, Result<T, Status>>;

fn unimplemented<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("a stub answers DoGet only"))
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

    async fn do_get(&self, _: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        Ok(Response::new(self.answer.messages().map(Ok).boxed()))
    }

    async fn do_put(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        unimplemented()
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        unimplemented()
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        unimplemented()
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
        unimplemented()
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
