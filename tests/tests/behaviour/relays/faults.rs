use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use tokio::net::TcpSocket;
use volary_cli::client::Client;
use volary_cli::settings::Settings;
use volary_cli::{LocalCluster, LocalOptions};
use volary_flight_proto::ErrorCode;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;
use volary_tests::cluster::{TestCluster, run};

use super::RELAYS;
use super::tables::{cluster, set_relays};

#[test]
fn more_groups_than_a_query_may_hold_are_merged_with_little_memory() {
    run(async {
        const GROUPS: i64 = 150_000;
        const ROWS: i64 = 2 * GROUPS;
        const NAME_BYTES: i64 = 100;
        const MEMORY_MIB: i64 = 24;
        const { assert!(ROWS * NAME_BYTES > MEMORY_MIB << 20) };
        let mut cluster = TestCluster::start(3).await.unwrap();
        let name = format!("lpad(CAST(n % {GROUPS} AS VARCHAR), {NAME_BYTES}, '.')");
        let many = format!(
            "CREATE TABLE many WITH (shard_key = 'k', shards = 16) AS \
             SELECT n AS k, n % {GROUPS} AS g, {name} AS name FROM generate_series(1, {ROWS}) t(n)"
        );
        cluster.sql(&many).await.unwrap();
        let little = format!("SET query_memory = '{MEMORY_MIB}MiB'");
        cluster.sql(&little).await.unwrap();
        let grouped = "SELECT name, g, count(*) AS n, sum(k) AS total FROM many GROUP BY name, g";
        let sql = format!("SELECT count(*), sum(n), sum(total), min(n), max(n) FROM ({grouped})");
        for relays in RELAYS {
            set_relays(&mut cluster, relays).await;
            let plan = cluster.physical_plan(&sql).await.unwrap();
            assert_eq!(plan.contains("relays="), relays != "off", "{plan}");
            let row = cluster.sql(&sql).await.unwrap();
            let row: Vec<_> = row
                .columns()
                .iter()
                .map(|column| column.as_primitive::<Int64Type>().value(0))
                .collect();
            let total = ROWS * (ROWS + 1) / 2;
            assert_eq!(row, [GROUPS, ROWS, total, 2, 2], "relays = '{relays}'");
        }
        cluster.stop().await;
    });
}

#[test]
fn relays_that_forgot_what_to_run_are_sent_it_again() {
    run(async {
        let forgetful = |options: &mut LocalOptions| {
            options.worker.execution.kept_fragments = MemorySize::Bytes(1);
        };
        let mut cluster = cluster(3, forgetful).await;
        let queries = [
            "SELECT count(*), sum(v) FROM facts WHERE g % 2 = 0",
            "SELECT s, count(*) FROM facts GROUP BY s ORDER BY s NULLS LAST",
            "SELECT id, v FROM facts ORDER BY v NULLS LAST, id LIMIT 7",
        ];
        set_relays(&mut cluster, "off").await;
        let mut expected = Vec::new();
        for sql in queries {
            expected.push(cluster.sql(sql).await.unwrap());
        }
        for relays in ["1", "2", "3"] {
            set_relays(&mut cluster, relays).await;
            for _ in 0..3 {
                for (sql, expected) in queries.iter().zip(&expected) {
                    let found = cluster.sql(sql).await.unwrap();
                    assert_eq!(
                        found.columns(),
                        expected.columns(),
                        "relays = '{relays}', {sql}"
                    );
                }
            }
        }
        cluster.stop().await;
    });
}

#[test]
fn what_fails_on_a_worker_is_said_with_its_name_by_whomever_it_is_merged() {
    run(async {
        let mut cluster = cluster(7, |_| {}).await;
        for failing in [
            "SELECT count(*) FROM facts WHERE 100 / (id - 77) > 5",
            "SELECT g, count(*) FROM facts WHERE 100 / (id - 77) > 5 GROUP BY g",
            "SELECT id FROM facts ORDER BY 100 / (id - 77), id LIMIT 3",
        ] {
            set_relays(&mut cluster, "off").await;
            let flat = cluster.sql(failing).await.unwrap_err();
            assert_eq!(flat.code(), ErrorCode::InvalidArgument, "{flat}");
            // The message names the worker that has the row, and says what is wrong.
            let (_, said) = flat.message().split_once(": worker ").unwrap();
            for relays in ["1", "2", "3", "7"] {
                set_relays(&mut cluster, relays).await;
                let error = cluster.sql(failing).await.unwrap_err();
                assert_eq!(error.code(), flat.code(), "{error}");
                assert!(error.message().contains(said), "{said}: {error}");
            }
        }
        cluster.stop().await;
    });
}

#[test]
fn a_worker_that_is_gone_is_named_and_found_when_it_is_back_elsewhere() {
    const WORKERS: usize = 3;
    const ANSWERS: [(&str, i64); 3] = [
        ("SELECT count(*) FROM numbers WHERE n > 10", 990),
        (
            "SELECT sum(c) FROM (SELECT m, count(*) AS c FROM numbers GROUP BY m)",
            1_000,
        ),
        (
            "SELECT sum(n) FROM (SELECT n FROM numbers ORDER BY m, n LIMIT 3)",
            50 + 100 + 150,
        ),
    ];
    let runtimes = OwnedRuntimes::start(None).unwrap();
    let handles = runtimes.handles().clone();
    handles.io().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.local.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        settings.local.data_dir = directory.path().join("nodes");
        settings.local.workers = WORKERS;
        settings.local.memory = MemorySize::Bytes(1 << 30);
        settings.gateway.gather.retry_for = Duration::from_millis(200);
        let options = LocalOptions::new(settings, handles.clone());
        let mut nodes = LocalCluster::start(options).await.unwrap();
        let mut client = Client::connect(&nodes.uri()).await.unwrap();
        let create = "CREATE TABLE numbers WITH (shard_key = 'n', shards = 12) AS \
                      SELECT n, n % 50 AS m FROM generate_series(1, 1000) t(n)";
        client.collect(create).await.unwrap();
        for relays in ["1", "2", "3"] {
            let set = format!("SET relays = '{relays}'");
            client.collect(&set).await.unwrap();
            // The stopped worker is a relay, or a worker whose rows a relay merges.
            for gone in 0..WORKERS {
                let worker = nodes.worker_id(gone).unwrap();
                let address = nodes.worker_address(gone).unwrap();
                nodes.stop_worker(gone).await.unwrap();
                // Without this socket, a node of another test could take the port and answer.
                let port = TcpSocket::new_v4().unwrap();
                port.set_reuseaddr(true).unwrap();
                port.bind(address).unwrap();
                for (sql, _) in ANSWERS {
                    let error = client.collect(sql).await.unwrap_err();
                    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
                    let named = format!("worker {worker} at 127.0.0.1:");
                    assert!(error.message().contains(&named), "{named}: {error}");
                }
                drop(port);
                nodes.start_worker(gone).await.unwrap();
                for (sql, answer) in ANSWERS {
                    let rows = client.collect(sql).await.unwrap();
                    let found = rows.column(0).as_primitive::<Int64Type>().value(0);
                    assert_eq!(found, answer, "relays = '{relays}', {sql}");
                }
            }
        }
        nodes.shutdown().await;
    });
}
