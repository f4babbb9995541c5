//! A part of an aggregate that is lost on its way to a worker gives other rows. So every form of
//! grouping is combined with aggregates, filters and kinds of tables, and compared with DataFusion
//! alone.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use volary_tests::cluster::{Comparison, TestClusters, TestTable, run};
use volary_tests::reference::DataFusionReference;

const ROWS: i64 = 200;
/// One of so many combinations is tested. The number has no factor in common with the lengths of
/// the lists, so all pairs of two lists are tested.
const STEP: usize = 97;

const TABLES: [&str; 4] = ["sharded", "one_shard", "on_every_worker", "empty"];
const FILTERS: [&str; 5] = [
    "",
    "WHERE k = 3",
    "WHERE k IN (1, 2, 140)",
    "WHERE g = 1",
    "WHERE v < 0",
];
/// Groupings, and the columns that they allow in the SELECT list.
const GROUPINGS: [(&str, &str); 17] = [
    ("", ""),
    ("GROUP BY g", "g"),
    ("GROUP BY g, h", "g, h"),
    ("GROUP BY k", "k"),
    ("GROUP BY k, h", "k, h"),
    ("GROUP BY ROLLUP (g)", "g, grouping(g)"),
    ("GROUP BY ROLLUP (g, h)", "g, h, grouping(g, h)"),
    ("GROUP BY ROLLUP (k, g)", "k, g"),
    ("GROUP BY CUBE (g, h)", "g, h, grouping(h)"),
    ("GROUP BY GROUPING SETS (())", ""),
    ("GROUP BY GROUPING SETS ((), ())", ""),
    ("GROUP BY GROUPING SETS ((g), ())", "g, grouping(g)"),
    ("GROUP BY GROUPING SETS ((), (g), (g), ())", "g"),
    ("GROUP BY GROUPING SETS ((g, h), (h), ())", "g, h"),
    ("GROUP BY GROUPING SETS ((k), (h))", "k, h"),
    ("GROUP BY g, ROLLUP (h)", "g, h, grouping(h)"),
    ("GROUP BY g, GROUPING SETS ((h), ())", "g, h"),
];
const AGGREGATES: [&str; 7] = [
    "1",
    "count(*), count(v), sum(v), avg(x), min(h), max(v)",
    "count(*) FILTER (WHERE v % 2 = 0), sum(v) FILTER (WHERE false), count(v) FILTER (WHERE h IS NULL)",
    "count(DISTINCT v % 5)",
    "count(DISTINCT v % 5), count(*), sum(DISTINCT v % 5), count(DISTINCT g) FILTER (WHERE v > 50)",
    "string_agg(h, ',' ORDER BY k), first_value(v ORDER BY k DESC), array_agg(v ORDER BY k)",
    "median(v), bit_xor(v), bool_or(v > 50), stddev(x)",
];
const HAVINGS: [&str; 3] = ["", "HAVING count(*) > 2", "HAVING count(h) = 0"];
/// What is done with the groups.
const OUTER: [(&str, &str); 3] = [
    ("", ""),
    ("SELECT DISTINCT * FROM (", ") AS groups"),
    ("SELECT count(*) FROM (", ") AS groups"),
];

fn rows(number: i64) -> RecordBatch {
    let h = |row: i64| (row % 6 != 5).then(|| format!("h{}", row % 3));
    let columns: [(&str, ArrayRef); 5] = [
        ("k", Arc::new(Int64Array::from_iter_values(0..number))),
        (
            "g",
            Arc::new(
                (0..number)
                    .map(|row| (row % 5 != 4).then_some(row % 4))
                    .collect::<Int64Array>(),
            ),
        ),
        ("h", Arc::new((0..number).map(h).collect::<StringArray>())),
        (
            "v",
            Arc::new(
                (0..number)
                    .map(|row| (row % 11 != 7).then_some(row * 3))
                    .collect::<Int64Array>(),
            ),
        ),
        (
            "x",
            Arc::new(
                (0..number)
                    .map(|row| Some(row as f64 / 4.0))
                    .collect::<Float64Array>(),
            ),
        ),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn statements() -> Vec<String> {
    let mut statements = Vec::new();
    for (grouping, keys) in GROUPINGS {
        for aggregates in AGGREGATES {
            for filter in FILTERS {
                for having in HAVINGS {
                    for (before, after) in OUTER {
                        for table in TABLES {
                            let columns = [keys, aggregates].join(", ");
                            let columns = columns.trim_start_matches(", ");
                            statements.push(format!(
                                "{before}SELECT {columns} FROM {table} {filter} {grouping} {having}{after}"
                            ));
                        }
                    }
                }
            }
        }
    }
    statements.into_iter().step_by(STEP).collect()
}

#[test]
fn groups_are_those_of_datafusion_alone() {
    run(async {
        let clusters = TestClusters::start(DataFusionReference::new(), &[1, 3, 7]).await;
        let mut clusters = clusters.unwrap();
        for table in [
            TestTable::sharded("sharded", "k", 16, rows(ROWS)),
            TestTable::sharded("one_shard", "k", 1, rows(ROWS)),
            TestTable::reference("on_every_worker", rows(ROWS)),
            TestTable::sharded("empty", "k", 16, rows(0)),
        ] {
            clusters.load(&table).await.unwrap();
        }
        let mut differences = Vec::new();
        for statement in statements() {
            let difference = clusters.difference(&statement, Comparison::Rows).await;
            differences.extend(difference.unwrap());
        }
        assert!(differences.is_empty(), "{}", differences.join("\n\n"));
        clusters.stop().await;
    });
}
