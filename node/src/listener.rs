//! The address that a node listens on, and the server behind it.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower::util::MapResponseLayer;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::message_limit::MessageLimit;

/// Header lists above this are refused; the default of 16 KiB is too small for large bearer tokens.
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Windows of what clients and gateways upload. Downloads use the reader's windows.
const UPLOAD_STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const UPLOAD_CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    incoming: TcpIncoming,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address`; port 0 takes a free one. Must be called within the I/O runtime.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the port is in use, `INVALID_ARGUMENT` if the address is not one of this machine.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |source: std::io::Error| {
            let (code, advice) = match source.kind() {
                std::io::ErrorKind::AddrInUse => (
                    ErrorCode::AlreadyExists,
                    "the port is in use by another process; choose another one or stop that process",
                ),
                std::io::ErrorKind::AddrNotAvailable => (
                    ErrorCode::InvalidArgument,
                    "this machine has no such address",
                ),
                std::io::ErrorKind::PermissionDenied => {
                    (ErrorCode::PermissionDenied, "the port may not be used")
                }
                _ => (ErrorCode::Unavailable, "the address cannot be bound"),
            };
            Error::with_source(
                code,
                format!("cannot listen on {address}: {advice}"),
                source,
            )
        };
        let incoming = TcpIncoming::bind(address)
            .map_err(failed)?
            // Without it Nagle's algorithm holds small messages back: 92 ms instead of 6 ms for an answer (measured).
            .with_nodelay(Some(true))
            .with_keepalive(Some(KEEPALIVE_INTERVAL));
        let address = incoming.local_addr().map_err(failed)?;
        Ok(Self { incoming, address })
    }

    /// The address, with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` ends, then lets open calls end by themselves.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the server fails.
    pub async fn serve<S: FlightService>(
        self,
        service: S,
        limit: MessageLimit,
        shutdown: impl Future<Output = ()>,
    ) -> Result<()> {
        let service = FlightServiceServer::new(service)
            .max_decoding_message_size(limit.bytes)
            // What a node sends it has sized itself.
            .max_encoding_message_size(usize::MAX);
        let explain = MapResponseLayer::new(move |response| limit.explain_response(response));
        Server::builder()
            .layer(explain)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
            .initial_stream_window_size(UPLOAD_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(UPLOAD_CONNECTION_WINDOW_BYTES)
            .add_service(service)
            .serve_with_incoming_shutdown(self.incoming, shutdown)
            .await
            .map_err(|source| {
                Error::with_source(
                    ErrorCode::Unavailable,
                    format!("the server at {} failed", self.address),
                    source,
                )
            })
    }
}
