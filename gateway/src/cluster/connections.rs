//! Connections to the workers: one per worker and window, made when it is first used, shared by all queries.

use std::collections::HashMap;
use std::time::Duration;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::transport::Channel;
use tonic::{Code, Status};
use volary_flight_proto::control::{CONTROL_ACTION, Control, control};
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, flight_client};
use volary_node::size::MemorySize;

use super::Cluster;
use crate::config;

/// Until a command is answered: the largest one deletes a table's files.
const CONTROL_DEADLINE: Duration = Duration::from_secs(30);
/// HTTP/2's limit of a window.
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// The narrow window of a stream. Thousands of such streams are fast together: each has a window's worth of rows in a round trip.
const NARROW_WINDOW_BYTES: u32 = 16 << 10;

/// What a worker may send ahead in one stream. All streams of a connection have the same window, so that each has its own
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Streams of a gather from many workers, and all whose answers are small: a connection takes about 50 KiB of a gateway's memory,
    /// and most workers need no second one.
    Narrow,
    /// As `gateway.gather.stream_window` says: streams of a few workers.
    Wide,
}

impl Window {
    /// Its size.
    pub fn bytes(self, config: &config::Gather) -> usize {
        self.of(config) as usize
    }

    fn of(self, config: &config::Gather) -> u32 {
        let wide = window_bytes(config.stream_window);
        match self {
            Self::Narrow => NARROW_WINDOW_BYTES.min(wide),
            Self::Wide => wide,
        }
    }
}

/// The connections.
#[derive(Debug)]
pub(super) struct Connections {
    config: config::Gather,
    io: Handle,
    clients: Mutex<HashMap<(WorkerId, Window), Connection>>,
}

#[derive(Debug)]
struct Connection {
    address: String,
    client: FlightServiceClient<Channel>,
}

impl Connections {
    pub(super) fn new(gather: &config::Gather, io: Handle) -> Self {
        Self {
            config: gather.clone(),
            io,
            clients: Mutex::default(),
        }
    }

    /// The connection to a worker at this address; one to another address is replaced.
    fn get(
        &self,
        worker: WorkerId,
        window: Window,
        address: &str,
    ) -> Result<FlightServiceClient<Channel>> {
        let mut clients = self.clients.lock();
        if let Some(connection) = clients.get(&(worker, window))
            && connection.address == address
        {
            return Ok(connection.client.clone());
        }
        let options = ChannelOptions {
            connect_timeout: self.config.connect_timeout,
            stream_window_bytes: window.of(&self.config),
            // What a stream that nobody reads holds back must not stop the others: each is bounded by itself.
            connection_window_bytes: MAX_WINDOW_BYTES,
            max_message_bytes: self.config.max_message.bytes(),
        };
        let client = flight_client(address, &options, &self.io)?;
        let connection = Connection {
            address: address.to_owned(),
            client: client.clone(),
        };
        clients.insert((worker, window), connection);
        Ok(client)
    }
}

fn window_bytes(size: MemorySize) -> u32 {
    u32::try_from(size.bytes()).map_or(MAX_WINDOW_BYTES, |bytes| bytes.min(MAX_WINDOW_BYTES))
}

impl Cluster {
    /// A client of a worker, at the address of its last join, also if that was before this gateway started. It connects when it
    /// is used.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the worker has never joined.
    pub fn client(&self, worker: WorkerId, window: Window) -> Result<FlightServiceClient<Channel>> {
        let state = self.catalog.state();
        let Some(record) = state.worker(worker) else {
            return Err(Error::unavailable(format!(
                "worker {worker} has never joined this cluster; start it and retry"
            )));
        };
        self.connections.get(worker, window, &record.address)
    }

    /// Sends a command to a worker and returns its answer.
    ///
    /// # Errors
    /// Those of the worker and of the way to it, with the worker's name; `DEADLINE_EXCEEDED` if it does not answer.
    pub async fn control(&self, worker: WorkerId, command: control::Command) -> Result<Bytes> {
        let sent = tokio::time::timeout(CONTROL_DEADLINE, self.send(worker, command)).await;
        let answer = sent.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!("no answer to a command within {CONTROL_DEADLINE:?}; retry, and look into the worker's log"),
            ))
        });
        answer.map_err(|error| error.at(self.name(worker)))
    }

    async fn send(&self, worker: WorkerId, command: control::Command) -> Result<Bytes> {
        let mut client = self.client(worker, Window::Narrow)?;
        let control = Control {
            worker_id: worker.0,
            command: Some(command),
            cluster_id: self.id().to_string(),
        };
        let body = self
            .sealer
            .seal(Purpose::Control, &control, CONTROL_DEADLINE);
        let action = Action::new(CONTROL_ACTION, body);
        let answer = client.do_action(action).await.map_err(worker_error)?;
        let first = answer.into_inner().message().await.map_err(worker_error)?;
        Ok(first.map(|result| result.body).unwrap_or_default())
    }
}

/// What a worker says, or the way to it. A connection that breaks is reported by tonic under several codes, none of which a worker
/// uses by itself.
pub fn worker_error(status: Status) -> Error {
    let broken = std::error::Error::source(&status).is_some()
        && matches!(
            status.code(),
            Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled
        );
    if broken {
        return Error::with_source(
            ErrorCode::Unavailable,
            "the connection to the worker is lost; run the statement again",
            status,
        );
    }
    status.into()
}
