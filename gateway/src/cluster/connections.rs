//! Connections to the workers: one per worker and window, made when it is first used, shared by all queries.

use std::collections::HashMap;
use std::time::Duration;

use arrow_flight::Action;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::{Code, Status};
use volary_flight_proto::control::{CONTROL_ACTION, Control, control};
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, Channels, NodeClient};
use volary_node::size::MemorySize;

use super::Cluster;
use crate::config;

/// Until a command is answered: the largest one deletes a table's files.
const CONTROL_DEADLINE: Duration = Duration::from_secs(30);
/// HTTP/2's limit of a window.
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// The windows of streams, but for the widest. A window is refilled when half of it was read: what a narrow one carries costs both sides
/// a round trip, with all that wakes, for each 8 KiB.
const NARROW_WINDOW_BYTES: u32 = 16 << 10;
const MIDDLE_WINDOW_BYTES: u32 = 256 << 10;
/// Connections with wider windows are closed when nobody has asked for them for so long: thousands of them take as much memory as a query.
const CLOSED_AFTER: Duration = Duration::from_secs(300);

/// What a worker may send ahead in one stream. All streams of a connection have the same window, so that each has its own
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Streams of a gather from many workers in little memory, and all whose answers are small: a connection takes about 50 KiB of a
    /// gateway's memory, and most workers need no second one.
    Narrow,
    /// Streams of a gather from many workers.
    Middle,
    /// As `gateway.gather.stream_window` says: streams of a few workers.
    Wide,
}

impl Window {
    /// All of them.
    pub const WIDEST_FIRST: [Self; 3] = [Self::Wide, Self::Middle, Self::Narrow];

    /// Its size.
    pub fn bytes(self, config: &config::Gather) -> usize {
        self.of(config) as usize
    }

    fn of(self, config: &config::Gather) -> u32 {
        let wide = window_bytes(config.stream_window);
        match self {
            Self::Narrow => NARROW_WINDOW_BYTES.min(wide),
            Self::Middle => MIDDLE_WINDOW_BYTES.min(wide),
            Self::Wide => wide,
        }
    }
}

/// The connections.
#[derive(Debug)]
pub(super) struct Connections {
    narrow: Channels,
    middle: Channels,
    wide: Channels,
    clients: Mutex<HashMap<(WorkerId, Window), Known>>,
}

#[derive(Debug)]
struct Known {
    address: String,
    client: NodeClient,
}

impl Connections {
    pub(super) fn new(gather: &config::Gather, io: Handle) -> Self {
        let channels = move |window: Window| {
            let options = ChannelOptions {
                connect_timeout: gather.connect_timeout,
                stream_window_bytes: window.of(gather),
                // What a stream that nobody reads holds back must not stop the others: each is bounded by itself.
                connection_window_bytes: MAX_WINDOW_BYTES,
                max_message_bytes: gather.max_message.bytes(),
                closed_after: (window != Window::Narrow).then_some(CLOSED_AFTER),
            };
            Channels::new(&options, &io)
        };
        Self {
            narrow: channels(Window::Narrow),
            middle: channels(Window::Middle),
            wide: channels(Window::Wide),
            clients: Mutex::default(),
        }
    }

    /// A client of a worker at this address.
    fn get(&self, worker: WorkerId, window: Window, address: &str) -> Result<NodeClient> {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(&(worker, window))
            && known.address == address
        {
            return Ok(known.client.clone());
        }
        let channels = match window {
            Window::Narrow => &self.narrow,
            Window::Middle => &self.middle,
            Window::Wide => &self.wide,
        };
        let client = channels.client(address)?;
        let known = Known {
            address: address.to_owned(),
            client: client.clone(),
        };
        clients.insert((worker, window), known);
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
    pub fn client(&self, worker: WorkerId, window: Window) -> Result<NodeClient> {
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
