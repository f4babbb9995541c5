use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Decides when a connection may be read.
pub(crate) trait ReadLimit {
    /// Completes when the connection may be read.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Learns the result of a read: how many bytes it has returned, or `None` if none were
    /// available.
    fn note_read(&mut self, bytes: Option<usize>);
}

/// A connection that is read only as its limit allows. Writing is not limited.
#[derive(Debug)]
pub(crate) struct LimitedReads<S, L> {
    inner: S,
    limit: L,
}

impl<S: Unpin, L: Unpin> LimitedReads<S, L> {
    pub(crate) fn new(inner: S, limit: L) -> Self {
        Self { inner, limit }
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(&mut self.get_mut().inner)
    }
}

impl<S: AsyncRead + Unpin, L: ReadLimit + Unpin> AsyncRead for LimitedReads<S, L> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.limit.poll_readable(cx));
        let before = buffer.filled().len();
        let read = Pin::new(&mut me.inner).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        me.limit.note_read(read.is_ready().then_some(bytes));
        read
    }
}

impl<S: AsyncWrite + Unpin, L: Unpin> AsyncWrite for LimitedReads<S, L> {
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
