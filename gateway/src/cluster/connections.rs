//! Connections to the workers: one per worker, made when it is first used, shared by all queries.

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
/// A connection's window in windows of its streams: that many queries may read from a worker at full speed.
const STREAMS_PER_WINDOW: u32 = 8;

/// The connections.
#[derive(Debug)]
pub(super) struct Connections {
    options: ChannelOptions,
    io: Handle,
    clients: Mutex<HashMap<WorkerId, Connection>>,
}

#[derive(Debug)]
struct Connection {
    address: String,
    client: FlightServiceClient<Channel>,
}

impl Connections {
    pub(super) fn new(gather: &config::Gather, io: Handle) -> Self {
        let stream_window_bytes = window_bytes(gather.stream_window);
        let options = ChannelOptions {
            connect_timeout: gather.connect_timeout,
            stream_window_bytes,
            connection_window_bytes: stream_window_bytes
                .saturating_mul(STREAMS_PER_WINDOW)
                .min(MAX_WINDOW_BYTES),
            max_message_bytes: gather.max_message.bytes(),
        };
        Self {
            options,
            io,
            clients: Mutex::default(),
        }
    }

    /// The connection to a worker at this address; one to another address is replaced.
    fn get(&self, worker: WorkerId, address: &str) -> Result<FlightServiceClient<Channel>> {
        let mut clients = self.clients.lock();
        if let Some(connection) = clients.get(&worker)
            && connection.address == address
        {
            return Ok(connection.client.clone());
        }
        let client = flight_client(address, &self.options, &self.io)?;
        let connection = Connection {
            address: address.to_owned(),
            client: client.clone(),
        };
        clients.insert(worker, connection);
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
    pub fn client(&self, worker: WorkerId) -> Result<FlightServiceClient<Channel>> {
        let state = self.catalog.state();
        let Some(record) = state.worker(worker) else {
            return Err(Error::unavailable(format!(
                "worker {worker} has never joined this cluster; start it and retry"
            )));
        };
        self.connections.get(worker, &record.address)
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
        let mut client = self.client(worker)?;
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
