use clock::BootInstant;

use crate::Notes;

/// What the manager is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// Another leader of ours has stopped renewing, and its fence has ended: it sends no more writes. What is read from
    /// `last_write` on holds when we lead. Void as soon as the leader renews after all; then it may come again.
    ProveAhead {
        /// From this instant on the server stores nothing more of that leader: until then it may work on a create.
        last_write: BootInstant,
    },
    /// We lead, and the term has begun.
    Acquired(Takeover),
    /// We do not lead any more, for good; the term is over. The reason is for people.
    Lost(String),
    /// Somebody leads, maybe we: told once per change.
    NewLeader(String),
}

/// From whom we took over, which decides what must be proved before we act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takeover {
    /// Nobody, as far as can be seen: no Lease was there, or nobody had led by it.
    First,
    /// A leader of ours that has stopped in order.
    ReleasedByOurs(Notes),
    /// A leader of ours that stopped renewing. Both instants are on our clock.
    CrashOfOurs {
        /// When we saw its last renewal.
        last_change: BootInstant,
        /// The server stores none of its writes after this. It may still be to come.
        last_write: BootInstant,
    },
    /// Anybody else, such as a Go manager.
    Other,
}
