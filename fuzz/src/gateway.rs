use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow_flight::FlightDescriptor;
use bytes::Bytes;
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_catalog::access::Rights;
use volary_catalog::{Catalog, RelationName, WriteSummary};
use volary_flight_proto::ids::{QueryId, WorkerId};
use volary_flight_proto::membership::JoinRequest;
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::write::{ShardWritten, WriteResult};
use volary_gateway::cluster::Cluster;
use volary_gateway::config::{self, Config};
use volary_gateway::engine::{Engine, Session};
use volary_gateway::flight_sql::{ClientGate, FlightSql};
use volary_gateway::login::Login;
use volary_node::memory;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;

use crate::call::{Answer, Server};
use crate::directory::Directory;
use crate::guard;
use crate::seal::{SECRET, sealer};
use crate::store::Store;
use crate::stub_worker::StubWorker;

/// An address at which nobody listens.
pub const UNREACHABLE_ADDRESS: &str = "127.0.0.1:1";

/// The content of the catalog. The first columns have the types that keys may have. The other types
/// are those that casts and encodings handle specially.
const DEFINITIONS: [&str; 6] = [
    "CREATE TABLE t (k BIGINT NOT NULL, s VARCHAR, d DOUBLE, at TIMESTAMP, amount DECIMAL(15, 2), day DATE, flag BOOLEAN)
     WITH (shard_key = 'k', shards = 4, sort_key = 'at')",
    "CREATE TABLE u (k BIGINT, name VARCHAR, small SMALLINT, bytes BYTEA) WITH (shard_key = 'k', shards = 4)",
    "CREATE TABLE l (items BIGINT[], pair STRUCT<a BIGINT, b VARCHAR>)",
    "CREATE TABLE r (k BIGINT, label VARCHAR) WITH (reference = true)",
    "CREATE VIEW v AS SELECT s, count(*) AS n, sum(amount) AS amount FROM t GROUP BY s",
    "CREATE QUERY q(a BIGINT, b VARCHAR DEFAULT 'x') AS SELECT k, s FROM t WHERE k = $a AND s <> $b",
];

/// Number of rows that each table has according to the catalog. It is large, so that the planner
/// optimises its plans.
const ROWS: u64 = 1_000_000;

/// The password of the user `admin`, in a cluster with users.
const PASSWORD: &str = "a password of the fuzzed cluster";

/// A gateway whose workers have joined but do not answer. Its catalog cannot be changed.
pub struct Gateway {
    /// The service, as its listener calls it.
    server: Server<FlightSql>,
    /// The catalog of the gateway.
    pub catalog: Catalog,
    panics_seen: AtomicUsize,
    _runtimes: OwnedRuntimes,
    _directory: Directory,
}

static OPEN: LazyLock<Gateway> =
    LazyLock::new(|| Gateway::start([UNREACHABLE_ADDRESS; 3], Users::None));
static WITH_USERS: LazyLock<Gateway> =
    LazyLock::new(|| Gateway::start([UNREACHABLE_ADDRESS; 3], Users::Admin));

#[derive(Clone, Copy, PartialEq)]
enum Users {
    None,
    Admin,
}

