use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use volary_catalog::Catalog;
use volary_gather::Peers;
pub use volary_gather::totals::METRICS as GATHER_METRICS;
use volary_node::metrics::{Metric, Samples};
use volary_node::operations::{NodeResources, ObservedNode};
use volary_node::tls::CertificateFiles;

use crate::cluster::{Cluster, NodeState};
use crate::config::Config;
use crate::engine::Engine;
use crate::flight_sql::SessionCount;
use crate::login::Login;

/// The value of the label `node` for a gateway.
const NAME: &str = "gateway";

const QUERIES: Metric = Metric::counter(
    "volary_queries_total",
    &["outcome"],
    "Statements that ended, by outcome (`ok`, or the code of the error).",
);
const DURATION: Metric = Metric::histogram(
    "volary_query_duration_seconds",
    &[],
    "Time from the arrival of a statement to its end.",
);
const PLANNING: Metric = Metric::histogram(
    "volary_query_planning_seconds",
    &[],
    "Time in which a statement was parsed and planned.",
);
const QUEUE: Metric = Metric::histogram(
    "volary_query_queue_seconds",
    &[],
    "Time for which a statement waited for a place to run.",
);
const RUNNING: Metric = Metric::gauge("volary_queries_running", &[], "Statements that run now.");
const RUNNING_LIMIT: Metric = Metric::gauge(
    "volary_queries_running_limit",
    &[],
    "Number of places for running statements (`gateway.query.max_running`).",
);
const WAITING: Metric = Metric::gauge(
    "volary_queries_waiting",
    &[],
    "Statements that wait for a place.",
);
const WAITING_LIMIT: Metric = Metric::gauge(
    "volary_queries_waiting_limit",
    &[],
    "Number of statements that may wait (`gateway.query.max_waiting`).",
);
const USER_QUERIES: Metric = Metric::counter(
    "volary_user_queries_total",
    &["user"],
    "Statements of a user that ended. Only with `operations.label_users`.",
);
const USER_SECONDS: Metric = Metric::counter(
    "volary_user_query_seconds_total",
    &["user"],
    "Time that the statements of a user took together. Only with `operations.label_users`.",
);
const SENT_ROWS: Metric = Metric::counter(
    "volary_client_sent_rows_total",
    &[],
    "Rows that the gateway has computed for clients.",
);
const SENT_BYTES: Metric = Metric::counter(
    "volary_client_sent_bytes_total",
    &[],
    "Bytes of rows that clients were sent, as encoded.",
);
const RECEIVED_ROWS: Metric = Metric::counter(
    "volary_client_received_rows_total",
    &[],
    "Rows of parameters and of new data that clients have sent.",
);
const RECEIVED_BYTES: Metric = Metric::counter(
    "volary_client_received_bytes_total",
    &[],
    "Bytes of rows that clients have sent, as encoded.",
);
const MESSAGE_BYTES: Metric = Metric::gauge(
    "volary_incomplete_message_bytes",
    &[],
    "Memory of messages that have arrived only in part.",
);
const WRITES: Metric = Metric::counter(
    "volary_writes_total",
    &["outcome"],
    "Writes that ended, by outcome (`committed`, `aborted`).",
);
const WRITTEN_ROWS: Metric = Metric::counter(
    "volary_written_rows_total",
    &[],
    "Rows of committed writes.",
);
const OPEN_WRITES: Metric = Metric::gauge(
    "volary_writes_open",
    &[],
    "Writes that are neither committed nor aborted.",
);
const GROUPS: Metric = Metric::counter(
    "volary_write_groups_total",
    &[],
    "Groups of small writes to one table that were committed together.",
);
const GROUP_MEMBERS: Metric = Metric::counter(
    "volary_write_group_members_total",
    &[],
    "Writes in committed groups: statements, and batches of streams.",
);
const GROUP_ROWS: Metric = Metric::counter(
    "volary_write_group_rows_total",
    &[],
    "Rows in committed groups.",
);
const GROUP_BYTES: Metric = Metric::counter(
    "volary_write_group_bytes_total",
    &[],
    "Bytes of the rows in committed groups, in memory.",
);
const QUEUED_BYTES: Metric = Metric::gauge(
    "volary_write_queue_bytes",
    &[],
    "Memory of small statements' rows that wait or are being committed.",
);
const QUEUED_BYTES_LIMIT: Metric = Metric::gauge(
    "volary_write_queue_limit_bytes",
    &[],
    "Memory that these rows may take (`gateway.ingest.queue_memory`).",
);
const STREAMS: Metric = Metric::gauge("volary_ingest_streams", &[], "Open streams of batches.");
const STREAM_BYTES: Metric = Metric::gauge(
    "volary_ingest_stream_bytes",
    &[],
    "Memory of streams' rows that are not committed yet.",
);
const DUPLICATES: Metric = Metric::counter(
    "volary_ingest_duplicates_total",
    &[],
    "Batches of streams that were sent again and not applied again.",
);
const LOOKUP_STREAMS: Metric =
    Metric::gauge("volary_lookup_streams", &[], "Open streams of lookups.");
