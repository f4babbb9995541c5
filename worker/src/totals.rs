use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use arrow_flight::FlightData;
use futures::{Stream, StreamExt};
use tonic::Status;
use volary_flight_proto::{Error, ErrorCode};
use volary_node::metrics::{Histogram, OutcomeCounts, duration_histogram};

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
    sent_rows: AtomicU64,
    sent_bytes: AtomicU64,
    received_rows: AtomicU64,
    received_bytes: AtomicU64,
    scrubbed_bytes: AtomicU64,
}

impl Default for WorkerTotals {
    fn default() -> Self {
        Self {
            outcomes: Default::default(),
            durations: duration_histogram(),
            sent_rows: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_rows: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            scrubbed_bytes: AtomicU64::new(0),
        }
    }
}

impl WorkerTotals {
    /// Counts rows that fragments have sent.
    pub(crate) fn add_sent_rows(&self, rows: usize) {
        self.sent_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts rows that arrived to be stored.
    pub(crate) fn add_received_rows(&self, rows: usize) {
        self.received_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts bytes of rows that arrived to be stored.
    pub(crate) fn add_received_bytes(&self, bytes: usize) {
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the scrub has compared with their checksums.
    pub(crate) fn add_scrubbed_bytes(&self, bytes: usize) {
        self.scrubbed_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns how many fragments of this kind ended, by outcome.
    pub(crate) fn outcomes(&self, kind: FragmentKind) -> &OutcomeCounts {
        &self.outcomes[kind as usize]
    }

    /// Returns the numbers of rows and bytes that fragments have sent.
    pub(crate) fn sent(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.sent_rows), load(&self.sent_bytes))
    }

    /// Returns the numbers of rows and bytes that arrived to be stored.
    pub(crate) fn received(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.received_rows), load(&self.received_bytes))
    }

    /// Returns the number of bytes that the scrub has compared.
    pub(crate) fn scrubbed_bytes(&self) -> u64 {
        self.scrubbed_bytes.load(Ordering::Relaxed)
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
                let bytes = message.data_header.len() + message.data_body.len();
                let sent_bytes = &self.totals.sent_bytes;
                sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Some(Err(status)) => self.note_end(Some(Error::from(status.clone()).code())),
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

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
        let failure = || Err(Status::from(Error::new(ErrorCode::DataLoss, "damaged")));
        let ends = [
            (vec![message(), message()], true),
            (vec![message(), failure()], true),
            (vec![message()], false),
        ];
        for (messages, is_read) in ends {
            let messages = stream::iter(messages);
            let mut messages = CountedMessages::new(messages, FragmentKind::Shards, &totals);
            while is_read && messages.next().await.is_some() {}
        }
        let one = |name: &str| (name.to_owned(), 1);
        assert_eq!(
            counted(&totals),
            [one("ok"), one("cancelled"), one("data_loss")]
        );
        assert_eq!(totals.sent(), (0, 21));
    }
}
