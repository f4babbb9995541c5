//! A list of thousands of constants is taken out of a statement's text. The rows must be those of a
//! condition that says the same in another way.

use std::fmt::Display;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use volary_tests::cluster::{TestCluster, run};

/// Number of values of each list.
const VALUES: i64 = 3_000;

fn list<T: Display>(value: impl Fn(i64) -> T) -> String {
    let values: Vec<_> = (0..VALUES)
        .map(|number| value(number).to_string())
        .collect();
    values.join(", ")
}

#[test]
fn a_long_list_has_the_rows_of_the_condition_that_says_the_same() {
    run(async {
        let even = list(|number| number * 2 - 100);
        let texts = list(|number| format!("'it''s {}'", number * 2));
        let days = list(|number| format!("'{:04}-02-27'", number + 1));
        let far = list(|number| i64::MAX - number);
        let cases = [
            (format!("k IN ({even})"), "k % 2 = 0 AND k >= -100"),
            (
                format!("k NOT IN ({even})"),
                "NOT (k % 2 = 0 AND k >= -100)",
            ),
            (
                format!("NOT (t.k IN ({even})) AND i < 7"),
                "NOT (k % 2 = 0 AND k >= -100) AND i < 7",
            ),
            (format!("i IN ({even}) OR k = 3"), "i % 2 = 0 OR k = 3"),
            (format!("small IN ({even})"), "small % 2 = 0"),
            (format!("price IN ({even})"), "price % 2 = 0"),
            (format!("f IN ({even})"), "f % 2 = 0"),
            (
                format!("s IN ({texts})"),
                "s LIKE 'it%' AND n % 2 = 0 AND n >= 0",
            ),
            (
                format!("\"s\" NOT IN ({texts})"),
                "NOT (s LIKE 'it%' AND n % 2 = 0 AND n >= 0)",
            ),
            (format!("d IN ({days})"), "d = '2024-02-27'"),
            (format!("k IN ({far})"), "k > 100000"),
            (format!("small IN ({far})"), "false"),
            (
                format!("k IN ({even}) AND i IN ({even})"),
                "k % 2 = 0 AND k >= -100 AND i % 2 = 0",
            ),
        ];
        for workers in [1, 3] {
            let mut cluster = TestCluster::start(workers).await.unwrap();
            for sql in [
                "CREATE TABLE t (k BIGINT, i INT, small SMALLINT, price DECIMAL(10, 2), f DOUBLE, s VARCHAR, n BIGINT, d DATE) WITH (shard_key = 'k', shards = 16)",
                "INSERT INTO t SELECT value, (value % 9)::INT, (value % 5)::SMALLINT, value % 7, value % 3, 'it''s ' || value, value, DATE '2024-02-26' + (value % 3)::INT FROM generate_series(-200, 300) AS g(value)",
                "INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (9223372036854775807, 1, 1, 1, 1, 'it', 1, NULL)",
            ] {
                cluster.sql(sql).await.unwrap();
            }
            for (listed, same) in &cases {
                for query in [
                    "SELECT k, s FROM t WHERE {} ORDER BY k, s",
                    "SELECT i, count(*), max(s) FROM t WHERE ({}) GROUP BY i ORDER BY i",
                    "SELECT a.k FROM t a JOIN (SELECT * FROM t WHERE {}) b ON a.k = b.k WHERE a.n > 5 ORDER BY 1 LIMIT 20",
                ] {
                    let given = cluster.sql(&query.replace("{}", listed)).await.unwrap();
                    let expected = cluster.sql(&query.replace("{}", same)).await.unwrap();
                    assert_eq!(given, expected, "{query} where {same} on {workers} workers");
                }
            }
            cluster.stop().await;
        }
    });
}

#[test]
fn a_long_list_prunes_shards_and_its_errors_are_those_of_the_whole_text() {
    run(async {
        let mut cluster = TestCluster::start(3).await.unwrap();
        cluster
            .sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 64)")
            .await
            .unwrap();
        let same = list(|_| 7);
        let plan = cluster
            .physical_plan(&format!("SELECT k FROM t WHERE k IN ({same})"))
            .await
            .unwrap();
        assert!(plan.contains("shards=1/64"), "{plan}");
        let error = cluster
            .sql(&format!("SELECT k FROM t WHERE missing IN ({same})"))
            .await
            .unwrap_err();
        assert!(
            error.message().contains("there is no column missing"),
            "{error}"
        );
        cluster.stop().await;
    });
}

#[test]
fn an_expression_with_a_long_list_has_its_heading_and_is_grouped_by() {
    run(async {
        let mut cluster = TestCluster::start(2).await.unwrap();
        for sql in [
            "CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 16)",
            "INSERT INTO t SELECT value FROM generate_series(0, 99) AS g(value)",
        ] {
            cluster.sql(sql).await.unwrap();
        }
        let list = list(|number| number + 40);
        let sql = format!(
            "SELECT (k IN ({list})), count(*) FROM t WHERE k IN ({list}) OR k < 10 GROUP BY (k IN ({list})) HAVING (k IN ({list})) ORDER BY (k IN ({list}))"
        );
        let rows = cluster.sql(&sql).await.unwrap();
        let schema = rows.schema();
        let heading = schema.field(0).name();
        assert!(heading.starts_with("(k IN (40, 41, 42, "), "{heading}");
        let counts = rows.column(1).as_primitive::<Int64Type>().values();
        assert_eq!(counts.as_ref(), [60]);
        cluster.stop().await;
    });
}
