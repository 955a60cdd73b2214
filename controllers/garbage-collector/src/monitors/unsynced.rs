//! Types of which the graph may not have all objects.

use std::{fmt, time::Duration};

use api::Resource;
use clock::Instant;

/// Why objects may be missing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnsyncedReason {
    /// Discovery has not answered yet.
    Everything,
    /// Discovery fails for a group version whose types were never known.
    Group(String),
    /// The first set of a type is not complete.
    Unsynced(Resource),
    /// The type was watched, and its lists or watches fail now.
    Behind(Resource),
    /// The last discovery answer lacked a type that is watched.
    MissingInDiscovery(Resource),
    /// The type was watched before the term began, and its watch may have stalled without an error.
    Unproved(Resource),
}

/// A type that may be incomplete in the graph: why, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsynced {
    pub(crate) reason: UnsyncedReason,
    /// When its time limit starts. `None`: it is waited for until it ends, which is limited by the time that unproved
    /// monitors count in a new term.
    pub(crate) since: Option<Instant>,
}

impl UnsyncedReason {
    /// Group, version and resource; `*` stands for all resources.
    pub(super) fn labels(&self) -> Option<[&str; 3]> {
        match self {
            Self::Unsynced(of) | Self::Behind(of) | Self::MissingInDiscovery(of) => {
                Some([&of.group, &of.version, &of.plural])
            }
            Self::Group(of) => {
                let (group, version) = of.split_once('/').unwrap_or(("", of));
                Some([group, version, "*"])
            }
            // These have no series of their own, and end soon.
            Self::Everything | Self::Unproved(_) => None,
        }
    }
}

impl Unsynced {
    /// True if the next successful proof makes the type complete.
    pub(crate) fn needs_proof(&self) -> bool {
        matches!(self.reason, UnsyncedReason::Unproved(_))
    }

    /// True if discovery has not answered since the process began.
    pub(crate) fn is_before_discovery(&self) -> bool {
        matches!(self.reason, UnsyncedReason::Everything)
    }

    /// True if the type is within its time limit at `now`, in a term that began at `term`. The owner that waits may
    /// have a shorter limit.
    pub(crate) fn is_within_limit(&self, patience: Duration, term: Option<Instant>, now: Instant) -> bool {
        let Some(since) = self.since else { return true };
        now.saturating_duration_since(term.map_or(since, |it| it.max(since))) < patience
    }
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            UnsyncedReason::Everything => f.write_str("all types that discovery has not returned yet"),
            UnsyncedReason::Group(of) => write!(f, "whatever {of} serves"),
            UnsyncedReason::Unsynced(of) => write!(f, "{of}"),
            UnsyncedReason::Behind(of) => write!(f, "{of} (cannot be watched any more)"),
            UnsyncedReason::MissingInDiscovery(of) => write!(f, "{of} (discovery lacks it)"),
            UnsyncedReason::Unproved(of) => write!(f, "{of} (not proved since the term began)"),
        }
    }
}