const LOOKUP_BATCHES: Metric = Metric::counter(
    "volary_lookup_batches_total",
    &[],
    "Batches of keys that were looked up.",
);
const LOOKUP_KEYS: Metric =
    Metric::counter("volary_lookup_keys_total", &[], "Keys that were looked up.");
const SESSIONS: Metric = Metric::gauge("volary_sessions", &[], "Sessions that are kept.");
const SESSIONS_LIMIT: Metric = Metric::gauge(
    "volary_sessions_limit",
    &[],
    "Number of sessions that may be kept (`gateway.query.max_sessions`).",
);
const LOGINS: Metric = Metric::counter(
    "volary_logins_total",
    &["outcome"],
    "Passwords and tokens that clients have shown, by outcome (`accepted`, `refused`, or `throttled`: not checked, because too many were wrong or wait).",
);
const WORKERS: Metric = Metric::gauge(
    "volary_workers",
    &["state"],
    "Workers of the catalog, by state (`alive`, `draining`, `lost`, `unknown`).",
);
const TABLES: Metric = Metric::gauge(
    "volary_tables",
    &[],
    "Tables of the catalog, without temporary ones.",
);
const USERS: Metric = Metric::gauge("volary_users", &[], "Users of the catalog.");
const LINEAGE_CONFLICT: Metric = Metric::gauge(
    "volary_lineage_conflict",
    &[],
    "1 if the gateway refuses all statements because the catalog and the rows of workers belong to different histories, otherwise 0.",
);

/// The metrics that only gateways have.
pub const METRICS: &[Metric] = &[
    QUERIES,
    DURATION,
    PLANNING,
    QUEUE,
    RUNNING,
    RUNNING_LIMIT,
    WAITING,
    WAITING_LIMIT,
    USER_QUERIES,
    USER_SECONDS,
    SENT_ROWS,
    SENT_BYTES,
    RECEIVED_ROWS,
    RECEIVED_BYTES,
    MESSAGE_BYTES,
    WRITES,
    WRITTEN_ROWS,
    OPEN_WRITES,
    GROUPS,
    GROUP_MEMBERS,
    GROUP_ROWS,
    GROUP_BYTES,
    QUEUED_BYTES,
    QUEUED_BYTES_LIMIT,
    STREAMS,
    STREAM_BYTES,
    DUPLICATES,
    LOOKUP_STREAMS,
    LOOKUP_BATCHES,
    LOOKUP_KEYS,
    SESSIONS,
    SESSIONS_LIMIT,
    LOGINS,
    WORKERS,
    TABLES,
    USERS,
    LINEAGE_CONFLICT,
];

/// A gateway as monitoring systems see it.
#[derive(Debug)]
pub(crate) struct GatewayObserver {
    engine: Arc<Engine>,
    catalog: Catalog,
    cluster: Arc<Cluster>,
    login: Arc<Login>,
    sessions: SessionCount,
    config: Arc<Config>,
    resources: NodeResources,
}

impl GatewayObserver {
    pub(crate) fn new(
        engine: Arc<Engine>,
        catalog: Catalog,
        cluster: Arc<Cluster>,
        login: Arc<Login>,
        sessions: SessionCount,
        config: Arc<Config>,
        (data_dir, runtime_env): (&Path, Arc<RuntimeEnv>),
    ) -> Self {
        let resources = NodeResources {
            runtime_env,
            memory_limit_bytes: config.memory_limit().bytes,
            data_dir: data_dir.to_owned(),
            certificates: CertificateFiles::of(&config.tls),
        };
        Self {
            engine,
            catalog,
            cluster,
            login,
            sessions,
            config,
            resources,
        }
    }

