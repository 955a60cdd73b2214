//! Owners that wait, before they lose one of our finalizers, until all their dependents can be known.
//!
//! A type has a time in which it is waited for; so has each owner, counted from when it first waited. New types that do
//! not sync, one after the other, hold up nobody for longer.

use std::{collections::HashMap, time::Duration};

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// So long at most: one type that cannot sync must not keep owners for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Who waits to lose which finalizer.
#[derive(Default)]
pub(crate) struct Waits(Mutex<HashMap<(Uid, &'static str), Wait>>);

struct Wait {
    since: Instant,
    /// What it goes without was told.
    told: bool,
}

/// Whether an owner waits on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Lasts,
    /// Its time is over, or that of what it waited for.
    Ends {
        /// For the first time: people are to be told.
        is_news: bool,
    },
}

impl Waits {
    /// Something may be unknown; `has_time`: it is still waited for on its own account.
    pub(crate) fn ask(&self, owner: &Uid, finalizer: &'static str, has_time: bool, now: Instant) -> Patience {
        let mut waits = self.0.lock();
        let wait = waits.entry((owner.clone(), finalizer)).or_insert(Wait { since: now, told: false });
        if has_time && now.saturating_duration_since(wait.since) < PATIENCE {
            return Patience::Lasts;
        }
        Patience::Ends { is_news: !std::mem::replace(&mut wait.told, true) }
    }

    /// It waits no more, whatever became of it.
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
