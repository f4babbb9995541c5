use arrow_flight::FlightData;
use futures::stream::{self, Stream};
use tokio::sync::mpsc;
use tonic::Status;
use volary_flight_proto::{Error, Result};

/// An answer to a client that streams batches, or the end of the stream.
pub(super) enum Answer<M> {
    /// A message.
    Message(M),
    /// The last one. Without it, answers are missing.
    End(Result<(), Status>),
}

/// Creates the sender of a stream's answers, and the messages for the client. Up to `unread`
/// answers wait for the client to read them. `broken_off` is the error for a stream that breaks off
/// before its end.
pub(super) fn channel<M: Into<FlightData> + Send + 'static>(
    unread: usize,
    broken_off: &'static str,
) -> (
    mpsc::Sender<Answer<M>>,
    impl Stream<Item = Result<FlightData, Status>> + Send + use<M>,
) {
    let (sender, receiver) = mpsc::channel::<Answer<M>>(unread);
    let messages = stream::unfold(Some(receiver), move |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Answer::Message(message)) => Some((Ok(message.into()), Some(receiver))),
            Some(Answer::End(Ok(()))) => None,
            Some(Answer::End(Err(status))) => Some((Err(status), None)),
            None => Some((Err(Error::unavailable(broken_off).into()), None)),
        }
    });
    (sender, messages)
}
