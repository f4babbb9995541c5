use datafusion::sql::sqlparser::ast::ShowStatementFilter;
use volary_flight_proto::{Error, Result};

/// Examples of calls of functions that DataFusion does not document. Functions that are neither
/// documented nor listed here have no arguments.
const CALLS: [(&str, &str); 15] = [
    ("generate_series", "generate_series(start, stop[, step])"),
    ("ilike_match", "ilike_match(text, pattern)"),
    ("like_match", "like_match(text, pattern)"),
    ("range", "range(start, stop[, step])"),
    ("regex_imatch", "regex_imatch(text, regex)"),
    ("regex_match", "regex_match(text, regex)"),
    ("single_row", "single_row(list)"),
    ("string_concat", "string_concat(text, text)"),
    ("timestampdiff", "timestampdiff(unit, begin, end)"),
    (
        "to_timestamp_in_zone",
        "to_timestamp_in_zone(zone, value[, format, …])",
    ),
    (
        "to_timestamp_micros_in_zone",
        "to_timestamp_micros_in_zone(zone, value[, format, …])",
    ),
    (
        "to_timestamp_millis_in_zone",
        "to_timestamp_millis_in_zone(zone, value[, format, …])",
    ),
    (
        "to_timestamp_nanos_in_zone",
        "to_timestamp_nanos_in_zone(zone, value[, format, …])",
    ),
    (
        "to_timestamp_seconds_in_zone",
        "to_timestamp_seconds_in_zone(zone, value[, format, …])",
    ),
    ("union_tag", "union_tag(union)"),
];

/// Returns the query that answers SHOW FUNCTIONS: a row for each function, with its kind and an
/// example of a call. DataFusion's own answer lists only functions that take certain types.
///
/// # Errors
/// `INVALID_ARGUMENT` for a filter other than LIKE and ILIKE.
pub(super) fn query(filter: Option<&ShowStatementFilter>) -> Result<String> {
    let filter = match filter {
        None => String::new(),
        Some(ShowStatementFilter::Like(pattern)) => condition("LIKE", pattern),
        Some(ShowStatementFilter::ILike(pattern)) => condition("ILIKE", pattern),
        Some(_) => {
            return Err(Error::unsupported(
                "SHOW FUNCTIONS takes only LIKE 'pattern'; query information_schema.routines for other filters",
            ));
        }
    };
    let calls = CALLS.map(|(name, call)| format!("WHEN '{name}' THEN '{call}'"));
    let call = format!(
        "CASE routine_name {} ELSE routine_name || '()' END",
        calls.join(" ")
    );
    Ok(format!(
        "SELECT routine_name AS function_name, function_type, \
         max(coalesce(syntax_example, {call})) AS syntax_example, \
         max(description) AS description \
         FROM information_schema.routines{filter} \
         GROUP BY routine_name, function_type ORDER BY routine_name, function_type"
    ))
}

fn condition(operator: &str, pattern: &str) -> String {
    let pattern = pattern.replace('\'', "''");
    format!(" WHERE routine_name {operator} '{pattern}'")
}
