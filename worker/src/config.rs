//! From the doc comments of the settings in this file, `make docs` generates
//! `docs/configuration.md`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::membership::check_zone;
use volary_flight_proto::{Error, Result};
use volary_node::admission::default_places_per_user;
use volary_node::data_dir::NodeRole;
use volary_node::memory;
use volary_node::message_limit::MessageLimit;
use volary_node::secret;
use volary_node::size::MemorySize;
use volary_node::tls;

/// Settings of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address that gateways and other workers connect to. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// Address that the worker tells gateways, as `host:port`, if it differs from `listen`.
    pub advertise: Option<String>,
    /// Address of the gateway to join, as `host:port` or as a URI. For a gateway that serves TLS,
    /// the URI is `grpc+tls://host:port`.
    pub gateway: String,
    /// Directory of the shards. It belongs to this worker alone.
    pub data_dir: PathBuf,
    /// Name of the place where the worker runs, such as an availability zone. `system.nodes` shows
    /// it. It has 1 to 63 letters, digits, `-`, `_` and `.`.
    pub zone: Option<String>,
    /// Secret that the gateways and workers of a cluster share. It has at least 128 bits;
    /// `volary secret new` prints one. It is required if the worker listens on an address that
    /// other machines reach, or if there are users.
    pub secret: Option<String>,
    /// TLS between the worker, the gateway and other workers.
    pub tls: tls::Config,
    /// Clients that fetch their parts of results from the worker themselves.
    pub clients: ClientsConfig,
    /// Limits for running fragments.
    pub execution: ExecutionConfig,
    /// Format and checks of segments.
    pub storage: StorageConfig,
    /// Columns that stay decoded for fragments that ask for rows by key.
    pub lookup: LookupConfig,
    /// Memory and spill space of fragments and writes.
    pub memory: memory::Config,
}

/// Settings for clients that fetch their parts of results from the worker themselves (direct
/// results).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientsConfig {
    /// Additional address for clients only. It serves only the tickets of clients. Clients need no
    /// certificate there, even with TLS. Without this address, clients connect to `worker.listen`.
    /// With TLS, they must show a certificate there, as nodes do.
    pub listen: Option<SocketAddr>,
    /// Address that the worker tells clients to connect to, as `host:port`. Without it, clients
    /// connect to `worker.clients.listen` or, if that is not set, to the address that gateways
    /// connect to.
    pub advertise: Option<String>,
}

/// Settings for running fragments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutionConfig {
    /// Parallelism of one fragment. Default: one per core.
    pub target_partitions: Option<usize>,
    /// Maximum number of fragments that run at the same time. In addition, as many fragments may
    /// merge the rows of other workers for a gateway, and as many may serve rows that clients fetch
    /// themselves.
    pub max_running: usize,
    /// Maximum number of fragments that wait for a place. Any further fragment is refused with
    /// RESOURCE_EXHAUSTED.
    pub max_waiting: usize,
    /// Longest time that a fragment waits for a place. After that, it is refused with
    /// RESOURCE_EXHAUSTED. Without this limit, queries that have places on some workers and
    /// wait for places on others could block each other forever.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub max_wait: Duration,
    /// Size of the largest message that the worker accepts from a gateway or from another worker.
    pub max_message: MemorySize,
    /// Memory for the cache of decoded fragments. A gateway need not send a cached fragment again,
    /// and the worker need not decode it again. If a fragment is no longer cached, the worker asks
    /// the gateway to send it again.
    pub kept_fragments: MemorySize,
    /// Size of the largest value that a function may return. The limit is for functions that make
    /// large values from small ones: `repeat`, `lpad`, `||`, `range` and others. Together, the
    /// values for one batch of rows may take four times this size.
    pub max_value: MemorySize,
}

/// Settings for fragments that ask for rows by key, such as those of point queries, of IN lists and
/// of joins with few keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LookupConfig {
    /// Memory for columns that stay decoded, so that rows are found by key without reading
    /// segments. It is a part of `worker.memory.limit`. A row takes as many bytes as its decoded
    /// values: for example 32 bytes for a key and three other numbers of 8 bytes each. The columns
    /// that were not used for the longest time are forgotten first. An eighth of it is for segments
    /// of less than 1,024 rows, whose columns stay decoded for all queries; of these, what is
    /// seldom read is forgotten first. With a size that has no room for a column, such as `1KiB`,
    /// nothing stays decoded. Default: a fifth of `worker.memory.limit`.
    pub memory: Option<MemorySize>,
}

/// Settings for segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// Maximum number of rows in a row group.
    pub row_group_rows: usize,
    /// Size of a segment above which a write continues in another segment.
    pub segment: MemorySize,
    /// Compression of segments: `lz4_raw`, `zstd(1)` to `zstd(22)`, `snappy` or `uncompressed`.
    /// With `zstd(1)`, segments take about a seventh less disk space than with `lz4_raw`, and
    /// queries take a quarter more time.
    pub compression: String,
    /// Size up to which a whole segment is compared with its checksum when a query first needs it
    /// after the worker's start. For a larger segment, each page is compared when a query reads it.
    pub check_on_open: MemorySize,
    /// Compares all segments with their checksums repeatedly, in the background.
    pub scrub: bool,
    /// Number of bytes per second that the background comparison of segments reads.
    pub scrub_rate: MemorySize,
    /// Pause between two passes of the background comparison over all segments.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub scrub_interval: Duration,
    /// Size up to which the rows that a write has for this worker go to the log, where one sync
    /// makes them durable. Larger writes make segments at once.
    pub logged_write: MemorySize,
    /// Size of the log, on disk and in memory. If it is full, small writes make segments, too.
    pub log: MemorySize,
    /// Merges small segments in the background. OPTIMIZE merges them even without it.
    pub compaction: bool,
    /// Number of bytes per second that a merge of segments reads and writes.
    pub compaction_rate: MemorySize,
    /// Pause between two looks at the shards with new segments.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub compaction_interval: Duration,
    /// Free disk space below which writes are refused. Queries and deletions go on.
    pub min_free: MemorySize,
}

