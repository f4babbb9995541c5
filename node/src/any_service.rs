use std::fmt;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use tonic::{Request, Streaming};

use crate::flight::{Answer, MessageStream};

/// A Flight service whose streams are boxed, as in all services of this project.
pub trait BoxedFlightService:
    FlightService<
        HandshakeStream = MessageStream<HandshakeResponse>,
        ListFlightsStream = MessageStream<FlightInfo>,
        DoGetStream = MessageStream<FlightData>,
        DoPutStream = MessageStream<PutResult>,
        DoExchangeStream = MessageStream<FlightData>,
        DoActionStream = MessageStream<arrow_flight::Result>,
        ListActionsStream = MessageStream<ActionType>,
    >
{
}

impl<S> BoxedFlightService for S where
    S: FlightService<
            HandshakeStream = MessageStream<HandshakeResponse>,
            ListFlightsStream = MessageStream<FlightInfo>,
            DoGetStream = MessageStream<FlightData>,
            DoPutStream = MessageStream<PutResult>,
            DoExchangeStream = MessageStream<FlightData>,
            DoActionStream = MessageStream<arrow_flight::Result>,
            ListActionsStream = MessageStream<ActionType>,
        >
{
}

/// A Flight service whose type is erased.
#[derive(Clone)]
pub(crate) struct AnyService(Arc<dyn BoxedFlightService>);

impl AnyService {
    /// Erases the type of a service.
    pub(crate) fn new(service: impl BoxedFlightService) -> Self {
        Self(Arc::new(service))
    }
}

impl fmt::Debug for AnyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyService").finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl FlightService for AnyService {
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
