//! The input of one decision: a Job, its pods as the rules need them, and the content of memory. Pure.

use std::{collections::HashSet, time::Duration};

use api::{Job, Pod, PodPhase, PodReplacementPolicy, Uid, UncountedPods};

use workload::{deletion_requested, has_finalizer, is_ready};

use crate::rules::{
    backoff::{PodFailures, finish_time},
    moment::Moment,
};

/// The interim condition before `Complete` (KEP-3998).
pub(crate) const SUCCESS: &str = "SuccessCriteriaMet";

/// The interim condition before `Failed` (KEP-3329).
pub(crate) const FAILURE_TARGET: &str = "FailureTarget";

/// The finalizer of a pod until its Job has counted it.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The annotation and label with the completion index of a pod.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A pod of the Job. A pod that this sync adopted counts as if it had the finalizer already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimedPod<'a> {
    /// The pod in the cache.
    pub(crate) pod: &'a Pod,
    /// It was adopted in this sync.
    pub(crate) adopted: bool,
}

/// What memory and clock contain at the time of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotInputs {
    /// The time.
    pub(crate) now: Moment,
    /// Which writes the caches do not show yet. Determined before pods are listed.
    pub(crate) unseen: Unseen,
    /// The back-off of the last stored status; `None` when this process has not stored one.
    pub(crate) backoff: Option<PodFailures>,
    /// How many more pods `creation_limit` allows.
    pub(crate) free_slots: usize,
    /// When `creation_limit` allows one more pod even if none ends.
    pub(crate) next_slot: Option<Duration>,
    /// A suspended Job loses its `startTime`: see [`crate::Options`].
    pub(crate) clear_start_time: bool,
}

/// Which writes for a Job the caches do not show yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// The caches show all writes.
    Nothing,
    /// It is not known whether some pods were created. Until it is, no pod may be created and the Job must not end;
    /// existing pods may be deleted.
    UnknownCreates,
    /// Pods were created or deleted. Until the caches show that, no pod may be created or deleted.
    Writes,
}

/// The input of one decision.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The Job in the cache.
    pub(crate) job: &'a Job,
    /// Its pods in the given order. Plans use their positions in this list.
    pub(crate) job_pods: Vec<JobPod<'a>>,
    /// The content of memory, and the time.
    pub(crate) inputs: SnapshotInputs,
    /// The pods in `status.uncountedTerminatedPods`.
    pub(crate) uncounted: Uncounted<'a>,
    /// The stored status has an interim condition.
    pub(crate) announced: bool,
    /// Pods that have neither ended nor are being deleted.
    pub(crate) active: usize,
    /// Active pods that are ready.
    pub(crate) ready: usize,
    /// Pods that are being deleted and have not ended.
    pub(crate) terminating: usize,
}

/// One pod as the rules need it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobPod<'a> {
    /// The pod, for rules that need more of it.
    pub(crate) pod: &'a Pod,
    /// The completion that it works for.
    pub(crate) completion: Completion,
    /// Its state.
    pub(crate) state: State,
    /// Whether it has our finalizer.
    pub(crate) finalizer: FinalizerState,
}

/// The completion that a pod works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Any, because the Job has no indexes.
    Any,
    /// The completion of this index, which is below `completions`.
    Index(u32),
    /// None, because the Job is Indexed and the pod has no valid index. Such a pod is not counted.
    Invalid,
}

/// The state of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not ended and is not being deleted.
    Active {
        /// Whether it is ready.
        ready: bool,
    },
    /// It is being deleted and has not ended.
    Terminating,
    /// It has succeeded.
    Succeeded,
    /// It has failed.
    Failed,
}

/// Whether a pod has our finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalizerState {
    /// It has the finalizer.
    Present,
    /// The cache shows the finalizer, but its removal was requested. The pod must not be counted again.
    RemovalPending,
    /// It has no finalizer.
    Absent,
}

/// The pods in `status.uncountedTerminatedPods`.
#[derive(Debug, Default)]
pub(crate) struct Uncounted<'a> {
    /// Pods in the list `succeeded`.
    pub(crate) succeeded: HashSet<&'a Uid>,
    /// Pods in the list `failed`.
    pub(crate) failed: HashSet<&'a Uid>,
}

impl Uncounted<'_> {
    /// Whether the status lists this pod. A pod in `failed` stays failed even if its phase is Succeeded now.
    pub(crate) fn contains(&self, pod: &Uid) -> bool {
        self.failed.contains(pod) || self.succeeded.contains(pod)
    }
}

/// Builds a snapshot. `is_removal_pending` returns true for pods whose finalizer is being removed while the cache still
/// shows it. One pass over the pods.
pub(crate) fn gather<'a>(
    job: &'a Job,
    pods: impl IntoIterator<Item = ClaimedPod<'a>>,
    is_removal_pending: impl Fn(&Uid) -> bool,
    inputs: SnapshotInputs,
) -> Snapshot<'a> {
    let job_pods = pods.into_iter().map(|it| JobPod::new(job, it, &is_removal_pending)).collect();
    let mut snapshot = Snapshot {
        job,
        job_pods,
        inputs,
        uncounted: job.status.uncounted.as_ref().map(Uncounted::from).unwrap_or_default(),
        announced: [SUCCESS, FAILURE_TARGET].into_iter().any(|it| job.status.is_condition_true(it)),
        active: 0,
        ready: 0,
        terminating: 0,
    };
    for job_pod in &snapshot.job_pods {
        match job_pod.state {
            State::Active { ready } => {
                snapshot.active += 1;
                snapshot.ready += usize::from(ready);
            }
            State::Terminating => snapshot.terminating += 1,
            State::Succeeded | State::Failed => {}
        }
    }
    snapshot
}

