use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tokio::time::Instant;

use super::{Chunks, version_order::WatchVersions};

/// An open watch.
pub(super) struct Watch {
    chunks: Chunks,
    buffer: Vec<u8>,
    /// Only the first event of a Table watch has the columns.
    pub(super) columns: Value,
    /// Bookmarks were requested.
    pub(super) bookmarks: bool,
    pub(super) order: WatchVersions,
    /// When it was requested, because a server may delay the headers or the first event.
    pub(super) begin: Instant,
}

/// What was read from a watch.
#[derive(Debug)]
pub(super) enum Next {
    /// An event.
    Event(Value),
    /// No event in time.
    Nothing,
    /// The stream ended normally.
    End,
    /// The stream broke, or a line could not be decoded.
    Broken(String),
}

impl Watch {
    /// `path` is that of the request, sent at `begin`.
    pub(super) fn new(chunks: Chunks, path: &str, begin: Instant) -> Self {
        let bookmarks = ["allowWatchBookmarks=true", "allowWatchBookmarks=1"].iter().any(|it| path.contains(it));
        Self { chunks, buffer: Vec::new(), columns: Value::Null, bookmarks, order: WatchVersions::of(path), begin }
    }

    /// The next event within this time.
    pub(super) async fn next(&mut self, within: Duration) -> Next {
        tokio::time::timeout(within, self.read()).await.unwrap_or(Next::Nothing)
    }

    async fn read(&mut self) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(event) => Next::Event(event),
                    Err(err) => Next::Broken(format!("{err}: {}", String::from_utf8_lossy(&line))),
                };
            }
            match self.chunks.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(err)) => return Next::Broken(format!("{err:#}")),
                None if self.buffer.is_empty() => return Next::End,
                None => return Next::Broken("ended within a line".to_owned()),
            }
        }
    }
}

/// True for a bookmark that the server may send at any time.
pub(super) fn is_plain_bookmark(event: &Value) -> bool {
    let metadata = if event["object"]["rows"].is_array() {
        &event["object"]["rows"][0]["object"]["metadata"]
    } else {
        &event["object"]["metadata"]
    };
    event["type"] == "BOOKMARK" && metadata["annotations"]["k8s.io/initial-events-end"].is_null()
}
