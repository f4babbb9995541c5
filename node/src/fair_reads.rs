//! A task may do a limited number of reads and writes before tokio gives other tasks their turn.
//! h2 reads all available bytes before it writes. If bytes arrive faster than a task may read them,
//! the reads take the whole turn of the task, again and again, and nothing is written: a call waits
//! until the streams of earlier calls have sent all that their windows allow.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of reads in a row. It is a quarter of what tokio allows a task in one turn, so that there
/// is room for writes, and for the reads of TLS, which may be several for one of ours.
const MAX_READS_IN_A_ROW: u32 = 32;

/// A connection whose reads leave room for writes: after some reads in a row, the next one has to
/// wait for the next turn of the task.
#[derive(Debug)]
pub(crate) struct FairReads<S> {
    inner: S,
    reads_in_a_row: u32,
}

impl<S: Unpin> FairReads<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self {
            inner,
            reads_in_a_row: 0,
        }
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(&mut self.get_mut().inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FairReads<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.reads_in_a_row >= MAX_READS_IN_A_ROW {
            me.reads_in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(read) = Pin::new(&mut me.inner).poll_read(cx, buffer) else {
            me.reads_in_a_row = 0;
            return Poll::Pending;
        };
        me.reads_in_a_row += 1;
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FairReads<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
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

    /// Reads as h2 does: as long as there are bytes. Returns how many it has read.
    fn read_all(cx: &mut Context<'_>, stream: &mut (impl AsyncRead + Unpin)) -> usize {
        let (mut total, mut bytes) = (0, [0; 16]);
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
        let mut near = FairReads::new(near);
        let (read, written) = poll_fn(|cx| {
            let read = read_all(cx, &mut near);
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
        let mut near = FairReads::new(near);
        let mut total = 0;
        poll_fn(|cx| {
            total += read_all(cx, &mut near);
            match total {
                AVAILABLE_BYTES => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }
}
