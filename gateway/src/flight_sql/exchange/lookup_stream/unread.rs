use std::time::Duration;

use tokio::time::{Instant, sleep};
use volary_flight_proto::{Error, ErrorCode};

use crate::engine::StatementQueue;

/// Longest time between two looks at how long the client may read nothing, which depends on whether
/// other statements wait.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Completes when the client has read nothing for as long as a reader of a query's rows may, and
/// returns this time. `read_at` is the last time at which it has read.
pub(super) async fn wait_until_unread(read_at: Instant, queue: &StatementQueue) -> Duration {
    loop {
        let timeout = queue.reader_timeout();
        let waited = read_at.elapsed();
        if waited >= timeout {
            return timeout;
        }
        sleep(CHECK_INTERVAL.min(timeout - waited)).await;
    }
}

/// Returns the error of a stream whose client has read nothing for this time.
pub(super) fn unread_error(time: Duration) -> Error {
    Error::new(
        ErrorCode::DeadlineExceeded,
        format!(
            "the client has read no answer for {time:?}, and no more answers may wait for it; read answers while you send batches (if other statements wait for a place, the limit is gateway.query.unread_timeout)"
        ),
    )
}
