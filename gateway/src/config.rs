//! Settings of a gateway. The doc comments are the reference: `docs/configuration.md` is made from them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::fragment::MAX_BATCH_ROWS;
use volary_flight_proto::write::SIGN_OF_LIFE;
use volary_flight_proto::{Error, Result};
use volary_node::admission::places_of_user;
use volary_node::data_dir::Role;
use volary_node::message_limit::MessageLimit;
use volary_node::size::MemorySize;
use volary_node::unfinished::Unfinished;
use volary_node::{memory, secret, tls};

pub use volary_planner::gather::config::{Gather, Relays};

use volary_planner::fragment::MAX_TARGET_PARTITIONS;

/// The gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address that clients and workers connect to. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Directory of the catalog. It belongs to this gateway alone.
    pub data_dir: PathBuf,
    /// Secret that gateways and workers of a cluster share, of 128 bits at least: `volary secret new` prints one. Required as
    /// soon as the gateway listens on an address that other machines reach, or there are users. Without it, any process of the
    /// same machine may join as a worker. `volary local` makes one.
    pub secret: Option<String>,
    /// TLS with clients and workers.
    pub tls: tls::Config,
    /// Who is let in.
    pub security: Security,
    /// The workers.
    pub cluster: Cluster,
    /// Queries.
    pub query: Query,
    /// Pulling rows from the workers.
    pub gather: Gather,
    /// Loading rows.
    pub load: Load,
    /// Memory and spill space of queries.
    pub memory: memory::Config,
}

/// Who is let in. Users and what they may do are in the catalog: `CREATE USER`, `GRANT`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Security {
    /// Password of the user `admin`, who is created, made an administrator and given this password when the gateway starts. Without it,
    /// the first user is created with SQL, from the gateway's own machine.
    pub admin_password: Option<String>,
    /// Whether clients of other machines are served as long as there are no users: everybody who reaches the gateway may then do everything.
    pub allow_anonymous: bool,
    /// How long the token of a session is valid. A client that goes on is told another one in time. At least 2s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub token_lifetime: Duration,
}

/// The workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// How often the gateway asks a worker for its report. It asks at most 500 workers a second: of thousands, each less often.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub heartbeat_interval: Duration,
    /// A worker that was asked for its report and has not answered for so long is shown as lost, and nothing is loaded into it. It is
    /// waited for longer where workers are asked less often.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub lost_after: Duration,
    /// CREATE TABLE waits for nobody: it is refused until so many workers are there, so that shards are spread over all.
    pub min_workers: usize,
}

/// Queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// Parallelism of a query's part that runs on the gateway. Default: one per core.
    pub target_partitions: Option<usize>,
    /// Rows per batch inside operators; 1048576 at the most.
    pub batch_rows: usize,
    /// A statement that runs longer is ended with DEADLINE_EXCEEDED. A session makes it shorter with `SET statement_timeout`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Memory that one query may hold. What needs more spills to disk, and what cannot spill fails with RESOURCE_EXHAUSTED. A session
    /// makes it less with `SET query_memory`.
    pub memory: MemorySize,
    /// Statements that run at the same time.
    pub max_running: usize,
    /// Statements of one user that run at the same time; further ones wait, also where places are free. As long as there are no
    /// users, each session counts as one. Default: three quarters of `max_running`.
    pub max_running_per_user: Option<usize>,
    /// Places beside `max_running` that are kept for administrators, and for queries that only list what is in the schema
    /// `system`: what runs is found and ended also where all other places are taken.
    pub kept_places: usize,
    /// A stream of rows of which the client takes none for so long is ended if statements wait because all places are taken;
    /// otherwise after 10 minutes.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub unread_timeout: Duration,
    /// Statements that wait for a place; one more is refused with RESOURCE_EXHAUSTED. Sessions are served in turn.
    pub max_waiting: usize,
    /// Statements of one session that wait for a place; one more is refused with RESOURCE_EXHAUSTED. Default: a quarter of
    /// `max_waiting`.
    pub max_waiting_per_session: Option<usize>,
    /// How long a ticket may be redeemed.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub ticket_lifetime: Duration,
    /// Memory of plans that are kept between GetFlightInfo and DoGet, as estimated from their statements' length; a ticket whose
    /// plan is gone is planned again.
    pub kept_plans: MemorySize,
    /// Memory of plans that are used again, with other values of their parameters, when a statement comes again; as estimated. With 0, each
    /// statement is planned by itself.
    pub generic_plans: MemorySize,
    /// Sessions that are kept, a quarter of them for a user at the most; the one that was not used for the longest time is forgotten first.
    pub max_sessions: u64,
    /// Statements that have ended and are listed in `system.query_log`; the oldest is forgotten first.
    pub history: usize,
    /// The most workers that a client is sent to for their parts of a result, if it asks for that (`volary-direct-results`). Of a query on more
    /// workers the gateway sends all rows; with 0, of all.
    pub max_direct_workers: usize,
    /// The largest message that clients may send: statements, parameters, rows.
    pub max_message: MemorySize,
    /// Memory of messages of clients of which a part has come, all together; one user's may take half of it. A message that has no
    /// room is refused with RESOURCE_EXHAUSTED, and one that does not go on, with less than 64 KiB in ten seconds, with
    /// DEADLINE_EXCEEDED.
    pub max_unfinished: MemorySize,
    /// The largest value that a function may make, where it makes large ones of small ones: `repeat`, `lpad`, `||`, `range` and
    /// others. Those of a batch of rows may take four times that together. Workers have a setting of their own,
    /// `worker.execution.max_value`.
    pub max_value: MemorySize,
    /// Columns that a table may have, each field of a nested one counted as one; and that a SELECT may list.
    pub max_columns: usize,
    /// How deep the type of a table's column may be: a list of numbers has two levels.
    pub max_type_depth: usize,
}

