//! What is known of a CronJob beyond what the server stores. By uid, and dropped with it; a new process begins without.

use std::collections::HashMap;

use api::Uid;
use parking_lot::Mutex;

use crate::notice::Notice;

/// Of all CronJobs of which there is something to remember.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Uid, Known>>);

#[derive(Default)]
struct Known {
    /// What holds, and was told.
    told: Vec<Notice>,
    /// The status names this time, which was to come when we looked: then, in seconds since the epoch.
    ahead: Option<(i64, i64)>,
}

impl Memory {
    /// Whether a notice was told and still holds.
    pub(crate) fn has_told(&self, uid: &Uid, notice: &Notice) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.told.contains(notice))
    }

    /// Remembers that these notices hold and no others; returns those that did not hold before.
    pub(crate) fn tell(&self, uid: &Uid, holds: Vec<Notice>) -> Vec<Notice> {
        let mut all = self.0.lock();
        if holds.is_empty() {
            if let Some(known) = all.get_mut(uid) {
                known.told = Vec::new();
            }
            drop_if_empty(&mut all, uid);
            return Vec::new();
        }
        let known = all.entry(uid.clone()).or_default();
        let new = holds.iter().filter(|it| !known.told.contains(it)).cloned().collect();
        known.told = holds;
        new
    }

    /// Since when times count, where the status says that `last` ran, which is to come: since this was first seen.
    pub(crate) fn counts_from(&self, uid: &Uid, last: i64, now: i64) -> i64 {
        let mut all = self.0.lock();
        let ahead = &mut all.entry(uid.clone()).or_default().ahead;
        // Should the clock have gone back since, so does the beginning.
        let (_, since) = *ahead.insert(ahead.filter(|(of, since)| *of == last && *since <= now).unwrap_or((last, now)));
        since
    }

    /// The status names no time that is to come.
    pub(crate) fn is_not_ahead(&self, uid: &Uid) {
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(uid) {
            known.ahead = None;
            drop_if_empty(&mut all, uid);
        }
    }

    /// The CronJob is gone.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.0.lock().remove(uid);
    }
}

fn drop_if_empty(all: &mut HashMap<Uid, Known>, uid: &Uid) {
    if all.get(uid).is_some_and(|it| it.told.is_empty() && it.ahead.is_none()) {
        all.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_told_when_it_begins_to_hold() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        let (one, two) = (Notice::JobAlreadyActive { at: 1 }, Notice::MissSchedule { at: 1 });
        assert_eq!(memory.tell(&uid, vec![one.clone()]), [one.clone()]);
        assert_eq!(memory.tell(&uid, vec![one.clone(), two.clone()]), [two.clone()]);
        assert!(memory.has_told(&uid, &one) && !memory.has_told(&Uid::new("v"), &one));
        assert!(memory.tell(&uid, vec![two.clone()]).is_empty());
        assert_eq!(memory.tell(&uid, vec![one.clone()]), [one.clone()], "it had ended meanwhile");
        assert!(memory.tell(&uid, Vec::new()).is_empty());
        assert!(memory.0.lock().is_empty(), "of what is in order nothing is kept");
        assert_eq!(memory.tell(&uid, vec![one.clone()]), [one.clone()]);
        memory.forget(&uid);
        assert!(memory.0.lock().is_empty());
    }

    #[test]
    fn times_count_since_it_was_first_seen_that_the_last_is_to_come() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        assert_eq!(memory.counts_from(&uid, 500, 100), 100);
        assert_eq!(memory.counts_from(&uid, 500, 160), 100);
        assert_eq!(memory.counts_from(&uid, 500, 40), 40, "the clock was set back");
        assert_eq!(memory.counts_from(&uid, 600, 50), 50, "another time");
        memory.is_not_ahead(&uid);
        assert!(memory.0.lock().is_empty());
    }
}
