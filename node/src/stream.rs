use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::fair_reads::{FairReads, fair_reads};

/// The bytes of a connection.
#[derive(Debug)]
pub(crate) struct NodeStream(TokioIo<FairReads<Either<TcpStream, Box<TlsStream<TcpStream>>>>>);

impl NodeStream {
    pub(crate) fn plain(stream: TokioIo<TcpStream>) -> Self {
        Self::new(Either::Left(stream.into_inner()))
    }

    pub(crate) fn secured(stream: TlsStream<TcpStream>) -> Self {
        Self::new(Either::Right(Box::new(stream)))
    }

    fn new(stream: Either<TcpStream, Box<TlsStream<TcpStream>>>) -> Self {
        Self(TokioIo::new(fair_reads(stream)))
    }
}

impl Connection for NodeStream {
    fn connected(&self) -> Connected {
        // hyper need not be told that the connection is HTTP/2: the client uses nothing else.
        Connected::new()
    }
}

impl Read for NodeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for NodeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }
}
