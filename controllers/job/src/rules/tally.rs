//! Counts for a Job: the counters of its status plus the pods that ended since. Pure.

use std::collections::HashSet;

use api::{JobStatus, Uid};

use crate::rules::{
    backoff::{PodFailures, finish_time},
    failure_policy::{PolicyResult, policy_result},
    indexes::Indexes,
    per_index_backoff::{Failures, LastFailedPods},
    snapshot::{FinalizerState, JobPod, Snapshot, State},
};

/// The counts of a Job.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Succeeded pods, or succeeded indexes.
    pub(crate) succeeded: u32,
    /// Failures that count.
    pub(crate) failed: u32,
    /// The back-off, including pods that ended since the last status.
    pub(crate) backoff: PodFailures,
    /// The state of the indexes of an Indexed Job.
    pub(crate) indexes: Option<IndexStates>,
}

/// The state of the indexes of a Job.
#[derive(Debug)]
pub(crate) struct IndexStates {
    /// Indexes that have succeeded in the stored status.
    pub(crate) stored: Indexes,
    /// Indexes that have succeeded.
    pub(crate) succeeded: Indexes,
    /// Indexes that have failed. `None` when failures are not counted per index.
    pub(crate) failed: Option<Indexes>,
    /// Indexes with an active pod.
    pub(crate) active: Indexes,
    /// The pods that keep the failure counts of indexes to retry.
    pub(crate) last_failed_pods: LastFailedPods,
}

impl Tally {
    /// Counts. Each pod is read once; only pods that ended since the last status are read again.
    pub(crate) fn of(snapshot: &Snapshot<'_>) -> Self {
        let status = &snapshot.job.status;
        let ended = EndedPods::of(snapshot, snapshot.unrecorded());
        let failed = snapshot.unrecorded().filter(|it| snapshot.is_failed(it));
        let counted = size(failed.filter(|it| policy_result(snapshot.job, it.pod).is_counted()).count());
        let uncounted = status.uncounted.as_ref();
        let known = |counter: i32, list: Option<usize>| number(counter) + list.map_or(0, size);
        let indexes = snapshot.job.is_indexed().then(|| IndexStates::of(snapshot));
        let succeeded = match &indexes {
            Some(indexes) => indexes.succeeded.len(),
            None => known(status.succeeded, uncounted.map(|it| it.succeeded.len())) + size(ended.succeeded),
        };
        Self {
            succeeded,
            failed: known(status.failed, uncounted.map(|it| it.failed.len())) + counted,
            backoff: ended.backoff(snapshot),
            indexes,
        }
    }

    /// Indexes that have failed.
    pub(crate) fn failed_indexes(&self) -> Option<&Indexes> {
        self.indexes.as_ref()?.failed.as_ref()
    }
}

/// Pods that ended and are not in the status yet.
#[derive(Default)]
struct EndedPods {
    succeeded: usize,
    last_success: Option<i64>,
    failed: Vec<i64>,
}

impl EndedPods {
    fn of<'a>(snapshot: &Snapshot<'_>, job_pods: impl Iterator<Item = &'a JobPod<'a>>) -> Self {
        let mut ended = Self::default();
        for job_pod in job_pods {
            if job_pod.state == State::Succeeded {
                ended.add_success(finish_time(job_pod.pod));
            } else if snapshot.is_failed(job_pod) {
                ended.failed.push(finish_time(job_pod.pod));
            }
        }
        ended
    }

    /// The back-off including these pods.
    fn backoff(&self, snapshot: &Snapshot<'_>) -> PodFailures {
        let before = snapshot.inputs.backoff.unwrap_or_else(|| backoff_from_counted_pods(snapshot));
        before.with(self.last_success, &self.failed)
    }

    fn add_success(&mut self, at: i64) {
        self.succeeded += 1;
        self.last_success = self.last_success.max(Some(at));
    }
}

