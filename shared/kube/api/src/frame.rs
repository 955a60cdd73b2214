use crate::{Meta, Status, Version};

/// One frame of a watch, decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<T> {
    /// An object came, changed or went; in a streamed first set all of them are `Added`.
    Object(Event, T),
    /// The object is there but does not decode; its metadata does. `why` names the field.
    Unreadable(Event, Meta, String),
    /// Progress without an object. `initial_end` closes a streamed first set.
    Bookmark {
        /// The stream has shown everything up to here.
        version: Version,
        /// Annotation `k8s.io/initial-events-end` is `"true"`.
        initial_end: bool,
    },
    /// The server ends the stream with a reason; 410 means that the start version is gone.
    Error(Status),
    /// Not even metadata decodes: the stream cannot be trusted any further.
    Garbage(String),
}

/// What a watch says happened. The store decides for itself what an event means: presence counts, not the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`; the object is its last state with the version of the deletion.
    Deleted,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// Objects, and those that do not decode beyond metadata with the reason.
    pub items: Vec<Result<T, (Meta, String)>>,
    /// The list's own version.
    pub version: Version,
    /// Token of the next page; empty on the last.
    pub next: String,
    /// How many items follow, where the server says.
    pub remaining: Option<u64>,
}

/// Bytes that are no page, or an item without readable metadata.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode: {0}")]
pub struct DecodeError(pub String);