/// Size of the largest ticket that a client may send, in bytes. Gateways make no larger tickets.
pub const TICKET_BYTES: usize = 16 << 20;

/// Memory for the incomplete tickets of all clients together, in bytes.
pub const CLIENTS_UNFINISHED_BYTES: usize = 4 * TICKET_BYTES;

/// Time after which the worker ends a client's part of a result if the client reads no rows of it.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(600);

/// Part of `worker.memory.limit` that columns may take which stay decoded: one in this number.
const DEFAULT_LOOKUP_SHARE: usize = 5;

/// Scheme in the URI of a gateway that serves TLS.
const TLS_SCHEME: &str = "grpc+tls://";

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7200)),
            advertise: None,
            gateway: "127.0.0.1:7100".to_owned(),
            data_dir: PathBuf::from("volary-data/worker"),
            zone: None,
            secret: None,
            tls: tls::Config::default(),
            clients: ClientsConfig::default(),
            execution: ExecutionConfig::default(),
            storage: StorageConfig::default(),
            lookup: LookupConfig::default(),
            memory: memory::Config::default(),
        }
    }
}

impl Default for ExecutionConfig {
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

impl ExecutionConfig {
    /// Returns how many fragments of one kind may run at the same time for one user.
    pub fn max_running_per_user(&self) -> usize {
        default_places_per_user(self.max_running)
    }

    /// Returns how many parts of results may wait for a place for one client.
    pub fn max_waiting_per_client(&self) -> usize {
        (self.max_waiting / 4).max(1)
    }

    /// Returns the limit for the size of values that functions make.
    pub fn value_limit(&self) -> memory::ByteLimit {
        memory::ByteLimit {
            bytes: self.max_value.bytes(),
            setting: "worker.execution.max_value",
        }
    }
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            row_group_rows: 128 * 1024,
            segment: MemorySize::Bytes(256 << 20),
            compression: "lz4_raw".to_owned(),
            check_on_open: MemorySize::Bytes(1 << 20),
            scrub: true,
            scrub_rate: MemorySize::Bytes(16 << 20),
            scrub_interval: Duration::from_secs(24 * 60 * 60),
            logged_write: MemorySize::Bytes(1 << 20),
            log: MemorySize::Bytes(256 << 20),
            compaction: true,
            compaction_rate: MemorySize::Bytes(64 << 20),
            compaction_interval: Duration::from_secs(10),
            min_free: MemorySize::Bytes(256 << 20),
        }
    }
}

impl Config {
    /// Returns the limit for the size of messages that the worker accepts.
    pub fn message_limit(&self) -> MessageLimit {
        MessageLimit {
            bytes: self.execution.max_message.bytes(),
            setting: "worker.execution.max_message",
        }
    }

    /// Returns the memory for columns that stay decoded, in bytes.
    pub fn lookup_bytes(&self) -> usize {
        let limit = self.memory.limit.bytes();
        let chosen = self.lookup.memory.map(MemorySize::bytes);
        chosen.unwrap_or(limit / DEFAULT_LOOKUP_SHARE).min(limit)
    }

    /// Returns the `host:port` of the gateway to join.
    pub fn gateway_address(&self) -> &str {
        let uri = self.gateway.as_str();
        uri.split_once("://").map_or(uri, |(_, address)| address)
    }

    /// Checks what the types of the settings cannot express.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT`, with the key and the values that it takes.
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
                        "worker.storage.compression is \"{}\"; set it to lz4_raw, zstd(1) to zstd(22), snappy or uncompressed",
                        self.storage.compression
                    ),
                    source,
                )
            })?;
        self.zone.as_deref().map_or(Ok(()), check_zone)?;
        self.tls.validate(NodeRole::Worker)?;
        if self.gateway.starts_with(TLS_SCHEME) && self.tls.authorities.is_none() {
            return Err(Error::invalid(format!(
                "worker.gateway is {}, but worker.tls.authorities is not set; set it to the file of the authorities that signed the gateway's certificate",
                self.gateway
            )));
        }
        if let Some(listen) = self.clients.listen
            && listen.ip().is_unspecified()
            && self.clients.advertise.is_none()
        {
            return Err(Error::invalid(format!(
                "worker.clients.listen is {listen}, which is not an address that clients can connect to; set worker.clients.advertise to a host:port that clients can reach"
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
            secret::check(NodeRole::Worker, self.secret.as_deref(), listen)?;
        }
        Ok(())
    }
}

/// Returns whether the text is `host:port`.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(['/', ' '])
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}
