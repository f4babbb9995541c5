use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::fair_reads::ReadsInARow;
use crate::limited_reads::{LimitedReads, ReadLimit};
use crate::unidentified_calls::{MAX_UNREAD_BYTES, UnidentifiedCalls};

/// A connection that is read only as far as [`UnidentifiedCalls`] allows.
///
/// While the connection is not read, answers to our pings do not arrive either. This pause is
/// shorter than the time limit of a ping: the checks of passwords and the introductions that a
/// connection waits for end within 15 seconds.
pub(crate) type UnidentifiedConnection<S> = LimitedReads<S, UnidentifiedReads>;

/// Limits the reads of a connection by the calls that are made on it.
#[derive(Debug)]
pub(crate) struct UnidentifiedReads {
    calls: Arc<UnidentifiedCalls>,
    /// Makes pauses. h2 reports calls to hyper only after it has read all available bytes. Without
    /// a pause, all those bytes would be in memory before the calls are known.
    in_a_row: ReadsInARow,
}

impl UnidentifiedReads {
    pub(crate) fn new(calls: Arc<UnidentifiedCalls>) -> Self {
        let in_a_row = ReadsInARow::at_most(u32::MAX, MAX_UNREAD_BYTES as usize);
        Self { calls, in_a_row }
    }
}

impl ReadLimit for UnidentifiedReads {
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.calls.is_identified() {
            return Poll::Ready(());
        }
        ready!(self.in_a_row.poll_readable(cx));
        self.calls.poll_readable(cx)
    }

    fn note_read(&mut self, bytes: Option<usize>) {
        if self.calls.is_identified() {
            return;
        }
        self.in_a_row.note_read(bytes);
        if let Some(bytes) = bytes {
            self.calls.note_received(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const SENT: usize = 256 << 10;
    const AT_ONCE: usize = 8 << 10;

    /// Returns a connection with all bytes that a client has sent at once, and the client.
    async fn sent(
        calls: &Arc<UnidentifiedCalls>,
    ) -> (UnidentifiedConnection<DuplexStream>, DuplexStream) {
        let (ours, mut theirs) = duplex(SENT);
        theirs.write_all(&vec![7; SENT]).await.unwrap();
        let limit = UnidentifiedReads::new(Arc::clone(calls));
        (UnidentifiedConnection::new(ours, limit), theirs)
    }

    /// Reads until nothing more is available or the connection is held back. Returns the number of
    /// bytes that were read.
    async fn read_all(stream: &mut UnidentifiedConnection<DuplexStream>) -> usize {
        let (mut read, mut buffer, mut turns) = (0, vec![0; AT_ONCE], 0);
        while turns < 2 {
            match stream.read(&mut buffer).now_or_never() {
                Some(bytes) => (read, turns) = (read + bytes.unwrap(), 0),
                // The read may be pending only because it was the turn of other tasks.
                None => turns += 1,
            }
        }
        read
    }

    #[tokio::test]
    async fn a_connection_without_undecided_calls_is_read_and_others_have_their_turn() {
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let (mut stream, _client) = sent(&calls).await;
        let mut buffer = vec![0; AT_ONCE];
        for _ in 0..2 {
            assert!(stream.read(&mut buffer).now_or_never().is_some());
        }
        assert!(stream.read(&mut buffer).now_or_never().is_none());
        assert_eq!(read_all(&mut stream).await, SENT - 2 * AT_ONCE);
    }

    #[tokio::test]
    async fn a_connection_is_held_back_until_its_call_is_decided() {
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let (mut stream, _client) = sent(&calls).await;
        let call = calls.begin();
        let read = read_all(&mut stream).await;
        assert_eq!(read as u64, MAX_UNREAD_BYTES);
        let reading = tokio::spawn(async move {
            let mut rest = vec![0; SENT - read];
            stream.read_exact(&mut rest).await.unwrap();
        });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished());
        drop(call);
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn once_somebody_is_known_it_is_read_as_ever() {
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let (mut stream, _client) = sent(&calls).await;
        let (mut known, _undecided) = (calls.begin(), calls.begin());
        let read = read_all(&mut stream).await;
        known.note_identified();
        let mut rest = vec![0; SENT - read];
        assert!(stream.read_exact(&mut rest).now_or_never().is_some());
    }

    #[tokio::test]
    async fn it_is_written_while_it_is_held_back() {
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let (mut stream, mut client) = sent(&calls).await;
        let _call = calls.begin();
        read_all(&mut stream).await;
        stream.write_all(b"an answer").await.unwrap();
        let mut answer = [0; 9];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"an answer");
    }
}
