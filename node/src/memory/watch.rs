//! The largest of what runs ends before the process does.
//!
//! Operators and functions are refused more memory when the process has all that it may ([`ProcessMemory`]).
//! What else takes memory, nobody refuses: if that goes on growing, what runs is ended, the largest first.

use std::time::Duration;

use volary_flight_proto::ids::QueryId;

use super::process::{Excess, ProcessMemory};

/// How often it is looked at what the process has.
const INTERVAL: Duration = Duration::from_millis(100);
/// What was held is not given back at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Something is ended when the process has so many hundredths of what it may have.
const PERCENT: usize = 110;
/// What holds less is not worth ending: something else has the memory.
pub const LEAST_ENDED_BYTES: usize = 1 << 20;

/// Ends the largest of what runs as long as the process has far more memory than it may; never returns.
/// `end_largest` ends one, for the reason that it is given, and returns which that was and the bytes that it
/// held, or `None` if all hold less than [`LEAST_ENDED_BYTES`].
pub async fn end_largest_when_full(
    mut end_largest: impl FnMut(&str) -> Option<(QueryId, usize)> + Send,
) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(excess) = ProcessMemory::this().excess().filter(is_far) else {
            continue;
        };
        if let Some((id, held)) = end_largest(&format!("it was the largest: {excess}")) {
            tracing::warn!(query_id = %id, held_bytes = held, %excess, "the largest was ended for want of memory");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_far(excess: &Excess) -> bool {
    excess.used / PERCENT > excess.allowed / 100
}
