//! Operators and functions are refused more memory when the process has reached its limit
//! ([`ProcessMemory`]). Nothing refuses other allocations. If memory still grows, running queries
//! are ended, the largest first.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
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

static THIS_PROCESS: LazyLock<Watch> =
    LazyLock::new(|| Watch::new(Arc::clone(ProcessMemory::this())));

/// Ends the largest running query as long as the process has far more memory than it may. Never
/// returns. `end_largest` ends one query for the given reason. It returns the id of the query and
/// the bytes that it held, or `None` if all queries hold less than [`MIN_ENDED_BYTES`].
pub async fn end_largest_when_full(
    mut end_largest: impl FnMut(&str) -> Option<(QueryId, usize)> + Send,
) {
    loop {
        let excess = THIS_PROCESS.until_full().await;
        if let Some((id, held)) = end_largest(&format!(
            "it was ended because it used the most memory: {excess}"
        )) {
            tracing::warn!(query_id = %id, held_bytes = held, %excess, "memory ran out, so the query that used the most was ended");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches the memory of a process for all its nodes. A process may have thousands of them, and
/// only one at a time wakes up to check the memory.
struct Watch {
    memory: Arc<ProcessMemory>,
    /// The node that holds this lock checks the memory.
    turn: Mutex<()>,
    /// Wakes the other nodes.
    is_full: Notify,
}

impl Watch {
    fn new(memory: Arc<ProcessMemory>) -> Self {
        Self {
            memory,
            turn: Mutex::default(),
            is_full: Notify::default(),
        }
    }

    /// Waits until the process has far more memory than it may.
    async fn until_full(&self) -> Excess {
        loop {
            let check = async {
                let _turn = self.turn.lock().await;
                while self.far_excess().is_none() {
                    tokio::time::sleep(INTERVAL).await;
                }
                self.is_full.notify_waiters();
            };
            tokio::select! {
                () = self.is_full.notified() => {}
                () = check => {}
            }
            if let Some(excess) = self.far_excess() {
                return excess;
            }
        }
    }

    fn far_excess(&self) -> Option<Excess> {
        self.memory.excess().filter(is_far_above_limit)
    }
}

fn is_far_above_limit(excess: &Excess) -> bool {
    excess.used / PERCENT > excess.allowed / 100
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::process;
    use super::*;

    #[tokio::test]
    async fn all_nodes_learn_that_memory_is_full_whichever_of_them_checks_it() {
        let (memory, set_used) = process();
        let _node = memory.add_node(1 << 30);
        let watch = Arc::new(Watch::new(memory));
        let start = || {
            let watch = Arc::clone(&watch);
            tokio::spawn(async move { watch.until_full().await })
        };
        let first = start();
        while watch.turn.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        let others = [start(), start()];
        tokio::task::yield_now().await;
        // The node that checks goes away.
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        set_used(2 << 30);
        for node in others {
            assert_eq!(node.await.unwrap().used, 2 << 30);
        }
    }
}
