//! What a sync changes in the status, as a change: it is made to whatever the status is when it is written.

use std::collections::BTreeSet;

use api::{ActiveJob, CronJobStatus, Uid};

/// What is to be different.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// No longer active.
    pub(crate) gone: BTreeSet<Uid>,
    /// Active from now on.
    pub(crate) begun: Vec<ActiveJob>,
    /// The time that ran last.
    pub(crate) last_schedule: Option<i64>,
    /// A Job completed then, and perhaps another one later.
    pub(crate) last_successful: Option<i64>,
}

impl Change {
    /// The status with the change; `None` where it says all of this already.
    pub(crate) fn of(&self, status: &CronJobStatus) -> Option<CronJobStatus> {
        let Self { gone: _, begun: _, last_schedule, last_successful } = self;
        let mut changed = status.clone();
        changed.active = self.active(status);
        changed.last_schedule = last_schedule.or(status.last_schedule);
        // It never moves back.
        changed.last_successful = status.last_successful.max(*last_successful);
        (changed != *status).then_some(changed)
    }

    /// The active Jobs with the change.
    pub(crate) fn active(&self, status: &CronJobStatus) -> Vec<ActiveJob> {
        let mut active: Vec<ActiveJob> =
            status.active.iter().filter(|it| !self.gone.contains(&it.uid)).cloned().collect();
        for begun in &self.begun {
            if active.iter().all(|it| it.uid != begun.uid) && !self.gone.contains(&begun.uid) {
                active.push(begun.clone());
            }
        }
        active
    }
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
    fn a_change_is_made_to_whatever_the_status_is() {
        let change = Change {
            gone: [Uid::new("a"), Uid::new("x")].into(),
            begun: vec![active("b")],
            last_schedule: Some(60),
            last_successful: Some(50),
        };
        let want = status(&["b"], Some(60), Some(50));
        assert_eq!(change.of(&status(&["a"], Some(0), None)), Some(want.clone()));
        assert_eq!(change.of(&status(&["a", "b"], None, Some(7))), Some(want.clone()));
        assert_eq!(change.of(&want), None, "it says so already");
        let other = change.of(&status(&["c", "a"], None, None)).unwrap();
        assert_eq!(other, status(&["c", "b"], Some(60), Some(50)), "what others wrote meanwhile stays");
        assert_eq!(Change::default().of(&status(&["a"], Some(1), Some(2))), None);
    }

    #[test]
    fn acceptance_cronjob_029_the_last_success_never_moves_back() {
        let change = Change { last_successful: Some(50), ..Change::default() };
        assert_eq!(change.of(&status(&[], None, Some(51))), None);
        assert_eq!(change.of(&status(&[], None, Some(49))).unwrap().last_successful, Some(50));
    }

    #[test]
    fn one_that_is_gone_is_not_active_though_it_began_in_the_same_sync() {
        let change = Change { gone: [Uid::new("a")].into(), begun: vec![active("a")], ..Change::default() };
        assert!(change.active(&status(&["a"], None, None)).is_empty());
    }
}
