//! What one decision rests on: a Job, its pods in the few words that rules speak, and what memory knows. Pure.

use std::{collections::HashSet, time::Duration};

use api::{Job, Pod, PodPhase, PodReplacementPolicy, Uid, UncountedPods};

use pod_control::{has_finalizer, is_ready};

use crate::{
    backoff::Backoff,
    ending::{FAILURE, SUCCESS},
};

/// What holds a pod until its Job has counted it.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// The annotation, and label, that names the index of a pod.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A moment in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) i64);

impl Moment {
    /// As the API writes it: whole seconds.
    pub(crate) fn seconds(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// How long until `wait` is over that began at `since` (in seconds); zero when it is.
    pub(crate) fn remains(self, since: i64, wait: Duration) -> Duration {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let end = since.saturating_mul(1_000).saturating_add(wait);
        Duration::from_millis(u64::try_from(end.saturating_sub(self.0)).unwrap_or_default())
    }
}

/// A pod that is the Job's. One that this sync adopted counts as if it carried the finalizer already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed<'a> {
    /// As it is cached.
    pub(crate) pod: &'a Pod,
    /// Since this sync.
    pub(crate) adopted: bool,
}

/// What memory and clock say at the time of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The time.
    pub(crate) now: Moment,
    /// What is unseen of all that was done for the Job. Asked before pods are listed.
    pub(crate) unseen: Unseen,
    /// What failed since the last success, as last stored; `None` when this process has not recorded it yet.
    pub(crate) backoff: Option<Backoff>,
    /// How many more pods the brake lets this Job create.
    pub(crate) room: usize,
    /// In how long it lets it create one more though none ends.
    pub(crate) more_room: Option<Duration>,
    /// A Job that is suspended loses its start: see [`crate::Options`].
    pub(crate) clears_start: bool,
}

/// What is unseen of all that was done for a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// Nothing.
    Nothing,
    /// Pods of which it is not known whether they were created. None may come before that is known, nor may the Job be at
    /// its end; those that are seen may go.
    Doubtful,
    /// Pods that were created or deleted: none may come or go before all of it is seen.
    Writes,
}

/// What one decision rests on.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// As it is cached.
    pub(crate) job: &'a Job,
    /// Its pods, in the order given. Plans name them by their place here.
    pub(crate) workers: Vec<Worker<'a>>,
    /// What memory and clock say.
    pub(crate) known: Known,
    /// The pods that the status names as not yet counted.
    pub(crate) uncounted: Uncounted<'a>,
    /// The status says how the Job ends.
    pub(crate) announced: bool,
    /// Pods that neither ended nor are being deleted.
    pub(crate) active: usize,
    /// Active ones that are ready.
    pub(crate) ready: usize,
    /// Pods that are being deleted and have not ended.
    pub(crate) terminating: usize,
}

/// One pod in the words that rules speak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker<'a> {
    /// The pod itself, for what only some rules ask.
    pub(crate) pod: &'a Pod,
    /// Which completion it works for.
    pub(crate) place: Place,
    /// What has become of it.
    pub(crate) state: State,
    /// Whether our finalizer holds it.
    pub(crate) hold: Hold,
}

/// Which completion a pod works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Any: the Job has no indexes.
    Any,
    /// The one of this index, which is below `completions`.
    At(u32),
    /// None: the Job has indexes, and the pod has none of them. It counts for nothing.
    Stray,
}

/// What has become of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It works, or will.
    Active {
        /// And is ready.
        ready: bool,
    },
    /// It is being deleted and has not ended.
    Terminating,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
}

/// Whether our finalizer holds a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The finalizer is there.
    Held,
    /// The cache still shows it, but we asked for its removal: the pod has been dealt with.
    Leaving,
    /// It is not there.
    Free,
}

/// The pods that the status names as not yet counted.
#[derive(Debug, Default)]
pub(crate) struct Uncounted<'a> {
    /// As succeeded.
    pub(crate) succeeded: HashSet<&'a Uid>,
    /// As failed.
    pub(crate) failed: HashSet<&'a Uid>,
}

impl Uncounted<'_> {
    /// Whether the status names this pod at all. One that it calls failed stays so, even if it says now that it succeeded.
    pub(crate) fn names(&self, pod: &Uid) -> bool {
        self.failed.contains(pod) || self.succeeded.contains(pod)
    }
}

