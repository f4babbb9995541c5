//! The answer of a statement whose literals are parameters of a generic plan must be the same as
//! that of the statement planned with its literals. A literal in parentheses is never a parameter.

use arrow::array::{AsArray, RecordBatch};
use volary_flight_proto::ErrorCode;
use volary_tests::cluster::{TestCluster, run};

/// The columns of the table, each of another type.
const COLUMNS: [&str; 9] = ["k", "i", "price", "f", "s", "d", "at", "zoned", "b"];

/// Literals that are compared with each of the columns. Some are the value of a row, some of no
/// row, and some cannot be compared with some of the columns.
const LITERALS: [&str; 16] = [
    "7",
    "-3",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "'7'",
    "' 7'",
    "'s1'",
    "'it''s'",
    "''",
    "'2024-02-29'",
    "'2024-02-29 10:00:00'",
    "'2024-02-29T10:00:00+02:00'",
    "'true'",
    "'kea'",
    "'7.50'",
];

/// Statements in which `{}` is the comparison of a column with a literal.
const STATEMENTS: [&str; 6] = [
    "SELECT k, s FROM t WHERE {} ORDER BY k, s",
    "SELECT count(*), max(f) FROM t WHERE ({} AND f >= 0) LIMIT 7",
    "SELECT s, count(*) FROM t WHERE price IS NOT NULL AND {} GROUP BY 1 ORDER BY 1 LIMIT 3",
    "WITH few AS (SELECT * FROM t WHERE {}) SELECT a.k, b.name FROM few a JOIN r b ON a.i = b.i ORDER BY 1, 2",
    "SELECT x.k + 1 FROM (SELECT * FROM t WHERE {} /* why */) x WHERE x.f = 1 OR x.f = 2 ORDER BY 1 -- end",
    "SELECT CASE WHEN k = 7 THEN 'seven' ELSE s END AS name FROM t WHERE {} ORDER BY name",
];

/// Returns the rows of a statement, or the code of its error.
async fn answer(cluster: &mut TestCluster, sql: &str) -> Result<RecordBatch, ErrorCode> {
    cluster.sql(sql).await.map_err(|error| error.code())
}

/// Returns what EXPLAIN says about the generic plan of a query.
async fn generic_plan(cluster: &mut TestCluster, sql: &str) -> String {
    let rows = cluster.sql(&format!("EXPLAIN {sql}")).await.unwrap();
    let kinds = rows.column(0).as_string::<i32>().iter();
    let texts = rows.column(1).as_string::<i32>().iter();
    let mut found = kinds
        .zip(texts)
        .filter(|(kind, _)| *kind == Some("generic_plan"));
    found.next().unwrap().1.unwrap().to_owned()
}

async fn start(workers: usize) -> TestCluster {
    let mut cluster = TestCluster::start(workers).await.unwrap();
    for sql in [
        "CREATE TABLE t (k BIGINT, i INT, price DECIMAL(15, 2), f DOUBLE, s VARCHAR, d DATE, at TIMESTAMP, zoned TIMESTAMP WITH TIME ZONE, b BOOLEAN) WITH (shard_key = 'k', shards = 16)",
        "CREATE TABLE r (i INT, name VARCHAR) WITH (reference = true)",
        "INSERT INTO t SELECT value % 20 - 5, (value % 9)::INT, (value % 9)::DECIMAL(15, 2), value % 3, 's' || (value % 4), DATE '2024-02-29' + (value % 3)::INT, TIMESTAMP '2024-02-29 10:00:00', TIMESTAMP '2024-02-29 10:00:00', value % 2 = 0 FROM generate_series(1, 200) AS g(value)",
        "INSERT INTO t VALUES (7, 7, 7.5, 7, '7', '2024-02-29', '2024-02-29', '2024-02-29', true), (8, NULL, NULL, NULL, 'it''s', NULL, NULL, NULL, NULL), (9223372036854775807, 1, 1, 1, '', NULL, NULL, NULL, NULL)",
        "INSERT INTO r SELECT value::INT, 'n' || value FROM generate_series(0, 8) AS g(value)",
    ] {
        cluster.sql(sql).await.unwrap();
    }
    cluster
}

#[test]
fn a_statement_has_the_same_answer_whether_its_literals_are_parameters_or_not() {
    run(async {
        for workers in [1, 3] {
            let mut cluster = start(workers).await;
            let (mut answered, mut refused) = (0, 0);
            for statement in STATEMENTS {
                let mut with_plan = Vec::new();
                for column in COLUMNS {
                    let mut last_answered = None;
                    // The second round has a generic plan for the values of the first one.
                    for literal in LITERALS.iter().chain(&LITERALS) {
                        let sql = statement.replace("{}", &format!("{column} = {literal}"));
                        let alone = statement.replace("{}", &format!("{column} = ({literal})"));
                        let given = answer(&mut cluster, &sql).await;
                        let expected = answer(&mut cluster, &alone).await;
                        assert_eq!(given, expected, "{sql} on {workers} workers");
                        match given {
                            Ok(_) => {
                                answered += 1;
                                last_answered = Some(sql);
                            }
                            Err(_) => refused += 1,
                        }
                    }
                    if let Some(sql) = last_answered
                        && generic_plan(&mut cluster, &sql).await.starts_with("used")
                    {
                        with_plan.push(column);
                    }
                }
                assert!(!with_plan.is_empty(), "{statement}");
            }
            assert!(
                answered * 3 > refused,
                "{answered} were answered, {refused} refused"
            );
            cluster.stop().await;
        }
    });
}

#[test]
fn explain_says_whether_a_statement_uses_a_generic_plan() {
    run(async {
        let mut cluster = start(3).await;
        let sql = |key: i64| format!("SELECT s FROM t WHERE k = {key} /* {key} */ LIMIT 3");
        let template = "SELECT s FROM t WHERE k = $1 LIMIT 3";
        let before = generic_plan(&mut cluster, &sql(1)).await;
        assert!(
            before.starts_with("not yet") && before.ends_with(template),
            "{before}"
        );
        for key in 2..4 {
            cluster.sql(&sql(key)).await.unwrap();
        }
        let after = generic_plan(&mut cluster, &sql(4)).await;
        assert_eq!(after, format!("used: the kept plan of {template}"));
        // A value that the column cannot have delays the plan.
        let sql = |value: i64| format!("SELECT s FROM t WHERE i = {value}");
        for value in [1, 99_999_999_999] {
            cluster.sql(&sql(value)).await.unwrap();
        }
        assert_eq!(
            generic_plan(&mut cluster, &sql(5)).await,
            "not yet: earlier values had none; the next attempt is made when the statement was planned 4 times, and it was planned 2 times, for SELECT s FROM t WHERE i = $1"
        );
        for value in 3..5 {
            cluster.sql(&sql(value)).await.unwrap();
        }
        let after = generic_plan(&mut cluster, &sql(5)).await;
        assert_eq!(after, "used: the kept plan of SELECT s FROM t WHERE i = $1");
        for (sql, reason) in [
            ("SELECT s FROM t WHERE k > 4", "not yet"),
            (
                "SELECT s FROM t WHERE k = 4 AND zoned < now()",
                "none: it reads more than tables, or calls a function whose value changes",
            ),
            (
                "SELECT count(*) FROM t",
                "none: a plan for these values would not suit other values",
            ),
        ] {
            let said = generic_plan(&mut cluster, sql).await;
            assert!(said.starts_with(reason), "{sql}: {said}");
        }
        cluster.stop().await;
    });
}
