use std::{pin::Pin, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body::Body as _;

use crate::{
    ApiError, Body, Incoming, Stack, api_client,
    layers::{Layers, NoRateLimit, ResponseTimeout},
    pools::RetireHandle,
};

/// The limit of client-go's stream decoder. A line without an end would otherwise fill the memory.
const MAX_LINE: usize = 16 << 20;

/// The client of a reflector. It has no retry layer, so that the reflector gets every response.
#[derive(Clone)]
pub struct Watcher {
    pub(crate) lists: Stack,
    pub(crate) watches: Stack,
    /// The rate limiter.
    pub(crate) rate_limiter: Layers,
    pub(crate) urgent: bool,
}

/// The permission of the rate limiter for one request.
pub struct Permit(Watcher);

impl Watcher {
    /// The same without a rate limit, for the proofs of a new leader, which must not wait behind the first syncs.
    #[must_use]
    pub fn urgent(&self) -> Self {
        Self { urgent: true, ..self.clone() }
    }

    /// Waits until the rate limiter allows a request for `path`. The server does not cause this delay.
    ///
    /// # Errors
    /// `NotSent` when the manager stops.
    pub async fn permit(&self, path: &str) -> Result<Permit, ApiError> {
        if !self.urgent {
            self.rate_limiter.wait_for_token(&Method::GET, &path).await?;
        }
        Ok(Permit(self.clone()))
    }

    /// Reads one page of a list, as bytes.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn list(&self, path: &str, accept: &str) -> Result<Bytes, ApiError> {
        self.permit(path).await?.list(path, accept).await
    }

    /// Opens a watch. An open watch has no deadline; the reflector decides whether it has been silent for too long.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn watch(&self, path: &str, accept: &str) -> Result<Lines, ApiError> {
        self.permit(path).await?.watch(path, accept, None).await
    }
}

impl Permit {
    /// Like [`Watcher::list`], without a wait.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn list(self, path: &str, accept: &str) -> Result<Bytes, ApiError> {
        let request = Self::request(path, accept)?;
        api_client::collect(api_client::send(&self.0.lists, request).await?).await
    }

    /// Like [`Watcher::watch`], without a wait. The response must begin within the given time, by default 30 s.
    /// Otherwise the connection gets no new watches.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn watch(self, path: &str, accept: &str, within: Option<Duration>) -> Result<Lines, ApiError> {
        let mut request = Self::request(path, accept)?;
        if let Some(within) = within {
            request.extensions_mut().insert(ResponseTimeout(within));
        }
        let response = api_client::send(&self.0.watches, request).await?;
        let connection = response.extensions().get::<RetireHandle>().cloned();
        Ok(Lines::new(response.into_body(), connection))
    }

    fn request(path: &str, accept: &str) -> Result<Request<Body>, ApiError> {
        let mut request = api_client::request(Method::GET, path, accept, None)?;
        request.extensions_mut().insert(NoRateLimit);
        Ok(request)
    }
}

/// Why a watch returns no more lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinesError {
    /// The connection or the stream has broken.
    #[error("watch was interrupted: {0}")]
    Broken(String),
    /// A line is longer than 16 MiB. A new watch from the same version would return it again, so the reflector must
    /// relist.
    #[error("a line of the watch is longer than 16 MiB")]
    TooLong,
}

/// The frames of a watch, one JSON document per line.
pub struct Lines {
    body: Incoming,
    connection: Option<RetireHandle>,
    /// The beginning of an incomplete line, without a newline.
    partial_line: BytesMut,
    /// The last received bytes that are not yet returned.
    chunk: Bytes,
    /// The end of the stream. An error is returned once, after the lines before it.
    end: Option<Result<(), LinesError>>,
}

impl Lines {
    fn new(body: Incoming, connection: Option<RetireHandle>) -> Self {
        Self { body, connection, partial_line: BytesMut::new(), chunk: Bytes::new(), end: None }
    }

    /// Retires the connection of this watch: if it is frozen, the next watch must not use it. Other streams on it
    /// continue.
    pub fn retire_connection(&self) {
        if let Some(connection) = &self.connection {
            connection.retire();
        }
    }

