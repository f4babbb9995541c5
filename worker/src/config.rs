//! Settings of a worker. The doc comments are the reference: `docs/configuration.md` is made from them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, Result};
use volary_node::admission::places_of_user;
use volary_node::data_dir::Role;
use volary_node::memory;
use volary_node::message_limit::MessageLimit;
use volary_node::secret;
use volary_node::size::MemorySize;
use volary_node::tls;

/// The worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address that gateways connect to. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// `host:port` that gateways are told, where it differs from `listen`.
    pub advertise: Option<String>,
    /// `host:port` of the gateway to join, or its URI: `grpc+tls://host:port` where TLS is meant.
    pub gateway: String,
    /// Directory of the shards. It belongs to this worker alone.
    pub data_dir: PathBuf,
    /// Secret that gateways and workers of a cluster share, of 128 bits at least: `volary secret new` prints one. Required as
    /// soon as the worker listens on an address that other machines reach, or there are users.
    pub secret: Option<String>,
    /// TLS with the gateway and other workers.
    pub tls: tls::Config,
    /// Clients that fetch their parts of results from the worker themselves.
    pub clients: Clients,
    /// Running fragments.
    pub execution: Execution,
    /// Segments.
    pub storage: Storage,
    /// Memory and spill space of fragments and writes.
    pub memory: memory::Config,
}

/// Clients that fetch their parts of results from the worker themselves (direct results).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Clients {
    /// Further address, for clients alone: it takes nothing but their tickets, and with TLS asks for no certificate. Without it, clients connect
    /// to `worker.listen`, where with TLS they have to show a certificate as nodes do.
    pub listen: Option<SocketAddr>,
    /// `host:port` that clients are told, where it differs from the one that they connect to.
    pub advertise: Option<String>,
}

/// Running fragments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Execution {
    /// Parallelism of one fragment. Default: one per core.
    pub target_partitions: Option<usize>,
    /// Fragments that run at the same time; as many again that merge the rows of other workers for a gateway, and as many whose rows clients
    /// fetch themselves.
    pub max_running: usize,
    /// Fragments that wait for a place; one more is refused with RESOURCE_EXHAUSTED.
    pub max_waiting: usize,
    /// A fragment that waits longer for a place is refused with RESOURCE_EXHAUSTED. Queries that wait at several workers for the
    /// places of each other's fragments would never end otherwise.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub max_wait: Duration,
    /// The largest message that is taken from a gateway, or from another worker.
    pub max_message: MemorySize,
    /// Memory for plans of fragments that are kept, so that a gateway need not send them again, and the worker need not decode them
    /// again. A fragment that was forgotten is asked for.
    pub kept_fragments: MemorySize,
    /// The largest value that a function may make, where it makes large ones of small ones: `repeat`, `lpad`, `||`, `range` and
    /// others. Those of a batch of rows may take four times that together.
    pub max_value: MemorySize,
}

/// Segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Storage {
    /// Rows of a row group at the most.
    pub row_group_rows: usize,
    /// Size of a segment above which a write goes on in another one.
    pub segment: MemorySize,
    /// Compression of segments: `lz4_raw`, `zstd(1)` to `zstd(22)`, `snappy` or `uncompressed`. `zstd(1)` takes about a seventh less disk,
    /// and queries a quarter more time.
    pub compression: String,
    /// A segment of at most this size is compared with its checksum when a query first needs it after the worker's start. What is read
    /// of larger ones is compared page by page.
    pub check_on_open: MemorySize,
    /// Whether all segments are compared with their checksums in the background, again and again.
    pub scrub: bool,
    /// How many bytes a second are read for that.
    pub scrub_rate: MemorySize,
    /// The pause between two such passes over all segments.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub scrub_interval: Duration,
}

/// The largest ticket that a client may show, in bytes: gateways make no larger ones.
pub const TICKET_BYTES: usize = 16 << 20;

/// What all clients' tickets take before they are whole, in bytes.
pub const CLIENTS_UNFINISHED: usize = 4 * TICKET_BYTES;

/// A client that takes no rows of a part for so long is given up.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(600);

