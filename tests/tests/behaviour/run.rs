use std::sync::LazyLock;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::{collect, execute_stream};
use futures::StreamExt;
use volary_exec::run::make_runnable;
use volary_node::runtimes::OwnedRuntimes;
use volary_tests::reference::DataFusionReference;

static RUNTIMES: LazyLock<OwnedRuntimes> = LazyLock::new(|| OwnedRuntimes::start(Some(2)).unwrap());

/// Joins in which none of the 10^10 pairs match. The first runs as nested loops. In the second, all
/// rows have the same hash.
const JOINS: [&str; 2] = [
    "SELECT count(*) FROM generate_series(1, 100000) a(x), generate_series(1, 100000) b(y) WHERE x + y < 0",
    "SELECT count(*) FROM generate_series(1, 100000) a(x) JOIN generate_series(1, 100000) b(y) ON x - x = y - y AND x + y < 0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_makes_no_rows_stops_when_its_query_has_ended() {
    for sql in JOINS {
        let reference = DataFusionReference::new();
        let planned = reference.plan(sql).await.unwrap();
        let (plan, stops_when_dropped) =
            make_runnable(planned, &reference.context().task_ctx(), RUNTIMES.handles()).unwrap();
        let mut rows = execute_stream(plan, reference.context().task_ctx()).unwrap();
        let running = tokio::spawn(async move { rows.next().await.transpose() });
        drop(stops_when_dropped);
        let stopped = tokio::time::timeout(Duration::from_secs(60), running).await;
        let error = stopped.unwrap().unwrap().unwrap_err();
        assert!(error.to_string().contains("the query has ended"), "{error}");
    }
}

/// Returns the number of rows of a query that runs with 4 MiB of memory.
async fn rows(sql: &str) -> Result<usize, DataFusionError> {
    let reference = DataFusionReference::with_memory(4 << 20).unwrap();
    let (plan, _running) = make_runnable(
        reference.plan(sql).await.unwrap(),
        &reference.context().task_ctx(),
        RUNTIMES.handles(),
    )?;
    let batches = collect(plan, reference.context().task_ctx()).await?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}

#[tokio::test]
async fn a_join_without_equal_keys_is_right_or_an_error() {
    let join = |kept| {
        format!(
            "SELECT a.x FROM generate_series(1, {kept}) a(x) LEFT JOIN generate_series(1, {kept}) b(y) ON x + y > 2 * {kept} - 2"
        )
    };
    assert_eq!(rows(&join(10)).await.unwrap(), 11);
    let error = rows(&join(2_000_000)).await.unwrap_err();
    assert!(
        error.to_string().contains("must fit into memory"),
        "{error}"
    );
}

#[tokio::test]
async fn the_rows_that_a_window_function_keeps_are_counted() {
    let window = |kept| format!("SELECT sum(x) OVER () FROM generate_series(1, {kept}) a(x)");
    assert_eq!(rows(&window(10)).await.unwrap(), 10);
    let error = rows(&window(2_000_000)).await.unwrap_err();
    let error = error.find_root();
    assert!(
        matches!(error, DataFusionError::ResourcesExhausted(_)),
        "{error}"
    );
}
