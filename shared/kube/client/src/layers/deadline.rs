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

/// Longer than any API server works on a request (60 s).
pub(crate) const DEADLINE: Duration = Duration::from_secs(70);
/// A server answers the opening of a watch at once; what is silent longer leads nowhere, and its connection is retired.
pub(crate) const WATCH_OPENS: Duration = Duration::from_secs(30);

/// How long an attempt may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Until the whole answer has come.
    Whole(Duration),
    /// Until it begins: a watch then lives as long as it likes.
    Head(Duration),
}

impl Patience {
    pub(super) fn for_head(self) -> Duration {
        match self {
            Self::Whole(limit) | Self::Head(limit) => limit,
        }
    }
}

/// Shortens the time in which the answer to a request must begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within(pub(crate) Duration);

/// Travels with a request, so that a pool can tell a connection that gave no answer in time from a caller that left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    /// The whole time that the attempt was given.
    pub(crate) limit: Duration,
}

/// The head of an answer; `None` when the limit passed first.
pub(super) async fn head<T>(limit: Instant, answer: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(limit, answer).await.ok()
}

/// The body of an answer: breaks off at the limit, and tells its size in the end.
pub(super) fn body(inner: Incoming, limit: Option<Instant>, counter: Option<Histogram>) -> Incoming {
    let limit = limit.map(|it| Box::pin(tokio::time::sleep_until(it)));
    Answer { inner, limit, size: 0, counter }.boxed_unsync()
}

struct Answer {
    inner: Incoming,
    limit: Option<Pin<Box<Sleep>>>,
    size: u64,
    counter: Option<Histogram>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // What has come is taken first: an answer that is complete at its deadline is complete.
        let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let Some(limit) = &mut self.limit else { return Poll::Pending };
                ready!(limit.as_mut().poll(cx));
                return Poll::Ready(Some(Err("the answer was not complete at its deadline".into())));
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

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(counter) = &self.counter {
            counter.observe(self.size as f64);
        }
    }
}
