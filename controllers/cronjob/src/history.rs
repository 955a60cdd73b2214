//! Which ended Jobs are too many.

use api::CronJob;

use crate::{
    plan::AHEAD,
    snapshot::{Child, End, made_for},
};

/// The oldest of those that ended alike, as many as are over the limit; without a limit none. Those that are being
/// deleted are gone already, for the limit too.
pub(crate) fn surplus<'a>(children: &[Child<'a>], end: End, limit: Option<i32>) -> Vec<Child<'a>> {
    let Some(limit) = limit else { return Vec::new() };
    let ended = children.iter().filter(|it| it.end == Some(end) && it.job.meta.deletion.is_none());
    let mut ended: Vec<Child<'a>> = ended.copied().collect();
    // One that never started is kept longest.
    ended.sort_by_key(|it| (it.job.status.start.unwrap_or(i64::MAX), &*it.job.meta.name));
    let kept = usize::try_from(limit).unwrap_or(0);
    ended.truncate(ended.len().saturating_sub(kept));
    ended
}

/// True for a Job that alone keeps its time from running again: the status, as the server has it, does not tell of the time
/// yet. One for a time that is far ahead is left from an error of a clock.
pub(crate) fn is_lock(cron_job: &CronJob, child: &Child<'_>, now: i64) -> bool {
    let is_told = |at: i64| cron_job.status.last_schedule.is_some_and(|last| at <= last);
    made_for(cron_job, child.job).is_some_and(|at| !is_told(at) && at <= now + AHEAD)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot::tests::{Jobs, cron_job, job, rfc3339};

    /// The names of those that go.
    fn gone(jobs: &Jobs, end: End, limit: Option<i32>) -> Vec<String> {
        surplus(&jobs.children(), end, limit).iter().map(|it| it.job.meta.name.to_string()).collect()
    }

    #[test]
    fn acceptance_cronjob_048_the_oldest_go_ties_by_name_and_each_kind_for_itself() {
        let jobs = Jobs::from([
            job("c-3").started(30).complete(40),
            job("c-1").started(10).complete(20),
            job("c-2").started(10).complete(20),
            job("never").complete(5),
            job("f-1").started(1).failed(),
            job("f-2").started(2).failed(),
            job("runs").started(0),
        ]);
        let complete = |limit| gone(&jobs, End::Complete, Some(limit));
        assert_eq!(complete(1), ["c-1", "c-2", "c-3"]);
        assert_eq!(complete(2), ["c-1", "c-2"]);
        assert_eq!(complete(3), ["c-1"]);
        assert!(complete(4).is_empty() && complete(9).is_empty());
        assert_eq!(complete(0), ["c-1", "c-2", "c-3", "never"]);
        assert_eq!(gone(&jobs, End::Failed, Some(1)), ["f-1"]);
        assert!(gone(&jobs, End::Failed, None).is_empty(), "without a limit all are kept");
    }

    #[test]
    fn what_the_status_does_not_tell_of_is_told_by_the_job() {
        let jobs = Jobs::from([job("c-100").complete(1), job("c-101").complete(1), job("by-hand"), job("c-9000")]);
        let locks = |last: Option<i64>| -> Vec<bool> {
            let c = cron_job(json!({ "status": { "lastScheduleTime": last.map(rfc3339) } }));
            jobs.children().iter().map(|it| is_lock(&c, it, 101 * 60)).collect()
        };
        assert_eq!(locks(None), [true, true, false, false]);
        assert_eq!(locks(Some(100 * 60)), [false, true, false, false]);
        assert_eq!(locks(Some(101 * 60)), [false; 4]);
    }

    #[test]
    fn what_is_being_deleted_goes_once_and_takes_no_place() {
        let jobs = Jobs::from([
            job("c-1").started(10).complete(20).deleting(),
            job("c-2").started(20).complete(20),
            job("c-3").started(30).complete(20).deleting(),
        ]);
        assert!(gone(&jobs, End::Complete, Some(1)).is_empty());
        assert_eq!(gone(&jobs, End::Complete, Some(0)), ["c-2"]);
    }
}
