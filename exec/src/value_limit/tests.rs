use std::collections::BTreeSet;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::ScalarValue;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{col, lit};

use super::argument::bytes_of;
use super::*;

const LIMIT: ByteLimit = ByteLimit {
    bytes: 100_000,
    setting: "node.max_value",
};

fn state() -> SessionState {
    SessionStateBuilder::new().with_default_features().build()
}

fn context() -> SessionContext {
    context_with(LIMIT)
}

fn context_with(limit: ByteLimit) -> SessionContext {
    let mut state = state();
    let functions = bounded_functions(state.scalar_functions().values(), limit);
    let rule = Arc::new(BoundedFunctions::new(&functions));
    for function in functions {
        state.register_udf(function).unwrap();
    }
    let aggregates = bounded_aggregates(state.aggregate_functions().values(), limit);
    assert_eq!(aggregates.len(), 5);
    for function in aggregates {
        state.register_udaf(function).unwrap();
    }
    let state = SessionStateBuilder::new_from_existing(state).with_analyzer_rule(rule);
    SessionContext::new_with_state(state.build())
}

async fn run(context: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    context.sql(sql).await?.collect().await
}

#[test]
fn states_that_arrive_together_are_all_merged() {
    let mut state = state();
    for function in bounded_aggregates(state.aggregate_functions().values(), LIMIT) {
        state.register_udaf(function).unwrap();
    }
    let function = Arc::clone(&state.aggregate_functions()["quantile_cont"]);
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)]));
    let arguments = vec![col("x", &schema).unwrap(), lit(0.5)];
    let percentile = AggregateExprBuilder::new(function, arguments)
        .schema(schema)
        .alias("median")
        .build()
        .unwrap();
    let state_of = |value: f64| {
        let mut accumulator = percentile.create_accumulator().unwrap();
        let values: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        let halves: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
        accumulator.update_batch(&[values, halves]).unwrap();
        accumulator.state().unwrap().remove(0)
    };
    let states = ScalarValue::iter_to_array([10.0, 20.0, 60.0].map(state_of)).unwrap();
    let mut merged = percentile.create_accumulator().unwrap();
    merged.merge_batch(&[states]).unwrap();
    let median = merged.evaluate().unwrap();
    assert_eq!(median, ScalarValue::Float64(Some(20.0)));
}

#[tokio::test]
async fn what_collects_too_many_values_fails() {
    let context = context();
    for (aggregate, rows, is_made) in [
        ("length(string_agg(repeat('x', 1000), ','))", 40, true),
        ("length(string_agg(repeat('x', 1000), ','))", 200, false),
        (
            "length(string_agg(DISTINCT x::VARCHAR, ','))",
            100_000,
            false,
        ),
        ("cardinality(array_agg(x))", 2_000, true),
        ("cardinality(array_agg(x))", 50_000, false),
        ("cardinality(array_agg(x ORDER BY x DESC))", 50_000, false),
        (
            "cardinality(array_agg(x) FILTER (WHERE x < 5))",
            50_000,
            true,
        ),
        ("max(x)", 50_000, true),
        ("approx_percentile_cont(x, 0.5, 100)", 50_000, true),
        ("approx_percentile_cont(x, 0.5, 5000)", 50_000, false),
        (
            "approx_percentile_cont(x, 0.5, 9223372036854775807)",
            50_000,
            false,
        ),
        (
            "approx_percentile_cont_with_weight(x, x, 0.5, 9223372036854775807)",
            50_000,
            false,
        ),
    ] {
        let sql = format!("SELECT {aggregate} FROM generate_series(1, {rows}) t(x)");
        match (run(&context, &sql).await, is_made) {
            (Ok(_), true) => {}
            (Err(error), false) => {
                let said = error.find_root().to_string();
                assert!(said.contains("(…) would make a value of"), "{sql}: {said}");
            }
            (made, _) => panic!("{sql}: {made:?}"),
        }
    }
    // As a window function, the aggregate receives the same values, one by one or all at once.
    let window =
        "SELECT cardinality(array_agg(x) OVER (ORDER BY x)) FROM generate_series(1, 50000) t(x)";
    let error = run(&context, window).await.unwrap_err();
    assert!(
        error.find_root().to_string().contains("array_agg(…)"),
        "{error}"
    );
}

#[tokio::test]
async fn negative_lengths_pad_to_nothing() {
    let context = context();
    for padded in [
        "lpad('x', -x)",
        "rpad('é', -x, 'ab')",
        "lpad(x::VARCHAR, -x, x::VARCHAR)",
        "rpad('x', -1, x::VARCHAR)",
    ] {
        let sql = format!("SELECT sum(length({padded})) AS made FROM generate_series(1, 10) t(x)");
        let batches = run(&context, &sql).await.unwrap();
        let made = batches[0].column(0).as_primitive::<Int64Type>();
        assert_eq!(made.value(0), 0, "{padded}");
    }
}

