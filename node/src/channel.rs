//! Each [`Channels`] has one connection per address. It makes a connection at the first call, makes
//! it again after a loss, and shares it among all calls: HTTP/2 carries many streams. A node of the
//! same process can be called without a connection.

/// Waits for the beginning of an answer, and carries the rest of it.
mod pending_call;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use futures::future::BoxFuture;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tonic::ConnectError;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, Uri};
use tower::{BoxError, Service};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::in_process::InProcessNodes;
use crate::node_header::NodeHeader;
use crate::stream::NodeStream;
use crate::tls::ClientTls;

pub use pending_call::{AnswerBody, PendingCall};

/// Idle time before a connection is probed by TCP, and interval of HTTP/2 pings while a call is
/// open.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Time that a node has to answer an HTTP/2 ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two TCP probes of a connection that does not answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of unanswered TCP probes after which a connection is given up.
const PROBES: u32 = 2;
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
/// Number of frames that a window has room for, if their size is not limited otherwise.
const FRAMES_PER_WINDOW: u32 = 4;
/// The smallest limit on the size of a frame that HTTP/2 allows. It is also its default.
const MIN_FRAME_BYTES: u32 = 16 << 10;
/// Larger frames save little more time.
const MAX_FRAME_BYTES: u32 = 128 << 10;

/// A Flight client of a node.
pub type NodeClient = FlightServiceClient<Transport>;

/// Marks a call that is made at the same time as others, as an extension of its request. A node of
/// this process then answers it in a task of its own, so that the answers are made in parallel.
#[derive(Debug, Clone, Copy)]
pub struct OneOfMany;

/// Carries the calls of a client. tonic's own channel has a queue in front of each connection,
/// which takes 11 KiB of memory.
///
/// Each call over a connection begins on the I/O runtime. A call that finds no connection makes
/// one, also for all other calls that wait for it meanwhile. If the caller's own task made the
/// connection, the other calls would wait while the caller does not poll its call.
#[derive(Debug, Clone)]
pub struct Transport {
    client: Client<Connector, Body>,
    node_header: Option<Arc<NodeHeader>>,
    in_process: Option<InProcessNodes>,
    io: Handle,
}

impl Service<Request<Body>> for Transport {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = PendingCall;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(header) = &self.node_header {
            header.add_to(request.headers_mut());
        }
        let address = request.uri().authority();
        let nodes = self.in_process.as_ref();
        let node = nodes.and_then(|nodes| nodes.at(address?.as_str()));
        match node {
            Some(node) if request.extensions().get::<OneOfMany>().is_some() => {
                PendingCall::in_task(self.io.spawn(node.call(request)))
            }
            Some(node) => PendingCall::in_process(node.call(request)),
            None => PendingCall::over_connection(self.io.spawn(self.client.request(request))),
        }
    }
}

/// Options for making connections.
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// Time limit for making a connection.
    pub connect_timeout: Duration,
    /// HTTP/2 window of one stream, in bytes: what a sender may send before the reader has read it.
    pub stream_window_bytes: u32,
    /// HTTP/2 window of all streams of a connection together, in bytes.
    pub connection_window_bytes: u32,
    /// Size of the largest message that is accepted, in bytes.
    pub max_message_bytes: usize,
    /// Time without a new call after which a connection is closed, once its streams have ended.
    /// With `None`, connections are kept.
    pub idle_timeout: Option<Duration>,
    /// TLS settings for connections. With `None`, connections are not encrypted.
    pub tls: Option<ClientTls>,
    /// Header that is added to each call if a node of the cluster makes the calls.
    pub node_header: Option<Arc<NodeHeader>>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            stream_window_bytes: 2 * 1024 * 1024,
            connection_window_bytes: 16 * 1024 * 1024,
            max_message_bytes: 256 * 1024 * 1024,
            idle_timeout: None,
            tls: None,
            node_header: None,
        }
    }
}

/// A pool of connections that have the same options. Clones share the pool.
#[derive(Debug, Clone)]
pub struct Channels {
    transport: Transport,
    max_message_bytes: usize,
}

