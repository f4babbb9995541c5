//! Tests which statements get a generic plan, and that its queries ask the same workers for the
//! same shards as queries planned without it.

use std::net::SocketAddr;
use std::path::PathBuf;

use arrow::array::{ArrayRef, Float64Array, Int64Array};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use volary_catalog::access::{LimitChange, LimitChanges, NewPrincipal, PrincipalKind, Rights};
use volary_catalog::{Catalog, RedbStore};
use volary_flight_proto::membership::JoinRequest;
use volary_node::disk::LocalDisk;
use volary_node::runtimes::OwnedRuntimes;
use volary_planner::gather::{GatherExec, WorkerTarget};

use super::*;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::engine::{Session, StatementOutcome};
use crate::login::Passwords;

const WORKERS: u64 = 5;

/// An engine whose workers have joined but do not exist. Queries are planned and not run.
struct Fixture {
    engine: Arc<Engine>,
    session: Session,
    directory: PathBuf,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Fixture {
    async fn start(runtimes: &OwnedRuntimes) -> Self {
        let directory =
            std::env::temp_dir().join(format!("volary-generic-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let config = Config::default();
        let store = RedbStore::open(&directory, Arc::new(LocalDisk))
            .await
            .unwrap();
        let catalog = Catalog::open(Arc::new(store)).await.unwrap();
        let address: SocketAddr = "127.0.0.1:7100".parse().unwrap();
        let handles = runtimes.handles();
        let cluster = Cluster::new(
            &config,
            address,
            catalog.clone(),
            None,
            handles.io().clone(),
            None,
        );
        for worker in 1..=WORKERS {
            let request = JoinRequest {
                address: format!("127.0.0.1:{worker}"),
                instance: format!("start of {worker}"),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..JoinRequest::default()
            };
            cluster.join(request, address).await.unwrap();
        }
        let env = memory::runtime_env(&config.memory, &directory, 0).unwrap();
        let engine = Engine::new(
            Arc::new(config),
            catalog,
            cluster,
            handles.clone(),
            env,
            Arc::new(Passwords::new().unwrap()),
        )
        .unwrap();
        let fixture = Self {
            engine: Arc::new(engine),
            session: Session::new(HashMap::new(), Arc::new(Rights::of_open_cluster("kea"))),
            directory,
        };
        fixture
            .run("CREATE TABLE t (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 64)")
            .await;
        fixture
            .run("CREATE TABLE r (k BIGINT) WITH (reference = true)")
            .await;
        fixture
    }

    async fn execute(&self, sql: &str, values: Option<RecordBatch>) -> StatementOutcome {
        let executing = self
            .engine
            .execute(&self.session, sql, values, QueryId::new());
        executing
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn run(&self, sql: &str) {
        self.execute(sql, None).await;
    }

    async fn planned(&self, sql: &str, values: RecordBatch) -> PlannedQuery {
        match self.execute(sql, Some(values)).await {
            StatementOutcome::Rows(query) => *query,
            StatementOutcome::Done(_) | StatementOutcome::Answer(_) => panic!("{sql} is no query"),
        }
    }

    fn generic(&self, sql: &str) -> Option<MatchingPlan> {
        let catalog = self.engine.catalog.state();
        let key = StatementKey::new(&self.session, &catalog, self.session.rights(), sql);
        self.engine.generic_plans.find(&catalog, &key)
    }

    fn filled(&self, generic: &MatchingPlan, values: &RecordBatch) -> Option<PlannedQuery> {
        let claimant = self.session.claimant();
        generic
            .bind_values(&self.engine, claimant, Some(values), QueryId::new())
            .unwrap()
    }
}

/// Runs a test with an engine.
fn with_engine<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
    let handles = runtimes.handles().clone();
    handles
        .io()
        .block_on(async { test(Fixture::start(&runtimes).await).await });
}

fn longs(values: &[Option<i64>]) -> RecordBatch {
    let columns = values.iter().enumerate().map(|(number, value)| {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![*value]));
        (format!("${}", number + 1), column)
    });
    RecordBatch::try_from_iter(columns).unwrap()
}

fn long(value: i64) -> RecordBatch {
    longs(&[Some(value)])
}

fn targets(query: &PlannedQuery) -> Vec<WorkerTarget> {
    let mut targets = Vec::new();
    query
        .plan
        .apply(|node| {
            if let Some(gather) = node.downcast_ref::<GatherExec>() {
                targets.extend(gather.targets().iter().cloned());
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
    targets
}

#[test]
fn a_statement_that_comes_again_gets_a_plan_that_asks_the_workers_of_each_value() {
    with_engine(|fixture| async move {
        for sql in [
            "SELECT v FROM t WHERE k = ?",
            "SELECT count(*), max(v) FROM t WHERE k = $1 AND v > 7",
            "SELECT k, sum(v) FROM t WHERE k = $1 GROUP BY k ORDER BY k LIMIT 3",
        ] {
            fixture.planned(sql, long(1)).await;
            assert!(fixture.generic(sql).is_none(), "{sql}");
            fixture.planned(sql, long(2)).await;
            let generic = fixture.generic(sql).unwrap_or_else(|| panic!("{sql}"));
            for value in -50..50 {
                // A different text of the same statement is planned without the generic plan.
                let own = fixture
                    .planned(&format!("{sql} -- {value}"), long(value))
                    .await;
                let filled = fixture.filled(&generic, &long(value)).unwrap();
                assert_eq!(targets(&filled), targets(&own), "{sql}: {value}");
                assert_eq!(targets(&filled).len(), 1);
                assert_eq!(filled.schema, own.schema);
                assert_eq!(filled.reads, own.reads);
            }
        }
    });
}

#[test]
fn values_that_are_planned_otherwise_are_planned_by_themselves() {
    with_engine(|fixture| async move {
        let sql = "SELECT count(*) FROM t WHERE k = ?";
        for _ in 0..2 {
            fixture.planned(sql, long(1)).await;
        }
        let generic = fixture.generic(sql).unwrap();
        // No worker has rows with a NULL key, but the count of no rows is itself a row.
        assert!(fixture.filled(&generic, &longs(&[None])).is_none());
        let half: ArrayRef = Arc::new(Float64Array::from(vec![1.5]));
        let half = RecordBatch::try_from_iter([("$1", half)]).unwrap();
        assert!(fixture.filled(&generic, &half).is_none());
        let two = longs(&[Some(1), Some(2)]);
        assert!(fixture.filled(&generic, &two).is_none());
        let whole: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let whole = RecordBatch::try_from_iter([("$1", whole)]).unwrap();
        assert!(fixture.filled(&generic, &whole).is_some());
    });
}

#[test]
fn a_change_of_what_it_reads_or_of_a_setting_ends_it() {
    with_engine(|fixture| async move {
        let sql = "SELECT v FROM w WHERE k = ?";
        fixture.run("CREATE VIEW w AS SELECT * FROM t").await;
        for value in 0..5 {
            fixture.planned(sql, long(value)).await;
        }
        assert!(fixture.generic(sql).is_some());
        fixture
            .run("CREATE TABLE u (k BIGINT) WITH (shard_key = 'k')")
            .await;
        // The plan does not read the new table.
        assert!(fixture.generic(sql).is_some());
        fixture.run("DROP VIEW w").await;
        assert!(fixture.generic(sql).is_none());
        fixture
            .run("CREATE VIEW w AS SELECT k, v + 1 AS v FROM t")
            .await;
        assert!(fixture.generic(sql).is_none());
        // The former plan was used, so the statement is worth another one.
        fixture.planned(sql, long(1)).await;
        assert!(fixture.generic(sql).is_some());
        fixture.run("SET timezone = 'Europe/Rome'").await;
        assert!(fixture.generic(sql).is_none());
    });
}

#[test]
fn what_depends_on_more_than_its_rows_has_none() {
    with_engine(|fixture| async move {
        fixture
            .run("CREATE VIEW today AS SELECT k, now() AS at FROM t")
            .await;
        for sql in [
            "SELECT v FROM t WHERE k = $1 AND now() > TIMESTAMP '2020-01-01'",
            "SELECT k FROM today WHERE k = $1",
            "SELECT v, $1 AS given FROM t",
            "SELECT v FROM t LIMIT $1",
            "SELECT v FROM t WHERE k = $1 + 1",
            "SELECT v FROM t WHERE v >= $1 ORDER BY v LIMIT 10",
            "SELECT v FROM t WHERE k = $1 UNION ALL SELECT k FROM t WHERE k = $1",
            "SELECT id FROM system.nodes WHERE 1 = $1",
            "SELECT v FROM t WHERE k = (SELECT max(k) FROM t WHERE v = $1)",
            "EXPLAIN SELECT v FROM t WHERE k = $1",
        ] {
            for _ in 0..3 {
                fixture.planned(sql, long(1)).await;
            }
            assert!(fixture.generic(sql).is_none(), "{sql}");
        }
    });
}

#[test]
fn a_row_of_constants_is_planned_once() {
    with_engine(|fixture| async move {
        let constant = "SELECT 1 AS one, 'kea' AS name, 2 + 3 AS five";
        for sql in [
            constant,
            "SELECT repeat('x', 5000)",
            "SELECT 1 AS one, now()",
            "SELECT random()",
            "SELECT 1 WHERE false",
            // The catalog knows the count, which may change.
            "SELECT count(*) FROM t",
            "SELECT 1 AS one, count(*) FROM t",
        ] {
            for _ in 0..3 {
                fixture.run(sql).await;
            }
            assert_eq!(fixture.generic(sql).is_some(), sql == constant, "{sql}");
        }
        let generic = fixture.generic(constant).unwrap();
        assert_eq!(
            targets(
                &generic
                    .bind_values(
                        &fixture.engine,
                        fixture.session.claimant(),
                        None,
                        QueryId::new()
                    )
                    .unwrap()
                    .unwrap()
            ),
            []
        );
        // Values for parameters that the statement does not have are an error, which planning
        // reports.
        assert!(fixture.filled(&generic, &long(1)).is_none());
    });
}

#[test]
fn values_of_another_type_delay_the_plan_and_do_not_prevent_it() {
    with_engine(|fixture| async move {
        let sql = "SELECT v FROM t WHERE k = ?";
        let half: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
        let half = RecordBatch::try_from_iter([("$1", half)]).unwrap();
        for _ in 0..3 {
            fixture.planned(sql, half.clone()).await;
        }
        assert!(fixture.generic(sql).is_none());
        // The second attempt is made when the statement is planned for the fourth time.
        fixture.planned(sql, long(1)).await;
        assert!(fixture.generic(sql).is_some());
    });
}

#[test]
fn a_user_with_a_limit_for_memory_shares_no_plan_with_others() {
    with_engine(|fixture| async move {
        let catalog = &fixture.engine.catalog;
        let administrator = |name: &str, query_memory| NewPrincipal {
            name: name.to_owned(),
            kind: PrincipalKind::User,
            password: Some("a hash".to_owned()),
            admin: true,
            limits: LimitChanges {
                query_memory,
                ..LimitChanges::default()
            },
        };
        let by = Arc::new(Rights::of_gateway());
        for (name, query_memory) in [
            ("kea", LimitChange::Keep),
            ("kaka", LimitChange::Keep),
            ("weka", LimitChange::Set(1 << 20)),
        ] {
            let user = administrator(name, query_memory);
            catalog.create_principal(user, false, &by).await.unwrap();
        }
        let state = catalog.state();
        let key = |user: &str| {
            let rights = state.access().rights(user).unwrap();
            StatementKey::new(&fixture.session, &state, rights, "SELECT v FROM t")
        };
        assert_eq!(key("kea"), key("kaka"));
        assert_ne!(key("kea"), key("weka"));
    });
}

#[test]
fn a_plan_with_more_columns_is_larger_and_none_is_kept_that_is_larger_than_the_cache() {
    with_engine(|fixture| async move {
        let sql = |columns: &str| format!("SELECT {columns} FROM t WHERE k = ?");
        let mut sizes = Vec::new();
        for columns in [1, 101] {
            let columns: Vec<_> = (0..columns)
                .map(|number| format!("v AS v{number}"))
                .collect();
            let sql = sql(&columns.join(", "));
            for value in 0..2 {
                fixture.planned(&sql, long(value)).await;
            }
            let catalog = fixture.engine.catalog.state();
            let key = StatementKey::new(&fixture.session, &catalog, fixture.session.rights(), &sql);
            let entry = fixture.engine.generic_plans.entries.get(&key).unwrap();
            assert!(matches!(entry, CacheEntry::Plan(_)), "{sql}");
            sizes.push(entry_bytes(&key, &entry));
            let small = GenericPlans::new(1 << 10);
            small.keep(&key, entry);
            assert!(small.entries.get(&key).is_none());
        }
        assert!(sizes[1] - sizes[0] >= 100 * BYTES_PER_COLUMN, "{sizes:?}");
    });
}
