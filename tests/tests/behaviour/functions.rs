//! A function must have the same value on a worker as on a gateway. So calls of all functions are
//! made over a sharded table, and compared with DataFusion alone. This also tests that the calls
//! arrive at the workers as they were sent.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::logical_expr::Volatility;
use futures::FutureExt;
use volary_tests::cluster::{Comparison, TestClusters, TestTable, run};
use volary_tests::reference::DataFusionReference;

const ROWS: i64 = 40;
/// Number of calls of each function that are compared.
const CALLS: usize = 4;
/// Number of calls that one statement makes.
const CALLS_PER_STATEMENT: usize = 15;

/// Arguments that are computed for each row, of all types that a table can have, and constants.
const COLUMNS: [&str; 22] = [
    "k",
    "yes",
    "tiny",
    "small",
    "int",
    "huge",
    "real",
    "double",
    "price",
    "name",
    "bytes",
    "day",
    "clock",
    "at",
    "instant",
    "[k, NULL]",
    "[name, 'b']",
    "{'a': k, 'b': name}",
    "MAP {name: k}",
    "arrow_cast(name, 'Dictionary(Int32, Utf8)')",
    "arrow_cast(real, 'Float16')",
    "INTERVAL '1 day'",
];
const CONSTANTS: [&str; 16] = [
    "2",
    "'a'",
    "0.5",
    "-1",
    "'day'",
    "'%Y-%m-%d'",
    "'base64'",
    "INTERVAL '1 hour'",
    "[1, 2]",
    "['a']",
    "DATE '2026-02-28'",
    "TIMESTAMP '2026-02-28 12:00:00'",
    "TIMESTAMPTZ '2026-02-28T12:00:00Z'",
    "NULL",
    "true",
    "'kea'",
];
/// Aggregates whose value depends on the order of their rows.
const ORDERED: [&str; 5] = [
    "array_agg",
    "first_value",
    "last_value",
    "nth_value",
    "string_agg",
];
/// Functions whose value depends on the time, the version or the order of rows, and `to_char`.
/// DataFusion 55 computes that one for the first row only if the time is constant and the format is
/// not. The results of `ceil`, `floor`, `trunc` and `from_unixtime` have other types in
/// Volary; tests/sql has their values.
const EXCLUDED: [&str; 10] = [
    "any_value",
    "ceil",
    "current_date",
    "current_time",
    "floor",
    "from_unixtime",
    "now",
    "to_char",
    "trunc",
    "version",
];

fn table() -> RecordBatch {
    let rows = || 0..ROWS;
    let small = |value: i64| i32::try_from(value % 100).unwrap();
    let numbers = |to: DataType| {
        let values: Int64Array = rows()
            .map(|row| (row % 7 != 3).then_some(row * 3 - 50))
            .collect();
        cast(&values, &to).unwrap()
    };
    let names = [
        "kea",
        "kākā",
        "",
        "tui tui",
        "2026-03-29",
        "12:30:00",
        "[1, 2]",
        "Ω🦜",
    ];
    let name =
        |row: i64| (row % 9 != 4).then(|| names[usize::try_from(row).unwrap() % names.len()]);
    let second = 1_000_000;
    let times: TimestampMicrosecondArray = rows()
        .map(|row| (row % 8 != 5).then_some(1_774_700_000 * second + row * 3_600 * second + row))
        .collect();
    let times: ArrayRef = Arc::new(times);
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "k",
            Arc::new(
                rows()
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(Some)
                    .collect::<Int64Array>(),
            ),
        ),
        (
            "yes",
            Arc::new(
                rows()
                    .map(|row| (row % 5 != 2).then_some(row % 2 == 0))
                    .collect::<BooleanArray>(),
            ),
        ),
        (
            "tiny",
            Arc::new(
                rows()
                    .map(|row| i8::try_from(row).ok())
                    .collect::<Int8Array>(),
            ),
        ),
        (
            "small",
            Arc::new(
                rows()
                    .map(|row| i16::try_from(row * 7).ok())
                    .collect::<Int16Array>(),
            ),
        ),
        (
            "int",
            Arc::new(
                rows()
                    .map(|row| Some(small(row) - 20))
                    .collect::<Int32Array>(),
            ),
        ),
        (
            "huge",
            Arc::new(
                rows()
                    .map(|row| u64::try_from(row).ok())
                    .collect::<UInt64Array>(),
            ),
        ),
        (
            "real",
            Arc::new(
                rows()
                    .map(|row| Some(small(row) as f32 / 4.0 - 2.0))
                    .collect::<Float32Array>(),
            ),
        ),
        (
            "double",
            Arc::new(
                rows()
                    .map(|row| Some(f64::from(small(row)) / 8.0 - 1.0))
                    .collect::<Float64Array>(),
            ),
        ),
        ("price", numbers(DataType::Decimal128(10, 2))),
        (
            "name",
            Arc::new(rows().map(name).collect::<StringViewArray>()),
        ),
        (
            "bytes",
            Arc::new(
                rows()
                    .map(|row| name(row).map(str::as_bytes))
                    .collect::<BinaryViewArray>(),
            ),
        ),
        (
            "day",
            Arc::new(
                rows()
                    .map(|row| Some(20_500 + small(row)))
                    .collect::<Date32Array>(),
            ),
        ),
        (
            "clock",
            cast(&times, &DataType::Time64(TimeUnit::Microsecond)).unwrap(),
        ),
        ("at", Arc::clone(&times)),
        ("instant", cast(&times, &utc).unwrap()),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, name != "k")),
    )
    .unwrap()
}

