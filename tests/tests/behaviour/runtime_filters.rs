//! The effect of a runtime filter shows in the number of rows that workers send, and not in the
//! answer.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray,
};
use volary_tests::cluster::{Comparison, TestClusters, TestTable, run};
use volary_tests::reference::DataFusionReference;

const SALES: i64 = 20_000;

/// Starts clusters with the tables `sales (id, item, shop, day, price)`, sharded by `id`, `items
/// (item, name, day, price)`, sharded by `item`, and `shops (shop, city)`, sharded by `shop`. No
/// join is on the shard keys of both sides. `item` and `shop` of a sale may be NULL.
async fn tables() -> TestClusters {
    let mut clusters = TestClusters::start(DataFusionReference::new(), &[1, 3, 7])
        .await
        .unwrap();
    let column = |of: &dyn Fn(i64) -> Option<i64>, rows: i64| {
        Arc::new((0..rows).map(of).collect::<Int64Array>()) as ArrayRef
    };
    let text = |of: &dyn Fn(i64) -> String, rows: i64| {
        Arc::new((0..rows).map(|row| Some(of(row))).collect::<StringArray>()) as ArrayRef
    };
    let days = |rows: i64| {
        let days = (0..rows).map(|row| i32::try_from(row % 300).ok());
        Arc::new(days.collect::<Date32Array>()) as ArrayRef
    };
    let prices = |rows: i64| {
        let prices = (0..rows).map(|row| Some(i128::from(row % 977)));
        let prices = prices.collect::<Decimal128Array>();
        Arc::new(prices.with_precision_and_scale(15, 2).unwrap()) as ArrayRef
    };
    let sales = vec![
        ("id", column(&Some, SALES)),
        (
            "item",
            column(&|row| (row % 31 != 0).then_some(row * 17 % 4_000), SALES),
        ),
        (
            "shop",
            column(&|row| (row % 57 != 0).then_some(row % 90), SALES),
        ),
        ("day", days(SALES)),
        ("price", prices(SALES)),
    ];
    let items = vec![
        ("item", column(&|row| (row != 13).then_some(row), 4_000)),
        ("name", text(&|row| format!("item {}", row % 800), 4_000)),
        ("day", days(4_000)),
        ("price", prices(4_000)),
    ];
    let shops = vec![
        ("shop", column(&|row| (row != 5).then_some(row), 100)),
        ("city", text(&|row| format!("city {}", row % 20), 100)),
    ];
    for (name, key, columns) in [
        ("sales", "id", sales),
        ("items", "item", items),
        ("shops", "shop", shops),
    ] {
        let columns = columns
            .into_iter()
            .map(|(name, column)| (name, column, true));
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        clusters
            .load(&TestTable::sharded(name, key, 16, rows))
            .await
            .unwrap();
    }
    clusters
}

