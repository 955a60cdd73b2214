//! What is known of a CronJob beyond the stored status. By uid, and removed with the CronJob. Empty after a restart.

use std::collections::HashMap;

use api::{CronJob, Uid};
use parking_lot::Mutex;

use crate::rules::{notice::Notice, status::Change};

/// The memory of all CronJobs.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Uid, CronJobMemory>>);

#[derive(Default)]
struct CronJobMemory {
    /// The notices that hold and whose events were sent.
    sent: Vec<Notice>,
    /// The time in the status that was in the future, and when it was first seen; in seconds since the epoch.
    future_time: Option<(i64, i64)>,
    /// Changes that are not in the stored status yet.
    unwritten: Option<Change>,
    /// The time for which a Job was requested without a response, so that the Job may exist.
    unanswered_create: Option<i64>,
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
    pub(crate) fn has_sent(&self, uid: &Uid, notice: &Notice) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.sent.contains(notice))
    }

    /// Stores the notices that hold now. Returns those that did not hold before.
    pub(crate) fn update_notices(&self, uid: &Uid, holds: Vec<Notice>) -> Vec<Notice> {
        if holds.is_empty() {
            self.clear(uid, |it| it.sent = Vec::new());
            return Vec::new();
        }
        let mut all = self.0.lock();
        let memory = all.entry(uid.clone()).or_default();
        let new = holds.iter().filter(|it| !memory.sent.contains(it)).cloned().collect();
        memory.sent = holds;
        new
    }

    /// Clears a field of an entry, and removes the entry if nothing else is in it.
    fn clear(&self, uid: &Uid, clear: impl FnOnce(&mut CronJobMemory)) {
        let mut all = self.0.lock();
        if let Some(memory) = all.get_mut(uid) {
            clear(memory);
            remove_if_empty(&mut all, uid);
        }
    }

    /// From when times count if `last` in the status is in the future: from when this was first seen.
    pub(crate) fn record_future_time(&self, uid: &Uid, last: i64, now: i64) -> i64 {
        let mut all = self.0.lock();
        let future_time = &mut all.entry(uid.clone()).or_default().future_time;
        // If the clock was set back since, the start is set back too.
        let (_, since) =
            *future_time.insert(future_time.filter(|(of, since)| *of == last && *since <= now).unwrap_or((last, now)));
        since
    }

    /// The time in the status is not in the future.
    pub(crate) fn clear_future_time(&self, uid: &Uid) {
        self.clear(uid, |it| it.future_time = None);
    }

    /// Keeps a change until the next sync writes it. So a time does not run twice, even if its Job is gone by then.
    pub(crate) fn store_unwritten(&self, uid: &Uid, change: Change) {
        self.0.lock().entry(uid.clone()).or_default().unwritten = Some(change);
    }

    /// The kept change.
    pub(crate) fn unwritten(&self, uid: &Uid) -> Option<Change> {
        self.0.lock().get(uid)?.unwritten.clone()
    }

    /// Removes the kept change, because it is stored.
    pub(crate) fn on_written(&self, uid: &Uid) {
        self.clear(uid, |it| it.unwritten = None);
    }

    /// Whether a change, or a possible creation, is not in the stored status.
    pub(crate) fn has_unwritten(&self, uid: &Uid) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.unwritten.is_some() || it.unanswered_create.is_some())
    }

    /// The time for which a Job was requested without a response.
    pub(crate) fn unanswered_create(&self, uid: &Uid) -> Option<i64> {
        self.0.lock().get(uid)?.unanswered_create
    }

    /// The creation of a Job for this time had no response.
    pub(crate) fn on_unanswered_create(&self, uid: &Uid, at: i64) {
        self.0.lock().entry(uid.clone()).or_default().unanswered_create = Some(at);
    }

    /// The outcome of that creation is known.
    pub(crate) fn clear_unanswered_create(&self, uid: &Uid) {
        self.clear(uid, |it| it.unanswered_create = None);
    }

    /// The server has no such CronJob. Kept until the cache shows it too.
    pub(crate) fn mark_gone(&self, uid: &Uid) {
        self.0.lock().entry(uid.clone()).or_default().gone = true;
    }

    /// Whether the server has no such CronJob.
    pub(crate) fn is_gone(&self, uid: &Uid) -> bool {
        self.0.lock().get(uid).is_some_and(|it| it.gone)
    }

    /// An event of the CronJob came, so it may exist.
    pub(crate) fn clear_gone(&self, uid: &Uid) {
        self.clear(uid, |it| it.gone = false);
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
        remove_if_empty(&mut all, uid);
        edit
    }

    /// The cache shows that the CronJob is gone.
    pub(crate) fn remove(&self, uid: &Uid) {
        self.0.lock().remove(uid);
    }
}

