//! Whether and how a Job ends. Pure.

use api::{Atom, Job, JobStatus, PodPhase, RestartPolicy};

use crate::rules::{
    failure_policy::{PolicyResult, policy_result},
    moment::Moment,
    snapshot::{FAILURE_TARGET, FinalizerState, JobPod, SUCCESS, Snapshot},
    success_policy,
    tally::{IndexStates, Tally, number},
};

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Success or failure.
    pub(crate) kind: EndingKind,
    /// The reason of the condition.
    pub(crate) reason: Atom,
    /// The message of the condition.
    pub(crate) message: Box<str>,
    /// The stored status already has the interim condition.
    pub(crate) announced: bool,
}

/// The result of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndingKind {
    /// Enough pods or indexes have succeeded.
    Success,
    /// A limit, a deadline or a policy failed the Job.
    Failure,
}

impl Ending {
    fn failure(reason: &str, message: &str) -> Self {
        Self { kind: EndingKind::Failure, reason: reason.into(), message: message.into(), announced: false }
    }

    /// Enough pods have succeeded.
    pub(crate) fn completed() -> Self {
        Self {
            kind: EndingKind::Success,
            reason: "CompletionsReached".into(),
            message: "Reached expected number of succeeded pods".into(),
            announced: false,
        }
    }

    /// Whether the Job succeeds.
    pub(crate) fn is_success(&self) -> bool {
        self.kind == EndingKind::Success
    }

    /// The interim and the final condition.
    pub(crate) fn conditions(&self) -> (&'static str, &'static str) {
        match self.kind {
            EndingKind::Success => (SUCCESS, "Complete"),
            EndingKind::Failure => (FAILURE_TARGET, "Failed"),
        }
    }
}

/// How the Job ends, if an end is announced or a rule applies. The first match counts: an announced end never changes,
/// and a failure takes precedence over a success of the same sync.
pub(crate) fn ending(snapshot: &Snapshot<'_>, tally: &Tally) -> Option<Ending> {
    announced(&snapshot.job.status)
        .or_else(|| by_failure_policy(snapshot))
        .or_else(|| by_limit(snapshot, tally))
        .or_else(|| by_deadline(snapshot))
        .or_else(|| by_indexes(snapshot, tally))
        .or_else(|| by_success_policy(snapshot, tally))
}

fn announced(status: &JobStatus) -> Option<Ending> {
    [(SUCCESS, EndingKind::Success), (FAILURE_TARGET, EndingKind::Failure)].into_iter().find_map(|(type_, kind)| {
        let condition = status.condition(type_).filter(|_| status.is_condition_true(type_))?;
        Some(Ending { kind, reason: condition.reason.clone(), message: condition.message.clone(), announced: true })
    })
}

fn by_failure_policy(snapshot: &Snapshot<'_>) -> Option<Ending> {
    snapshot.job.spec.pod_failure_policy.as_ref()?;
    // A pod without our finalizer was already counted, or it was deleted and must not be counted.
    let is_failed = |it: &&JobPod<'_>| it.finalizer != FinalizerState::Absent && snapshot.is_failed(it);
    snapshot.job_pods.iter().filter(is_failed).find_map(|it| {
        let PolicyResult::FailJob(cause) = policy_result(snapshot.job, it.pod) else { return None };
        Some(Ending::failure("PodFailurePolicy", &cause.message(it.pod)))
    })
}

fn by_limit(snapshot: &Snapshot<'_>, tally: &Tally) -> Option<Ending> {
    let is_over = tally.failed > number(snapshot.job.spec.backoff_limit) || is_restart_limit_reached(snapshot);
    is_over.then(|| Ending::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
}

/// With `restartPolicy: OnFailure` the kubelet restarts containers and no pod fails, so restarts are counted
/// (`pastBackoffLimitOnFailure`).
fn is_restart_limit_reached(snapshot: &Snapshot<'_>) -> bool {
    if snapshot.job.spec.restart_policy != RestartPolicy::OnFailure {
        return false;
    }
    let runs = |phase: &PodPhase| matches!(phase, PodPhase::Running | PodPhase::Pending);
    let pods = snapshot.job_pods.iter().map(|it| it.pod).filter(|it| runs(&it.phase));
    let restarts: u64 = pods.flat_map(|it| &it.containers).map(|it| u64::from(number(it.restarts))).sum();
    restarts > 0 && restarts >= u64::from(number(snapshot.job.spec.backoff_limit))
}

fn by_deadline(snapshot: &Snapshot<'_>) -> Option<Ending> {
    let remaining = remaining_active_time(snapshot.job, snapshot.inputs.now)?;
    remaining.is_zero().then(|| Ending::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

/// How long the Job may still be active. `None` without a deadline and while the Job is suspended.
pub(crate) fn remaining_active_time(job: &Job, now: Moment) -> Option<std::time::Duration> {
    if job.spec.suspend {
        return None;
    }
    let allowed = std::time::Duration::from_secs(u64::try_from(job.spec.active_deadline?).unwrap_or_default());
    Some(now.remaining(started(job, now), allowed))
}

/// When the Job became active. If it starts or resumes in this sync, that is now.
fn started(job: &Job, now: Moment) -> i64 {
    job.status.start.filter(|_| !job.status.is_condition_true("Suspended")).unwrap_or(now.seconds())
}

fn by_indexes(snapshot: &Snapshot<'_>, tally: &Tally) -> Option<Ending> {
    let failed = tally.failed_indexes()?.len();
    if snapshot.job.spec.max_failed_indexes.is_some_and(|most| failed > number(most)) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Ending::failure("MaxFailedIndexesExceeded", message));
    }
    (failed > 0 && failed + tally.succeeded >= snapshot.completions())
        .then(|| Ending::failure("FailedIndexes", "Job has failed indexes"))
}

fn by_success_policy(snapshot: &Snapshot<'_>, tally: &Tally) -> Option<Ending> {
    let rules = snapshot.job.spec.success_policy.as_deref()?;
    let IndexStates { succeeded, .. } = tally.indexes.as_ref()?;
    let rule = success_policy::fulfilled(rules, succeeded, snapshot.completions())?;
    Some(Ending {
        kind: EndingKind::Success,
        reason: "SuccessPolicy".into(),
        message: format!("Matched rules at index {rule}").into(),
        announced: false,
    })
}

/// Whether enough pods have succeeded. The Job is complete when also no pod is active.
pub(crate) fn is_complete(job: &Job, succeeded: u32) -> bool {
    match job.spec.completions {
        Some(completions) => succeeded >= number(completions),
        None => succeeded > 0,
    }
}

#[cfg(test)]
mod tests;
