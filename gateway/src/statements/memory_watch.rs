//! The largest statement ends before the process does.
//!
//! Operators and functions are refused more memory when the process has all that it may ([`ProcessMemory`]). What else
//! takes memory, nobody refuses: if that goes on growing, statements are ended, the largest first.

use std::sync::Arc;
use std::time::Duration;

use volary_node::memory::{Excess, ProcessMemory};

use super::Statements;

/// How often it is looked at what the process has.
const INTERVAL: Duration = Duration::from_millis(100);
/// What a statement held is not given back at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Statements are ended when the process has so many hundredths of what it may have.
const PERCENT: usize = 110;

/// Ends the largest statement as long as the process has far more memory than it may. To be dropped when the gateway stops.
pub(crate) async fn end_largest_statements(statements: Arc<Statements>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(excess) = ProcessMemory::this().excess().filter(is_far) else {
            continue;
        };
        if let Some((id, held)) = statements.end_largest(&format!("it was the largest: {excess}")) {
            tracing::warn!(query_id = %id, held_bytes = held, %excess, "the largest statement was ended for want of memory");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_far(excess: &Excess) -> bool {
    excess.used / PERCENT > excess.allowed / 100
}