#[tokio::test]
async fn what_would_be_too_large_is_not_made() {
    let (context, mut wrong) = (context(), Vec::new());
    for (sql, is_made) in [
        ("repeat('xy', 50000)", true),
        ("repeat('xy', 50001)", false),
        ("repeat('x', 9223372036854775807)", false),
        ("repeat(NULL, 1000000)", true),
        ("repeat('x', -5)", true),
        ("lpad('x', 100000)", true),
        ("lpad('x', 100001, 'ab')", false),
        ("lpad(CAST(NULL AS VARCHAR), 100001)", false),
        ("rpad('é', 50000, 'é')", false),
        ("replace(repeat('a', 1000), 'a', repeat('b', 1001))", false),
        ("replace(repeat('a', 50000), 'b', repeat('c', 1000))", true),
        (
            "regexp_replace(repeat('a', 1000), 'a', repeat('b', 1001), 'g')",
            false,
        ),
        (
            "regexp_replace(repeat('a', 1000), 'a', repeat('b', 1001))",
            true,
        ),
        ("repeat('a', 60000) || repeat('b', 60000)", false),
        ("repeat('a', 60000) || NULL", true),
        ("concat(repeat('a', 60000), 'x', repeat('b', 60000))", false),
        ("concat_ws(repeat('-', 50000), 'a', 'b', 'c', 'd')", false),
        ("like_escape(repeat('\\', 30000), '')", true),
        ("like_escape(repeat('\\', 60000), '')", false),
        ("similar_to_escape(repeat('%', 60000), '!')", false),
        ("to_char(1, repeat('9', 900))", true),
        ("to_char(DATE '2026-01-01', repeat('Day', 30000))", false),
        ("range(0, 12000)", true),
        ("range(0, 13000)", false),
        ("range(0, 2000000000)", false),
        ("range(2000000000, 0)", true),
        ("generate_series(5, -20000, -1)", false),
        (
            "generate_series(DATE '2000-01-01', DATE '2001-01-01', INTERVAL '1 day')",
            true,
        ),
        (
            "generate_series(DATE '0001-01-01', DATE '9999-01-01', INTERVAL '1 day')",
            false,
        ),
        (
            "generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2001-01-01', INTERVAL '1 second')",
            false,
        ),
        ("array_repeat(1, 12000)", true),
        ("array_repeat([1, 2, 3], 12000)", false),
        ("array_resize([1], 13000, 7)", false),
        ("array_concat(range(0, 7000), range(0, 7000))", false),
        ("range(0, 7000) || range(0, 7000)", false),
        ("array_to_string(range(0, 3000), repeat('-', 100))", false),
    ] {
        for query in [
            format!("SELECT {sql} AS made"),
            format!(
                "SELECT length(CAST({sql} AS VARCHAR)) AS made FROM (VALUES (1), (2)) AS t(k) WHERE k > 1"
            ),
        ] {
            let said = match run(&context, &query).await {
                Ok(_) => None,
                Err(error) => Some(error.to_string()),
            };
            let is_right = match &said {
                None => is_made,
                Some(text) => !is_made && text.contains("node.max_value allows"),
            };
            if !is_right {
                wrong.push((query, said));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn the_values_of_a_batch_are_bounded_together() {
    let context = context();
    let rows = |count| {
        format!(
            "SELECT max(length(repeat(v, 90000))) FROM (SELECT CAST(value % 3 AS VARCHAR) AS v FROM generate_series(1, {count}))"
        )
    };
    run(&context, &rows(4)).await.unwrap();
    let error = run(&context, &rows(5)).await.unwrap_err().to_string();
    assert!(error.contains("for 5 rows at once"), "{error}");
}

#[tokio::test]
async fn a_search_that_would_take_long_is_refused() {
    let context = context_with(ByteLimit {
        bytes: 1_000_000,
        ..LIMIT
    });
    let text = "repeat('0123456789', 20000 + x - x)";
    for (search, is_made) in [
        (format!(r"{text} ~ '\w+'"), true),
        (format!("{text} ~ '[13][0-9]{{100}}[a-z]'"), true),
        (format!("{text} ~ '[13][0-9]{{5000}}[a-z]'"), false),
        (format!("{text} !~* '[13][0-9]{{5000}}[a-z]'"), false),
        (format!("{text} SIMILAR TO '[13][0-9]{{5000}}[a-z]'"), false),
        (
            format!("regexp_like({text}, '[13][0-9]{{5000}}[a-z]')"),
            false,
        ),
        (
            format!("regexp_match({text}, '[13][0-9]{{5000}}[a-z]') IS NULL"),
            false,
        ),
        (format!("{text} LIKE '%1' || repeat('_', 100) || '7'"), true),
        (
            format!("{text} LIKE '%1' || repeat('_', 5000) || '7'"),
            false,
        ),
        (
            format!("{text} NOT ILIKE '%1' || repeat('_', 5000) || '7'"),
            false,
        ),
        (format!("regexp_count({text}, '[0-9]+') = 1"), true),
        (format!("regexp_count({text}, '.*[a-z]|[0-9]') > 0"), false),
        (
            format!("length(regexp_replace({text}, '.*[a-z]|[0-9]', 'x')) > 0"),
            true,
        ),
        // If the expression differs in each row, each one is compiled separately.
        ("'x' ~ ('\\w{' || (x + 9) || '}')".to_owned(), true),
        ("'x' ~ ('\\w{' || (x + 99000) || '}')".to_owned(), false),
    ] {
        let sql = format!("SELECT {search} AS made FROM generate_series(1, 3) t(x)");
        match (run(&context, &sql).await, is_made) {
            (Ok(_), true) => {}
            (Err(error), false) => {
                let said = error.to_string();
                let is_told = said.contains("steps for one value") || said.contains("size limit");
                assert!(is_told, "{sql}: {said}");
            }
            (made, _) => panic!("{sql}: {made:?}"),
        }
    }
}

#[tokio::test]
async fn a_search_finds_the_same_with_and_without_a_limit() {
    let (bounded, plain) = (context(), SessionContext::new_with_state(state()));
    let texts = "(VALUES ('apple', 'a_p%'), ('BANANA', '.*an.*'), ('', ''), (NULL, 'x'), ('100%', NULL), ('Äpfel', 'ä.f')) AS t(v, p)";
    let patterns = ["p", "'a_p%'", "'%a%'", "'^a'", "'[a-p]+l'", "'^(apple|ba)'"];
    let operators = [
        "~",
        "~*",
        "!~",
        "!~*",
        "LIKE",
        "NOT LIKE",
        "ILIKE",
        "NOT ILIKE",
        "SIMILAR TO",
        "NOT SIMILAR TO",
    ];
    for pattern in patterns {
        for operator in operators {
            let sql = format!("SELECT v {operator} {pattern} AS found FROM {texts}");
            let found = run(&bounded, &sql).await.unwrap();
            assert_eq!(found, run(&plain, &sql).await.unwrap(), "{sql}");
        }
        let sql = format!("SELECT regexp_like(v, {pattern}) AS found FROM {texts}");
        let found = run(&bounded, &sql).await.unwrap();
        assert_eq!(found, run(&plain, &sql).await.unwrap(), "{sql}");
    }
}

#[tokio::test]
async fn a_short_pattern_stays_an_operator() {
    let context = context();
    for (search, is_operator) in [
        ("v LIKE 'a%'", true),
        ("v ~ '^abc'", true),
        ("regexp_like(v, '^abc')", true),
        ("v LIKE '%a_b'", false),
        ("v ~ '[ab]c'", false),
    ] {
        let sql = format!("SELECT 1 FROM (VALUES ('x'), ('y')) AS t(v) WHERE {search}");
        let plan = context.sql(&sql).await.unwrap();
        let plan = plan.into_optimized_plan().unwrap().to_string();
        let is_call = plan.contains("_match(") || plan.contains("regexp_like(");
        assert_eq!(!is_call, is_operator, "{plan}");
    }
}

/// Arguments for the calls of all functions. They are small themselves, but some functions make
/// large values from the numbers.
const ARGUMENTS: [&str; 22] = [
    "'x'",
    "'xyz', 40000",
    "'xyz', 40000, 'ab'",
    "40000",
    "0, 40000",
    "0, 40000, 1",
    "'x', 40000",
    "40000, 'x'",
    "[1, 2], 40000",
    "[1, 2], 40000, 7",
    "40000, [1, 2]",
    "1, 40000",
    "'aaaaaaaaaa', 'a', 'bbbbbbbbbb'",
    "'aaaaaaaaaa', 'a', 'bbbbbbbbbb', 'g'",
    "['a', 'b'], '-'",
    "'a-b-c', '-'",
    "'hex', 'hex'",
    "[1, 2, 3]",
    "[1, 2, 3], [4, 5, 6]",
    "DATE '2000-01-01', DATE '2200-01-01', INTERVAL '1 day'",
    "CAST(40000 AS DOUBLE)",
    "1.5, 40000",
];

/// The most bytes that a function without a limit may return for one of these lists of arguments.
const SMALL_BYTES: u64 = 4_096;

#[tokio::test]
async fn every_function_that_makes_large_values_of_small_ones_has_a_limit() {
    let plain = SessionContext::new_with_state(state());
    let functions = bounded_functions(state().scalar_functions().values(), LIMIT);
    let limited: BTreeSet<_> = functions.iter().map(|function| function.name()).collect();
    let (mut grown, mut called) = (BTreeSet::new(), 0);
    for function in plain.state().scalar_functions().values() {
        for arguments in ARGUMENTS {
            let sql = format!("SELECT {}({arguments})", function.name());
            let Ok(made) = run(&plain, &sql).await else {
                continue;
            };
            called += 1;
            let made = made.iter().flat_map(RecordBatch::columns);
            if made.map(|column| bytes_of(column)).sum::<u64>() > SMALL_BYTES {
                grown.insert(function.name().to_owned());
            }
        }
    }
    assert!(called > 300, "only {called} calls were answered");
    let unlimited: Vec<_> = grown
        .iter()
        .filter(|name| !limited.contains(name.as_str()))
        .collect();
    assert!(unlimited.is_empty(), "without a limit: {unlimited:?}");
    for known in ["repeat", "lpad", "range", "array_repeat"] {
        assert!(grown.contains(known), "{known} was not tried");
    }
}