const QUERIES: [&str; 26] = [
    "SELECT s.id, i.name FROM sales s JOIN items i ON s.item = i.item WHERE i.name = 'item 7'",
    // The small side is empty, so no worker is asked for the other side.
    "SELECT s.id FROM sales s JOIN items i ON s.item = i.item WHERE i.name = 'no such item'",
    // The join has several keys, and keys of several types.
    "SELECT s.id FROM sales s JOIN items i ON s.item = i.item AND s.day = i.day",
    "SELECT s.id FROM sales s JOIN items i ON s.day = i.day AND s.price = i.price WHERE i.name LIKE 'item 1_'",
    // A small side narrows a scan through another join, an aggregate and a projection.
    "SELECT c.city, count(*) FROM sales s JOIN items i ON s.item = i.item JOIN shops c ON s.shop = c.shop \
     WHERE i.name = 'item 3' AND c.city <> 'city 4' GROUP BY c.city",
    "SELECT t.shop, t.n FROM (SELECT shop, count(*) AS n FROM sales GROUP BY shop) t JOIN shops c ON t.shop = c.shop \
     WHERE c.city = 'city 2'",
    "SELECT t.k FROM (SELECT item + 1 AS k, id FROM sales) t JOIN items i ON t.k = i.item WHERE i.name = 'item 9'",
    // Outer, semi and anti joins keep rows without a partner.
    "SELECT s.id, i.name FROM sales s LEFT JOIN items i ON s.item = i.item AND i.name = 'item 7'",
    "SELECT s.id, i.name FROM items i LEFT JOIN sales s ON s.item = i.item WHERE i.name = 'item 7'",
    "SELECT s.id FROM sales s FULL JOIN (SELECT * FROM items WHERE name = 'item 7') i ON s.item = i.item",
    "SELECT id FROM sales WHERE item IN (SELECT item FROM items WHERE name = 'item 7')",
    "SELECT id FROM sales WHERE item NOT IN (SELECT item FROM items WHERE name <> 'item 7' AND item IS NOT NULL)",
    "SELECT id FROM sales s WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.item = s.item AND i.name <> 'item 7')",
    // The limit chooses its rows before they are joined.
    "SELECT count(*) FROM (SELECT * FROM sales ORDER BY id LIMIT 100) s JOIN items i ON s.item = i.item \
     WHERE i.name LIKE 'item 1%'",
    // Joins on several keys, where one key is computed, or where the keys come from several tables.
    // Each key narrows the scans that it can.
    LEAST_PRICE,
    "SELECT i.item FROM items i WHERE i.name LIKE 'item 1_' AND i.item > (SELECT max(s.shop) + 1 FROM sales s WHERE s.item = i.item)",
    "SELECT i.item, t.n FROM items i JOIN (SELECT item, count(*) AS n FROM sales GROUP BY item) t \
     ON (i.item IS NOT DISTINCT FROM t.item) AND ((i.item % 9) IS NOT DISTINCT FROM t.n) WHERE i.name < 'item 2' OR i.item IS NULL",
    "SELECT s.id, c.city FROM sales s JOIN shops c ON s.shop + 1 = c.shop JOIN items i ON s.item = i.item AND c.shop = i.item % 90 \
     WHERE i.name LIKE 'item 1%'",
    "SELECT i.item, t.n FROM items i LEFT JOIN (SELECT item, count(*) AS n FROM sales GROUP BY item) t ON i.item = t.item AND i.item % 9 = t.n \
     WHERE i.name = 'item 7'",
    // Below a semi join, an aggregate, or the branches of a union, the same column names mean other
    // values.
    "SELECT t.item FROM (SELECT s.item FROM sales s WHERE EXISTS (SELECT 1 FROM sales r WHERE r.shop = s.item AND r.item > s.shop)) t \
     JOIN items i ON t.item = i.item WHERE i.name = 'item 7'",
    "SELECT t.item FROM (SELECT s.item, count(*) AS n FROM sales s WHERE EXISTS \
       (SELECT 1 FROM sales r WHERE r.shop = s.item AND r.item > s.shop) GROUP BY s.item) t \
     JOIN items i ON t.item = i.item AND t.n = i.item - 2 WHERE i.name = 'item 7'",
    "SELECT i.item FROM items i JOIN (SELECT CAST(x AS VARCHAR) AS k, count(*) AS n FROM (SELECT item + 0 AS x FROM sales) \
       GROUP BY CAST(x AS VARCHAR)) t ON t.k = CAST(i.item AS VARCHAR) AND t.n = i.item % 9 WHERE i.name < 'item 2'",
    "SELECT i.item FROM items i JOIN (SELECT CAST(x AS VARCHAR) AS k, count(*) AS n FROM (SELECT item + 0 AS x FROM sales) \
       GROUP BY CAST(x AS VARCHAR)) t ON t.k = CAST(i.item AS VARCHAR) WHERE i.name < 'item 2'",
    "SELECT t.id FROM (SELECT id, item, shop FROM sales UNION ALL SELECT id, shop, item FROM sales) t \
     JOIN items i ON t.item = i.item AND t.shop = i.item % 90 WHERE i.name LIKE 'item 1_'",
    // Keys whose computation fails for rows that a condition leaves out.
    "SELECT t.id FROM (SELECT id, 10 / shop AS k FROM sales WHERE shop <> 0) t JOIN shops c ON t.k = c.shop WHERE c.city = 'city 2'",
    "SELECT t.q, t.p FROM (SELECT 10 / shop AS q, min(price) AS p FROM sales WHERE shop <> 0 GROUP BY 1) t \
     JOIN items i ON t.q = i.item AND t.p = i.price WHERE i.name < 'item 2'",
];

/// A query whose subquery computes a minimum per key. Only the key narrows what the subquery reads.
const LEAST_PRICE: &str = "SELECT i.item, s.id FROM items i JOIN sales s ON s.item = i.item WHERE i.name = 'item 7' \
     AND s.price = (SELECT min(other.price) FROM sales other WHERE other.item = i.item)";

#[test]
fn answers_are_those_of_one_process() {
    run(async {
        let mut clusters = tables().await;
        let mut wrong = Vec::new();
        for sql in QUERIES {
            wrong.extend(clusters.difference(sql, Comparison::Rows).await.unwrap());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        clusters.stop().await;
    });
}

#[test]
fn workers_send_only_rows_with_a_partner() {
    run(async {
        let mut clusters = tables().await;
        let analyze = |sql| format!("EXPLAIN ANALYZE {sql}");
        for cluster in clusters.clusters_mut() {
            let shown = cluster.sql(&analyze(QUERIES[0])).await.unwrap();
            let text = shown.column(1).as_string::<i32>().value(0).to_owned();
            assert!(text.contains("narrowed at run time by [item@1]"), "{text}");
            assert!(text.contains("item@1 IN (5 values)"), "{text}");
            // Of the 20,000 sales, 25 are of one of the five items with this name.
            let sent = rows_sent(&text);
            assert!(sent <= 60, "{sent} rows sent:\n{text}");
            let shown = cluster.sql(&analyze(LEAST_PRICE)).await.unwrap();
            let text = shown.column(1).as_string::<i32>().value(0).to_owned();
            // Both gathers of sales are narrowed.
            assert_eq!(text.matches("IN (5 values)").count(), 2, "{text}");
            let shown = cluster.sql(&analyze(QUERIES[1])).await.unwrap();
            let text = shown.column(1).as_string::<i32>().value(0).to_owned();
            assert!(text.contains("no worker was asked"), "{text}");
        }
        clusters.stop().await;
    });
}

/// Returns the sum of the output rows of all gathers.
fn rows_sent(plan: &str) -> usize {
    plan.lines()
        .filter(|line| line.contains("GatherExec"))
        .map(|line| {
            let (_, rest) = line.split_once("output_rows=").expect("a row count");
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().expect("a number")
        })
        .sum()
}