/// Loading rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Directories and URLs below which COPY may read ("/data", "s3://bucket/prefix"). None: COPY is refused.
    pub allowed_roots: Vec<String>,
    /// A worker that takes no rows, or gives no sign of life, for so long fails the load. At least 1s.
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
    /// Statements of one user that run at the same time.
    pub fn max_running_per_user(&self) -> usize {
        self.max_running_per_user
            .unwrap_or_else(|| places_of_user(self.max_running))
            .max(1)
    }

    /// Statements of one session that wait for a place.
    pub fn max_waiting_per_session(&self) -> usize {
        self.max_waiting_per_session
            .unwrap_or(self.max_waiting / 4)
            .max(1)
    }

    /// Sessions of one user that are kept.
    pub fn max_sessions_per_user(&self) -> u64 {
        self.max_sessions.div_ceil(4)
    }

    /// The largest value that functions may make.
    pub fn value_limit(&self) -> memory::Limit {
        memory::Limit {
            bytes: self.max_value.bytes(),
            setting: "gateway.query.max_value",
        }
    }

    /// The memory of messages that are not whole yet.
    pub fn unfinished(&self) -> Unfinished {
        Unfinished::new(
            self.max_unfinished.bytes(),
            "send less at once, or raise gateway.query.max_unfinished",
        )
    }

    /// The largest message of a client.
    pub fn message_limit(&self) -> MessageLimit {
        MessageLimit {
            bytes: self.max_message.bytes(),
            setting: "gateway.query.max_message",
        }
    }
}

impl Config {
    /// Memory that all queries may hold together.
    pub fn memory_limit(&self) -> memory::Limit {
        memory::Limit {
            bytes: self.memory.limit.bytes(),
            setting: "gateway.memory.limit, or local.memory",
        }
    }

    /// Memory that one query may hold whose session does not say less.
    pub fn query_memory_limit(&self) -> memory::Limit {
        let query = memory::Limit {
            bytes: self.query.memory.bytes(),
            setting: "gateway.query.memory",
        };
        query.min(self.memory_limit())
    }

    /// Checks what types cannot say.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the key and what it takes.
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
        // Shorter ones give up workers that are only busy.
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
        self.tls.validate(Role::Gateway)?;
        secret::check(Role::Gateway, self.secret.as_deref(), self.listen)
    }
}

/// Seals count whole seconds, and clients need time to take another one.
const MIN_TOKEN_LIFETIME: Duration = Duration::from_secs(2);

/// Several signs of life must fit in.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
const _: () = assert!(MIN_IDLE_TIMEOUT.as_millis() >= 5 * SIGN_OF_LIFE.as_millis());