/// Of a gateway that serves TLS.
const TLS_SCHEME: &str = "grpc+tls://";

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7200)),
            advertise: None,
            gateway: "127.0.0.1:7100".to_owned(),
            data_dir: PathBuf::from("volary-data/worker"),
            secret: None,
            tls: tls::Config::default(),
            clients: Clients::default(),
            execution: Execution::default(),
            storage: Storage::default(),
            memory: memory::Config::default(),
        }
    }
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            target_partitions: None,
            max_running: 256,
            max_waiting: 4096,
            max_wait: Duration::from_secs(300),
            max_message: MemorySize::Bytes(256 << 20),
            kept_fragments: MemorySize::Bytes(16 << 20),
            max_value: MemorySize::Bytes(256 << 20),
        }
    }
}

impl Execution {
    /// Returns how many fragments of one kind, of one user, run at the same time.
    pub fn max_running_per_user(&self) -> usize {
        places_of_user(self.max_running)
    }

    /// Returns how many parts of results of one client wait for a place.
    pub fn max_waiting_per_client(&self) -> usize {
        (self.max_waiting / 4).max(1)
    }

    /// The largest value that functions may make.
    pub fn value_limit(&self) -> memory::Limit {
        memory::Limit {
            bytes: self.max_value.bytes(),
            setting: "worker.execution.max_value",
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            row_group_rows: 128 * 1024,
            segment: MemorySize::Bytes(256 << 20),
            compression: "lz4_raw".to_owned(),
            check_on_open: MemorySize::Bytes(1 << 20),
            scrub: true,
            scrub_rate: MemorySize::Bytes(16 << 20),
            scrub_interval: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Config {
    /// The largest message that the worker takes.
    pub fn message_limit(&self) -> MessageLimit {
        MessageLimit {
            bytes: self.execution.max_message.bytes(),
            setting: "worker.execution.max_message",
        }
    }

    /// `host:port` of the gateway to join.
    pub fn gateway_address(&self) -> &str {
        let uri = self.gateway.as_str();
        uri.split_once("://").map_or(uri, |(_, address)| address)
    }

    /// Checks what types cannot say.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the key and what it takes.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("worker.execution.max_running", self.execution.max_running),
            (
                "worker.execution.target_partitions",
                self.execution.target_partitions.unwrap_or(1),
            ),
            (
                "worker.execution.kept_fragments",
                self.execution.kept_fragments.bytes(),
            ),
            ("worker.storage.row_group_rows", self.storage.row_group_rows),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(Error::invalid(format!("{key} must be at least 1")));
            }
        }
        self.storage
            .compression
            .parse::<parquet::basic::Compression>()
            .map_err(|source| {
                Error::with_source(
                    volary_flight_proto::ErrorCode::InvalidArgument,
                    format!(
                        "worker.storage.compression is \"{}\"; it takes lz4_raw, zstd(1) to zstd(22), snappy or uncompressed",
                        self.storage.compression
                    ),
                    source,
                )
            })?;
        self.tls.validate(Role::Worker)?;
        if self.gateway.starts_with(TLS_SCHEME) && self.tls.authorities.is_none() {
            return Err(Error::invalid(format!(
                "worker.gateway is {}, and worker.tls.authorities, whom to trust there, is not set",
                self.gateway
            )));
        }
        if let Some(listen) = self.clients.listen
            && listen.ip().is_unspecified()
            && self.clients.advertise.is_none()
        {
            return Err(Error::invalid(format!(
                "worker.clients.listen is {listen}, which tells nobody where to connect to; set worker.clients.advertise to a host:port that clients reach"
            )));
        }
        if let Some(advertise) = &self.clients.advertise
            && !is_host_and_port(advertise)
        {
            return Err(Error::invalid(format!(
                "worker.clients.advertise is \"{advertise}\"; write host:port"
            )));
        }
        for listen in [Some(self.listen), self.clients.listen]
            .into_iter()
            .flatten()
        {
            secret::check(Role::Worker, self.secret.as_deref(), listen)?;
        }
        Ok(())
    }
}

/// The same as the gateway asks for of those that join.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(['/', ' '])
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}