impl Channels {
    /// Creates the pool of connections, which are made and served on the I/O runtime.
    pub fn new(options: &ChannelOptions, io: &Handle) -> Self {
        let client = Client::builder(HandleExecutor(io.clone()))
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_timeout)
            .http2_only(true)
            .set_host(false)
            .http2_initial_stream_window_size(options.stream_window_bytes)
            .http2_initial_connection_window_size(options.connection_window_bytes)
            .http2_max_frame_size(frame_bytes(options.stream_window_bytes))
            .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
            // While no call is open, the operating system detects that a peer is gone: pings would
            // wake both nodes for each of thousands of connections. The operating system of a node
            // that hangs still answers, so open calls are watched by pings.
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .http2_keep_alive_timeout(KEEPALIVE_TIMEOUT)
            // Each frame that arrives for a dropped stream counts as an error of the peer. After
            // 1024 errors hyper would close the connection, and with it all other streams. Here the
            // peers are nodes of the cluster, and streams are dropped all the time: because of
            // limits, or because clients go away.
            .http2_max_local_error_reset_streams(None)
            .build(Connector::new(options));
        Self {
            transport: Transport {
                client,
                node_header: options.node_header.clone(),
                in_process: None,
                io: io.clone(),
            },
            max_message_bytes: options.max_message_bytes,
        }
    }

    /// Makes calls to these nodes without a connection.
    #[must_use]
    pub fn with_in_process(mut self, nodes: Option<InProcessNodes>) -> Self {
        self.transport.in_process = nodes;
        self
    }

    /// Returns a client of the node at `address` (`host:port`).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `address` is not an address.
    pub fn client(&self, address: &str) -> Result<NodeClient> {
        let origin: Uri = format!("http://{address}").parse().map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("\"{address}\" is not an address; write host:port"),
                source,
            )
        })?;
        Ok(
            FlightServiceClient::with_origin(self.transport.clone(), origin)
                .max_decoding_message_size(self.max_message_bytes)
                .max_encoding_message_size(usize::MAX),
        )
    }
}

/// Returns the size of the largest frame that a peer may send to a stream with this window, in
/// bytes. Large frames take less time for each byte, but a frame is buffered as a whole, and what
/// is behind it waits for its end.
fn frame_bytes(stream_window_bytes: u32) -> u32 {
    (stream_window_bytes / FRAMES_PER_WINDOW).clamp(MIN_FRAME_BYTES, MAX_FRAME_BYTES)
}

/// Returns a Flight client with connections of its own: see [`Channels`].
///
/// # Errors
/// The errors of [`Channels::client`].
pub fn flight_client(address: &str, options: &ChannelOptions, io: &Handle) -> Result<NodeClient> {
    Channels::new(options, io).client(address)
}

/// Spawns the tasks of connections on a runtime.
#[derive(Debug, Clone)]
struct HandleExecutor(Handle);

impl<F> hyper::rt::Executor<F> for HandleExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// Connects over TCP, and over TLS if configured. It reports failures as `ConnectError`, which gRPC
/// maps to UNAVAILABLE.
#[derive(Debug, Clone)]
struct Connector {
    http: HttpConnector,
    tls: Option<ClientTls>,
    connect_timeout: Duration,
}

impl Connector {
    fn new(options: &ChannelOptions) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(options.connect_timeout));
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEPALIVE_INTERVAL));
        http.set_keepalive_interval(Some(PROBE_INTERVAL));
        http.set_keepalive_retries(Some(PROBES));
        Self {
            http,
            tls: options.tls.clone(),
            connect_timeout: options.connect_timeout,
        }
    }
}

impl Service<Uri> for Connector {
    type Response = NodeStream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, std::result::Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let host = address.host().unwrap_or_default().to_owned();
        let connecting = self.http.call(address);
        let (tls, timeout) = (self.tls.clone(), self.connect_timeout);
        Box::pin(async move {
            let connected = connecting.await;
            let stream = connected.map_err(|error| ConnectError(error.into()))?;
            let Some(tls) = tls else {
                return Ok(NodeStream::plain(stream));
            };
            let secured =
                tokio::time::timeout(timeout, connect_tls(stream.into_inner(), &tls, &host));
            let secured = secured.await.unwrap_or_else(|late| Err(late.into()));
            secured.map_err(|error| ConnectError(error.into()))
        })
    }
}

async fn connect_tls(stream: TcpStream, tls: &ClientTls, host: &str) -> io::Result<NodeStream> {
    let name = tls.name(host).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("\"{host}\" is not a name that a certificate can have"),
        )
    })?;
    let connector = TlsConnector::from(tls.current());
    let stream = connector.connect(name, stream).await?;
    Ok(NodeStream::secured(stream))
}
