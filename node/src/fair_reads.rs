//! A task may do a limited number of reads and writes before tokio gives other tasks their turn.
//! h2 reads all available bytes before it writes. If bytes arrive faster than a task may read them,
//! the reads take the whole turn of the task, again and again, and nothing is written: a call waits
//! until the streams of earlier calls have sent all that their windows allow.

use std::task::{Context, Poll};

use crate::limited_reads::{LimitedReads, ReadLimit};

/// Number of reads in a row. It is a quarter of what tokio allows a task in one turn, so that there
/// is room for writes, and for the reads of TLS, which may be several for one of ours.
const MAX_READS_IN_A_ROW: u32 = 32;
/// Number of bytes of reads in a row, beyond which there is no further read. Decoding them takes
/// time, in which nothing is written.
const MAX_BYTES_IN_A_ROW: usize = 512 << 10;

/// A connection whose reads leave room for writes.
pub(crate) type FairReads<S> = LimitedReads<S, ReadsInARow>;

/// Returns the connection with limits on its reads.
pub(crate) fn fair_reads<S: Unpin>(stream: S) -> FairReads<S> {
    let reads = ReadsInARow::at_most(MAX_READS_IN_A_ROW, MAX_BYTES_IN_A_ROW);
    FairReads::new(stream, reads)
}

/// Limits reads in a row. At the limit, the next read has to wait for the next turn of the task.
#[derive(Debug)]
pub(crate) struct ReadsInARow {
    reads: u32,
    bytes: usize,
    max_reads: u32,
    max_bytes: usize,
}

impl ReadsInARow {
    /// Allows reads until there were `max_reads` in a row or they have returned `max_bytes`.
    pub(crate) fn at_most(max_reads: u32, max_bytes: usize) -> Self {
        Self {
            reads: 0,
            bytes: 0,
            max_reads,
            max_bytes,
        }
    }

    fn begin_row(&mut self) {
        (self.reads, self.bytes) = (0, 0);
    }
}

impl ReadLimit for ReadsInARow {
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.reads < self.max_reads && self.bytes < self.max_bytes {
            return Poll::Ready(());
        }
        self.begin_row();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn note_read(&mut self, bytes: Option<usize>) {
        let Some(bytes) = bytes else {
            self.begin_row();
            return;
        };
        self.reads += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const AVAILABLE_BYTES: usize = 64 << 10;

    /// Returns both ends of a connection. The first one can read [`AVAILABLE_BYTES`].
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (near, mut far) = (near.unwrap(), far.unwrap().0);
        far.write_all(&vec![7; AVAILABLE_BYTES]).await.unwrap();
        let mut peeked = vec![0; AVAILABLE_BYTES];
        while near.peek(&mut peeked).await.unwrap() < AVAILABLE_BYTES {}
        (near, far)
    }

    /// Reads as h2 does: as long as there are bytes, and at most `at_once` of them at once. Returns
    /// how many it has read.
    fn read_all(
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        at_once: usize,
    ) -> usize {
        let (mut total, mut bytes) = (0, vec![0; at_once]);
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => read.unwrap(),
                Poll::Pending => return total,
            }
            total += buffer.filled().len();
        }
    }

    #[tokio::test]
    async fn a_connection_writes_while_more_arrives_than_a_turn_can_read() {
        let (near, _far) = connection().await;
        let mut near = fair_reads(near);
        let (read, written) = poll_fn(|cx| {
            let read = read_all(cx, &mut near, 16);
            let written = Pin::new(&mut near).poll_write(cx, &[1]);
            Poll::Ready((read, written.map(Result::unwrap)))
        })
        .await;
        assert_eq!(written, Poll::Ready(1));
        assert!(read < AVAILABLE_BYTES, "{read} bytes were read in one turn");
    }

    #[tokio::test]
    async fn everything_is_read_in_several_turns() {
        let (near, _far) = connection().await;
        let mut near = fair_reads(near);
        let mut total = 0;
        poll_fn(|cx| {
            total += read_all(cx, &mut near, 16);
            match total {
                AVAILABLE_BYTES => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    #[tokio::test]
    async fn large_reads_leave_a_turn_sooner() {
        let (near, mut far) = duplex(2 * MAX_BYTES_IN_A_ROW);
        far.write_all(&vec![7; 2 * MAX_BYTES_IN_A_ROW])
            .await
            .unwrap();
        let mut near = fair_reads(near);
        let large = MAX_BYTES_IN_A_ROW / 4;
        let read = poll_fn(|cx| Poll::Ready(read_all(cx, &mut near, large))).await;
        assert_eq!(read, MAX_BYTES_IN_A_ROW);
    }
}