/// Puts a Job, its pods and what is known of it into the words of the rules. `leaving` tells for which pods the removal of
/// the finalizer was asked for and not yet seen. One look at each pod.
pub(crate) fn gather<'a>(
    job: &'a Job,
    pods: impl IntoIterator<Item = Claimed<'a>>,
    leaving: impl Fn(&Uid) -> bool,
    known: Known,
) -> Snapshot<'a> {
    let workers = pods.into_iter().map(|it| Worker::new(job, it, &leaving)).collect();
    let mut snapshot = Snapshot {
        job,
        workers,
        known,
        uncounted: job.status.uncounted.as_ref().map(Uncounted::from).unwrap_or_default(),
        announced: [SUCCESS, FAILURE].into_iter().any(|it| job.status.holds(it)),
        active: 0,
        ready: 0,
        terminating: 0,
    };
    for worker in &snapshot.workers {
        match worker.state {
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

    /// Whether only pods that have ended are replaced, and counted as failed.
    pub(crate) fn replaces_only_failed(&self) -> bool {
        self.job.spec.pod_replacement_policy == PodReplacementPolicy::Failed
            || self.job.spec.pod_failure_policy.is_some()
    }

    /// Whether the user is deleting the Job.
    pub(crate) fn is_deleting(&self) -> bool {
        self.job.meta.deletion.is_some()
    }

    /// Whether failures are counted for each index.
    pub(crate) fn counts_per_index(&self) -> bool {
        self.job.is_indexed() && self.job.spec.backoff_limit_per_index.is_some()
    }

    /// Whether a pod counts as failed: it ended badly, or it is being deleted and need not end to be replaced. Once an end is
    /// announced pods are deleted because of it.
    pub(crate) fn is_failed(&self, worker: &Worker<'_>) -> bool {
        match worker.state {
            State::Failed => true,
            State::Terminating => !self.replaces_only_failed() && !self.announced,
            State::Active { .. } | State::Succeeded => false,
        }
    }

    /// Whether the pod was deleted because the Job has succeeded: how it exits counts for nothing.
    pub(crate) fn is_deleted_by_success(&self, worker: &Worker<'_>) -> bool {
        self.job.status.holds(SUCCESS) && worker.pod.meta.deletion.is_some()
    }

    /// Whether the pod was counted before as what it was when the Job's end deleted it.
    pub(crate) fn is_counted_with_end(&self, worker: &Worker<'_>) -> bool {
        self.announced && worker.hold == Hold::Leaving && worker.pod.meta.deletion.is_some()
    }

    /// Pods that the status does not know yet: held, not named there, and of use.
    pub(crate) fn news(&self) -> impl Iterator<Item = &Worker<'a>> {
        let is_new = |it: &&Worker<'_>| {
            it.hold == Hold::Held && it.place != Place::Stray && !self.uncounted.names(&it.pod.meta.uid)
        };
        self.workers.iter().filter(is_new)
    }

    /// Active pods, with their places in the snapshot.
    pub(crate) fn active(&self) -> impl Iterator<Item = (usize, &Worker<'a>)> {
        self.workers.iter().enumerate().filter(|(_, it)| it.is_active())
    }
}

impl<'a> Worker<'a> {
    fn new(job: &Job, claimed: Claimed<'a>, leaving: impl Fn(&Uid) -> bool) -> Self {
        let Claimed { pod, adopted } = claimed;
        let is_held = adopted || has_finalizer(pod, FINALIZER);
        let hold = match is_held {
            true if leaving(&pod.meta.uid) => Hold::Leaving,
            true => Hold::Held,
            false => Hold::Free,
        };
        Self { pod, place: place(job, pod), state: state(pod), hold }
    }

    /// Whether it works, or will.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Active { .. })
    }

    /// Its index, if it has one of use.
    pub(crate) fn index(&self) -> Option<u32> {
        match self.place {
            Place::At(index) => Some(index),
            Place::Any | Place::Stray => None,
        }
    }
}

/// `completions` as a bound of indexes; validation has it set on a Job that has indexes.
pub(crate) fn completions(job: &Job) -> u32 {
    job.spec.completions.and_then(|it| u32::try_from(it).ok()).unwrap_or_default()
}

fn place(job: &Job, pod: &Pod) -> Place {
    if !job.is_indexed() {
        return Place::Any;
    }
    let index = pod.annotations.get(INDEX).and_then(|it| it.parse::<u32>().ok());
    match index {
        Some(index) if index < completions(job) => Place::At(index),
        _ => Place::Stray,
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
