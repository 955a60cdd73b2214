use clock::BootInstant;

use crate::Notes;

/// What the elector signals to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// Another leader of ours has stopped renewing, and its fence has ended: it sends no more writes. What is read from
    /// `last_write` on is still true when this process leads. If the leader renews after all, this signal is void. It
    /// may then be sent again.
    ProveAhead {
        /// From this instant on the server stores no more writes of that leader. Until then it may still process a
        /// create.
        last_write: BootInstant,
    },
    /// This process leads, and the term has begun.
    Acquired(Takeover),
    /// This process has lost the Lease for good; its term is over. The reason is for log output.
    Lost(String),
    /// The Lease has a new holder, possibly this process. Sent once per change.
    NewLeader(String),
}

/// The previous holder, which decides what must be proved before the first write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takeover {
    /// No previous holder is visible: there was no Lease, or it never had a holder.
    First,
    /// A leader of ours that has released the Lease.
    ReleasedByOurs(Notes),
    /// A leader of ours that stopped renewing. Both instants are on our clock.
    CrashOfOurs {
        /// When this process observed its last renewal.
        last_change: BootInstant,
        /// From this instant on the server stores none of its writes. It may be in the future.
        last_write: BootInstant,
    },
    /// Any other holder, such as a Go manager.
    Other,
}
