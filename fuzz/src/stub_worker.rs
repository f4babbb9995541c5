use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::runtime::Handle;
use tonic::{Request, Response, Status, Streaming};
use volary_node::listener::Listener;
use volary_node::message_limit::MessageLimit;
use volary_node::serving::{Access, serve};

/// Maximum size of a message that the stub accepts, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// A worker that accepts every ticket and answers with the messages that were set.
#[derive(Debug, Clone)]
pub struct StubWorker {
    address: SocketAddr,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Told {
    tickets: Vec<Bytes>,
    answer: Vec<FlightData>,
}

impl StubWorker {
    /// Starts a stub, which serves until the process ends.
    pub fn start(io: &Handle) -> Self {
        let _io = io.enter();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any).expect("there is a free port");
        let stub = Self {
            address: listener.address(),
            told: Arc::default(),
        };
        let limit = MessageLimit {
            bytes: MOST_BYTES,
            setting: "that of the stub",
        };
        let serving = serve(
            listener,
            stub.clone(),
            Access::open(limit),
            std::future::pending(),
        );
        io.spawn(serving);
        stub
    }

    /// Returns the address at which the stub listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the messages that the stub answers every ticket with.
    pub fn answer(&self, messages: Vec<FlightData>) {
        self.told().answer = messages;
    }

    /// Returns the sealed tickets that have come since the last call of this function.
    pub fn take_tickets(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.told().tickets)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Messages<T> = BoxStream<'static, Result<T, Status>>;

fn unimplemented<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("a stub takes tickets only"))
}

#[tonic::async_trait]
impl FlightService for StubWorker {
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
        let mut told = self.told();
        told.tickets.push(request.into_inner().ticket);
        let answer = stream::iter(told.answer.clone()).map(Ok);
        Ok(Response::new(answer.boxed()))
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        unimplemented()
    }

    async fn do_put(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
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
