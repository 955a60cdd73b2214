//! What is known of a CronJob beyond the stored status. By uid, and removed with the CronJob. Empty after a restart.

use std::collections::HashMap;

use api::{CronJob, Uid};
use parking_lot::Mutex;

use crate::{notice::Notice, status::Change};

/// The CronJobs with an entry.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Uid, Known>>);

#[derive(Default)]
struct Known {
    /// The notices that hold and whose events were sent.
    told: Vec<Notice>,
    /// The time in the status that was in the future, and when it was first seen; in seconds since the epoch.
    ahead: Option<(i64, i64)>,
    /// Changes that are not in the stored status yet.
    unwritten: Option<Change>,
    /// The time for which a Job was requested without a response, so that the Job may exist.
    asked: Option<i64>,
    /// The server has no such CronJob, though the cache still shows it.
    gone: bool,
    /// The last edit of its schedule, until a later time has run.
    edit: Option<Edit>,
}

/// An edit of a schedule or time zone.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    /// When the edit before this one was seen, or `i64::MIN`; in seconds since the epoch.
    pub(crate) earlier: i64,
    /// When this edit was seen.
    pub(crate) at: i64,
    /// The schedule before this edit.
    pub(crate) schedule: Box<str>,
    /// The time zone before this edit.
    pub(crate) zone: Option<Box<str>>,
}

impl Memory {
    /// Whether the event of this notice was sent and the notice still holds.
    pub(crate) fn has_told(&self, uid: &Uid, notice: &Notice) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.told.contains(notice))
    }

    /// Stores the notices that hold now. Returns those that did not hold before.
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

    /// From when times count if `last` in the status is in the future: from when this was first seen.
    pub(crate) fn counts_from(&self, uid: &Uid, last: i64, now: i64) -> i64 {
        let mut all = self.0.lock();
        let ahead = &mut all.entry(uid.clone()).or_default().ahead;
        // If the clock was set back since, the start is set back too.
        let (_, since) = *ahead.insert(ahead.filter(|(of, since)| *of == last && *since <= now).unwrap_or((last, now)));
        since
    }

    /// The time in the status is not in the future.
    pub(crate) fn is_not_ahead(&self, uid: &Uid) {
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(uid) {
            known.ahead = None;
            drop_if_empty(&mut all, uid);
        }
    }

    /// Keeps a change until the next sync writes it. So a time does not run twice, even if its Job is gone by then.
    pub(crate) fn keep(&self, uid: &Uid, change: Change) {
        self.0.lock().entry(uid.clone()).or_default().unwritten = Some(change);
    }

    /// The kept change.
    pub(crate) fn unwritten(&self, uid: &Uid) -> Option<Change> {
        self.0.lock().get(uid)?.unwritten.clone()
    }

    /// Removes the kept change, because it is stored.
    pub(crate) fn on_written(&self, uid: &Uid) {
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(uid) {
            known.unwritten = None;
            drop_if_empty(&mut all, uid);
        }
    }

    /// Whether a change, or a possible creation, is not in the stored status.
    pub(crate) fn is_untold(&self, uid: &Uid) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.unwritten.is_some() || it.asked.is_some())
    }

    /// The time for which a Job was requested without a response.
    pub(crate) fn asked(&self, uid: &Uid) -> Option<i64> {
        self.0.lock().get(uid)?.asked
    }

    /// The creation of a Job for this time had no response.
    pub(crate) fn no_answer(&self, uid: &Uid, at: i64) {
        self.0.lock().entry(uid.clone()).or_default().asked = Some(at);
    }

    /// The outcome of that creation is known.
    pub(crate) fn answered(&self, uid: &Uid) {
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(uid) {
            known.asked = None;
            drop_if_empty(&mut all, uid);
        }
    }

    /// The server has no such CronJob. Kept until the cache shows it too.
    pub(crate) fn gone(&self, uid: &Uid) {
        self.0.lock().entry(uid.clone()).or_default().gone = true;
    }

    /// Whether the server has no such CronJob.
    pub(crate) fn is_gone(&self, uid: &Uid) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.gone)
    }

    /// An event of the CronJob came, so it may exist.
    pub(crate) fn may_be_there(&self, uid: &Uid) {
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(uid) {
            known.gone = false;
            drop_if_empty(&mut all, uid);
        }
    }

    /// Stores that the schedule was edited at `now`. `was` is the CronJob before the edit.
    pub(crate) fn on_edit(&self, was: &CronJob, now: i64) {
        let mut all = self.0.lock();
        let edit = &mut all.entry(was.meta.uid.clone()).or_default().edit;
        let earlier = edit.take().map_or(i64::MIN, |it| it.at.min(now));
        let (schedule, zone) = (was.spec.schedule.clone(), was.spec.time_zone.clone());
        *edit = Some(Edit { earlier, at: now, schedule, zone });
    }

    /// The last edit, if it was after `from`, the last time that ran. Otherwise the edit is removed.
    pub(crate) fn edit_after(&self, uid: &Uid, from: i64, now: i64) -> Option<Edit> {
        let mut all = self.0.lock();
        let edit = &mut all.get_mut(uid)?.edit;
        *edit = edit.take().filter(|it| it.at > from);
        if let Some(edit) = edit {
            // If the clock was set back since, the edit is set back too.
            edit.at = edit.at.min(now);
            edit.earlier = edit.earlier.min(now);
        }
        let edit = edit.clone();
        drop_if_empty(&mut all, uid);
        edit
    }

    /// The cache shows that the CronJob is gone.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.0.lock().remove(uid);
    }
}