/// Returns lists of arguments, in an order that mixes their numbers and types.
fn arguments() -> Vec<String> {
    let mut lists = vec![String::new()];
    lists.extend(COLUMNS.map(str::to_owned));
    let mut more = Vec::new();
    for (first, constant) in CONSTANTS.iter().enumerate() {
        let second = CONSTANTS[(first + 1) % CONSTANTS.len()];
        more.push((first, format!("name, {constant}, {constant}")));
        more.push((first, format!("{constant}, {second}, name")));
    }
    more.push((0, "int, int, 3".to_owned()));
    for (first, column) in COLUMNS.iter().enumerate() {
        for (second, constant) in CONSTANTS.iter().enumerate() {
            let order = (first * 7 + second * 11) % 97;
            more.push((order, format!("{column}, {constant}")));
            more.push((order + 1, format!("{constant}, {column}")));
            let third = CONSTANTS[(first + second) % CONSTANTS.len()];
            more.push((order + 2, format!("{column}, {constant}, {third}")));
        }
    }
    more.sort();
    lists.extend(more.into_iter().step_by(2).map(|(_, list)| list));
    lists
}

/// Returns calls that DataFusion alone can run. `call` makes a call of a list of arguments, and
/// `query` a statement of calls.
async fn calls_that_run(
    reference: &DataFusionReference,
    call: impl Fn(&str) -> String,
    query: impl Fn(&[String]) -> String,
) -> Vec<String> {
    let mut calls = Vec::new();
    let all = arguments();
    for list in &all {
        let call = call(list);
        let statement = query(std::slice::from_ref(&call));
        // Some of DataFusion's own functions panic.
        let answer = AssertUnwindSafe(reference.query(&statement));
        let Ok(Ok(batches)) = answer.catch_unwind().await else {
            continue;
        };
        let value = batches[0].schema().fields()[1].data_type().clone();
        if has_same_type_for_clients(&value) {
            calls.push(call);
            if calls.len() == CALLS {
                break;
            }
        }
    }
    calls
}

/// Returns whether clients get values of the type as they are, or as one of the types that the
/// comparison takes for the same.
fn has_same_type_for_clients(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => {
            !item.data_type().is_null() && has_same_type_for_clients(item.data_type())
        }
        DataType::Struct(_) | DataType::Map(_, _) | DataType::Union(_, _) => false,
        DataType::LargeList(_) | DataType::FixedSizeList(_, _) | DataType::Dictionary(_, _) => {
            false
        }
        _ => true,
    }
}

fn selected(calls: &[String]) -> String {
    format!("SELECT k, {} FROM typed ORDER BY k", named(calls))
}

fn grouped(calls: &[String]) -> String {
    format!(
        "SELECT k % 3 AS g, {} FROM typed GROUP BY 1 ORDER BY 1",
        named(calls)
    )
}

fn named(calls: &[String]) -> String {
    let calls = calls.iter().enumerate();
    calls
        .map(|(number, call)| format!("{call} AS c{number}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn names<'a>(listed: impl IntoIterator<Item = (&'a str, Volatility)>) -> Vec<String> {
    let mut names: Vec<_> = listed
        .into_iter()
        .filter(|(name, volatility)| {
            *volatility != Volatility::Volatile && !EXCLUDED.contains(name)
        })
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn functions_have_the_same_values_on_workers() {
    run(async {
        let table = TestTable::sharded("typed", "k", 8, table());
        let reference = DataFusionReference::new();
        reference.register("typed", table.batches.clone()).unwrap();
        let state = reference.context().state();
        let scalar = names(
            state
                .scalar_functions()
                .values()
                .map(|function| (function.name(), function.signature().volatility)),
        );
        let aggregates = names(
            state
                .aggregate_functions()
                .values()
                .map(|function| (function.name(), function.signature().volatility)),
        );
        let windows = names(
            state
                .window_functions()
                .values()
                .map(|function| (function.name(), function.signature().volatility)),
        );
        let (mut rows, mut groups) = (Vec::new(), Vec::new());
        let mut never_called = Vec::new();
        for name in &scalar {
            let calls =
                calls_that_run(&reference, |list| format!("{name}({list})"), selected).await;
            if calls.is_empty() {
                never_called.push(name.as_str());
            }
            rows.extend(calls);
        }
        for name in &aggregates {
            let order = if ORDERED.contains(&name.as_str()) {
                " ORDER BY k"
            } else {
                ""
            };
            let call = |list: &str| format!("{name}({list}{order})");
            groups.extend(calls_that_run(&reference, call, grouped).await);
        }
        for name in windows.iter().chain(aggregates.iter().step_by(3)) {
            let over = |list: &str| format!("{name}({list}) OVER (PARTITION BY k ORDER BY k)");
            rows.extend(calls_that_run(&reference, over, selected).await);
        }
        assert!(never_called.len() < 30, "never called: {never_called:?}");
        let mut clusters = TestClusters::start(DataFusionReference::new(), &[3])
            .await
            .unwrap();
        clusters.load(&table).await.unwrap();
        let mut differences = Vec::new();
        for (calls, statement) in [
            (rows, selected as fn(&[String]) -> String),
            (groups, grouped),
        ] {
            for some in calls.chunks(CALLS_PER_STATEMENT) {
                let sql = statement(some);
                let difference = clusters.difference(&sql, Comparison::Sequence).await;
                if difference.unwrap().is_none() {
                    continue;
                }
                for call in some.chunks(1) {
                    let sql = statement(call);
                    let difference = clusters.difference(&sql, Comparison::Sequence).await;
                    differences.extend(difference.unwrap());
                }
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n\n"));
        clusters.stop().await;
    });
}