/// The back-off after the next status, which contains all ended pods except `postponed`.
pub(crate) fn backoff_without(snapshot: &Snapshot<'_>, postponed: &HashSet<&Uid>) -> PodFailures {
    EndedPods::of(snapshot, snapshot.unrecorded().filter(|it| !postponed.contains(&it.pod.meta.uid))).backoff(snapshot)
}

/// The back-off after a restart of the process, computed from counted pods in the cache.
fn backoff_from_counted_pods(snapshot: &Snapshot<'_>) -> PodFailures {
    let is_new =
        |it: &JobPod<'_>| it.finalizer == FinalizerState::Present && !snapshot.uncounted.contains(&it.pod.meta.uid);
    let mut known = EndedPods::default();
    for job_pod in snapshot.job_pods.iter().filter(|it| !is_new(it)) {
        match job_pod.state {
            State::Succeeded => known.add_success(finish_time(job_pod.pod)),
            State::Failed => known.failed.push(finish_time(job_pod.pod)),
            State::Active { .. } | State::Terminating => {}
        }
    }
    PodFailures::default().with(known.last_success, &known.failed)
}

impl IndexStates {
    fn of(snapshot: &Snapshot<'_>) -> Self {
        let JobStatus { completed_indexes, failed_indexes, .. } = &snapshot.job.status;
        let completions = snapshot.completions();
        let limit = snapshot.job.spec.backoff_limit_per_index.map(number);
        let stored = Indexes::parse(completed_indexes, completions);
        let stored_failed = limit.map(|_| Indexes::parse(failed_indexes.as_deref().unwrap_or_default(), completions));

        let (mut done, mut lost, mut active) = (Vec::new(), Vec::new(), Vec::new());
        for job_pod in &snapshot.job_pods {
            let Some(index) = job_pod.index() else { continue };
            match job_pod.state {
                // A pod without the finalizer is not counted, and will be deleted.
                _ if job_pod.finalizer == FinalizerState::Absent => {}
                _ if snapshot.is_deleted_after_success(job_pod) || snapshot.is_counted_with_end(job_pod) => {}
                State::Active { .. } => active.push(index),
                // A pod in `uncountedTerminatedPods.failed` stays failed even if its phase is Succeeded now.
                State::Succeeded if !snapshot.uncounted.failed.contains(&job_pod.pod.meta.uid) => done.push(index),
                _ => {
                    if limit.is_some_and(|limit| is_index_failed(snapshot, job_pod, limit)) {
                        lost.push(index);
                    }
                }
            }
        }
        // The API server requires that no index has both succeeded and failed. A stored result stays.
        done.retain(|it| !stored_failed.as_ref().is_some_and(|stored_failed| stored_failed.contains(*it)));
        let succeeded = stored.union(&ascending(done));
        lost.retain(|it| !succeeded.contains(*it));
        let failed = stored_failed.map(|it| it.union(&ascending(lost)));
        let active = ascending(active);
        let last_failed_pods = match &failed {
            Some(failed) => LastFailedPods::of(snapshot, &succeeded.union(failed), &active),
            None => LastFailedPods::default(),
        };
        Self { stored, succeeded, failed, active, last_failed_pods }
    }
}

/// Whether the index of this pod has failed because of it.
fn is_index_failed(snapshot: &Snapshot<'_>, job_pod: &JobPod<'_>, limit: u32) -> bool {
    // After an announced end a terminating pod was deleted by the controller, so its exit does not count.
    let is_deleted_by_end = snapshot.announced && job_pod.pod.meta.deletion.is_some();
    if is_deleted_by_end || !snapshot.is_failed(job_pod) {
        return false;
    }
    let policy_result = policy_result(snapshot.job, job_pod.pod);
    policy_result == PolicyResult::FailIndex
        || (policy_result.is_counted() && Failures::of(job_pod.pod).counted >= limit)
}

fn ascending(mut indexes: Vec<u32>) -> Indexes {
    indexes.sort_unstable();
    Indexes::of(indexes)
}

/// A counter of the API; never negative after validation.
pub(crate) fn number(counter: i32) -> u32 {
    u32::try_from(counter).unwrap_or_default()
}

/// A number of pods as a counter.
fn size(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
