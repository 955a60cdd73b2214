//! What may be missing in the graph: types of which not all objects may be known.

use std::{fmt, time::Duration};

use api::Resource;
use clock::Instant;

/// Why objects may not be known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hole {
    /// Discovery has not answered yet.
    Everything,
    /// A group version that discovery fails for, and whose types were never told.
    Group(String),
    /// The first set of a type has not come.
    Unsynced(Resource),
    /// It was watched, and its lists or watches fail.
    Behind(Resource),
    /// The last answer of discovery lacked a type that is watched.
    Doubted(Resource),
    /// A type was watched before the term began, and its watch may have died in silence.
    Unproved(Resource),
}

/// A hole, and how long it has been there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsynced {
    pub(crate) hole: Hole,
    /// It has its time from then on. `None`: as long as it lasts, which is as long as proofs count in a new term.
    pub(crate) since: Option<Instant>,
}

impl Hole {
    /// Group, version and resource of what is watched or should be; `*` stands for all.
    pub(super) fn labels(&self) -> Option<[&str; 3]> {
        match self {
            Self::Unsynced(of) | Self::Behind(of) | Self::Doubted(of) => Some([&of.group, &of.version, &of.plural]),
            Self::Group(of) => {
                let (group, version) = of.split_once('/').unwrap_or(("", of));
                Some([group, version, "*"])
            }
            // Said in other ways, and over soon.
            Self::Everything | Self::Unproved(_) => None,
        }
    }
}

impl Unsynced {
    /// Whether it is over as soon as whoever proves has an answer.
    pub(crate) fn is_proved_soon(&self) -> bool {
        matches!(self.hole, Hole::Unproved(_))
    }

    /// Whether discovery has not answered since the process began.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.hole, Hole::Everything)
    }

    /// Whether it is still waited for, at `now`, in a term that began then. On its own account: whoever waits may lose
    /// patience before.
    pub(crate) fn has_time(&self, patience: Duration, term: Option<Instant>, now: Instant) -> bool {
        let Some(since) = self.since else { return true };
        now.saturating_duration_since(term.map_or(since, |it| it.max(since))) < patience
    }
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hole {
            Hole::Everything => f.write_str("whatever discovery has not told yet"),
            Hole::Group(of) => write!(f, "whatever {of} serves"),
            Hole::Unsynced(of) => write!(f, "{of}"),
            Hole::Behind(of) => write!(f, "{of} (cannot be watched any more)"),
            Hole::Doubted(of) => write!(f, "{of} (discovery lacks it)"),
            Hole::Unproved(of) => write!(f, "{of} (not proved since the term began)"),
        }
    }
}
