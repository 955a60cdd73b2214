//! The status changes of a sync. They are applied to the status at the time of the write.

use std::collections::BTreeSet;

use api::{ActiveJob, CronJobStatus, Uid};

/// A change of the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Jobs to remove from `active`.
    pub(crate) gone: BTreeSet<Uid>,
    /// Jobs to add to `active`.
    pub(crate) started: Vec<ActiveJob>,
    /// The last time that ran.
    pub(crate) last_schedule: Option<i64>,
    /// A future time in the status that must be ignored.
    pub(crate) wrong: Option<i64>,
    /// The completion time of a Job; another Job may have completed later.
    pub(crate) last_successful: Option<i64>,
}

impl Change {
    /// This change followed by another one.
    pub(crate) fn then(mut self, later: Self) -> Self {
        let Self { gone, started, last_schedule, wrong, last_successful } = later;
        self.gone.extend(gone);
        self.started.extend(started);
        self.last_schedule = latest(self.last_schedule, wrong, last_schedule);
        self.wrong = wrong.or(self.wrong);
        self.last_successful = self.last_successful.max(last_successful);
        self
    }

    /// The status with this change; `None` if nothing differs.
    pub(crate) fn apply_to(&self, status: &CronJobStatus) -> Option<CronJobStatus> {
        let Self { gone: _, started: _, last_schedule, wrong, last_successful } = self;
        let mut changed = status.clone();
        changed.active = self.active(status);
        // Neither time may move back, whatever other clients have written meanwhile.
        changed.last_schedule = latest(status.last_schedule, *wrong, *last_schedule);
        changed.last_successful = status.last_successful.max(*last_successful);
        (changed != *status).then_some(changed)
    }

    /// The active Jobs with this change.
    pub(crate) fn active(&self, status: &CronJobStatus) -> Vec<ActiveJob> {
        let mut active: Vec<ActiveJob> =
            status.active.iter().filter(|it| !self.gone.contains(&it.uid)).cloned().collect();
        for started in &self.started {
            if active.iter().all(|it| it.uid != started.uid) && !self.gone.contains(&started.uid) {
                active.push(started.clone());
            }
        }
        active
    }
}

/// The later of two last times, unless the first is known to be wrong.
fn latest(known: Option<i64>, wrong: Option<i64>, new: Option<i64>) -> Option<i64> {
    if new.is_some() && known == wrong { new } else { known.max(new) }
}

#[cfg(test)]
mod tests {
    use api::Version;

    use super::*;

    fn active(uid: &str) -> ActiveJob {
        ActiveJob::new(&"ns".into(), uid, Uid::new(uid), Version::default())
    }

    fn status(uids: &[&str], last_schedule: Option<i64>, last_successful: Option<i64>) -> CronJobStatus {
        let mut status = CronJobStatus::default();
        status.active = uids.iter().map(|it| active(it)).collect();
        (status.last_schedule, status.last_successful) = (last_schedule, last_successful);
        status
    }

    #[test]
    fn a_change_applies_to_any_status() {
        let change = Change {
            gone: [Uid::new("a"), Uid::new("x")].into(),
            started: vec![active("b")],
            last_schedule: Some(60),
            last_successful: Some(50),
            ..Change::default()
        };
        let want = status(&["b"], Some(60), Some(50));
        assert_eq!(change.apply_to(&status(&["a"], Some(0), None)), Some(want.clone()));
        assert_eq!(change.apply_to(&status(&["a", "b"], None, Some(7))), Some(want.clone()));
        assert_eq!(change.apply_to(&want), None, "the status already contains it");
        let other = change.apply_to(&status(&["c", "a"], None, None)).unwrap();
        assert_eq!(other, status(&["c", "b"], Some(60), Some(50)), "writes of other clients stay");
        assert_eq!(Change::default().apply_to(&status(&["a"], Some(1), Some(2))), None);
    }

    #[test]
    fn acceptance_cronjob_029_the_last_success_never_moves_back() {
        let change = Change { last_successful: Some(50), ..Change::default() };
        assert_eq!(change.apply_to(&status(&[], None, Some(51))), None);
        assert_eq!(change.apply_to(&status(&[], None, Some(49))).unwrap().last_successful, Some(50));
    }

    #[test]
    fn the_last_time_moves_back_only_where_it_is_known_to_be_wrong() {
        let ran = |wrong| Change { last_schedule: Some(60), wrong, ..Change::default() };
        let written = |wrong, known| ran(wrong).apply_to(&status(&[], known, None)).map(|it| it.last_schedule);
        assert_eq!(written(None, Some(120)), None, "another manager ran a later time");
        assert_eq!(written(None, Some(0)), Some(Some(60)));
        assert_eq!(written(Some(9000), Some(9000)), Some(Some(60)));
        assert_eq!(written(Some(9000), Some(120)), None, "another client corrected it");
        let kept = Change { last_schedule: Some(9000), ..Change::default() };
        assert_eq!(kept.clone().then(ran(None)).last_schedule, Some(9000));
        assert_eq!(kept.then(ran(Some(9000))).last_schedule, Some(60));
    }

    #[test]
    fn two_changes_are_added() {
        let began = Change { started: vec![active("a")], last_schedule: Some(60), ..Change::default() };
        let ended = Change { gone: [Uid::new("a")].into(), last_successful: Some(70), ..Change::default() };
        let next = Change { started: vec![active("b")], last_schedule: Some(120), ..Change::default() };
        let all = began.then(ended).then(next);
        assert_eq!(all.apply_to(&status(&[], None, None)), Some(status(&["b"], Some(120), Some(70))));
    }

    #[test]
    fn a_job_started_and_gone_in_one_sync_is_not_active() {
        let change = Change { gone: [Uid::new("a")].into(), started: vec![active("a")], ..Change::default() };
        assert!(change.active(&status(&["a"], None, None)).is_empty());
    }
}