impl Gateway {
    /// Returns the gateway of a cluster without users, where everybody has all rights.
    pub fn open() -> &'static Self {
        &OPEN
    }

    /// Returns the gateway of a cluster with users, who must log in.
    pub fn with_users() -> &'static Self {
        &WITH_USERS
    }

    fn start(workers: [&str; 3], users: Users) -> Self {
        let runtimes = OwnedRuntimes::start(Some(1)).expect("there are threads");
        let directory = Directory::new("gateway");
        let io = runtimes.handles().io().clone();
        let starting = Self::start_on_io(workers, users, &runtimes, &directory);
        let (service, gate, catalog) = io.block_on(starting);
        Self {
            server: Server::new(service, Some(Arc::new(gate)), runtimes.handles().clone()),
            catalog,
            panics_seen: AtomicUsize::new(guard::dependency_panics()),
            _runtimes: runtimes,
            _directory: directory,
        }
    }

    async fn start_on_io(
        workers: [&str; 3],
        users: Users,
        runtimes: &OwnedRuntimes,
        directory: &Directory,
    ) -> (FlightSql, ClientGate, Catalog) {
        let (config, handles) = (Arc::new(config()), runtimes.handles());
        let store = Arc::new(Store::default());
        let catalog_store = Arc::clone(&store);
        let catalog = Catalog::open(catalog_store)
            .await
            .expect("an empty store opens");
        let login = Login::new(catalog.clone(), &config.security).expect("there is a key");
        let login = Arc::new(login);
        let env = memory::runtime_env(&config.memory, directory.path(), 0).expect("a directory");
        let address = SocketAddr::from(([127, 0, 0, 1], 7100));
        let (state, io) = (catalog.clone(), handles.io().clone());
        let cluster = Cluster::new(&config, address, state, None, io, None);
        for (number, worker) in workers.into_iter().enumerate() {
            let request = JoinRequest {
                address: worker.to_owned(),
                instance: format!("start of {number}"),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..JoinRequest::default()
            };
            cluster
                .join(request, address)
                .await
                .expect("a worker joins");
        }
        let engine = Engine::new(
            Arc::clone(&config),
            catalog.clone(),
            Arc::clone(&cluster),
            handles.clone(),
            env,
            Arc::clone(login.passwords()),
        );
        let engine = Arc::new(engine.expect("an engine"));
        let session = Session::new(HashMap::new(), Arc::new(Rights::of_gateway()));
        for definition in DEFINITIONS {
            let defined = engine.execute(&session, definition, None, QueryId::new());
            if let Err(error) = defined.await {
                panic!("{definition}: {error}");
            }
        }
        for table in ["t", "u", "l", "r"] {
            fill(&catalog, table).await;
        }
        if users == Users::Admin {
            login.ensure_admin(PASSWORD).await.expect("a user");
        }
        store.freeze();
        let message_budget = config.query.message_budget();
        let gate = ClientGate::new(Arc::clone(&login), sealer(), message_budget);
        let service = FlightSql::new(engine, cluster, sealer(), config, login);
        (service, gate, catalog)
    }

    /// Returns the sealer of the session tokens.
    pub fn token_sealer(&self) -> Sealer {
        Sealer::new(self.catalog.state().token_key().expect("there is a key"))
    }

    /// Calls the gateway with these messages.
    ///
    /// # Panics
    /// Panics if the gateway no longer serves because a dependency has panicked.
    pub fn call<T: AsRef<[u8]>>(
        &self,
        rpc: &str,
        headers: HeaderMap,
        messages: impl IntoIterator<Item = T>,
    ) -> Answer {
        let answer = self.server.call(rpc, headers, messages);
        self.check_serves();
        answer
    }

    /// Calls the gateway with this body.
    ///
    /// # Panics
    /// Panics if the gateway no longer serves because a dependency has panicked.
    pub fn call_with_body(&self, rpc: &str, headers: HeaderMap, body: Bytes) -> Answer {
        let answer = self.server.call_with_body(rpc, headers, body);
        self.check_serves();
        answer
    }

    fn check_serves(&self) {
        let contained = guard::dependency_panics();
        if self.panics_seen.swap(contained, Ordering::SeqCst) == contained {
            return;
        }
        let descriptor =
            FlightDescriptor::new_cmd("SELECT s, sum(d) FROM t WHERE k = 7 GROUP BY s");
        let schema = self
            .server
            .call("GetSchema", HeaderMap::new(), [descriptor.encode_to_vec()]);
        // A gateway with users refuses this call, which also shows that it serves.
        let serves = schema.is_ok() || schema.code == Some(tonic::Code::Unauthenticated);
        assert!(serves, "no service after a panic: {schema:?}");
    }
}

/// Returns a configuration with small limits and short timeouts.
fn config() -> Config {
    let mut config = Config {
        secret: Some(SECRET.to_owned()),
        memory: memory::Config {
            limit: MemorySize::Bytes(256 << 20),
            spill_limit: MemorySize::Bytes(16 << 20),
        },
        ..Config::default()
    };
    config.security.allow_anonymous = true;
    config.query = config::Query {
        target_partitions: Some(2),
        timeout: Duration::from_secs(1),
        kept_plans: MemorySize::Bytes(4 << 20),
        generic_plans: MemorySize::Bytes(4 << 20),
        max_sessions: 64,
        history: 16,
        ..config.query
    };
    config.ingest.stream_idle_timeout = Duration::from_secs(1);
    config.gather.connect_timeout = Duration::from_millis(100);
    config.gather.retry_for = Duration::ZERO;
    config
}

/// Commits a write, so that the catalog lists rows of a table on all workers.
async fn fill(catalog: &Catalog, table: &str) {
    let state = catalog.state();
    let table = state
        .table(&RelationName::in_public(table))
        .expect("it was defined");
    let write = catalog.begin_write(table).await.expect("a write begins");
    let rows = |shard: u32| ShardWritten {
        shard,
        rows: ROWS / u64::from(table.shards()),
        bytes: ROWS * 100,
        segments: 1,
    };
    let worker_result = |worker: &WorkerId| {
        let shards = 0..table.shards();
        let shards =
            shards.filter(|shard| table.is_reference() || table.worker_of(*shard) == Some(*worker));
        let result = WriteResult {
            shards: shards.map(rows).collect(),
            ..WriteResult::default()
        };
        (*worker, result)
    };
    let results: Vec<_> = table.workers().iter().map(worker_result).collect();
    let summary = WriteSummary::new(table, &results).expect("the answers fit");
    let committed = catalog
        .commit_write(write.take_over(), table, summary)
        .await;
    committed.expect("a write is committed");
}

/// A gateway whose workers are all the same stub.
pub struct GatewayWithStub {
    /// The gateway.
    pub gateway: Gateway,
    /// The stub that answers for the gateway's workers.
    pub stub: StubWorker,
    _runtimes: OwnedRuntimes,
}

static GATEWAY_WITH_STUB: LazyLock<GatewayWithStub> = LazyLock::new(|| {
    let runtimes = OwnedRuntimes::start(Some(1)).expect("there are threads");
    let stub = StubWorker::start(runtimes.handles().io());
    let address = stub.address();
    GatewayWithStub {
        gateway: Gateway::start([&address; 3], Users::None),
        stub,
        _runtimes: runtimes,
    }
});

impl GatewayWithStub {
    /// Returns the gateway with its stub.
    pub fn get() -> &'static Self {
        &GATEWAY_WITH_STUB
    }
}
