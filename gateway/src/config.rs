//! The command `make docs` generates `docs/configuration.md` from the doc comments of this file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Limits what clients send as streams and as many small writes.
mod ingest;
/// Limits streams of lookups.
mod lookup;
/// Limits temporary tables.
mod temporary_tables;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::fragment::MAX_BATCH_ROWS;
use volary_flight_proto::write::KEEP_ALIVE_INTERVAL;
use volary_flight_proto::{Error, Result};
use volary_node::admission::default_places_per_user;
use volary_node::data_dir::NodeRole;
use volary_node::message_budget::MessageBudget;
use volary_node::message_limit::MessageLimit;
use volary_node::size::MemorySize;
use volary_node::{memory, secret, tls};

pub use ingest::Ingest;
pub use lookup::Lookup;
pub use temporary_tables::TemporaryTables;
pub use volary_planner::gather::config::{Gather, RelaySetting};

use volary_planner::fragment::MAX_TARGET_PARTITIONS;

/// Settings of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address that clients and workers connect to. With port 0, the system chooses a free port.
    pub listen: SocketAddr,
    /// Directory of the catalog. It belongs to this gateway alone.
    pub data_dir: PathBuf,
    /// Secret that the gateways and workers of a cluster share. It must have at least 128 bits;
    /// `volary secret new` prints one. It is required if the gateway listens on an address that
    /// other machines can reach, or if there are users. Without a secret, any process of the same
    /// machine may join as a worker. `volary local` generates a secret.
    pub secret: Option<String>,
    /// TLS between the gateway, clients and workers.
    pub tls: tls::Config,
    /// Settings for who may use the gateway.
    pub security: Security,
    /// Settings for the workers of the cluster.
    pub cluster: Cluster,
    /// Limits for statements.
    pub query: Query,
    /// How the gateway reads rows from the workers.
    pub gather: Gather,
    /// Settings for loading rows.
    pub load: Load,
    /// Limits for streams of batches and for small writes.
    pub ingest: Ingest,
    /// Limits for streams of lookups.
    pub lookup: Lookup,
    /// Limits for temporary tables.
    pub temporary_tables: TemporaryTables,
    /// Memory and spill space of queries.
    pub memory: memory::Config,
}

/// Settings for who may use the gateway. Users and their rights are in the catalog: `CREATE USER`,
/// `GRANT`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Security {
    /// Password of the user `admin`. When the gateway starts, it creates this user, makes it an
    /// administrator and sets this password. Without this setting, the first user is created with
    /// SQL, from the gateway's own machine.
    pub admin_password: Option<String>,
    /// Allows clients on other machines to use the gateway without a login, as long as there are no
    /// users. Everybody who can reach the gateway may then do everything.
    pub allow_anonymous: bool,
    /// How long the token of a session is valid. A client that keeps using its session gets a new
    /// token before the old one expires. At least 2s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub token_lifetime: Duration,
}

/// Settings for the workers of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// How often the gateway asks each worker for its report. It asks at most 500 workers per
    /// second. In a cluster of thousands of workers, each worker is therefore asked less often.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub heartbeat_interval: Duration,
    /// A worker that was asked for its report and has not answered for this time is shown as lost,
    /// and loads into its tables are refused. If workers are asked less often than
    /// `heartbeat_interval` says, the gateway waits longer.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub lost_after: Duration,
    /// Minimum number of workers that must be alive for CREATE TABLE, so that shards are spread
    /// over all of them. With fewer workers, CREATE TABLE is refused at once.
    pub min_workers: usize,
}

