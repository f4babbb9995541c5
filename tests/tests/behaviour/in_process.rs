//! The gateway of an embedded cluster calls its workers within the process, or over connections if
//! a setting says so. Both ways must have the same rows, the same errors and the same ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use tokio::time::timeout;
use volary_cli::client::Client;
use volary_cli::settings::Settings;
use volary_cli::{LocalCluster, LocalOptions};
use volary_flight_proto::ErrorCode;
use volary_node::Runtimes;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;

const WORKERS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(60);
/// Number of rows of a table whose rows, each with a long text, are more than all buffers take.
const ROWS: i64 = 200_000;
const LARGE: &str = "SELECT n, repeat('x', 1000) AS text FROM numbers";

fn options(directory: &Path, in_process_calls: bool, runtimes: &Runtimes) -> LocalOptions {
    let mut settings = Settings::default();
    settings.local.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings.local.data_dir = directory.join("nodes");
    settings.local.workers = WORKERS;
    settings.local.memory = MemorySize::Bytes(1 << 30);
    settings.local.in_process_calls = in_process_calls;
    settings.gateway.gather.retry_for = Duration::from_millis(200);
    LocalOptions::new(settings, runtimes.clone())
}

/// Runs a test for both ways at the same time, each with a new cluster.
fn both_ways<F>(test: impl Fn(LocalCluster) -> F)
where
    F: Future<Output = LocalCluster>,
{
    let runtimes = OwnedRuntimes::start(None).unwrap();
    let handles = runtimes.handles();
    handles
        .io()
        .block_on(join_all([true, false].map(async |in_process_calls| {
            let directory = tempfile::tempdir().unwrap();
            let options = options(directory.path(), in_process_calls, handles);
            let nodes = LocalCluster::start(options).await.unwrap();
            test(nodes).await.shutdown().await;
        })));
}

async fn connect(nodes: &LocalCluster) -> Client {
    Client::connect(&nodes.uri()).await.unwrap()
}

fn numbers(rows: &RecordBatch) -> Vec<i64> {
    rows.columns()
        .iter()
        .map(|column| column.as_primitive::<Int64Type>().value(0))
        .collect()
}

#[test]
fn statements_do_the_same_both_ways() {
    both_ways(async |nodes| {
        let mut client = connect(&nodes).await;
        for sql in [
            "CREATE TABLE t (k BIGINT, v BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = 8)",
            "INSERT INTO t SELECT n, n % 10, repeat('y', n % 50) FROM generate_series(1, 50000) g(n)",
            "INSERT INTO t VALUES (50001, 7, 'kea')",
            "INSERT INTO t VALUES (50002, 7, 'wren'), (50003, 7, 'rook'), (50004, 7, NULL)",
            "OPTIMIZE t",
        ] {
            client.collect(sql).await.unwrap();
        }
        for (sql, answer) in [
            (
                "SELECT count(*), sum(k), sum(v) FROM t",
                vec![50_004, 1_250_225_010, 225_028],
            ),
            ("SELECT v FROM t WHERE k = 50002", vec![7]),
            ("SELECT v FROM t WHERE k = 4711", vec![1]),
            (
                "SELECT sum(n) FROM (SELECT v, count(*) AS n FROM t GROUP BY v)",
                vec![50_004],
            ),
            (
                "SELECT max(k) FROM (SELECT k FROM t ORDER BY v, k LIMIT 3)",
                vec![30],
            ),
        ] {
            // Repeated, a statement has a generic plan, and its fragments are cached.
            for _ in 0..3 {
                let rows = client.collect(sql).await.unwrap();
                assert_eq!(numbers(&rows), answer, "{sql}");
            }
        }
        let none = client
            .collect("SELECT v FROM t WHERE k = 99999")
            .await
            .unwrap();
        assert_eq!(none.num_rows(), 0);
        let failing = "SELECT 1 / (k - 50002) FROM t";
        let error = client.collect(failing).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.message().contains("worker w"), "{error}");
        client.collect("DROP TABLE t").await.unwrap();
        nodes
    });
}

#[test]
fn a_query_whose_worker_stops_fails_with_its_name() {
    both_ways(async |mut nodes| {
        let mut client = connect(&nodes).await;
        let create = format!(
            "CREATE TABLE numbers WITH (shard_key = 'n', shards = 12) AS \
             SELECT n FROM generate_series(1, {ROWS}) t(n)"
        );
        client.collect(&create).await.unwrap();
        let little = "SET query_memory = '24MiB'";
        client.collect(little).await.unwrap();
        let worker = nodes.worker_id(0).unwrap();
        let named = format!("worker {worker} at 127.0.0.1:");

        // The client reads a part of the rows, and the others wait for it.
        let mut rows = client.run(LARGE).await.unwrap().batches;
        rows.next().await.unwrap().unwrap();
        nodes.stop_worker(0).await.unwrap();
        let rest = rows.try_fold(0, async |sum, batch| Ok(sum + batch.num_rows()));
        let error = rest.await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
        assert!(error.message().contains(&named), "{error}");
        assert!(error.message().contains("is lost"), "{error}");

        nodes.start_worker(0).await.unwrap();
        let gateway = nodes.gateway();
        gateway.wait_for_workers(WORKERS, DEADLINE).await.unwrap();
        let count = client.collect("SELECT count(n % 7) FROM numbers").await;
        assert_eq!(numbers(&count.unwrap()), [ROWS]);
        nodes
    });
}

#[test]
fn a_cluster_starts_after_a_start_that_was_broken_off() {
    let runtimes = OwnedRuntimes::start(None).unwrap();
    let handles = runtimes.handles();
    handles.io().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let options = || options(directory.path(), true, handles);
        // A start waits often. Each of these is dropped at another wait.
        for waits in 1..4 {
            let mut starting = LocalCluster::start(options());
            for _ in 0..waits {
                let _ = futures::poll!(&mut starting);
                tokio::task::yield_now().await;
            }
            drop(starting);
        }
        let started = async {
            loop {
                match LocalCluster::start(options()).await {
                    Ok(nodes) => break nodes,
                    // The nodes of another start still have the directory.
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let nodes = timeout(DEADLINE, started).await.unwrap();
        let mut client = connect(&nodes).await;
        let one = client.collect("SELECT CAST(1 AS BIGINT)").await.unwrap();
        assert_eq!(numbers(&one), [1]);
        nodes.shutdown().await;
    });
}
