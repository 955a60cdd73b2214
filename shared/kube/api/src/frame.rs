use crate::{Meta, Status, Version};

/// One decoded frame of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<T> {
    /// An object was added, changed or deleted. In the initial events of a watch list every event is `Added`.
    Object(Event, T),
    /// The object exists but does not decode. Its metadata does. The text names the field.
    Unreadable(Event, Meta, String),
    /// Progress without an object. `initial_end` marks the end of the initial events.
    Bookmark {
        /// The stream has delivered all events up to this version.
        version: Version,
        /// The annotation `k8s.io/initial-events-end` is `"true"`.
        initial_end: bool,
    },
    /// The server ends the stream with a Status. 410 means that the start version is too old.
    Error(Status),
    /// Not even the metadata decodes, so the stream cannot be used any longer.
    Garbage(String),
}

/// The event type of a watch event. The store does not rely on it, but compares the object with the one that it
/// contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`. The object is its last state, with the resourceVersion of the deletion.
    Deleted,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The objects; for an object that does not decode, its metadata and the error.
    pub items: Vec<Result<T, (Meta, String)>>,
    /// The resourceVersion of the list.
    pub version: Version,
    /// The continue token of the next page; empty on the last page.
    pub next: String,
    /// The number of items that follow, if the server returns it.
    pub remaining: Option<u64>,
}

/// The bytes are not a page, or the metadata of an item does not decode.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode: {0}")]
pub struct DecodeError(pub String);
