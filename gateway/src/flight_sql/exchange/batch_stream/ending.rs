use tokio_util::sync::CancellationToken;
use volary_flight_proto::{Error, SqlState};

use crate::engine::ingest_stream::IngestStream;
use crate::statements::ListedStatement;

/// How a stream ends if its client does not end it.
pub(super) enum Ending {
    /// Nothing more is read. What was read is committed.
    AfterWhatWasRead(Error),
    /// What has not begun to commit is given up.
    AtOnce(Error),
}

/// Completes when something other than the client ends the stream.
pub(super) fn ending(
    stream: &IngestStream,
    listed: &ListedStatement,
    stopping: CancellationToken,
) -> impl Future<Output = Ending> + Send + use<> {
    let (ended, taken_over) = (listed.wait_for_end(), stream.wait_for_takeover());
    async move {
        tokio::select! {
            error = ended => Ending::AtOnce(error),
            error = taken_over => Ending::AtOnce(error),
            () = stopping.cancelled() => Ending::AfterWhatWasRead(
                Error::unavailable(
                    "the gateway is shutting down; connect again, and send the batches that were not acknowledged",
                )
                .with_sqlstate(SqlState::AdminShutdown),
            ),
        }
    }
}
