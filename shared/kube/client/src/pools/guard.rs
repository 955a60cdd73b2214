use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::Term;

/// The limits for the connections of writes.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) term: Term,
    pub(super) write_timeout: Duration,
}

/// A socket that fails when the term is over.
///
/// It is below TLS and HTTP/2, because both delay bytes (for a full window or a full socket) and send them when the
/// peer is ready. That may be long after the request passed the fence.
pub(super) struct Guarded {
    inner: TcpStream,
    term: Term,
}

impl Guarded {
    pub(super) fn new(inner: TcpStream, term: Term) -> Self {
        Self { inner, term }
    }

    fn check(&self) -> io::Result<()> {
        if self.term.is_valid() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the term of leadership is over"))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}
