use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::transport::server::Connected;
use tower::Service;

use crate::any_service::AnyService;
use crate::fair_reads::fair_reads;
use crate::gate::{Gate, admit_request};
use crate::in_process::InProcessNodes;
use crate::message_limit::MessageLimit;
use crate::reset::fail_on_reset;
use crate::tls::{PeerKind, ServerTls};
use crate::unidentified_calls::UnidentifiedCalls;
use crate::unidentified_reads::{UnidentifiedConnection, UnidentifiedReads};

/// Largest size of a header list, in bytes. The default of 16 KiB is too small for large bearer
/// tokens.
pub const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// HTTP/2 windows for the uploads of clients and gateways, in bytes. Downloads use the reader's
/// windows. Senders that are not identified yet cannot fill these windows
/// ([`UnidentifiedConnection`]).
const UPLOAD_STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const UPLOAD_CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Number of calls on one connection at the same time. Further calls wait at the client.
pub const MAX_CALLS: u32 = 16 * 1024;

/// Time limit for the TLS handshake, in which the peer shows who it is.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the first call on a connection: a silent peer occupies a file descriptor.
pub const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings for how callers connect.
#[derive(Debug, Clone)]
pub struct Entrance {
    /// The limit on the size of a message.
    pub message_limit: MessageLimit,
    /// Certificates that are shown to callers. With `None`, callers connect without TLS.
    pub tls: Option<ServerTls>,
    /// Decides which calls are let in. With `None`, all calls are let in, because each message
    /// shows by itself who has sent it.
    pub gate: Option<Arc<dyn Gate>>,
    /// The list that the node is on while it serves, so that other nodes of its process can call it
    /// without a connection. With `None`, it is called over connections only.
    pub in_process: Option<InProcessNodes>,
}

impl Entrance {
    /// Lets everybody in, without TLS.
    pub fn unguarded(limit: MessageLimit) -> Self {
        Self {
            message_limit: limit,
            tls: None,
            gate: None,
            in_process: None,
        }
    }
}

/// Settings of the connections, and the service that serves them.
#[derive(Debug)]
pub(crate) struct ConnectionServer {
    http2: http2::Builder<TokioExecutor>,
    service: FlightServiceServer<AnyService>,
    entrance: Entrance,
    stopping: CancellationToken,
}

impl ConnectionServer {
    /// Creates the settings. No more calls are accepted once `stopping` is cancelled.
    pub(crate) fn new(
        service: FlightServiceServer<AnyService>,
        entrance: Entrance,
        stopping: CancellationToken,
    ) -> Self {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            .max_concurrent_streams(MAX_CALLS)
            .initial_stream_window_size(UPLOAD_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(UPLOAD_CONNECTION_WINDOW_BYTES)
            // Each frame that arrives for a refused upload counts as an error of the client. After
            // 1024 errors hyper would close the connection, and with it all other calls on it.
            .max_local_error_reset_streams(None);
        Self {
            http2,
            service,
            entrance,
            stopping,
        }
    }

    /// Serves a connection until the client closes it. Once the server was told to stop, the
    /// connection is served until its calls have ended. A connection is closed if no call was made
    /// on it within [`FIRST_CALL_TIMEOUT`].
    pub(crate) fn serve(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let peer = stream.connect_info();
        let peer_address = peer.remote_addr();
        let limit = self.entrance.message_limit;
        let has_calls = Arc::new(AtomicBool::new(false));
        let calls = Arc::clone(&has_calls);
        let (service, gate) = (self.service.clone(), self.entrance.gate.clone());
        let unidentified_calls = Arc::new(UnidentifiedCalls::new(gate.is_none()));
        let connection_calls = Arc::clone(&unidentified_calls);
        let answer = move |kind: PeerKind, request: hyper::Request<hyper::body::Incoming>| {
            calls.store(true, Ordering::Relaxed);
            // The call begins here, and not in the future below: when that is polled, more of the
            // connection has been read.
            let mut unidentified_call = unidentified_calls.begin();
            let mut request = fail_on_reset(request.map(Body::new));
            // `tonic::Request::remote_addr` reads this extension.
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(kind);
            let (mut service, gate) = (service.clone(), gate.clone());
            async move {
                let admitted = match &gate {
                    Some(gate) => {
                        let gate = gate.as_ref();
                        admit_request(gate, request, peer_address, limit, &mut unidentified_call)
                            .await
                    }
                    None => Ok(request),
                };
                let response = match admitted {
                    Ok(request) => service.call(request).await?,
                    Err(status) => status.into_http(),
                };
                drop(unidentified_call);
                Ok::<_, Infallible>(limit.explain_response(response))
            }
        };
        let http2 = self.http2.clone();
        let (tls, stopping) = (self.entrance.tls.clone(), self.stopping.clone());
        async move {
            let (stream, kind) = match accept_tls(stream, tls).await {
                Ok(secured) => secured,
                Err(error) => {
                    tracing::debug!(%error, ?peer_address, "the TLS handshake of a connection failed");
                    return;
                }
            };
            let service = service_fn(move |request| answer(kind, request));
            let stream = fair_reads(stream);
            let limit = UnidentifiedReads::new(connection_calls);
            let stream = TokioIo::new(UnidentifiedConnection::new(stream, limit));
            let connection = http2.serve_connection(stream, service);
            let mut connection = pin!(connection);
            let silent = wait_if_silent(&has_calls);
            let served = tokio::select! {
                served = &mut connection => served,
                () = silent => {
                    tracing::debug!(?peer_address, "a connection is closed because no call was made on it");
                    return;
                }
                () = stopping.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a connection broke");
            }
        }
    }
}

/// Completes after [`FIRST_CALL_TIMEOUT`] if nothing was called by then, and otherwise never.
async fn wait_if_silent(called: &AtomicBool) {
    tokio::time::sleep(FIRST_CALL_TIMEOUT).await;
    if called.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

type ServerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Accepts the connection with the current certificates, and returns what kind of peer it has.
async fn accept_tls(
    stream: TcpStream,
    tls: Option<ServerTls>,
) -> io::Result<(ServerStream, PeerKind)> {
    let Some(tls) = tls else {
        return Ok((Either::Left(stream), PeerKind::Unknown));
    };
    let side = tls.current();
    let handshake = TlsAcceptor::from(Arc::clone(&side.config)).accept(stream);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await??;
    let kind = side.nodes.peer_kind(stream.get_ref().1);
    Ok((Either::Right(Box::new(stream)), kind))
}
