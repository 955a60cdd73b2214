use clock::BootInstant;

use crate::Notes;

/// What the elector signals to the manager.
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
    /// A leader of ours that has stopped in order.
    ReleasedByOurs(Notes),
    /// A leader of ours that stopped renewing. Both instants are on our clock.
    CrashOfOurs {
        /// When we saw its last renewal.
        last_change: BootInstant,
        /// The server stores none of its writes after this. It may still be to come.
        last_write: BootInstant,
    },
    /// Any other holder, such as a Go manager.
    Other,
}
