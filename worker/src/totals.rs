use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use arrow_flight::FlightData;
use futures::{Stream, StreamExt};
use prost::Message;
use tonic::Status;
use volary_flight_proto::frame::{Frame, frame};
use volary_flight_proto::{Error, ErrorCode};
use volary_node::metrics::{Counter, Histogram, OutcomeCounts, RowCounts, duration_histogram};

/// A kind of fragment. Each kind has places of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentKind {
    /// Reads the worker's own shards for a gateway or for a relay.
    Shards,
    /// Merges the rows of other workers.
    Relay,
    /// Reads the worker's own shards for a client.
    Client,
}

impl FragmentKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 3] = [Self::Shards, Self::Relay, Self::Client];

    /// Returns the name of the kind in the label `kind`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shards => "shards",
            Self::Relay => "relay",
            Self::Client => "client",
        }
    }
}

/// Totals over everything that the worker did since its start, for its metrics.
#[derive(Debug)]
pub struct WorkerTotals {
    outcomes: [OutcomeCounts; FragmentKind::ALL.len()],
    /// Time from the arrival of a ticket to the end of its fragment.
    pub(crate) durations: Histogram,
    /// Rows that fragments have sent.
    pub(crate) sent: RowCounts,
    /// Rows that arrived to be stored.
    pub(crate) received: RowCounts,
    /// Bytes that the scrub has compared with their checksums.
    pub(crate) scrubbed_bytes: Counter,
    /// Size of the rows that went to the log, in bytes.
    pub(crate) logged_bytes: Counter,
    /// Size of the segments that were made of rows in the log, in bytes.
    pub(crate) flushed_bytes: Counter,
    /// Size of the segments that writes made, in bytes.
    pub(crate) written_bytes: Counter,
    /// Number of merges of segments.
    pub(crate) merges: Counter,
    /// Size of the segments that were merged, in bytes.
    pub(crate) merged_bytes: Counter,
    /// Size of the segments that merges made, in bytes.
    pub(crate) compacted_bytes: Counter,
    /// Number of rows that have expired and were deleted.
    pub(crate) expired_rows: Counter,
}

impl Default for WorkerTotals {
    fn default() -> Self {
        Self {
            outcomes: Default::default(),
            durations: duration_histogram(),
            sent: RowCounts::default(),
            received: RowCounts::default(),
            scrubbed_bytes: Counter::default(),
            logged_bytes: Counter::default(),
            flushed_bytes: Counter::default(),
            written_bytes: Counter::default(),
            merges: Counter::default(),
            merged_bytes: Counter::default(),
            compacted_bytes: Counter::default(),
            expired_rows: Counter::default(),
        }
    }
}

impl WorkerTotals {
    /// Returns how many fragments of this kind ended, by outcome.
    pub(crate) fn outcomes(&self, kind: FragmentKind) -> &OutcomeCounts {
        &self.outcomes[kind as usize]
    }
}

/// The messages of a fragment. The fragment is counted when they end or are dropped.
pub(crate) struct CountedMessages<S> {
    messages: S,
    kind: FragmentKind,
    totals: Arc<WorkerTotals>,
    arrived: Instant,
    is_counted: bool,
}

impl<S> CountedMessages<S> {
    /// Counts the fragment of these messages, whose ticket arrives now.
    pub(crate) fn new(messages: S, kind: FragmentKind, totals: &Arc<WorkerTotals>) -> Self {
        Self {
            messages,
            kind,
            totals: Arc::clone(totals),
            arrived: Instant::now(),
            is_counted: false,
        }
    }

    fn note_end(&mut self, error: Option<ErrorCode>) {
        if std::mem::replace(&mut self.is_counted, true) {
            return;
        }
        self.totals.outcomes(self.kind).add(error);
        let taken = self.arrived.elapsed();
        self.totals.durations.observe(taken.as_secs_f64());
    }
}

impl<S> Drop for CountedMessages<S> {
    fn drop(&mut self) {
        self.note_end(Some(ErrorCode::Cancelled));
    }
}

impl<S> Stream for CountedMessages<S>
where
    S: Stream<Item = Result<FlightData, Status>> + Unpin,
{
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.messages.poll_next_unpin(cx));
        match &next {
            None => self.note_end(None),
            Some(Ok(message)) => {
                self.totals.sent.add_message(message);
                // A reader need not read further than the end frame.
                if is_end(message) {
                    self.note_end(None);
                }
            }
            Some(Err(status)) => self.note_end(Some(Error::from(status.clone()).code())),
        }
        Poll::Ready(next)
    }
}

fn is_end(message: &FlightData) -> bool {
    // The end frame comes without rows.
    message.data_header.is_empty()
        && !message.app_metadata.is_empty()
        && Frame::decode(message.app_metadata.clone())
            .is_ok_and(|frame| matches!(frame.kind, Some(frame::Kind::End(_))))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use volary_flight_proto::frame::EndOfStream;

    use super::*;

    fn counted(totals: &WorkerTotals) -> Vec<(String, u64)> {
        let all = totals.outcomes(FragmentKind::Shards).all();
        all.filter(|(_, count)| *count > 0).collect()
    }

    #[tokio::test]
    async fn a_fragment_is_counted_once_by_how_it_ends() {
        let totals = Arc::new(WorkerTotals::default());
        let message = || {
            Ok(FlightData {
                data_body: vec![0; 7].into(),
                ..FlightData::default()
            })
        };
        let end = || {
            Ok(FlightData {
                app_metadata: Frame::end(EndOfStream::default()).to_bytes(),
                ..FlightData::default()
            })
        };
        let failure = || Err(Status::from(Error::new(ErrorCode::DataLoss, "damaged")));
        // A reader may read up to the end of the stream, or only up to the end frame.
        let ends = [
            (vec![message(), message()], 3),
            (vec![message(), end()], 2),
            (vec![message(), failure()], 3),
            (vec![message()], 0),
        ];
        for (messages, reads) in ends {
            let messages = stream::iter(messages);
            let mut messages = CountedMessages::new(messages, FragmentKind::Shards, &totals);
            for _ in 0..reads {
                drop(messages.next().await);
            }
        }
        let counts = |name: &str, count| (name.to_owned(), count);
        assert_eq!(
            counted(&totals),
            [
                counts("ok", 2),
                counts("cancelled", 1),
                counts("data_loss", 1)
            ]
        );
        assert_eq!(totals.sent.bytes(), 28);
    }
}
