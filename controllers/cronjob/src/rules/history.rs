//! Which finished Jobs are over the history limits.

use crate::rules::snapshot::{Child, End};

/// The oldest Jobs with this result that are over the limit; none without a limit. Jobs that are being deleted do not
/// count.
pub(crate) fn surplus<'a>(children: &[Child<'a>], end: End, limit: Option<i32>) -> Vec<Child<'a>> {
    let Some(limit) = limit else { return Vec::new() };
    let ended = children.iter().filter(|it| it.end == Some(end) && it.job.meta.deletion.is_none());
    let mut ended: Vec<Child<'a>> = ended.copied().collect();
    // A Job without `startTime` is kept longest.
    ended.sort_by_key(|it| (it.job.status.start.unwrap_or(i64::MAX), &*it.job.meta.name));
    let kept = usize::try_from(limit).unwrap_or(0);
    ended.truncate(ended.len().saturating_sub(kept));
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::snapshot::tests::{Jobs, job};

    /// The names of the surplus Jobs.
    fn gone(jobs: &Jobs, end: End, limit: Option<i32>) -> Vec<String> {
        surplus(&jobs.children(), end, limit).iter().map(|it| it.job.meta.name.to_string()).collect()
    }

    #[test]
    fn acceptance_cronjob_048_the_oldest_are_surplus_then_by_name_for_each_result() {
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
    fn jobs_being_deleted_do_not_count_for_history() {
        let jobs = Jobs::from([
            job("c-1").started(10).complete(20).deleting(),
            job("c-2").started(20).complete(20),
            job("c-3").started(30).complete(20).deleting(),
        ]);
        assert!(gone(&jobs, End::Complete, Some(1)).is_empty());
        assert_eq!(gone(&jobs, End::Complete, Some(0)), ["c-2"]);
    }
}
