use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray};
use volary_cli::LocalOptions;
use volary_tests::cluster::{TestCluster, TestTable};

/// Number of rows of `facts`.
const ROWS: i64 = 6_000;

/// Returns four tables with 16 shards each:
///
/// - `facts (id, g, s, v, f, d)`, sharded by `id`. Its groups by `g` (1,500 and NULL) and by `s`
///   (700 and NULL) are on all workers.
/// - `others (id, g, w)`, co-located with `facts` on `id`, but not on `g`.
/// - `nothing`, like `facts`, but without rows.
/// - `lonely (k, g, v)`, with only one key, so that all rows are on one worker.
pub(super) fn tables() -> [TestTable; 4] {
    let some = |value: i64, null: bool| (!null).then_some(value);
    let texts = (0..ROWS).map(|row| {
        let text = row * 13 % 700;
        // The texts are short or long, because string views store up to twelve bytes inline.
        let long = "text ".repeat(usize::try_from(text % 4).unwrap());
        (row % 29 != 0).then(|| format!("{long}{text}"))
    });
    let floats = (0..ROWS).map(|row| (row % 13 != 0).then_some((row % 100) as f64 * 0.25));
    let decimals = (0..ROWS).map(|row| Some(i128::from(row * 7 % 100_000)));
    let decimals = decimals.collect::<Decimal128Array>();
    let facts = rows(vec![
        ("id", numbers((0..ROWS).map(Some))),
        (
            "g",
            numbers((0..ROWS).map(|row| some(row * 7_919 % 1_500, row % 41 == 0))),
        ),
        ("s", Arc::new(texts.collect::<StringArray>()) as ArrayRef),
        (
            "v",
            numbers((0..ROWS).map(|row| some(row * 31 % 1_001 - 500, row % 17 == 0))),
        ),
        ("f", Arc::new(floats.collect::<Float64Array>()) as ArrayRef),
        (
            "d",
            Arc::new(decimals.with_precision_and_scale(12, 2).unwrap()) as ArrayRef,
        ),
    ]);
    let others = rows(vec![
        ("id", numbers((0..3_000).map(|row| Some(row * 2)))),
        (
            "g",
            numbers((0..3_000).map(|row| some(row * 17 % 2_000, row % 37 == 0))),
        ),
        ("w", numbers((0..3_000).map(|row| Some(row % 100)))),
    ]);
    let lonely = rows(vec![
        ("k", numbers((0..1_000).map(|_| Some(7)))),
        ("g", numbers((0..1_000).map(|row| Some(row % 90)))),
        ("v", numbers((0..1_000).map(Some))),
    ]);
    [
        TestTable::sharded("nothing", "id", 16, facts.slice(0, 0)),
        TestTable::sharded("facts", "id", 16, facts),
        TestTable::sharded("others", "id", 16, others),
        TestTable::sharded("lonely", "k", 16, lonely),
    ]
}

fn numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn rows(columns: Vec<(&'static str, ArrayRef)>) -> RecordBatch {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Starts a cluster with this number of workers and with the tables.
pub(super) async fn cluster(workers: usize, change: impl FnOnce(&mut LocalOptions)) -> TestCluster {
    let mut cluster = TestCluster::start_with(workers, change).await.unwrap();
    for table in tables() {
        cluster.load(&table).await.unwrap();
    }
    cluster
}

/// Sets the number of relays for the session of the cluster.
pub(super) async fn set_relays(cluster: &mut TestCluster, relays: &str) {
    let set = format!("SET relays = '{relays}'");
    cluster.sql(&set).await.unwrap();
}
