//! The pod that remembers for its index how often it failed. Pure.
//!
//! With `backoffLimitPerIndex` there is no counter but on pods: so the newest failed pod of an index keeps its finalizer
//! until its replacement, which carries the count on, is seen to be active.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use api::Pod;

use crate::{
    backoff::{Backoff, finish_time},
    failure_policy,
    indexes::Indexes,
    snapshot::{Hold, Snapshot},
};

/// The annotation that says how many failures of an index were counted before this pod.
pub(crate) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// The annotation that says how many failures of an index were ignored before this pod.
pub(crate) const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A larger count would be read back as none.
const MOST: u32 = i32::MAX.unsigned_abs();

/// What failed of an index before a pod was created for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Failures {
    /// Those that count.
    pub(crate) counted: u32,
    /// Those that a rule ignored.
    pub(crate) ignored: u32,
}

impl Failures {
    /// As the pod says; what cannot be read is nothing.
    pub(crate) fn of(pod: &Pod) -> Self {
        let read = |key: &str| {
            let count = pod.annotations.get(key)?.parse::<i32>().ok()?;
            u32::try_from(count).ok()
        };
        Self { counted: read(FAILURES).unwrap_or_default(), ignored: read(IGNORED).unwrap_or_default() }
    }

    fn total(self) -> u32 {
        self.counted + self.ignored
    }
}

/// Of each index that has to be tried again, the pod that remembers: its place in the snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delayed(BTreeMap<u32, usize>);

impl Delayed {
    /// Of each index without an active pod that is neither done nor given up, the failed pod that knows of the most
    /// failures, and of these the one that ended last.
    pub(crate) fn of(snapshot: &Snapshot<'_>, settled: &Indexes, active: &Indexes) -> Self {
        let mut pods: BTreeMap<u32, (u32, i64, Reverse<usize>)> = BTreeMap::new();
        for (at, worker) in snapshot.workers.iter().enumerate() {
            let Some(index) = worker.index() else { continue };
            let is_free = !active.contains(index) && !settled.contains(index);
            if worker.hold == Hold::Held && is_free && snapshot.is_failed(worker) {
                let rank = (Failures::of(worker.pod).total(), finish_time(worker.pod), Reverse(at));
                let best = pods.entry(index).or_insert(rank);
                *best = rank.max(*best);
            }
        }
        Self(pods.into_iter().map(|(index, (_, _, Reverse(at)))| (index, at)).collect())
    }

    /// Whether this is the pod that remembers for its index.
    pub(crate) fn holds(&self, index: Option<u32>, at: usize) -> bool {
        index.is_some_and(|it| self.0.get(&it) == Some(&at))
    }

    /// What the next pod of `index` has to remember.
    pub(crate) fn failures(&self, snapshot: &Snapshot<'_>, index: u32) -> Failures {
        let Some(replaced) = self.pod(snapshot, index) else { return Failures::default() };
        let Failures { counted, ignored } = Failures::of(replaced);
        if failure_policy::verdict(snapshot.job, replaced).counts() {
            Failures { counted: counted.saturating_add(1).min(MOST), ignored }
        } else {
            Failures { counted, ignored: ignored.saturating_add(1).min(MOST) }
        }
    }

    /// The indexes whose next pod has to wait, in ascending order, and how long.
    pub(crate) fn waits(&self, snapshot: &Snapshot<'_>) -> impl Iterator<Item = (u32, Duration)> {
        let wait = |(index, at): (&u32, &usize)| {
            let replaced = snapshot.workers.get(*at)?.pod;
            let failures = Failures::of(replaced).total() + 1;
            let wait = Backoff { failures, last: finish_time(replaced) }.remaining(snapshot.known.now);
            (!wait.is_zero()).then_some((*index, wait))
        };
        self.0.iter().filter_map(wait)
    }

    fn pod<'a>(&self, snapshot: &Snapshot<'a>, index: u32) -> Option<&'a Pod> {
        let at = self.0.get(&index)?;
        snapshot.workers.get(*at).map(|it| it.pod)
    }
}
