//! Counts for a Job: the counters of its status plus the pods that ended since. Pure.

use std::collections::HashSet;

use api::{JobStatus, Uid};

use crate::{
    backoff::{Backoff, finish_time},
    delayed::{Delayed, Failures},
    failure_policy::{Verdict, verdict},
    indexes::Indexes,
    snapshot::{Hold, Snapshot, State, Worker},
};

/// The counts of a Job.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Succeeded pods, or succeeded indexes.
    pub(crate) succeeded: u32,
    /// Failures that count.
    pub(crate) failed: u32,
    /// The back-off, including pods that ended since the last status.
    pub(crate) backoff: Backoff,
    /// The state of the indexes of an Indexed Job.
    pub(crate) indexes: Option<Outcomes>,
}

/// The state of the indexes of a Job.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// Indexes that have succeeded in the stored status.
    pub(crate) stored: Indexes,
    /// Indexes that have succeeded.
    pub(crate) succeeded: Indexes,
    /// Indexes that have failed. `None` when failures are not counted per index.
    pub(crate) failed: Option<Indexes>,
    /// Indexes with an active pod.
    pub(crate) active: Indexes,
    /// The pods that keep the failure counts of indexes to retry.
    pub(crate) delayed: Delayed,
}

impl Tally {
    /// Counts. Each pod is read once; only pods that ended since the last status are read again.
    pub(crate) fn of(snapshot: &Snapshot<'_>) -> Self {
        let status = &snapshot.job.status;
        let news = News::of(snapshot, snapshot.news());
        let failed = snapshot.news().filter(|it| snapshot.is_failed(it));
        let counted = size(failed.filter(|it| verdict(snapshot.job, it.pod).counts()).count());
        let uncounted = status.uncounted.as_ref();
        let known = |counter: i32, list: Option<usize>| number(counter) + list.map_or(0, size);
        let indexes = snapshot.job.is_indexed().then(|| Outcomes::of(snapshot));
        let succeeded = match &indexes {
            Some(indexes) => indexes.succeeded.len(),
            None => known(status.succeeded, uncounted.map(|it| it.succeeded.len())) + size(news.succeeded),
        };
        Self {
            succeeded,
            failed: known(status.failed, uncounted.map(|it| it.failed.len())) + counted,
            backoff: news.after(snapshot),
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
struct News {
    succeeded: usize,
    last_success: Option<i64>,
    failed: Vec<i64>,
}

impl News {
    fn of<'a>(snapshot: &Snapshot<'_>, ended: impl Iterator<Item = &'a Worker<'a>>) -> Self {
        let mut news = Self::default();
        for worker in ended {
            if worker.state == State::Succeeded {
                news.success(finish_time(worker.pod));
            } else if snapshot.is_failed(worker) {
                news.failed.push(finish_time(worker.pod));
            }
        }
        news
    }

    /// The back-off including these pods.
    fn after(&self, snapshot: &Snapshot<'_>) -> Backoff {
        let before = snapshot.known.backoff.unwrap_or_else(|| rebuilt(snapshot));
        before.with(self.last_success, &self.failed)
    }

    fn success(&mut self, at: i64) {
        self.succeeded += 1;
        self.last_success = self.last_success.max(Some(at));
    }
}

/// The back-off after the next status, which contains all ended pods except `put_off`.
pub(crate) fn backoff_without(snapshot: &Snapshot<'_>, put_off: &HashSet<&Uid>) -> Backoff {
    News::of(snapshot, snapshot.news().filter(|it| !put_off.contains(&it.pod.meta.uid))).after(snapshot)
}

/// The back-off after a restart of the process, computed from counted pods in the cache.
fn rebuilt(snapshot: &Snapshot<'_>) -> Backoff {
    let is_new = |it: &Worker<'_>| it.hold == Hold::Held && !snapshot.uncounted.names(&it.pod.meta.uid);
    let mut known = News::default();
    for worker in snapshot.workers.iter().filter(|it| !is_new(it)) {
        match worker.state {
            State::Succeeded => known.success(finish_time(worker.pod)),
            State::Failed => known.failed.push(finish_time(worker.pod)),
            State::Active { .. } | State::Terminating => {}
        }
    }
    Backoff::default().with(known.last_success, &known.failed)
}

impl Outcomes {
    fn of(snapshot: &Snapshot<'_>) -> Self {
        let JobStatus { completed_indexes, failed_indexes, .. } = &snapshot.job.status;
        let completions = snapshot.completions();
        let limit = snapshot.job.spec.backoff_limit_per_index.map(number);
        let stored = Indexes::parse(completed_indexes, completions);
        let given_up = limit.map(|_| Indexes::parse(failed_indexes.as_deref().unwrap_or_default(), completions));

        let (mut done, mut lost, mut active) = (Vec::new(), Vec::new(), Vec::new());
        for worker in &snapshot.workers {
            let Some(index) = worker.index() else { continue };
            match worker.state {
                // A pod without the finalizer is not counted, and will be deleted.
                _ if worker.hold == Hold::Free => {}
                _ if snapshot.is_deleted_by_success(worker) || snapshot.is_counted_with_end(worker) => {}
                State::Active { .. } => active.push(index),
                // A pod in `uncountedTerminatedPods.failed` stays failed even if its phase is Succeeded now.
                State::Succeeded if !snapshot.uncounted.failed.contains(&worker.pod.meta.uid) => done.push(index),
                _ => {
                    if limit.is_some_and(|limit| gives_up(snapshot, worker, limit)) {
                        lost.push(index);
                    }
                }
            }
        }
        // The API server requires that no index has both succeeded and failed. A stored result stays.
        done.retain(|it| !given_up.as_ref().is_some_and(|given_up| given_up.contains(*it)));
        let succeeded = stored.union(&ascending(done));
        lost.retain(|it| !succeeded.contains(*it));
        let failed = given_up.map(|it| it.union(&ascending(lost)));
        let active = ascending(active);
        let delayed = match &failed {
            Some(failed) => Delayed::of(snapshot, &succeeded.union(failed), &active),
            None => Delayed::default(),
        };
        Self { stored, succeeded, failed, active, delayed }
    }
}

/// Whether the index of this pod has failed because of it.
fn gives_up(snapshot: &Snapshot<'_>, worker: &Worker<'_>, limit: u32) -> bool {
    // After an announced end a terminating pod was deleted by the controller, so its exit does not count.
    let goes_with_job = snapshot.announced && worker.pod.meta.deletion.is_some();
    if goes_with_job || !snapshot.is_failed(worker) {
        return false;
    }
    let verdict = verdict(snapshot.job, worker.pod);
    verdict == Verdict::FailIndex || (verdict.counts() && Failures::of(worker.pod).counted >= limit)
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
