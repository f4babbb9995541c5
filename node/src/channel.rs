//! Connections to other nodes.

use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use tokio::runtime::Handle;
use tonic::transport::{Channel, Endpoint};
use volary_flight_proto::{Error, ErrorCode, Result};

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;

/// How a connection is made.
#[derive(Debug, Clone, Copy)]
pub struct ChannelOptions {
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// HTTP/2 window of one stream, in bytes: what a sender may send ahead.
    pub stream_window_bytes: u32,
    /// HTTP/2 window of all streams of the connection, in bytes.
    pub connection_window_bytes: u32,
    /// The largest message that is taken, in bytes.
    pub max_message_bytes: usize,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            stream_window_bytes: 2 * 1024 * 1024,
            connection_window_bytes: 16 * 1024 * 1024,
            max_message_bytes: 256 * 1024 * 1024,
        }
    }
}

/// A Flight client of the node at `address` (`host:port`). It connects on the I/O runtime when it is first used, and again
/// when the connection was lost.
///
/// # Errors
/// `INVALID_ARGUMENT` if the address is none.
pub fn flight_client(
    address: &str,
    options: &ChannelOptions,
    io: &Handle,
) -> Result<FlightServiceClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("\"{address}\" is not an address; write host:port"),
                source,
            )
        })?
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEPALIVE_INTERVAL))
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(options.stream_window_bytes)
        .initial_connection_window_size(options.connection_window_bytes)
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES);
    // The channel's task, which also makes its connections, is spawned in the runtime that is entered.
    let _guard = io.enter();
    Ok(FlightServiceClient::new(endpoint.connect_lazy())
        .max_decoding_message_size(options.max_message_bytes)
        .max_encoding_message_size(usize::MAX))
}
