//! The content of a Job's status, and the validation of the API server. Pure.

use api::{ConditionStatus, JobCondition, JobSpec, JobStatus};

use crate::rules::{
    ending::Ending,
    moment::Moment,
    plan::Applied,
    snapshot::{Snapshot, State},
};

mod check;

pub(crate) use check::{InvalidStatus, check};

/// Sets the numbers of pods, including the changes of this sync.
pub(crate) fn set_counts(status: &mut JobStatus, snapshot: &Snapshot<'_>, applied: &Applied) {
    let deleted = applied.deleted.len();
    let was_ready = |at: &&usize| snapshot.job_pods[**at].state == State::Active { ready: true };
    let ready_deleted = applied.deleted.iter().filter(was_ready).count();
    status.active = counter(snapshot.active.saturating_sub(deleted) + applied.created);
    status.ready = Some(counter(snapshot.ready.saturating_sub(ready_deleted)));
    status.terminating = Some(counter(snapshot.terminating + deleted));
}

/// Sets the `Suspended` condition; `Some` when it has changed. `activeDeadlineSeconds` starts again with each
/// resumption.
pub(crate) fn set_suspended(status: &mut JobStatus, snapshot: &Snapshot<'_>) -> Option<bool> {
    let (suspended, now) = (snapshot.job.spec.suspend, snapshot.inputs.now);
    let is_new = if suspended {
        set(status, "Suspended", ConditionStatus::True, "JobSuspended", "Job suspended", now)
    } else {
        // The condition is not added with status False.
        status.condition("Suspended").is_some()
            && set(status, "Suspended", ConditionStatus::False, "JobResumed", "Job resumed", now)
    };
    if is_new && !suspended {
        status.start = Some(now.seconds());
    } else if is_new && snapshot.inputs.clear_start_time {
        status.start = None;
    }
    is_new.then_some(suspended)
}

/// Sets the final condition.
pub(crate) fn set_finished(status: &mut JobStatus, spec: &JobSpec, ending: &Ending, now: Moment) {
    // The API server rejects an end without `startTime`, except for a suspended Job with zero completions.
    let needs_no_pod = spec.suspend && spec.completions == Some(0);
    if status.start.is_none() && !needs_no_pod {
        status.start = Some(now.seconds());
    }
    // `startTime` from another clock may be later than now, but the end must not be before the start.
    let end = Moment(now.0.max(status.start.unwrap_or(i64::MIN).saturating_mul(1_000)));
    let (_, final_) = ending.conditions();
    set(status, final_, ConditionStatus::True, &ending.reason, &ending.message, end);
    if ending.is_success() {
        status.completion = status.completion.or(Some(end.seconds()));
    }
}

/// Sets a condition; false if it is set with the same values already.
pub(crate) fn set(
    status: &mut JobStatus,
    type_: &str,
    value: ConditionStatus,
    reason: &str,
    message: &str,
    now: Moment,
) -> bool {
    let condition = JobCondition::new(type_, value, reason, message, now.seconds());
    let Some(old) = status.conditions.iter_mut().find(|it| &*it.type_ == type_) else {
        status.conditions.push(condition);
        return true;
    };
    let is_same = old.status == condition.status && old.reason == condition.reason && old.message == condition.message;
    if !is_same {
        *old = condition;
    }
    !is_same
}

/// Whether `next` must be stored. A new but empty `uncountedTerminatedPods` is no reason.
pub(crate) fn needs_write(stored: &JobStatus, next: &JobStatus) -> bool {
    let is_without_uncounted =
        stored.uncounted.is_none() && next.uncounted.as_ref().is_none_or(api::UncountedPods::is_empty);
    if !is_without_uncounted {
        return stored != next;
    }
    let mut compared = next.clone();
    compared.uncounted = None;
    *stored != compared
}

/// The increase of the succeeded and failed counters, for metrics. A decrease, after a Job was made smaller, counts as
/// zero.
pub(crate) fn counter_increases(stored: &JobStatus, next: &JobStatus) -> (u64, u64) {
    let more = |before: i32, after: i32| u64::try_from(after.saturating_sub(before)).unwrap_or_default();
    (more(stored.succeeded, next.succeeded), more(stored.failed, next.failed))
}

fn counter(many: usize) -> i32 {
    i32::try_from(many).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
