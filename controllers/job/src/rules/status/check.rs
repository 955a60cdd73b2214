//! The API server's validation of a new status (`validateJobStatus`). A status that breaks a rule would be rejected on
//! each retry, and no finalizer would be removed. So the rules are checked before the request. Only changed fields are
//! checked, like on the server.

use std::collections::HashSet;

use api::{JobSpec, JobStatus};
use thiserror::Error;

use crate::rules::{
    indexes::Indexes,
    snapshot::{FAILURE_TARGET, SUCCESS},
};

/// The rule that a status breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct InvalidStatus(pub(crate) &'static str);

const COMPLETE: &str = "Complete";
const FAILED: &str = "Failed";

/// Whether the server accepts `new` in place of `old`.
pub(crate) fn check(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    let rules = [conditions, times, terminal, counters, uncounted, indexes];
    rules.iter().try_for_each(|rule| rule(spec, old, new))
}

fn deny(broken: bool, rule: &'static str) -> Result<(), InvalidStatus> {
    if broken { Err(InvalidStatus(rule)) } else { Ok(()) }
}

fn conditions(_: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    if old.conditions == new.conditions {
        return Ok(());
    }
    let both = |one, other| new.is_condition_true(one) && new.is_condition_true(other);
    deny(both(COMPLETE, FAILED), "complete and failed")?;
    deny(both(COMPLETE, FAILURE_TARGET), "complete, with FailureTarget")?;
    deny(both(SUCCESS, FAILED), "failed, with SuccessCriteriaMet")?;
    deny(both(SUCCESS, FAILURE_TARGET), "SuccessCriteriaMet and FailureTarget")?;
    let began = |type_| new.is_condition_true(type_) && !old.is_condition_true(type_);
    deny(began(FAILED) && !new.is_condition_true(FAILURE_TARGET), "failed without FailureTarget")?;
    deny(began(COMPLETE) && !new.is_condition_true(SUCCESS), "complete without SuccessCriteriaMet")?;
    let mut kept = [COMPLETE, FAILED, SUCCESS, FAILURE_TARGET].into_iter();
    deny(
        kept.any(|it| old.is_condition_true(it) && !new.is_condition_true(it)),
        "a terminal or interim condition was removed",
    )
}

fn times(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    let is_resumed = old.is_condition_true("Suspended") && !new.is_condition_true("Suspended");
    let moved = old.start.is_some() && old.start != new.start;
    deny(moved && !spec.suspend && !is_resumed, "the start moved though the Job is not suspended")?;
    deny(old.completion.is_some() && old.completion != new.completion, "the completion moved")?;
    if old.completion == new.completion && old.is_condition_true(COMPLETE) == new.is_condition_true(COMPLETE) {
        return Ok(());
    }
    deny(new.is_condition_true(COMPLETE) && new.completion.is_none(), "complete without a time")?;
    deny(!new.is_condition_true(COMPLETE) && new.completion.is_some(), "a time without being complete")?;
    let is_early = new.completion.zip(new.start).is_some_and(|(completion, start)| completion < start);
    deny(is_early, "complete before it started")
}

fn terminal(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    if new.finished_condition().is_none() || old.finished_condition().is_some() && old == new {
        return Ok(());
    }
    let uncounted = new.uncounted.as_ref().is_some_and(|it| !it.is_empty());
    deny(new.active > 0, "ended with active pods")?;
    deny(new.terminating.is_some_and(|it| it > 0), "ended with terminating pods")?;
    deny(uncounted, "ended with uncounted pods")?;
    let needs_no_pod = spec.suspend && spec.completions == Some(0);
    deny(new.start.is_none() && !needs_no_pod, "ended without a start")
}

fn counters(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    let changed = old.ready != new.ready || old.active != new.active;
    deny(changed && new.ready.is_some_and(|it| it > new.active), "more ready than active")?;
    deny(new.failed < old.failed, "fewer failed than before")?;
    let is_elastic = !new.completed_indexes.is_empty() || !old.completed_indexes.is_empty();
    let may_shrink = is_elastic && spec.completions == Some(spec.parallelism);
    deny(new.succeeded < old.succeeded && !may_shrink, "fewer succeeded than before")?;
    let negative = [new.active, new.succeeded, new.failed].into_iter().any(|it| it < 0);
    deny(negative, "a negative count")
}

fn uncounted(_: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    let Some(pods) = new.uncounted.as_ref().filter(|it| old.uncounted.as_ref() != Some(*it)) else { return Ok(()) };
    let mut seen = HashSet::new();
    let is_bad = pods.succeeded.iter().chain(&pods.failed).any(|it| it.is_empty() || !seen.insert(it));
    deny(is_bad, "an uncounted pod without uid, or twice")
}

fn indexes(spec: &JobSpec, old: &JobStatus, new: &JobStatus) -> Result<(), InvalidStatus> {
    if old.completed_indexes == new.completed_indexes && old.failed_indexes == new.failed_indexes {
        return Ok(());
    }
    let is_indexed = spec.completion_mode == api::CompletionMode::Indexed;
    deny(!is_indexed && !new.completed_indexes.is_empty(), "completed indexes without indexes")?;
    let counts = is_indexed && spec.backoff_limit_per_index.is_some();
    deny(!counts && new.failed_indexes.is_some(), "failed indexes without a limit for each")?;
    let completions = spec.completions.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
    let failed = new.failed_indexes.as_deref().unwrap_or_default();
    let parsed = |text: &str| {
        let indexes = Indexes::parse(text, completions);
        if indexes.to_string() == text { Ok(indexes) } else { Err(InvalidStatus("indexes malformed or out of range")) }
    };
    let (completed, failed) = (parsed(&new.completed_indexes)?, parsed(failed)?);
    deny(completed.common_count(&failed) > 0, "an index completed and failed")
}