impl<'a> From<&'a UncountedPods> for Uncounted<'a> {
    fn from(pods: &'a UncountedPods) -> Self {
        Self { succeeded: pods.succeeded.iter().collect(), failed: pods.failed.iter().collect() }
    }
}

impl<'a> Snapshot<'a> {
    /// `completions` as a bound of indexes.
    pub(crate) fn completions(&self) -> u32 {
        completions(self.job)
    }

    /// Whether only ended pods are replaced and counted as failed, and not terminating ones.
    pub(crate) fn is_replacing_only_failed(&self) -> bool {
        self.job.spec.pod_replacement_policy == PodReplacementPolicy::Failed
            || self.job.spec.pod_failure_policy.is_some()
    }

    /// Whether the Job is being deleted.
    pub(crate) fn is_deleting(&self) -> bool {
        self.job.meta.deletion.is_some()
    }

    /// Whether failures are counted per index.
    pub(crate) fn is_counted_per_index(&self) -> bool {
        self.job.is_indexed() && self.job.spec.backoff_limit_per_index.is_some()
    }

    /// Whether a pod counts as failed: it has failed, or it is terminating and is replaced before it ends. After an
    /// announced end terminating pods do not count, because the controller deleted them.
    pub(crate) fn is_failed(&self, job_pod: &JobPod<'_>) -> bool {
        match job_pod.state {
            State::Failed => true,
            State::Terminating => !self.is_replacing_only_failed() && !self.announced,
            State::Active { .. } | State::Succeeded => false,
        }
    }

    /// Whether the pod was deleted after the Job had succeeded and before it ended. Then its exit is not counted.
    pub(crate) fn is_deleted_after_success(&self, job_pod: &JobPod<'_>) -> bool {
        let pod = job_pod.pod;
        let Some(deletion) = pod.meta.deletion.filter(|_| self.job.status.is_condition_true(SUCCESS)) else {
            return false;
        };
        // One that ended earlier was deleted by a user. It counts, also if the announcement did not list it yet.
        let has_ended = matches!(job_pod.state, State::Succeeded | State::Failed);
        !(has_ended && finish_time(pod) < deletion_requested(pod).unwrap_or(deletion))
    }

    /// Whether the pod was already counted when the Job's end deleted it.
    pub(crate) fn is_counted_with_end(&self, job_pod: &JobPod<'_>) -> bool {
        self.announced && job_pod.finalizer == FinalizerState::RemovalPending && job_pod.pod.meta.deletion.is_some()
    }

    /// Pods that must be counted: they have the finalizer and a valid index, and the status does not list them.
    pub(crate) fn unrecorded(&self) -> impl Iterator<Item = &JobPod<'a>> {
        let is_new = |it: &&JobPod<'_>| {
            it.finalizer == FinalizerState::Present
                && it.completion != Completion::Invalid
                && !self.uncounted.contains(&it.pod.meta.uid)
        };
        self.job_pods.iter().filter(is_new)
    }

    /// The active pods with their positions in the snapshot.
    pub(crate) fn active(&self) -> impl Iterator<Item = (usize, &JobPod<'a>)> {
        self.job_pods.iter().enumerate().filter(|(_, it)| it.is_active())
    }
}

impl<'a> JobPod<'a> {
    fn new(job: &Job, claimed: ClaimedPod<'a>, is_removal_pending: impl Fn(&Uid) -> bool) -> Self {
        let ClaimedPod { pod, adopted } = claimed;
        let is_tracked = adopted || has_finalizer(pod, FINALIZER);
        let finalizer = match is_tracked {
            true if is_removal_pending(&pod.meta.uid) => FinalizerState::RemovalPending,
            true => FinalizerState::Present,
            false => FinalizerState::Absent,
        };
        Self { pod, completion: completion(job, pod), state: state(pod), finalizer }
    }

    /// Whether the pod has not ended and is not being deleted.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Active { .. })
    }

    /// Its index, if it is valid.
    pub(crate) fn index(&self) -> Option<u32> {
        match self.completion {
            Completion::Index(index) => Some(index),
            Completion::Any | Completion::Invalid => None,
        }
    }
}

/// `completions` as a bound of indexes; validation requires it for an Indexed Job.
pub(crate) fn completions(job: &Job) -> u32 {
    job.spec.completions.and_then(|it| u32::try_from(it).ok()).unwrap_or_default()
}

fn completion(job: &Job, pod: &Pod) -> Completion {
    if !job.is_indexed() {
        return Completion::Any;
    }
    let index = pod.annotations.get(INDEX).and_then(|it| it.parse::<u32>().ok());
    match index {
        Some(index) if index < completions(job) => Completion::Index(index),
        _ => Completion::Invalid,
    }
}

fn state(pod: &Pod) -> State {
    match pod.phase {
        PodPhase::Succeeded => State::Succeeded,
        PodPhase::Failed => State::Failed,
        _ if pod.meta.deletion.is_some() => State::Terminating,
        _ => State::Active { ready: is_ready(pod) },
    }
}
