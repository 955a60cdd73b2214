//! The types that a reflector and its driver exchange.

use std::time::Duration;

use api::{Event, Status, Version};
use clock::Instant;

/// Which timeout watches are requested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InformerKind {
    /// 60 to 75 s, so that a frozen watch is found soon.
    Typed,
    /// 5 to 10 min: there are many of them, and no write depends on their freshness alone.
    Dynamic,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReflectorStep {
    /// Open a watch with this query. No response within `within`, or else within the client's limit, is a failure.
    /// `set` means that the watch sends a whole set.
    Open { query: String, within: Option<Duration>, set: bool },
    /// List a page with this query. `first` means that it is the first page of a set.
    List { query: String, first: bool },
    /// Read frames, at most `most` at once. No frame until `until` is silence.
    Read { until: Instant, most: usize },
    /// Wait until this time.
    Wait { until: Instant },
}

/// A frame without its object. Garbage is what cannot be decoded as a frame, or a line that is too long.
#[derive(Debug)]
pub(crate) enum ReceivedFrame<'a> {
    Object(Event, &'a Version),
    Bookmark { version: &'a Version, initial_end: bool },
    Error(&'a Status),
    Garbage,
}

/// How the driver must handle a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameAction {
    /// Add its object to the set that is being received.
    Collect,
    /// The set is complete. `consistent` means that it was the most recent state when it was requested.
    Complete { consistent: bool },
    /// Apply its object to the store.
    Apply,
    /// Only the version has changed.
    Progress,
    /// Close the stream. An expired version is normal; anything else is logged as a warning.
    Stop { expired: bool },
}

/// How the driver must handle a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PageOutcome {
    /// Request another page.
    More,
    /// See [`FrameAction::Complete`].
    Complete { consistent: bool },
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The server ended it between two frames.
    Clean,
    /// It was cut.
    Broken,
}

/// What a silent stream means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The server does not stream the set: it is listed instead.
    NoSet,
    /// The long stream of a typed set is replaced by a watch with a short timeout.
    Quiet,
    /// The connection works but the watch sends no frames.
    Frozen,
}
