use arrow_flight::FlightData;
use futures::stream::{self, Stream};
use tokio::sync::mpsc;
use tonic::Status;
use volary_flight_proto::{Error, Result};

use super::answers::AnswerMessage;

/// Number of messages that are ready for the network. The others wait in the stream, where they can
/// be given up.
const MAX_UNREAD: usize = 4;

/// A message for the client, or the end of the stream.
pub(super) enum Answer {
    /// A message.
    Message(AnswerMessage),
    /// The last one. Without it, answers are missing.
    End(Result<(), Status>),
}

/// Creates the sender of a stream's messages, and the messages for the client.
pub(super) fn channel() -> (
    mpsc::Sender<Answer>,
    impl Stream<Item = Result<FlightData, Status>> + Send + use<>,
) {
    let (sender, receiver) = mpsc::channel(MAX_UNREAD);
    (sender, stream::unfold(Some(receiver), next_message))
}

/// Returns the next message as the client is sent it. Returns `None` at the end.
async fn next_message(
    receiver: Option<mpsc::Receiver<Answer>>,
) -> Option<(Result<FlightData, Status>, Option<mpsc::Receiver<Answer>>)> {
    let mut receiver = receiver?;
    match receiver.recv().await {
        Some(Answer::Message(answer)) => Some((Ok(answer.message), Some(receiver))),
        Some(Answer::End(Ok(()))) => None,
        Some(Answer::End(Err(status))) => Some((Err(status), None)),
        None => {
            let error = Error::unavailable(
                "the stream of lookups was broken off; connect again, and send the batches that were not answered",
            );
            Some((Err(error.into()), None))
        }
    }
}
