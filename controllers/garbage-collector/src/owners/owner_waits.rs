//! Limits how long owners wait for unsynced types before one of our finalizers is removed.
//!
//! A type is waited for during a limited time. Each owner also has a limit, which starts with its first wait. So new
//! types that fail to sync, one after the other, do not delay an owner longer.

use std::{collections::HashMap, time::Duration};

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// The longest wait: one type that cannot sync must not keep owners forever.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(30);

/// The waiting owners, by the finalizer to remove.
#[derive(Default)]
pub(crate) struct OwnerWaits(Mutex<HashMap<(Uid, &'static str), Wait>>);

struct Wait {
    since: Instant,
    /// The missing types were logged.
    logged: bool,
}

/// Whether an owner continues to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitState {
    Waiting,
    /// The time limit of the owner has passed, or that of the missing types.
    Expired {
        /// The first time, so it must be logged.
        is_first: bool,
    },
}

impl OwnerWaits {
    /// Checks the limits while types are missing. `is_within_limit`: one of the types is still within its own limit.
    pub(crate) fn check(&self, owner: &Uid, finalizer: &'static str, is_within_limit: bool, now: Instant) -> WaitState {
        let mut waits = self.0.lock();
        let wait = waits.entry((owner.clone(), finalizer)).or_insert(Wait { since: now, logged: false });
        if is_within_limit && now.saturating_duration_since(wait.since) < MAX_WAIT {
            return WaitState::Waiting;
        }
        WaitState::Expired { is_first: !std::mem::replace(&mut wait.logged, true) }
    }

    /// Ends the wait, with any result.
    pub(crate) fn remove(&self, owner: &Uid, finalizer: &'static str) {
        let mut waits = self.0.lock();
        if !waits.is_empty() {
            waits.remove(&(owner.clone(), finalizer));
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn an_owner_waits_thirty_seconds_in_total_and_is_logged_once() {
        let (waits, start) = (OwnerWaits::default(), Clock::system().now());
        let (a, b) = (Uid::new("a"), Uid::new("b"));
        let check =
            |of: &Uid, is_within_limit: bool, at: u32| waits.check(of, "orphan", is_within_limit, start + at * SEC);
        let ends = |is_first: bool| WaitState::Expired { is_first };
        assert_eq!(check(&a, true, 0), WaitState::Waiting);
        assert_eq!(check(&a, true, 29), WaitState::Waiting, "for any types");
        assert_eq!(check(&b, true, 29), WaitState::Waiting);
        assert_eq!(check(&a, true, 30), ends(true), "its own limit is over");
        assert_eq!(check(&a, true, 31), ends(false), "reported once");
        assert_eq!(
            waits.check(&a, "foregroundDeletion", true, start + 31 * SEC),
            WaitState::Waiting,
            "another finalizer has its own limit"
        );
        assert_eq!(check(&b, true, 58), WaitState::Waiting, "each owner has its own limit");
        assert_eq!(check(&b, false, 58), ends(true), "all types have passed their limits");
        assert_eq!(check(&b, false, 59), ends(false));
        waits.remove(&a, "orphan");
        waits.remove(&b, "orphan");
        assert_eq!((check(&a, true, 90), waits.0.lock().len()), (WaitState::Waiting, 2), "expired entries are removed");
    }
}
