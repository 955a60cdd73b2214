use std::{sync::Arc, time::Duration};

use api::Uid;
use clock::{BootInstant, Clock};
use parking_lot::Mutex;

/// How long past its lease a leader may be seen not to renew before it counts as stuck.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The check `leaderElection`, cheap to clone: fails on a process that holds the Lease and does not renew it.
#[derive(Debug, Clone)]
pub struct Health {
    pub(crate) clock: Clock,
    pub(crate) name: String,
    pub(crate) lease_duration: Duration,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

/// The Lease has not been renewed for long, and yet this process goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed election to renew leadership on lease {lease}")]
pub struct NotRenewed {
    /// Its name.
    pub lease: String,
}

/// What the driver shows to others.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// While the Lease names us: when it was last written, or seen to change.
    pub(crate) held_since: Option<BootInstant>,
    pub(crate) uid: Uid,
    /// A write was sent, so the Lease may name us whatever we know of it.
    pub(crate) wrote: bool,
}

impl Health {
    /// Healthy are a standby, and a leader that renews. The suspension of the machine counts.
    ///
    /// # Errors
    /// If we hold the Lease and it was last renewed longer ago than the lease duration and 20 s.
    pub fn check(&self) -> Result<(), NotRenewed> {
        let held_since = self.seen.lock().held_since;
        let stuck =
            held_since.is_some_and(|it| self.clock.boot().saturating_since(it) > self.lease_duration + TOLERANCE);
        if stuck { Err(NotRenewed { lease: self.name.clone() }) } else { Ok(()) }
    }
}