/// Limits for statements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// Parallelism of the part of a query that runs on the gateway. Default: one per core.
    pub target_partitions: Option<usize>,
    /// Number of rows per batch inside operators. At most 1048576.
    pub batch_rows: usize,
    /// A statement that runs longer than this time is ended with DEADLINE_EXCEEDED. A session can
    /// choose a shorter time with `SET statement_timeout`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Memory that one query may hold. An operator that needs more spills to disk; an operator that
    /// cannot spill fails with RESOURCE_EXHAUSTED. A session can choose less memory with
    /// `SET query_memory`.
    pub memory: MemorySize,
    /// Maximum number of statements that run at the same time. Each of them takes one place.
    pub max_running: usize,
    /// Maximum number of statements of one user that run at the same time. Any further statement of
    /// the user waits, even if places are free. As long as there are no users, each session counts
    /// as a user. Default: three quarters of `max_running`.
    pub max_running_per_user: Option<usize>,
    /// Number of places in addition to `max_running`, for administrators and for queries that read
    /// only the schema `system`. They make it possible to find and end running statements even if
    /// all other places are taken.
    pub kept_places: usize,
    /// A stream of rows is ended if the client takes no rows for this time while other statements
    /// wait because all places are taken. If no statement waits, the stream is ended after 10
    /// minutes.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub unread_timeout: Duration,
    /// Maximum number of statements that wait for a place. Any further statement is refused with
    /// RESOURCE_EXHAUSTED. Waiting statements start in turn: one user after the other, and for each
    /// user one session after the other.
    pub max_waiting: usize,
    /// Maximum number of statements of one session that wait for a place. Any further statement of
    /// the session is refused with RESOURCE_EXHAUSTED. Default: a quarter of `max_waiting`.
    pub max_waiting_per_session: Option<usize>,
    /// How long a ticket is valid.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub ticket_lifetime: Duration,
    /// Memory for plans that are kept between GetFlightInfo and DoGet. The size of a plan is
    /// estimated from the length of its statement. If the plan of a ticket is no longer kept, the
    /// statement is planned again.
    pub kept_plans: MemorySize,
    /// Memory for generic plans. They are reused when a statement is repeated with other values of
    /// its parameters. The size of a plan is estimated. With a size that has no room for a plan,
    /// such as `1KiB`, every statement is planned anew. A quarter of this size may be used in
    /// addition for statements that drivers have described and may run next.
    pub generic_plans: MemorySize,
    /// Maximum number of sessions that are kept; one user may have a quarter of them. The session
    /// that was not used for the longest time is forgotten first.
    pub max_sessions: u64,
    /// Number of ended statements that `system.query_log` lists. The oldest is forgotten first.
    pub history: usize,
    /// Maximum number of workers from which a client may fetch the parts of a result directly. A
    /// client asks for that with `volary-direct-results`. If a query runs on more workers, the
    /// gateway sends all rows. With 0, the gateway always sends all rows.
    pub max_direct_workers: usize,
    /// Size of the largest message that clients may send: statements, parameters, rows.
    pub max_message: MemorySize,
    /// Memory for all messages of clients that have arrived only in part. The messages of one user
    /// may take half of it. A message for which there is no room is refused with
    /// RESOURCE_EXHAUSTED. A message is refused with DEADLINE_EXCEEDED if less than 64 KiB of it
    /// arrive in ten seconds.
    pub max_unfinished: MemorySize,
    /// Size of the largest value that a function may return. The limit is for functions that make
    /// large values from small ones: `repeat`, `lpad`, `||`, `range` and others. Together, the
    /// values for one batch of rows may take four times this size. Workers have their own setting,
    /// `worker.execution.max_value`.
    pub max_value: MemorySize,
    /// Maximum number of columns of a table, and of columns that a SELECT may list. Each field of a
    /// nested column counts as a column.
    pub max_columns: usize,
    /// Maximum number of levels in the type of a table's column. A list of numbers has two levels.
    pub max_type_depth: usize,
}

/// Settings for loading rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Directories and URLs below which COPY may read ("/data", "s3://bucket/prefix"). If the list
    /// is empty, COPY is refused.
    pub allowed_roots: Vec<String>,
    /// A load fails if a worker takes no rows, or sends no keep-alive, for this time. At least 1s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub idle_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7100)),
            data_dir: PathBuf::from("volary-data/gateway"),
            secret: None,
            tls: tls::Config::default(),
            security: Security::default(),
            cluster: Cluster::default(),
            query: Query::default(),
            gather: Gather::default(),
            load: Load::default(),
            ingest: Ingest::default(),
            lookup: Lookup::default(),
            temporary_tables: TemporaryTables::default(),
            memory: memory::Config::default(),
        }
    }
}

impl Default for Security {
    fn default() -> Self {
        Self {
            admin_password: None,
            allow_anonymous: false,
            token_lifetime: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(1),
            lost_after: Duration::from_secs(5),
            min_workers: 1,
        }
    }
}

impl Default for Query {
    fn default() -> Self {
        Self {
            target_partitions: None,
            batch_rows: 8192,
            timeout: Duration::from_secs(60 * 60),
            memory: MemorySize::Percent(25),
            max_running: 256,
            max_running_per_user: None,
            kept_places: 8,
            unread_timeout: Duration::from_secs(10),
            max_waiting: 1024,
            max_waiting_per_session: None,
            ticket_lifetime: Duration::from_secs(60 * 60),
            kept_plans: MemorySize::Bytes(256 << 20),
            generic_plans: MemorySize::Bytes(64 << 20),
            max_sessions: 100_000,
            history: 1_000,
            max_direct_workers: 4_096,
            max_message: MemorySize::Bytes(256 << 20),
            max_unfinished: MemorySize::Bytes(512 << 20),
            max_value: MemorySize::Bytes(256 << 20),
            max_columns: 4_096,
            max_type_depth: 32,
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self {
            allowed_roots: Vec::new(),
            idle_timeout: Duration::from_secs(60),
        }
    }
}

impl Query {
    /// Returns how many statements of one user may run at the same time.
    pub fn max_running_per_user(&self) -> usize {
        self.max_running_per_user
            .unwrap_or_else(|| default_places_per_user(self.max_running))
            .max(1)
    }