    fn collect_statements(&self, samples: &mut Samples) {
        let totals = self.engine.statements().totals();
        for (outcome, count) in totals.outcomes.all() {
            samples.counter(QUERIES, [("outcome", outcome)], count);
        }
        samples.histogram(DURATION, [], &totals.durations);
        samples.histogram(PLANNING, [], &totals.planning);
        samples.histogram(QUEUE, [], &totals.queued);
        for (user, totals) in totals.by_user() {
            samples.counter(USER_QUERIES, [("user", user.clone())], totals.statements);
            samples.seconds(USER_SECONDS, [("user", user)], totals.seconds);
        }
        samples.counter(SENT_ROWS, [], totals.sent.rows());
        samples.counter(SENT_BYTES, [], totals.sent.bytes());
        samples.counter(RECEIVED_ROWS, [], totals.received.rows());
        samples.counter(RECEIVED_BYTES, [], totals.received.bytes());
        let usage = self.engine.usage();
        samples.gauge(RUNNING, [], usage.places.running() as f64);
        samples.gauge(WAITING, [], usage.places.waiting() as f64);
        samples.gauge(MESSAGE_BYTES, [], usage.message_budget.bytes() as f64);
        samples.gauge(RUNNING_LIMIT, [], self.config.query.max_running as f64);
        samples.gauge(WAITING_LIMIT, [], self.config.query.max_waiting as f64);
    }

    fn collect_writes(&self, samples: &mut Samples) {
        let (committed, aborted, rows) = self.engine.loads().totals();
        for (outcome, count) in [("committed", committed), ("aborted", aborted)] {
            samples.counter(WRITES, [("outcome", outcome.to_owned())], count);
        }
        samples.counter(WRITTEN_ROWS, [], rows);
        samples.gauge(OPEN_WRITES, [], self.engine.loads().running() as f64);
    }

    fn collect_ingest(&self, samples: &mut Samples) {
        let (groups, streams) = (self.engine.groups(), self.engine.streams());
        let counts = groups.counts();
        samples.counter(GROUPS, [], counts.groups);
        samples.counter(GROUP_MEMBERS, [], counts.members);
        samples.counter(GROUP_ROWS, [], counts.rows);
        samples.counter(GROUP_BYTES, [], counts.bytes);
        samples.gauge(QUEUED_BYTES, [], groups.queue().used_bytes() as f64);
        let limit = self.config.ingest.queue_memory.bytes();
        samples.gauge(QUEUED_BYTES_LIMIT, [], limit as f64);
        samples.gauge(STREAMS, [], streams.open() as f64);
        samples.gauge(STREAM_BYTES, [], streams.memory().used_bytes() as f64);
        samples.counter(DUPLICATES, [], streams.duplicates());
    }

    fn collect_lookups(&self, samples: &mut Samples) {
        let lookups = self.engine.lookups();
        samples.gauge(LOOKUP_STREAMS, [], lookups.open() as f64);
        samples.counter(LOOKUP_BATCHES, [], lookups.batches());
        samples.counter(LOOKUP_KEYS, [], lookups.keys());
    }

    fn collect_clients(&self, samples: &mut Samples) {
        samples.gauge(SESSIONS, [], self.sessions.get() as f64);
        samples.gauge(SESSIONS_LIMIT, [], self.config.query.max_sessions as f64);
        for (outcome, count) in self.login.counts().all() {
            samples.counter(LOGINS, [("outcome", outcome.to_owned())], count);
        }
    }

    fn collect_cluster(&self, samples: &mut Samples) {
        let mut workers: BTreeMap<_, u32> = NodeState::ALL.map(|state| (state.name(), 0)).into();
        for node in self.cluster.nodes() {
            *workers.entry(node.state.name()).or_default() += 1;
        }
        for (state, count) in workers {
            samples.gauge(WORKERS, [("state", state.to_owned())], f64::from(count));
        }
        let state = self.catalog.state();
        samples.gauge(TABLES, [], state.tables().count() as f64);
        samples.gauge(USERS, [], state.access().users().count() as f64);
        let has_conflict = self.cluster.has_conflicts();
        samples.gauge(LINEAGE_CONFLICT, [], f64::from(u8::from(has_conflict)));
    }
}

impl ObservedNode for GatewayObserver {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn why_not_ready(&self) -> Option<String> {
        // A gateway serves even if its workers are lost: clients get errors that say so.
        None
    }

    fn count_users(&self) {
        self.engine.statements().totals().count_users();
    }

    fn collect(&self, samples: &mut Samples) {
        let reserved = self.engine.statements().memory_bytes();
        self.resources.collect(NAME, reserved, samples);
        self.cluster.totals().collect(NAME, samples);
        self.collect_statements(samples);
        self.collect_writes(samples);
        self.collect_ingest(samples);
        self.collect_lookups(samples);
        self.collect_clients(samples);
        self.collect_cluster(samples);
    }
}
