use std::{sync::Arc, time::Duration};

use api::Uid;
use clock::{BootInstant, Clock};
use parking_lot::Mutex;

/// A leader that has not renewed for the lease duration plus this time is unhealthy
/// (`leaderelection.NewLeaderHealthzAdaptor`).
const TOLERANCE: Duration = Duration::from_secs(20);

/// The health check `leaderElection`. It fails if this process holds the Lease and does not renew it. It is cheap to
/// clone.
#[derive(Debug, Clone)]
pub struct Health {
    pub(crate) clock: Clock,
    pub(crate) name: String,
    pub(crate) lease_duration: Duration,
    pub(crate) lease_state: Arc<Mutex<LeaseState>>,
}

/// This process holds the Lease and still runs, but has not renewed it for too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed election to renew leadership on lease {lease}")]
pub struct NotRenewed {
    /// The name of the Lease.
    pub lease: String,
}

/// The state that the driver shares.
#[derive(Debug, Default)]
pub(crate) struct LeaseState {
    /// When the Lease was last written or observed to change; `None` if it does not name this process.
    pub(crate) held_since: Option<BootInstant>,
    pub(crate) uid: Uid,
    /// True after a write was sent: the Lease may name this process, even if this was never observed.
    pub(crate) has_written: bool,
}

impl Health {
    /// A standby is healthy, and so is a leader that renews. Time during which the host was suspended counts.
    ///
    /// # Errors
    /// If this process holds the Lease and has not renewed it for longer than the lease duration plus 20 s.
    pub fn check(&self) -> Result<(), NotRenewed> {
        let held_since = self.lease_state.lock().held_since;
        let stuck =
            held_since.is_some_and(|it| self.clock.boot().saturating_since(it) > self.lease_duration + TOLERANCE);
        if stuck { Err(NotRenewed { lease: self.name.clone() }) } else { Ok(()) }
    }
}
