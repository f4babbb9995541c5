//! The answer of a prepared statement must be the same as with the values as literals.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow_flight::sql::client::{FlightSqlServiceClient, PreparedStatement};
use futures::TryStreamExt;
use tokio::runtime::Handle;
use volary_node::channel::{ChannelOptions, Transport, flight_client};
use volary_tests::cluster::{TestCluster, run};

/// Statements with numbers as parameters.
const STATEMENTS: [&str; 12] = [
    "SELECT k, v, s FROM t WHERE k = $1 ORDER BY k, v",
    "SELECT count(*), sum(v) FROM t WHERE k = $1",
    "SELECT count(*) FROM t WHERE v > $1 AND k <> $2",
    "SELECT s, count(*) FROM t WHERE k IN ($1, $2, 17) GROUP BY s ORDER BY s",
    "SELECT t.k, r.name FROM t JOIN r ON t.v = r.v WHERE t.k BETWEEN $1 AND $2 ORDER BY 1, 2 LIMIT 5",
    "SELECT v FROM t WHERE NOT (k = $1 OR v = $2) ORDER BY v DESC LIMIT 3",
    "SELECT k, max(v) FROM t WHERE k = $1 OR k IS NULL GROUP BY k HAVING max(v) > $2 ORDER BY k",
    "SELECT name FROM r WHERE v = $1 OR v < $2 ORDER BY name",
    // The gateway keeps only the groups with the largest sums, which differ between parameter
    // values.
    "SELECT w, s, sum(v) AS total FROM t WHERE w = $1 GROUP BY w, s ORDER BY total DESC LIMIT 2",
    "SELECT s, array_length(array_agg(v)) FROM t WHERE w = $1 GROUP BY s ORDER BY s LIMIT 3",
    // The value may be the first or the last one, and both parameters may have the same value.
    "SELECT v FROM t WHERE v >= $1 ORDER BY v LIMIT 10",
    "SELECT v FROM t WHERE k = $1 UNION ALL SELECT v FROM t WHERE k = $2 ORDER BY v",
];

/// Values of both parameters. Some of them are the key of one row, some of several rows, and some
/// of no row.
const VALUES: [[Option<i64>; 2]; 9] = [
    [Some(1), Some(3)],
    [Some(17), Some(17)],
    [Some(3), Some(1)],
    [Some(-5), Some(0)],
    [None, Some(2)],
    [Some(2), None],
    [Some(99), Some(100_000)],
    [Some(i64::MAX), Some(i64::MIN)],
    [Some(300), Some(1)],
];

async fn connect(cluster: &TestCluster) -> FlightSqlServiceClient<Transport> {
    let address = cluster.nodes().address().to_string();
    let flight = flight_client(&address, &ChannelOptions::default(), &Handle::current()).unwrap();
    let mut client = FlightSqlServiceClient::new_from_inner(flight);
    client.handshake("volary", "").await.unwrap();
    client
}

/// Returns the rows of a statement with these values.
async fn rows(
    client: &mut FlightSqlServiceClient<Transport>,
    statement: &mut PreparedStatement<Transport>,
    values: &[Option<i64>],
) -> RecordBatch {
    let columns = values.iter().enumerate().map(|(number, value)| {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![*value]));
        (format!("${}", number + 1), column)
    });
    let bound = RecordBatch::try_from_iter(columns).unwrap();
    statement.set_parameters(bound).unwrap();
    let mut info = statement.execute().await.unwrap();
    let ticket = info.endpoint.remove(0).ticket.unwrap();
    let schema = Arc::new(info.try_decode_schema().unwrap());
    let batches = client.do_get(ticket).await.unwrap();
    let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
    concat_batches(&schema, &batches).unwrap()
}

/// Returns the statement with the values as literals.
fn with_literals(sql: &str, values: &[Option<i64>]) -> String {
    let mut sql = sql.to_owned();
    for (number, value) in values.iter().enumerate() {
        let literal = match value {
            Some(value) => format!("CAST('{value}' AS BIGINT)"),
            None => "CAST(NULL AS BIGINT)".to_owned(),
        };
        sql = sql.replace(&format!("${}", number + 1), &literal);
    }
    sql
}

/// Returns the values of the parameters that the statement has.
fn parameters<'a>(sql: &str, values: &'a [Option<i64>; 2]) -> &'a [Option<i64>] {
    if sql.contains("$2") {
        values
    } else {
        &values[..1]
    }
}

/// Checks a statement with all values, beginning with the value at `first`. The gateway reuses a
/// plan that it made with one of the first values. The text of the statement contains `first`, so
/// that the gateway does not reuse the plans of an earlier check. `expected` has the rows for each
/// of the `VALUES`.
async fn check(cluster: &TestCluster, sql: &str, first: usize, expected: &[RecordBatch]) {
    let text = format!("{sql} -- {first} first");
    let mut client = connect(cluster).await;
    let mut statement = client.prepare(text.clone(), None).await.unwrap();
    let cases = VALUES.iter().zip(expected).cycle().skip(first);
    for (values, expected) in cases.take(VALUES.len() * 2) {
        let values = parameters(sql, values);
        let given = rows(&mut client, &mut statement, values).await;
        assert_eq!(
            given.columns(),
            expected.columns(),
            "{text} with {values:?} on {} workers",
            cluster.workers()
        );
    }
}

/// Checks all statements, each with every `step`-th value as the first one.
async fn check_all(cluster: &mut TestCluster, step: usize) {
    for sql in STATEMENTS {
        let mut expected = Vec::new();
        for values in &VALUES {
            let literals = with_literals(sql, parameters(sql, values));
            expected.push(cluster.sql(&literals).await.unwrap());
        }
        for first in (0..VALUES.len()).step_by(step) {
            check(cluster, sql, first, &expected).await;
        }
    }
}

#[test]
fn a_statement_that_comes_again_has_the_answer_of_its_values_as_literals() {
    run(async {
        for (workers, step) in [(1, 4), (3, 1)] {
            let mut cluster = TestCluster::start(workers).await.unwrap();
            for sql in [
                "CREATE TABLE t (k BIGINT, v BIGINT, w BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = 16)",
                "CREATE TABLE r (v BIGINT, name VARCHAR) WITH (reference = true)",
            ] {
                cluster.sql(sql).await.unwrap();
            }
            // Plans that are made for empty tables are reused when the tables have rows.
            check_all(&mut cluster, VALUES.len()).await;
            for sql in [
                "INSERT INTO t VALUES (1, 1, 1, 's1')",
                "INSERT INTO r VALUES (1, 'n1')",
            ] {
                cluster.sql(sql).await.unwrap();
            }
            check_all(&mut cluster, VALUES.len()).await;
            for sql in [
                "INSERT INTO t SELECT nullif(value % 40, 7) AS k, value AS v, value % 4 AS w, 's' || (value % 3) AS s FROM generate_series(2, 300)",
                "INSERT INTO r SELECT value AS v, 'n' || value AS name FROM generate_series(2, 50)",
            ] {
                cluster.sql(sql).await.unwrap();
            }
            check_all(&mut cluster, step).await;
            // The existing plans were made before these rows were written.
            cluster
                .sql(
                    "INSERT INTO t VALUES (1, 1000, 1, 'new'), (NULL, 1001, 2, 'new'), (99, 1002, 3, 'new')",
                )
                .await
                .unwrap();
            check_all(&mut cluster, 4).await;
            cluster.stop().await;
        }
    });
}
