use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::{Code, Status};
use volary_flight_proto::error::innermost_cause;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, Channels, NodeClient};
use volary_node::in_process::InProcessNodes;
use volary_node::node_header::NodeHeader;
use volary_node::tls::ClientTls;

/// Size of the largest window that HTTP/2 allows, in bytes.
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Size of a narrow window. A window is refilled when half of it was read, so each 8 KiB that a
/// narrow window carries cost both sides a round trip and wake-ups.
const NARROW_WINDOW_BYTES: u32 = 16 << 10;
const MIDDLE_WINDOW_BYTES: u32 = 256 << 10;
/// A connection is closed after this time without a new call. Thousands of connections take as much
/// memory as a query. The connections over which a gateway asks workers for their reports stay
/// open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// How much a worker may send ahead in one stream. All streams of a connection have the same
/// window, so each window has its own connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// The window for streams of a gather that has many workers and little memory, and for all
    /// streams whose answers are small. A connection takes about 50 KiB of a gateway's memory, and
    /// most workers need no second one.
    Narrow,
    /// The window for streams of a gather from many workers, and for rows of a key. On the
    /// connection of wide windows, these would wait behind all that large scans have sent ahead.
    Middle,
    /// The window for streams of a few workers. It is as wide as is allowed.
    Wide,
}

impl Window {
    /// All windows, the widest one first.
    pub(crate) const WIDEST_FIRST: [Self; 3] = [Self::Wide, Self::Middle, Self::Narrow];

    /// Returns the size of the window in bytes, if the widest window has `widest` bytes.
    pub fn bytes(self, widest: usize) -> usize {
        self.window_bytes(widest) as usize
    }

    fn window_bytes(self, widest: usize) -> u32 {
        let wide =
            u32::try_from(widest).map_or(MAX_WINDOW_BYTES, |bytes| bytes.min(MAX_WINDOW_BYTES));
        match self {
            Self::Narrow => NARROW_WINDOW_BYTES.min(wide),
            Self::Middle => MIDDLE_WINDOW_BYTES.min(wide),
            Self::Wide => wide,
        }
    }
}

/// Options of the connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionOptions {
    /// Deadline for making a connection.
    pub connect_timeout: Duration,
    /// Size of the widest window, in bytes.
    pub stream_window_bytes: usize,
    /// Size of the largest message that is accepted, in bytes.
    pub max_message_bytes: usize,
}

/// The connections of a node to the workers.
#[derive(Debug)]
pub struct WorkerConnections {
    narrow: Channels,
    middle: Channels,
    wide: Channels,
    clients: Mutex<HashMap<(WorkerId, Window), CachedClient>>,
}

#[derive(Debug)]
struct CachedClient {
    address: String,
    client: NodeClient,
}

impl WorkerConnections {
    /// Creates the pool. Connections are made at their first use, and are served on the `io`
    /// runtime. For `tls`, see [`ChannelOptions`]. `sealer` has the cluster's key.
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
                stream_window_bytes: window.window_bytes(options.stream_window_bytes),
                // A stream that nobody reads must not stop the others of its connection. Each
                // stream has a limit of its own.
                connection_window_bytes: MAX_WINDOW_BYTES,
                max_message_bytes: options.max_message_bytes,
                idle_timeout: Some(IDLE_TIMEOUT),
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

    /// Calls workers of this process that are on the list without a connection.
    #[must_use]
    pub fn with_in_process(self, nodes: Option<&InProcessNodes>) -> Self {
        let [narrow, middle, wide] = [self.narrow, self.middle, self.wide]
            .map(|channels| channels.with_in_process(nodes.cloned()));
        Self {
            narrow,
            middle,
            wide,
            clients: self.clients,
        }
    }

    /// Returns a client of the worker at this address.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the address is not valid.
    pub fn client(&self, worker: WorkerId, window: Window, address: &str) -> Result<NodeClient> {
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
        let known = CachedClient {
            address: address.to_owned(),
            client: client.clone(),
        };
        clients.insert((worker, window), known);
        Ok(client)
    }
}

/// Converts a status into an error of the worker, or of the connection to it. tonic reports a
/// broken connection under several codes. Such a status has a source, and the status that a worker
/// sends has none.
pub fn worker_error(status: Status) -> Error {
    let is_broken = std::error::Error::source(&status).is_some()
        && matches!(
            status.code(),
            Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled
        );
    if is_broken {
        return Error::new(
            ErrorCode::Unavailable,
            format!(
                "the connection to the worker is lost; run the statement again ({})",
                innermost_cause(&status)
            ),
        );
    }
    status.into()
}
