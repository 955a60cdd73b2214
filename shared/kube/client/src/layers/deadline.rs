use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use metrics::Histogram;
use tokio::time::Sleep;

use crate::{BoxError, Incoming};

/// Longer than an API server works on a request (60 s).
pub(crate) const DEADLINE: Duration = Duration::from_secs(70);
/// A server responds to a new watch at once. A connection that is silent for longer is retired.
pub(crate) const WATCH_OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The time limit of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeLimit {
    /// Until the whole response has been received.
    Whole(Duration),
    /// Until the response begins. An open watch has no limit.
    Head(Duration),
}

impl TimeLimit {
    pub(super) fn head_limit(self) -> Duration {
        match self {
            Self::Whole(limit) | Self::Head(limit) => limit,
        }
    }
}

/// Reduces the time in which the response to a request must begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseTimeout(pub(crate) Duration);

/// An extension of a request. With it a pool can distinguish a connection without a response in time from a caller that
/// was dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    /// The whole time of the attempt.
    pub(crate) limit: Duration,
}

/// The head of a response; `None` if the time limit passed first.
pub(super) async fn head<T>(limit: Instant, response: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(limit, response).await.ok()
}

/// The body of a response. It ends with an error at the time limit, and its size is recorded at the end.
pub(super) fn body(inner: Incoming, limit: Option<Instant>, counter: Option<Histogram>) -> Incoming {
    let limit = limit.map(|it| Box::pin(tokio::time::sleep_until(it)));
    LimitedBody { inner, limit, size: 0, counter }.boxed_unsync()
}

struct LimitedBody {
    inner: Incoming,
    limit: Option<Pin<Box<Sleep>>>,
    size: u64,
    counter: Option<Histogram>,
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Received data are checked first: a response that is complete at its deadline is valid.
        let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let Some(limit) = &mut self.limit else { return Poll::Pending };
                ready!(limit.as_mut().poll(cx));
                return Poll::Ready(Some(Err("the response was not complete at its deadline".into())));
            }
        };
        if let Some(Ok(frame)) = &frame {
            self.size += frame.data_ref().map_or(0, |it| it.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for LimitedBody {
    fn drop(&mut self) {
        if let Some(counter) = &self.counter {
            counter.observe(self.size as f64);
        }
    }
}
