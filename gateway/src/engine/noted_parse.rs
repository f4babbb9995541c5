use std::time::{Duration, Instant};

use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;

use super::Engine;
use crate::sql::parse::{Statement, parse};

/// Parses a statement, and notes how long that took. Also returns the time, because a query may be
/// run in another call than the one that has planned it.
///
/// # Errors
/// `INVALID_ARGUMENT` if the text is not a statement.
pub(super) fn parse_noted(
    engine: &Engine,
    query_id: QueryId,
    sql: &str,
) -> Result<(Statement, Duration)> {
    let started = Instant::now();
    let statement = tracing::debug_span!("parse").in_scope(|| parse(sql))?;
    let parsing_time = started.elapsed();
    engine
        .statements
        .progress(query_id)
        .set_parsed(parsing_time);
    Ok((statement, parsing_time))
}
