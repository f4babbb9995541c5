use std::sync::Arc;

use arrow_flight::{
    Action, ActionType, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest,
    HandshakeResponse, PutResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tonic::codegen::http::Extensions;
use tonic::{Request, Response, Status, Streaming};
use volary_node::channel::NodeClient;
use volary_node::flight::{self, Flight, MessageStream};

use super::memory::Memory;
use super::question;

/// The question of calls that have only one answer.
const ONLY: Bytes = Bytes::new();

/// Answers every call as the gateway has answered it the first time.
#[derive(Debug, Clone)]
pub(super) struct DriverService {
    gateway: NodeClient,
    memories: Arc<Memories>,
}

/// The messages of a stream.
type Messages<T> = Arc<[T]>;

#[derive(Debug, Default)]
struct Memories {
    handshakes: Memory<Messages<HandshakeResponse>>,
    infos: Memory<FlightInfo>,
    schemas: Memory<SchemaResult>,
    rows: Memory<Messages<FlightData>>,
    bound: Memory<Messages<PutResult>>,
    exchanged: Memory<Messages<FlightData>>,
    actions: Memory<Messages<arrow_flight::Result>>,
    action_types: Memory<Messages<ActionType>>,
}

impl DriverService {
    /// Creates a service that knows no answer yet.
    pub(super) fn new(gateway: NodeClient) -> Self {
        Self {
            gateway,
            memories: Arc::default(),
        }
    }
}

impl Flight for DriverService {
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> flight::Answer<MessageStream<HandshakeResponse>> {
        let request = read_whole(request).await?;
        let ask = async { collect(self.gateway.clone().handshake(resent(request)).await).await };
        self.memories
            .handshakes
            .answer(ONLY, ask)
            .await
            .map(stream_of)
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> flight::Answer<FlightInfo> {
        let question = question::in_descriptor(request.get_ref());
        let ask = async {
            self.gateway
                .clone()
                .get_flight_info(passed_on(request))
                .await
        };
        self.memories.infos.answer(question, ask).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> flight::Answer<SchemaResult> {
        let question = question::in_descriptor(request.get_ref());
        let ask = async { self.gateway.clone().get_schema(passed_on(request)).await };
        self.memories.schemas.answer(question, ask).await
    }

    async fn do_get(&self, request: Request<Ticket>) -> flight::Answer<MessageStream<FlightData>> {
        let question = request.get_ref().ticket.clone();
        let ask = async { collect(self.gateway.clone().do_get(passed_on(request)).await).await };
        self.memories
            .rows
            .answer(question, ask)
            .await
            .map(stream_of)
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> flight::Answer<MessageStream<PutResult>> {
        let request = read_whole(request).await?;
        let question = question::in_stream(request.get_ref());
        let ask = async { collect(self.gateway.clone().do_put(resent(request)).await).await };
        self.memories
            .bound
            .answer(question, ask)
            .await
            .map(stream_of)
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> flight::Answer<MessageStream<FlightData>> {
        let request = read_whole(request).await?;
        let question = question::in_stream(request.get_ref());
        let ask = async { collect(self.gateway.clone().do_exchange(resent(request)).await).await };
        self.memories
            .exchanged
            .answer(question, ask)
            .await
            .map(stream_of)
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> flight::Answer<MessageStream<arrow_flight::Result>> {
        let question = question::in_action(request.get_ref());
        let ask = async { collect(self.gateway.clone().do_action(passed_on(request)).await).await };
        self.memories
            .actions
            .answer(question, ask)
            .await
            .map(stream_of)
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> flight::Answer<MessageStream<ActionType>> {
        let ask =
            async { collect(self.gateway.clone().list_actions(passed_on(request)).await).await };
        self.memories
            .action_types
            .answer(ONLY, ask)
            .await
            .map(stream_of)
    }
}

/// Returns the request with its headers, but without what the listener knows of its connection.
fn passed_on<T>(request: Request<T>) -> Request<T> {
    let (headers, _, message) = request.into_parts();
    Request::from_parts(headers, Extensions::default(), message)
}

/// Returns a request with these messages as a stream.
fn resent<T: Send + 'static>(
    request: Request<Vec<T>>,
) -> Request<stream::Iter<std::vec::IntoIter<T>>> {
    passed_on(request.map(stream::iter))
}

/// Reads a client's stream to its end.
async fn read_whole<T>(request: Request<Streaming<T>>) -> Result<Request<Vec<T>>, Status> {
    let (headers, extensions, mut incoming) = request.into_parts();
    let mut messages = Vec::new();
    while let Some(message) = incoming.message().await? {
        messages.push(message);
    }
    Ok(Request::from_parts(headers, extensions, messages))
}

/// Reads the gateway's answer to its end.
async fn collect<T>(
    answer: Result<Response<Streaming<T>>, Status>,
) -> Result<Response<Messages<T>>, Status> {
    let (headers, mut incoming, extensions) = answer?.into_parts();
    let mut messages = Vec::new();
    while let Some(message) = incoming.message().await? {
        messages.push(message);
    }
    Ok(Response::from_parts(headers, messages.into(), extensions))
}

/// Returns an answer that streams the messages.
fn stream_of<T: Clone + Send + Sync + 'static>(
    answer: Response<Messages<T>>,
) -> Response<MessageStream<T>> {
    answer.map(|messages| {
        let numbers = 0..messages.len();
        stream::iter(numbers.map(move |number| Ok(messages[number].clone()))).boxed()
    })
}