fn remove_if_empty(all: &mut HashMap<Uid, CronJobMemory>, uid: &Uid) {
    let is_empty = |it: &CronJobMemory| {
        let CronJobMemory { sent, future_time, unwritten, unanswered_create, gone, edit } = it;
        let nothing_happened = unwritten.is_none() && unanswered_create.is_none() && edit.is_none();
        sent.is_empty() && future_time.is_none() && nothing_happened && !gone
    };
    if all.get(uid).is_some_and(is_empty) {
        all.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::rules::snapshot::tests::cron_job;

    #[test]
    fn an_event_is_sent_when_its_notice_begins_to_hold() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        let (one, two) = (Notice::JobAlreadyActive { at: 1 }, Notice::MissSchedule { at: 1 });
        assert_eq!(memory.update_notices(&uid, vec![one.clone()]), from_ref(&one));
        assert_eq!(memory.update_notices(&uid, vec![one.clone(), two.clone()]), from_ref(&two));
        assert!(memory.has_sent(&uid, &one) && !memory.has_sent(&Uid::new("v"), &one));
        assert!(memory.update_notices(&uid, vec![two.clone()]).is_empty());
        assert_eq!(memory.update_notices(&uid, vec![one.clone()]), from_ref(&one), "it did not hold in between");
        assert!(memory.update_notices(&uid, Vec::new()).is_empty());
        assert!(memory.0.lock().is_empty(), "an entry without notices is removed");
        assert_eq!(memory.update_notices(&uid, vec![one.clone()]), from_ref(&one));
        memory.remove(&uid);
        assert!(memory.0.lock().is_empty());
    }

    #[test]
    fn an_unwritten_change_is_kept_until_it_is_written() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        let change = Change { last_schedule: Some(60), ..Change::default() };
        memory.store_unwritten(&uid, change.clone());
        assert!(memory.update_notices(&uid, Vec::new()).is_empty());
        assert!(memory.has_unwritten(&uid) && !memory.has_unwritten(&Uid::new("v")));
        assert_eq!(memory.unwritten(&uid), Some(change.clone()));
        assert!(memory.has_unwritten(&uid));
        memory.on_written(&uid);
        assert!(!memory.has_unwritten(&uid) && memory.unwritten(&uid).is_none() && memory.0.lock().is_empty());
        memory.store_unwritten(&uid, change);
        memory.remove(&uid);
        assert!(memory.unwritten(&uid).is_none());
    }

    #[test]
    fn unanswered_creates_and_gone_marks_are_kept_until_resolved() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        memory.on_unanswered_create(&uid, 60);
        assert!(memory.unwritten(&uid).is_none());
        assert_eq!((memory.unanswered_create(&uid), memory.is_gone(&uid)), (Some(60), false));
        assert!(memory.has_unwritten(&uid));
        memory.clear_unanswered_create(&uid);
        assert!(memory.unanswered_create(&uid).is_none() && memory.0.lock().is_empty());
        memory.mark_gone(&uid);
        memory.clear_unanswered_create(&uid);
        assert!(memory.is_gone(&uid) && !memory.is_gone(&Uid::new("v")));
        memory.remove(&uid);
        assert!(!memory.is_gone(&uid));
        memory.mark_gone(&uid);
        memory.clear_gone(&uid);
        assert!(!memory.is_gone(&uid) && memory.0.lock().is_empty());
    }

    #[test]
    fn a_future_last_time_counts_from_when_it_was_first_seen() {
        let (memory, uid) = (Memory::default(), Uid::new("u"));
        assert_eq!(memory.record_future_time(&uid, 500, 100), 100);
        assert_eq!(memory.record_future_time(&uid, 500, 160), 100);
        assert_eq!(memory.record_future_time(&uid, 500, 40), 40, "the clock was set back");
        assert_eq!(memory.record_future_time(&uid, 600, 50), 50, "another time");
        memory.clear_future_time(&uid);
        assert!(memory.0.lock().is_empty());
    }

    #[test]
    fn an_edit_is_kept_until_a_later_time_has_run() {
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
        memory.remove(uid);
        assert_eq!(edit(60, 300), None);
    }
}
