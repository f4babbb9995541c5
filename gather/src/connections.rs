//! Connections to the workers: one per worker and window, made when it is first used, shared by all queries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::{Code, Status};
use volary_flight_proto::error::innermost;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, Channels, NodeClient};
use volary_node::node_header::NodeHeader;
use volary_node::tls::ClientTls;

/// HTTP/2's limit of a window.
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// The windows of streams, but for the widest. A window is refilled when half of it was read: what a narrow one carries costs both sides
/// a round trip, with all that wakes, for each 8 KiB.
const NARROW_WINDOW_BYTES: u32 = 16 << 10;
const MIDDLE_WINDOW_BYTES: u32 = 256 << 10;
/// Connections are closed when nobody has asked for them for so long: thousands of them take as much memory as a query. Those over which a
/// gateway asks workers for their reports stay.
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
    /// As wide as is allowed: streams of a few workers.
    Wide,
}

impl Window {
    /// All of them.
    pub const WIDEST_FIRST: [Self; 3] = [Self::Wide, Self::Middle, Self::Narrow];

    /// Its size, where the widest has so many bytes.
    pub fn bytes(self, widest: usize) -> usize {
        self.of(widest) as usize
    }

    fn of(self, widest: usize) -> u32 {
        let wide =
            u32::try_from(widest).map_or(MAX_WINDOW_BYTES, |bytes| bytes.min(MAX_WINDOW_BYTES));
        match self {
            Self::Narrow => NARROW_WINDOW_BYTES.min(wide),
            Self::Middle => MIDDLE_WINDOW_BYTES.min(wide),
            Self::Wide => wide,
        }
    }
}

/// How connections are made.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionOptions {
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// The widest window, in bytes.
    pub stream_window_bytes: usize,
    /// The largest message that is taken, in bytes.
    pub max_message_bytes: usize,
}

/// The connections.
#[derive(Debug)]
pub struct Connections {
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
    /// They are made, and served, on the `io` runtime. `tls`: see [`ChannelOptions`]. `sealer` has the cluster's key.
    pub fn new(
        options: &ConnectionOptions,
        tls: Option<ClientTls>,
        sealer: Sealer,
        io: Handle,
    ) -> Self {
        let node_header = Arc::new(NodeHeader::new(sealer));
        let channels = move |window: Window| {
            let options = ChannelOptions {
                connect_timeout: options.connect_timeout,
                stream_window_bytes: window.of(options.stream_window_bytes),
                // What a stream that nobody reads holds back must not stop the others: each is bounded by itself.
                connection_window_bytes: MAX_WINDOW_BYTES,
                max_message_bytes: options.max_message_bytes,
                closed_after: Some(CLOSED_AFTER),
                tls: tls.clone(),
                node_header: Some(Arc::clone(&node_header)),
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
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the address is none.
    pub fn get(&self, worker: WorkerId, window: Window, address: &str) -> Result<NodeClient> {
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

/// What a worker says, or the way to it. A connection that breaks is reported by tonic under several codes, none of which a worker
/// uses by itself.
pub fn worker_error(status: Status) -> Error {
    let broken = std::error::Error::source(&status).is_some()
        && matches!(
            status.code(),
            Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled
        );
    if broken {
        return Error::new(
            ErrorCode::Unavailable,
            format!(
                "the connection to the worker is lost; run the statement again ({})",
                innermost(&status)
            ),
        );
    }
    status.into()
}
