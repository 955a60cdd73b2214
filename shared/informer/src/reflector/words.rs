//! What a reflector and its driver say to each other.

use std::time::Duration;

use api::{Event, Status, Version};
use clock::Instant;

/// How long watches are asked to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// 60 to 75 s: a frozen watch is found soon.
    Typed,
    /// 5 to 10 min: there are many, and no write rests on them alone.
    Dynamic,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open a watch with this query; no answer within this time, or else the client's own, is a failure. `set` tells that
    /// it brings a whole set.
    Open { query: String, within: Option<Duration>, set: bool },
    /// List a page with this query. `first` tells that a set begins.
    List { query: String, first: bool },
    /// Read frames, at most so many at once; nothing until then is silence.
    Read { until: Instant, most: usize },
    /// Do nothing until then.
    Wait { until: Instant },
}

/// A frame without its object. Garbage is what cannot be read: no frame, or a line that is too long.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    Object(Event, &'a Version),
    Bookmark { version: &'a Version, initial_end: bool },
    Error(&'a Status),
    Garbage,
}

/// What a frame means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its object belongs to the set that is arriving.
    Collect,
    /// The set is complete; `consistent` tells that it was the most recent state when it was asked for.
    Complete { consistent: bool },
    /// Its object goes to the store.
    Apply,
    /// Nothing but progress.
    Progress,
    /// The stream is of no more use. An expired version is everyday life, all else worth a warning.
    Stop { expired: bool },
}

/// What a page means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Another page follows.
    More,
    /// As [`Verdict::Complete`].
    Complete { consistent: bool },
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By the server's will.
    Clean,
    /// In the middle of something.
    Broken,
}

/// What a silence means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The set does not come by stream: it is listed instead.
    NoSet,
    /// The long stream of a first set gives way to a short one.
    Quiet,
    /// The connection is alive and brings nothing.
    Frozen,
}
