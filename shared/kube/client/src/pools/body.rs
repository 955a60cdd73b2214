use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use crate::{Body, BoxError, Incoming};

/// Takes a connection out of service: its streams continue, but it gets no new ones.
///
/// It is an extension of each response, so that the reader of a stream can retire the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetireHandle(CancellationToken);

impl RetireHandle {
    pub(crate) fn retire(&self) {
        self.0.cancel();
    }

    pub(super) fn is_retired(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(super) async fn retired(&self) {
        self.0.cancelled().await;
    }
}

/// A request body that records whether hyper has started to read it.
///
/// Hyper reads the body only after it has opened the stream. If such a stream then ends with a GOAWAY, the server has
/// not processed it. Before that, the same error proves nothing about the stream.
pub(super) struct Outgoing {
    inner: Body,
    begun: Arc<AtomicBool>,
}

impl Outgoing {
    pub(super) fn new(inner: Body) -> (Self, Arc<AtomicBool>) {
        let begun = Arc::<AtomicBool>::default();
        (Self { inner, begun: begun.clone() }, begun)
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.begun.store(true, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A slot for one request on a connection. It is returned when the response has been read.
pub(super) trait ConnectionSlot: Send + Unpin + 'static {
    /// The response has ended, so the connection can be used again. If the slot is only dropped, it may not be.
    fn complete(self);
}

/// The body of a response, which keeps its slot until it has ended.
pub(super) fn slot_body<S: ConnectionSlot>(inner: hyper::body::Incoming, slot: S) -> Incoming {
    let mut body = SlotBody { inner, slot: Some(slot) };
    body.complete_at_end();
    body.boxed_unsync()
}

struct SlotBody<S> {
    inner: hyper::body::Incoming,
    slot: Option<S>,
}

impl<S: ConnectionSlot> SlotBody<S> {
    fn complete_at_end(&mut self) {
        if self.inner.is_end_stream()
            && let Some(slot) = self.slot.take()
        {
            slot.complete();
        }
    }
}

impl<S: ConnectionSlot> http_body::Body for SlotBody<S> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => self.complete_at_end(),
            Some(Err(_)) => self.slot = None,
            None => {
                if let Some(slot) = self.slot.take() {
                    slot.complete();
                }
            }
        }
        Poll::Ready(frame.map(|it| it.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
