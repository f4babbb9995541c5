//! These tests check plans, and other tests check rows. After an intended change of plans, run
//! `INSTA_UPDATE=always cargo test --release --test behaviour plans` and read the difference.

use volary_cli::tpch;
use volary_tests::cluster::{TestCluster, queries_directory, run};
use volary_tests::reference::queries;

/// Scale factor of the smallest TPC-H data. Sizes decide the order of joins.
const SCALE: f64 = 0.001;

const QUERIES: [(&str, &str); 18] = [
    (
        "key_lookup",
        "SELECT o_totalprice FROM orders WHERE o_orderkey = 7",
    ),
    (
        "key_in_list",
        "SELECT o_totalprice FROM orders WHERE o_orderkey IN (1, 2, 7)",
    ),
    (
        "key_contradiction",
        "SELECT o_totalprice FROM orders WHERE o_orderkey = 1 AND o_orderkey = 2",
    ),
    (
        "filter_on_another_column",
        "SELECT o_orderkey FROM orders WHERE o_totalprice > 100000",
    ),
    (
        "group_by_key",
        "SELECT l_orderkey, sum(l_quantity) FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300",
    ),
    (
        "group_by_another_column",
        "SELECT l_partkey, sum(l_quantity) FROM lineitem GROUP BY l_partkey",
    ),
    (
        "no_groups",
        "SELECT count(*), sum(l_quantity) FROM lineitem WHERE l_discount > 0.05",
    ),
    ("count_of_a_whole_table", "SELECT count(*) FROM lineitem"),
    ("distinct", "SELECT DISTINCT o_orderpriority FROM orders"),
    (
        "colocated_join",
        "SELECT o_orderdate, l_quantity FROM orders JOIN lineitem ON o_orderkey = l_orderkey",
    ),
    (
        "join_with_a_reference_table",
        "SELECT s_name, n_name FROM supplier JOIN nation ON s_nationkey = n_nationkey",
    ),
    (
        "reference_table_that_keeps_its_rows",
        "SELECT n_name, s_name FROM nation LEFT JOIN supplier ON s_nationkey = n_nationkey",
    ),
    (
        "top_k",
        "SELECT o_orderkey, o_totalprice FROM orders ORDER BY o_totalprice DESC LIMIT 10",
    ),
    (
        "limit_and_offset",
        "SELECT o_orderkey FROM orders LIMIT 10 OFFSET 5",
    ),
    (
        "window_by_another_column",
        "SELECT l_orderkey, row_number() OVER (PARTITION BY l_partkey ORDER BY l_orderkey, l_linenumber) AS n FROM lineitem",
    ),
    (
        "colocated_semi_join",
        "SELECT o_orderdate FROM orders WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem WHERE l_quantity > 49)",
    ),
    (
        "colocated_outer_join",
        "SELECT o_orderdate, l_quantity FROM orders LEFT JOIN lineitem ON o_orderkey = l_orderkey",
    ),
    (
        "window_by_key",
        "SELECT l_orderkey, row_number() OVER (PARTITION BY l_orderkey ORDER BY l_linenumber) AS n FROM lineitem",
    ),
];

#[test]
fn plans_push_to_the_workers_what_shards_can_do_alone() {
    run(async {
        let mut cluster = cluster("schema.sql").await;
        for (name, sql) in QUERIES {
            let plan = cluster.physical_plan(sql).await.unwrap();
            assert_plan(name, sql, &plan);
        }
        assert_plans_of_tpch("tpch", &mut cluster).await;
        cluster.stop().await;
    });
}

#[test]
fn plans_over_bad_shard_keys_push_what_does_not_need_them() {
    run(async {
        let mut cluster = cluster("schema_bad_keys.sql").await;
        assert_plans_of_tpch("tpch_bad_keys", &mut cluster).await;
        cluster.stop().await;
    });
}

async fn assert_plans_of_tpch(prefix: &str, cluster: &mut TestCluster) {
    let queries = queries(&queries_directory().join("tpch")).unwrap();
    let queries = queries.iter().filter(|(name, _)| name.starts_with('q'));
    let mut asked = 0;
    for (name, sql) in queries {
        let plan = cluster.physical_plan(sql).await.unwrap();
        assert_plan(&format!("{prefix}_{name}"), sql, &plan);
        asked += 1;
    }
    assert_eq!(asked, 22);
}

/// Starts a cluster with the TPC-H data in tables of this schema.
async fn cluster(schema: &str) -> TestCluster {
    let mut cluster = TestCluster::start(3).await.unwrap();
    let schema = queries_directory().join("tpch").join(schema);
    cluster.run_file(&schema).await.unwrap();
    let data = cluster.directory().join("tpch");
    tpch::write_parquet(&data, SCALE, &mut |_, _| {}).unwrap();
    for table in tpch::tables() {
        let file = data.join(format!("{table}.parquet"));
        let copy = format!("COPY {table} FROM '{}'", file.display());
        cluster.sql(&copy).await.unwrap();
    }
    cluster
}

fn assert_plan(name: &str, sql: &str, plan: &str) {
    insta::with_settings!({
        description => sql,
        omit_expression => true,
        prepend_module_to_snapshot => false,
    }, {
        insta::assert_snapshot!(name, plan);
    });
}
