//! The failed pod that keeps the failure count of its index. Pure.
//!
//! With `backoffLimitPerIndex` failures are counted only in annotations of pods (KEP-3850). So the newest failed pod of
//! an index keeps its finalizer until the informer shows an active replacement, which has the next count.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use api::Pod;

use crate::rules::{
    backoff::{PodFailures, finish_time},
    failure_policy,
    indexes::Indexes,
    snapshot::{FinalizerState, Snapshot},
};

/// The annotation with the number of counted failures of the index before this pod.
pub(crate) const FAILURE_COUNT_ANNOTATION: &str = "batch.kubernetes.io/job-index-failure-count";

/// The annotation with the number of ignored failures of the index before this pod.
pub(crate) const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A larger count does not parse and would be read as zero.
const MAX_COUNT: u32 = i32::MAX.unsigned_abs();

/// The failures of an index before a pod was created for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Failures {
    /// Failures that count.
    pub(crate) counted: u32,
    /// Failures that a podFailurePolicy rule ignored.
    pub(crate) ignored: u32,
}

impl Failures {
    /// Reads the annotations of the pod. An annotation that does not parse counts as zero.
    pub(crate) fn of(pod: &Pod) -> Self {
        let read = |key: &str| {
            let count = pod.annotations.get(key)?.parse::<i32>().ok()?;
            u32::try_from(count).ok()
        };
        Self { counted: read(FAILURE_COUNT_ANNOTATION).unwrap_or_default(), ignored: read(IGNORED).unwrap_or_default() }
    }

    fn total(self) -> u32 {
        self.counted + self.ignored
    }
}

/// For each index that must be retried, the position in the snapshot of the pod that keeps its failure count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LastFailedPods(BTreeMap<u32, usize>);

impl LastFailedPods {
    /// Selects, for each index that has no active pod and has neither succeeded nor failed, the failed pod with the
    /// most failures. Among equals, the pod that finished last.
    pub(crate) fn of(snapshot: &Snapshot<'_>, finished: &Indexes, active: &Indexes) -> Self {
        let mut pods: BTreeMap<u32, (u32, i64, Reverse<usize>)> = BTreeMap::new();
        for (at, job_pod) in snapshot.job_pods.iter().enumerate() {
            let Some(index) = job_pod.index() else { continue };
            let is_free = !active.contains(index) && !finished.contains(index);
            if job_pod.finalizer == FinalizerState::Present && is_free && snapshot.is_failed(job_pod) {
                let rank = (Failures::of(job_pod.pod).total(), finish_time(job_pod.pod), Reverse(at));
                let best = pods.entry(index).or_insert(rank);
                *best = rank.max(*best);
            }
        }
        Self(pods.into_iter().map(|(index, (_, _, Reverse(at)))| (index, at)).collect())
    }

    /// Whether this is the pod that keeps the failure count of its index.
    pub(crate) fn has_failure_count(&self, index: Option<u32>, at: usize) -> bool {
        index.is_some_and(|it| self.0.get(&it) == Some(&at))
    }

    /// The failure counts for the next pod of `index`.
    pub(crate) fn failures(&self, snapshot: &Snapshot<'_>, index: u32) -> Failures {
        let Some(replaced) = self.pod(snapshot, index) else { return Failures::default() };
        let Failures { counted, ignored } = Failures::of(replaced);
        if failure_policy::policy_result(snapshot.job, replaced).is_counted() {
            Failures { counted: counted.saturating_add(1).min(MAX_COUNT), ignored }
        } else {
            Failures { counted, ignored: ignored.saturating_add(1).min(MAX_COUNT) }
        }
    }

    /// The indexes in back-off with the remaining time, in ascending order of the index.
    pub(crate) fn remaining_delays(&self, snapshot: &Snapshot<'_>) -> impl Iterator<Item = (u32, Duration)> {
        let wait = |(index, at): (&u32, &usize)| {
            let replaced = snapshot.job_pods.get(*at)?.pod;
            let failures = Failures::of(replaced).total() + 1;
            let wait = PodFailures { failures, last: finish_time(replaced) }.remaining(snapshot.inputs.now);
            (!wait.is_zero()).then_some((*index, wait))
        };
        self.0.iter().filter_map(wait)
    }

    fn pod<'a>(&self, snapshot: &Snapshot<'a>, index: u32) -> Option<&'a Pod> {
        let at = self.0.get(&index)?;
        snapshot.job_pods.get(*at).map(|it| it.pod)
    }
}
