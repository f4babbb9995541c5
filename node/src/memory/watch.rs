//! Operators and functions are refused more memory when the process has reached its limit
//! ([`ProcessMemory`]). Nothing refuses other allocations. If memory still grows, running queries
//! are ended, the largest first.

use std::time::Duration;

use volary_flight_proto::ids::QueryId;

use super::process::{Excess, ProcessMemory};

/// Time between two checks of the process's memory.
const INTERVAL: Duration = Duration::from_millis(100);
/// Pause after an attempt to end a query. The memory of an ended query is not freed at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Percentage of the allowed memory above which a query is ended.
const PERCENT: usize = 110;
/// The fewest bytes that a query must hold to be worth ending. If all hold less, something else has
/// the memory.
pub const MIN_ENDED_BYTES: usize = 1 << 20;

/// Ends the largest running query as long as the process has far more memory than it may. Never
/// returns. `end_largest` ends one query for the given reason. It returns the id of the query and
/// the bytes that it held, or `None` if all queries hold less than [`MIN_ENDED_BYTES`].
pub async fn end_largest_when_full(
    mut end_largest: impl FnMut(&str) -> Option<(QueryId, usize)> + Send,
) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(excess) = ProcessMemory::this().excess().filter(is_far_above_limit) else {
            continue;
        };
        if let Some((id, held)) = end_largest(&format!(
            "it was ended because it used the most memory: {excess}"
        )) {
            tracing::warn!(query_id = %id, held_bytes = held, %excess, "memory ran out, so the query that used the most was ended");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_far_above_limit(excess: &Excess) -> bool {
    excess.used / PERCENT > excess.allowed / 100
}
