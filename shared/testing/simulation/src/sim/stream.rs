use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use client::{BoxError, Incoming};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::Sleep;

use super::{World, plan::EventFault, world::Delivery};

/// A watch with its faults. Events of one watch stay in order. Each watch is delayed separately, so the order between
/// two watches may change.
pub(crate) struct Stream {
    inner: Incoming,
    world: World,
    /// The process and its request.
    process: String,
    number: u64,
    resource: String,
    /// Lines that arrived together.
    lines: VecDeque<Bytes>,
    delayed: Option<(Bytes, Pin<Box<Sleep>>)>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Frozen,
    Ended,
}

impl Stream {
    pub(crate) fn wrap(inner: Incoming, world: World, process: String, number: u64, resource: String) -> Incoming {
        let stream =
            Self { inner, world, process, number, resource, lines: VecDeque::new(), delayed: None, state: State::Open };
        stream.boxed_unsync()
    }

    /// The next line from the server.
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Poll::Ready(Some(Ok(line)));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(err)) => return Poll::Ready(Some(Err(err))),
                Some(Ok(frame)) => {
                    let Ok(mut data) = frame.into_data() else { continue };
                    while let Some(end) = data.iter().position(|it| *it == b'\n') {
                        self.lines.push_back(data.split_to(end + 1));
                    }
                    if !data.is_empty() {
                        self.lines.push_back(data);
                    }
                }
            }
        }
    }

    fn report_event(&self, line: &Bytes) {
        self.world.report_delivery(&Delivery { by: &self.process, resource: &self.resource, text: line });
        self.world.trace(|| format!("{} ~ {} {}", self.process, self.number, summary(line)));
    }

    fn trace_end(&mut self, how: &str, line: &Bytes) {
        self.state = State::Ended;
        self.world.trace(|| format!("{} ~ {} !! {how} before {}", self.process, self.number, summary(line)));
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.state {
            State::Open => {}
            State::Frozen => return Poll::Pending,
            State::Ended => return Poll::Ready(None),
        }
        if let Some((_, time)) = &mut self.delayed {
            ready!(time.as_mut().poll(cx));
            if let Some((line, _)) = self.delayed.take() {
                self.report_event(&line);
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
        }
        let line = match ready!(self.poll_line(cx)) {
            Some(Ok(line)) => line,
            Some(Err(err)) => return Poll::Ready(Some(Err(err))),
            None => {
                self.state = State::Ended;
                return Poll::Ready(None);
            }
        };
        let number = self.world.counts().count_event();
        let reset = || Poll::Ready(Some(Err("connection reset".into())));
        let shown = self.world.plan().event_fault(number, self.world.now());
        match shown {
            EventFault::Delivered => {
                self.report_event(&line);
                Poll::Ready(Some(Ok(Frame::data(line))))
            }
            EventFault::Delayed(time) => {
                self.world
                    .trace(|| format!("{} ~ {} !! late by {time:?}: {}", self.process, self.number, summary(&line)));
                self.world.record_fault_until(time);
                self.delayed = Some((line, Box::pin(tokio::time::sleep(time))));
                self.poll_frame(cx)
            }
            EventFault::Reset | EventFault::Refused => {
                self.trace_end("reset", &line);
                reset()
            }
            EventFault::Expired => {
                self.trace_end("reset and compaction", &line);
                self.world.cluster().compact();
                reset()
            }
            EventFault::End => {
                self.trace_end("ended", &line);
                Poll::Ready(None)
            }
            EventFault::Frozen => {
                self.world.trace(|| format!("{} ~ {} !! frozen before {}", self.process, self.number, summary(&line)));
                self.state = State::Frozen;
                Poll::Pending
            }
        }
    }
}

/// For example `MODIFIED Namespace a @17`.
fn summary(line: &[u8]) -> String {
    #[derive(Deserialize, Default)]
    struct Event {
        r#type: String,
        object: Object,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Object {
        kind: String,
        metadata: Metadata,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        name: String,
        namespace: String,
        resource_version: String,
    }
    let Event { r#type, object: Object { kind, metadata } } = serde_json::from_slice(line).unwrap_or_default();
    let place = if metadata.namespace.is_empty() { String::new() } else { format!("{}/", metadata.namespace) };
    format!("{} {kind} {place}{} @{}", r#type, metadata.name, metadata.resource_version)
}
