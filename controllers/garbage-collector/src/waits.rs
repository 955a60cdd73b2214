//! Limits how long owners wait for unsynced types before one of our finalizers is removed.
//!
//! A type is waited for during a limited time. Each owner also has a limit, which starts with its first wait. So new
//! types that fail to sync, one after the other, do not delay an owner longer.

use std::{collections::HashMap, time::Duration};

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// The longest wait: one type that cannot sync must not keep owners forever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The waiting owners, by the finalizer to remove.
#[derive(Default)]
pub(crate) struct Waits(Mutex<HashMap<(Uid, &'static str), Wait>>);

struct Wait {
    since: Instant,
    /// The missing types were logged.
    told: bool,
}

/// Whether an owner continues to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Lasts,
    /// The time limit of the owner has passed, or that of the missing types.
    Ends {
        /// The first time, so it must be logged.
        is_news: bool,
    },
}

impl Waits {
    /// Checks the limits while types are missing. `has_time`: one of the types is still within its own limit.
    pub(crate) fn ask(&self, owner: &Uid, finalizer: &'static str, has_time: bool, now: Instant) -> Patience {
        let mut waits = self.0.lock();
        let wait = waits.entry((owner.clone(), finalizer)).or_insert(Wait { since: now, told: false });
        if has_time && now.saturating_duration_since(wait.since) < PATIENCE {
            return Patience::Lasts;
        }
        Patience::Ends { is_news: !std::mem::replace(&mut wait.told, true) }
    }

    /// Ends the wait, with any result.
    pub(crate) fn over(&self, owner: &Uid, finalizer: &'static str) {
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
    fn an_owner_waits_for_thirty_seconds_in_all_and_is_named_once() {
        let (waits, start) = (Waits::default(), Clock::system().now());
        let (a, b) = (Uid::new("a"), Uid::new("b"));
        let ask = |of: &Uid, has_time: bool, at: u32| waits.ask(of, "orphan", has_time, start + at * SEC);
        let ends = |is_news: bool| Patience::Ends { is_news };
        assert_eq!(ask(&a, true, 0), Patience::Lasts);
        assert_eq!(ask(&a, true, 29), Patience::Lasts, "whichever types it are");
        assert_eq!(ask(&b, true, 29), Patience::Lasts);
        assert_eq!(ask(&a, true, 30), ends(true), "its own time is over");
        assert_eq!(ask(&a, true, 31), ends(false), "said once, also when it is tried again");
        assert_eq!(waits.ask(&a, "foregroundDeletion", true, start + 31 * SEC), Patience::Lasts, "that is another end");
        assert_eq!(ask(&b, true, 58), Patience::Lasts, "each has its own time");
        assert_eq!(ask(&b, false, 58), ends(true), "what it waits for had its time");
        assert_eq!(ask(&b, false, 59), ends(false));
        waits.over(&a, "orphan");
        waits.over(&b, "orphan");
        assert_eq!((ask(&a, true, 90), waits.0.lock().len()), (Patience::Lasts, 2), "what is over is forgotten");
    }
}