    /// Waits for at least one line and returns all complete lines that have arrived, at most `most`. Returns `None`
    /// after the server has closed the stream without an error. It is safe to drop the future: no line is lost.
    ///
    /// # Errors
    /// When the stream breaks, or a line is longer than 16 MiB.
    pub async fn next_batch(&mut self, most: usize) -> Option<Result<Vec<Bytes>, LinesError>> {
        // No line is held while the future is pending, so dropping it loses none.
        let mut lines = Vec::new();
        std::future::poll_fn(|cx| {
            loop {
                while lines.len() < most
                    && let Some(line) = self.take_line()
                {
                    lines.push(line);
                }
                if lines.len() >= most {
                    return Poll::Ready(Some(Ok(std::mem::take(&mut lines))));
                }
                if self.end.is_some() {
                    return Poll::Ready(self.take_rest(std::mem::take(&mut lines)));
                }
                match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Pending if lines.is_empty() => return Poll::Pending,
                    Poll::Pending => return Poll::Ready(Some(Ok(std::mem::take(&mut lines)))),
                    Poll::Ready(None) => self.end = Some(Ok(())),
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            self.chunk = data;
                        }
                    }
                    Poll::Ready(Some(Err(err))) => {
                        self.end = Some(Err(LinesError::Broken(crate::error_chain(&*err))));
                    }
                }
            }
        })
        .await
    }

    /// What remains after the end of the stream: the lines, then an error if there was one, then nothing.
    fn take_rest(&mut self, lines: Vec<Bytes>) -> Option<Result<Vec<Bytes>, LinesError>> {
        if !lines.is_empty() {
            return Some(Ok(lines));
        }
        match self.end.replace(Ok(())) {
            Some(Err(err)) => Some(Err(err)),
            _ => None,
        }
    }

    /// The next complete line, without a copy if it arrived in one chunk. Each byte is scanned once.
    fn take_line(&mut self) -> Option<Bytes> {
        while !self.chunk.is_empty() {
            let found = memchr::memchr(b'\n', &self.chunk);
            if self.partial_line.len() + found.unwrap_or(self.chunk.len()) > MAX_LINE {
                self.partial_line = BytesMut::new();
                self.end = Some(Err(LinesError::TooLong));
                break;
            }
            let Some(end) = found else {
                self.partial_line.extend_from_slice(&self.chunk);
                break;
            };
            let mut line = self.chunk.split_to(end + 1);
            line.truncate(end);
            if !self.partial_line.is_empty() {
                self.partial_line.extend_from_slice(&line);
                // Not `split`, which would keep the capacity for the next line.
                line = std::mem::take(&mut self.partial_line).freeze();
            }
            if !line.is_empty() {
                return Some(line);
            }
        }
        // Even an empty slice keeps its whole frame in memory, on a silent watch for minutes.
        self.chunk = Bytes::new();
        None
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, channel::mpsc};
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::BoxError;

    type Sender = mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>;

    fn lines() -> (Sender, Lines) {
        let (sender, receiver) = mpsc::unbounded();
        (sender, Lines::new(StreamBody::new(receiver).boxed_unsync(), None))
    }

    fn send_text(sender: &Sender, text: &'static str) {
        sender.unbounded_send(Ok(Frame::data(Bytes::from_static(text.as_bytes())))).unwrap();
    }

    #[tokio::test]
    async fn lines_do_not_depend_on_the_ends_of_chunks() {
        for cut in 0..=12 {
            let (sender, mut lines) = lines();
            let (head, tail) = "abc\n\ndef\nghi".split_at(cut);
            send_text(&sender, head);
            send_text(&sender, tail);
            send_text(&sender, "\nrest without end");
            drop(sender);
            assert_eq!(lines.next_batch(2).await.unwrap().unwrap(), ["abc", "def"], "cut at {cut}");
            assert_eq!(lines.next_batch(9).await.unwrap().unwrap(), ["ghi"], "cut at {cut}");
            assert!(lines.next_batch(9).await.is_none());
        }
    }

    #[tokio::test]
    async fn silent_watch_frees_its_last_frame() {
        for text in ["one\n", "one\nbegun"] {
            let (sender, mut lines) = lines();
            let frame = Bytes::from(text.as_bytes().to_vec());
            sender.unbounded_send(Ok(Frame::data(frame.clone()))).unwrap();
            drop(lines.next_batch(9).await);
            assert!(lines.next_batch(9).now_or_never().is_none());
            assert!(frame.is_unique(), "{text}");
        }
    }

    #[tokio::test]
    async fn silent_watch_frees_the_buffer_of_a_line_that_arrived_in_pieces() {
        let (sender, mut lines) = lines();
        for chunk in [&[b'x'; 100_000][..], b"end\n"] {
            sender.unbounded_send(Ok(Frame::data(Bytes::copy_from_slice(chunk)))).unwrap();
        }
        assert_eq!(lines.next_batch(9).await.unwrap().unwrap()[0].len(), 100_003);
        assert!(lines.next_batch(9).now_or_never().is_none());
        assert_eq!(lines.partial_line.capacity(), 0);
    }

    #[tokio::test]
    async fn line_that_arrived_in_one_piece_is_not_copied() {
        let (sender, mut lines) = lines();
        let chunk = Bytes::from("one\ntwo\n");
        let start = chunk.as_ptr();
        sender.unbounded_send(Ok(Frame::data(chunk))).unwrap();
        let batch = lines.next_batch(9).await.unwrap().unwrap();
        assert_eq!(batch[0].as_ptr(), start);
        assert_eq!(batch[1].as_ptr(), start.wrapping_add(4));
    }

    #[tokio::test]
    async fn dropping_a_wait_loses_no_line() {
        let (sender, mut lines) = lines();
        send_text(&sender, "beg");
        assert!(lines.next_batch(9).now_or_never().is_none());
        send_text(&sender, "un\n");
        assert_eq!(lines.next_batch(9).await.unwrap().unwrap(), ["begun"]);
    }

    #[tokio::test]
    async fn line_beyond_the_limit_breaks_the_stream_after_the_lines_before_it() {
        let whole = [Bytes::from_static(b"one\n"), Bytes::from(vec![b'x'; MAX_LINE]), Bytes::from_static(b"\n")];
        let unended = [Bytes::from_static(b"one\n"), Bytes::from(vec![b'x'; MAX_LINE]), Bytes::from_static(b"x")];
        let at_once = [b"one\n".to_vec(), vec![b'x'; MAX_LINE + 1], b"\nlater\n".to_vec()].concat();
        for (chunks, breaks) in [(whole.to_vec(), false), (unended.to_vec(), true), (vec![at_once.into()], true)] {
            let (sender, mut lines) = lines();
            for chunk in chunks {
                sender.unbounded_send(Ok(Frame::data(chunk))).unwrap();
            }
            assert_eq!(lines.next_batch(1).await.unwrap().unwrap(), ["one"]);
            let second = lines.next_batch(9).now_or_never().expect("the error does not wait for the end of the line");
            match second.unwrap() {
                Ok(line) => assert!(!breaks && line[0].len() == MAX_LINE),
                Err(err) => assert!(breaks && err == LinesError::TooLong, "{err}"),
            }
            if breaks {
                assert!(lines.next_batch(9).now_or_never().expect("the stream has ended").is_none());
            }
        }
    }

    #[tokio::test]
    async fn error_is_returned_after_the_lines_before_it() {
        let (sender, mut lines) = lines();
        send_text(&sender, "whole\nhalf");
        sender.unbounded_send(Err("reset".into())).unwrap();
        drop(sender);
        assert_eq!(lines.next_batch(9).await.unwrap().unwrap(), ["whole"]);
        let broken = lines.next_batch(9).await.unwrap();
        assert_eq!(broken, Err(LinesError::Broken("reset".to_owned())));
        assert!(lines.next_batch(9).await.is_none());
    }
}
