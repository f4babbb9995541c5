//! The Flight service that only clients use. It serves the rows of their tickets, and nothing that
//! nodes say to each other.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use volary_flight_proto::{Error, ErrorCode};
use volary_node::client_rows::ClientMessages;

use super::{Clients, introduction_of};

type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// The Flight service of a worker for clients, at `worker.clients.listen`.
#[derive(Debug, Clone)]
pub struct ClientService(Clients);

impl ClientService {
    /// Builds the service, which answers calls with `clients`.
    pub fn new(clients: Clients) -> Self {
        Self(clients)
    }
}

fn elsewhere<T>() -> Result<Response<T>, Status> {
    Err(Error::new(
        ErrorCode::Unimplemented,
        "a worker serves the rows of tickets only; connect to a gateway",
    )
    .into())
}

#[tonic::async_trait]
impl FlightService for ClientService {
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListFlightsStream = Messages<FlightInfo>;
    type DoGetStream = ClientMessages;
    type DoPutStream = Messages<PutResult>;
    type DoExchangeStream = Messages<FlightData>;
    type DoActionStream = Messages<arrow_flight::Result>;
    type ListActionsStream = Messages<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let introduction = introduction_of(&request, Bytes::new())?;
        Ok(self.0.shake_hands(introduction).await?)
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        Ok(Response::new(self.0.rows(request).await?))
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        elsewhere()
    }

    async fn get_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        elsewhere()
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        elsewhere()
    }

    async fn get_schema(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        elsewhere()
    }

    async fn do_put(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        elsewhere()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        elsewhere()
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        elsewhere()
    }

    async fn list_actions(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        elsewhere()
    }
}
