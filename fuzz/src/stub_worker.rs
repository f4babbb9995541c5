use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_flight::{FlightData, Ticket};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::runtime::Handle;
use tonic::{Request, Response};
use volary_node::flight::{Answer, Flight, FlightAdapter, MessageStream};
use volary_node::listener::Listener;
use volary_node::message_limit::MessageLimit;
use volary_node::server::{Entrance, serve};

/// Maximum size of a message that the stub accepts, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A worker that accepts every ticket and answers with the messages that were set.
#[derive(Debug, Clone)]
pub struct StubWorker {
    address: SocketAddr,
    state: Arc<Mutex<StubState>>,
}

#[derive(Debug, Default)]
struct StubState {
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
            state: Arc::default(),
        };
        let limit = MessageLimit {
            bytes: MAX_MESSAGE_BYTES,
            setting: "that of the stub",
        };
        let serving = serve(
            listener,
            FlightAdapter(stub.clone()),
            Entrance::unguarded(limit),
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
        self.lock_state().answer = messages;
    }

    /// Returns the sealed tickets that have come since the last call of this function.
    pub fn take_tickets(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.lock_state().tickets)
    }

    fn lock_state(&self) -> MutexGuard<'_, StubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight for StubWorker {
    async fn do_get(&self, request: Request<Ticket>) -> Answer<MessageStream<FlightData>> {
        let mut told = self.lock_state();
        told.tickets.push(request.into_inner().ticket);
        let answer = stream::iter(told.answer.clone()).map(Ok);
        Ok(Response::new(answer.boxed()))
    }
}