fn drop_if_empty(all: &mut HashMap<Uid, Known>, uid: &Uid) {
    let is_empty = |it: &Known| {
        let Known { told, ahead, unwritten, asked, gone, edit } = it;
        let nothing_happened = unwritten.is_none() && asked.is_none() && edit.is_none();
        told.is_empty() && ahead.is_none() && nothing_happened && !gone
    };
    if all.get(uid).is_some_and(is_empty) {
        all.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::snapshot::tests::cron_job;

    #[test]
    fn a_notice_is_told_when_it_begins_to_hold() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        let (one, two) = (Notice::JobAlreadyActive { at: 1 }, Notice::MissSchedule { at: 1 });
        assert_eq!(memory.tell(&uid, vec![one.clone()]), from_ref(&one));
        assert_eq!(memory.tell(&uid, vec![one.clone(), two.clone()]), from_ref(&two));
        assert!(memory.has_told(&uid, &one) && !memory.has_told(&Uid::new("v"), &one));
        assert!(memory.tell(&uid, vec![two.clone()]).is_empty());
        assert_eq!(memory.tell(&uid, vec![one.clone()]), from_ref(&one), "it had ended meanwhile");
        assert!(memory.tell(&uid, Vec::new()).is_empty());
        assert!(memory.0.lock().is_empty(), "of what is in order nothing is kept");
        assert_eq!(memory.tell(&uid, vec![one.clone()]), from_ref(&one));
        memory.forget(&uid);
        assert!(memory.0.lock().is_empty());
    }

    #[test]
    fn what_was_kept_is_known_until_it_is_written() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        let change = Change { last_schedule: Some(60), ..Change::default() };
        memory.keep(&uid, change.clone());
        assert!(memory.tell(&uid, Vec::new()).is_empty());
        assert!(memory.is_untold(&uid) && !memory.is_untold(&Uid::new("v")));
        assert_eq!(memory.unwritten(&uid), Some(change.clone()));
        assert!(memory.is_untold(&uid));
        memory.on_written(&uid);
        assert!(!memory.is_untold(&uid) && memory.unwritten(&uid).is_none() && memory.0.lock().is_empty());
        memory.keep(&uid, change);
        memory.forget(&uid);
        assert!(memory.unwritten(&uid).is_none());
    }

    #[test]
    fn what_was_asked_for_is_known_until_it_is_answered_and_what_is_gone_until_the_cache_shows_it() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        memory.no_answer(&uid, 60);
        assert!(memory.unwritten(&uid).is_none());
        assert_eq!((memory.asked(&uid), memory.is_gone(&uid)), (Some(60), false));
        assert!(memory.is_untold(&uid));
        memory.answered(&uid);
        assert!(memory.asked(&uid).is_none() && memory.0.lock().is_empty());
        memory.gone(&uid);
        memory.answered(&uid);
        assert!(memory.is_gone(&uid) && !memory.is_gone(&Uid::new("v")));
        memory.forget(&uid);
        assert!(!memory.is_gone(&uid));
        memory.gone(&uid);
        memory.may_be_there(&uid);
        assert!(!memory.is_gone(&uid) && memory.0.lock().is_empty());
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

    #[test]
    fn an_edit_is_remembered_until_a_later_time_has_run() {
        let (memory, was) = (Memory::default(), cron_job(serde_json::json!({})));
        let uid = &was.meta.uid;
        let edit = |from, now| memory.edit_after(uid, from, now).map(|it| (it.earlier, it.at));
        assert_eq!(edit(0, 100), None);
        memory.on_edit(&was, 100);
        assert_eq!((edit(60, 160), edit(100, 160)), (Some((i64::MIN, 100)), None));
        assert!(memory.0.lock().is_empty());
        memory.on_edit(&was, 200);
        memory.on_edit(&was, 300);
        assert_eq!(edit(60, 300), Some((200, 300)));
        assert_eq!(edit(60, 250), Some((200, 250)), "the clock was set back");
        assert_eq!(edit(60, 100), Some((100, 100)));
        memory.forget(uid);
        assert_eq!(edit(60, 300), None);
    }
}
