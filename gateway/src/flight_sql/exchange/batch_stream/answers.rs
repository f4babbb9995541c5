use std::time::Duration;

use arrow_flight::FlightData;
use futures::stream::Stream;
use tokio::sync::mpsc;
use tonic::Status;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::flight_sql::exchange::answer_channel::{Answer, channel};
use crate::flight_sql::exchange::batch_notes::{Acknowledgement, Outcome, RefusalNote, message};

/// Number of answers that may wait for the client to read them. The gateway reads no batch
/// meanwhile.
const MAX_UNREAD: usize = 256;
/// The error for a stream that breaks off.
const BROKEN_OFF: &str = "the stream of batches was broken off; connect again, and send the batches that were not acknowledged";

/// Sends the answers of a stream to its client.
#[derive(Clone)]
pub(super) struct Answers {
    sender: mpsc::Sender<Answer<FlightData>>,
    window: usize,
    patience: Duration,
}

impl Answers {
    /// Creates the sender, and the messages for the client. Each answer names the stream's
    /// `window`. A client that reads nothing for longer than `patience` is taken for gone.
    pub(super) fn channel(
        window: usize,
        patience: Duration,
    ) -> (
        Self,
        impl Stream<Item = Result<FlightData, Status>> + Send + use<>,
    ) {
        let (sender, messages) = channel(MAX_UNREAD, BROKEN_OFF);
        let answers = Self {
            sender,
            window,
            patience,
        };
        (answers, messages)
    }

    /// Waits until the client has gone away.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Answers a batch whose rows are committed.
    ///
    /// # Errors
    /// `CANCELLED` if the client has gone away.
    pub(super) async fn acknowledge(
        &self,
        sequence: u64,
        rows: u64,
        outcome: Outcome,
    ) -> Result<()> {
        self.send(Acknowledgement {
            sequence,
            rows: Some(rows),
            outcome,
            error: None,
            window: self.window,
        })
        .await
    }

    /// Answers a batch of which nothing was written.
    ///
    /// # Errors
    /// `CANCELLED` if the client has gone away.
    pub(super) async fn refuse(&self, sequence: u64, error: &Error) -> Result<()> {
        self.send(Acknowledgement {
            sequence,
            rows: None,
            outcome: Outcome::Refused,
            error: Some(RefusalNote::new(error)),
            window: self.window,
        })
        .await
    }

    async fn send(&self, note: Acknowledgement) -> Result<()> {
        let note = Answer::Message(message(&note));
        let sending = self.sender.send_timeout(note, self.patience);
        sending.await.map_err(|_| {
            Error::new(
                ErrorCode::Cancelled,
                "the client went away, or it has read no answer for too long (gateway.ingest.stream_idle_timeout)",
            )
        })
    }

    /// Ends the stream.
    pub(super) async fn end(self, end: Result<(), Status>) {
        // The client may have gone away, or it reads nothing more.
        let _ = self
            .sender
            .send_timeout(Answer::End(end), self.patience)
            .await;
    }
}
