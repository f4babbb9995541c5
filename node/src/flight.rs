use std::future::{Future, ready};

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use volary_flight_proto::{Error, ErrorCode};

/// Stream of messages to a caller.
pub type MessageStream<T> = BoxStream<'static, Result<T, Status>>;

/// The answer to a call.
pub type Answer<T> = Result<Response<T>, Status>;

/// A Flight server. Every call that it does not implement is refused. [`FlightAdapter`] turns it
/// into a [`FlightService`].
pub trait Flight: Send + Sync + 'static {
    /// Returns the error for a call that this server does not serve. `call` is its name in
    /// Flight.proto.
    fn unserved_error(&self, call: &'static str) -> Status {
        Error::new(
            ErrorCode::Unimplemented,
            format!("{call} is not served here"),
        )
        .into()
    }

    /// Handles Handshake.
    fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> impl Future<Output = Answer<MessageStream<HandshakeResponse>>> + Send {
        ready(Err(self.unserved_error("Handshake")))
    }

    /// Handles ListFlights.
    fn list_flights(
        &self,
        _request: Request<Criteria>,
    ) -> impl Future<Output = Answer<MessageStream<FlightInfo>>> + Send {
        ready(Err(self.unserved_error("ListFlights")))
    }

    /// Handles GetFlightInfo.
    fn get_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> impl Future<Output = Answer<FlightInfo>> + Send {
        ready(Err(self.unserved_error("GetFlightInfo")))
    }

    /// Handles PollFlightInfo.
    fn poll_flight_info(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> impl Future<Output = Answer<PollInfo>> + Send {
        ready(Err(self.unserved_error("PollFlightInfo")))
    }

    /// Handles GetSchema.
    fn get_schema(
        &self,
        _request: Request<FlightDescriptor>,
    ) -> impl Future<Output = Answer<SchemaResult>> + Send {
        ready(Err(self.unserved_error("GetSchema")))
    }

    /// Handles DoGet.
    fn do_get(
        &self,
        _request: Request<Ticket>,
    ) -> impl Future<Output = Answer<MessageStream<FlightData>>> + Send {
        ready(Err(self.unserved_error("DoGet")))
    }

    /// Handles DoPut.
    fn do_put(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> impl Future<Output = Answer<MessageStream<PutResult>>> + Send {
        ready(Err(self.unserved_error("DoPut")))
    }

    /// Handles DoExchange.
    fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> impl Future<Output = Answer<MessageStream<FlightData>>> + Send {
        ready(Err(self.unserved_error("DoExchange")))
    }

    /// Handles DoAction.
    fn do_action(
        &self,
        _request: Request<Action>,
    ) -> impl Future<Output = Answer<MessageStream<arrow_flight::Result>>> + Send {
        ready(Err(self.unserved_error("DoAction")))
    }

    /// Handles ListActions.
    fn list_actions(
        &self,
        _request: Request<Empty>,
    ) -> impl Future<Output = Answer<MessageStream<ActionType>>> + Send {
        ready(Err(self.unserved_error("ListActions")))
    }
}

/// The service of a [`Flight`] server.
#[derive(Debug, Clone)]
pub struct FlightAdapter<F>(pub F);

#[tonic::async_trait]
impl<F: Flight> FlightService for FlightAdapter<F> {
    type HandshakeStream = MessageStream<HandshakeResponse>;
    type ListFlightsStream = MessageStream<FlightInfo>;
    type DoGetStream = MessageStream<FlightData>;
    type DoPutStream = MessageStream<PutResult>;
    type DoExchangeStream = MessageStream<FlightData>;
    type DoActionStream = MessageStream<arrow_flight::Result>;
    type ListActionsStream = MessageStream<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        self.0.handshake(request).await
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        self.0.list_flights(request).await
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        self.0.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        self.0.poll_flight_info(request).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        self.0.get_schema(request).await
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        self.0.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        self.0.do_put(request).await
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        self.0.do_exchange(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        self.0.do_action(request).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        self.0.list_actions(request).await
    }
}