    /// Returns how many statements of one session may wait for a place.
    pub fn max_waiting_per_session(&self) -> usize {
        self.max_waiting_per_session
            .unwrap_or(self.max_waiting / 4)
            .max(1)
    }

    /// Returns how many sessions of one user are kept.
    pub(crate) fn max_sessions_per_user(&self) -> u64 {
        self.max_sessions.div_ceil(4)
    }

    /// Returns the limit on the size of a value that a function makes.
    pub fn value_limit(&self) -> memory::ByteLimit {
        memory::ByteLimit {
            bytes: self.max_value.bytes(),
            setting: "gateway.query.max_value",
        }
    }

    /// Returns the memory for statements that were described, in bytes.
    pub(crate) fn described_bytes(&self) -> usize {
        self.generic_plans.bytes() / 4
    }

    /// Returns a new budget for messages that have arrived only in part.
    pub fn message_budget(&self) -> MessageBudget {
        MessageBudget::new(
            self.max_unfinished.bytes(),
            "send less at once, or raise gateway.query.max_unfinished",
        )
    }

    /// Returns the limit on the size of a client's message.
    pub fn message_limit(&self) -> MessageLimit {
        MessageLimit {
            bytes: self.max_message.bytes(),
            setting: "gateway.query.max_message",
        }
    }
}

impl Config {
    /// Returns the limit on the memory of all queries together.
    pub fn memory_limit(&self) -> memory::ByteLimit {
        memory::ByteLimit {
            bytes: self.memory.limit.bytes(),
            setting: "gateway.memory.limit, or local.memory",
        }
    }

    /// Returns the limit on the memory of one query. A session may set a lower limit.
    pub(crate) fn query_memory_limit(&self) -> memory::ByteLimit {
        let query = memory::ByteLimit {
            bytes: self.query.memory.bytes(),
            setting: "gateway.query.memory",
        };
        query.min(self.memory_limit())
    }

    /// Checks what the types of the settings do not ensure.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the key and the values that it takes.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("gateway.query.batch_rows", self.query.batch_rows),
            ("gateway.query.max_running", self.query.max_running),
            (
                "gateway.query.max_running_per_user",
                self.query.max_running_per_user.unwrap_or(1),
            ),
            ("gateway.query.kept_places", self.query.kept_places),
            (
                "gateway.query.target_partitions",
                self.query.target_partitions.unwrap_or(1),
            ),
            (
                "gateway.query.max_waiting_per_session",
                self.query.max_waiting_per_session.unwrap_or(1),
            ),
            ("gateway.cluster.min_workers", self.cluster.min_workers),
            ("gateway.query.max_columns", self.query.max_columns),
            ("gateway.query.max_type_depth", self.query.max_type_depth),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(Error::invalid(format!("{key} must be at least 1")));
            }
        }
        if self.query.target_partitions.unwrap_or(1) > MAX_TARGET_PARTITIONS {
            return Err(Error::invalid(format!(
                "gateway.query.target_partitions must be at most {MAX_TARGET_PARTITIONS}"
            )));
        }
        if self.query.batch_rows > MAX_BATCH_ROWS as usize {
            return Err(Error::invalid(format!(
                "gateway.query.batch_rows must be at most {MAX_BATCH_ROWS}"
            )));
        }
        // With a shorter timeout, the gateway would give up on workers that are only busy.
        let timeouts = [
            ("gateway.gather.idle_timeout", self.gather.idle_timeout),
            ("gateway.load.idle_timeout", self.load.idle_timeout),
        ];
        for (key, value) in timeouts {
            if value < MIN_IDLE_TIMEOUT {
                return Err(Error::invalid(format!(
                    "{key} must be at least {MIN_IDLE_TIMEOUT:?}"
                )));
            }
        }
        if self.cluster.lost_after < self.cluster.heartbeat_interval * 2 {
            return Err(Error::invalid(
                "gateway.cluster.lost_after must be at least twice gateway.cluster.heartbeat_interval",
            ));
        }
        if self.security.token_lifetime < MIN_TOKEN_LIFETIME {
            return Err(Error::invalid(format!(
                "gateway.security.token_lifetime must be at least {MIN_TOKEN_LIFETIME:?}"
            )));
        }
        self.ingest.validate()?;
        self.lookup.validate()?;
        self.temporary_tables.validate()?;
        self.tls.validate(NodeRole::Gateway)?;
        secret::check(NodeRole::Gateway, self.secret.as_deref(), self.listen)
    }
}

/// Shortest lifetime of a session's token. A token's age is measured in whole seconds, and a client
/// needs time to receive the next token.
const MIN_TOKEN_LIFETIME: Duration = Duration::from_secs(2);

/// Shortest idle timeout. Several keep-alives must fit into it.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
const _: () = assert!(MIN_IDLE_TIMEOUT.as_millis() >= 5 * KEEP_ALIVE_INTERVAL.as_millis());
