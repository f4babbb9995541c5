//! The log is a place for rows to wait: segments are smaller, and are read faster. But each flush
//! makes a segment for each shard, so rows wait until there are many.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use volary_flight_proto::Result;

use crate::write::{WriteContext, flush};

/// Pause after a flush that has not emptied the log, for example because its rows are not committed
/// yet.
const PAUSE: Duration = Duration::from_secs(1);
/// Share of the log at which a flush ends.
const EMPTY_SHARE: f64 = 0.25;
/// Longest time that committed rows wait in the log.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Makes segments of the rows in the log until `stopping` is cancelled.
pub(crate) async fn flush_log(context: WriteContext, stopping: CancellationToken) {
    let flushing = async {
        let mut last_flush = Instant::now();
        loop {
            // Thousands of workers may run on one machine, so an idle one does not look at its log.
            let rest = LONGEST_WAIT.saturating_sub(last_flush.elapsed());
            let filled = timeout(rest, context.storage.log_filled()).await;
            let is_due = filled.is_err();
            if is_due {
                last_flush = Instant::now();
                // Otherwise the writes of few rows would be remembered until the file is full.
                context.storage.close_log_file();
            }
            let goal = match filled {
                Ok(false) => EMPTY_SHARE,
                Ok(true) | Err(_) => 0.0,
            };
            if let Err(error) = flush_tables(&context, goal).await {
                tracing::warn!(%error, "rows of the log cannot be written into segments; they stay in the log, and the worker tries again");
            }
            if filled == Ok(true) {
                context.storage.release_full_log();
            }
            if !is_due {
                sleep(PAUSE).await;
            }
        }
    };
    let _: Option<()> = stopping.run_until_cancelled(flushing).await;
}

/// Makes segments of committed rows, until the log is filled up to this share only.
async fn flush_tables(context: &WriteContext, goal: f64) -> Result<()> {
    for table in context.storage.unflushed_tables() {
        if context.storage.log_share() <= goal {
            return Ok(());
        }
        flush(context, table, &context.storage.committed()).await?;
    }
    Ok(())
}
