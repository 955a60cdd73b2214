//! Random sequences for Jobs: pods end, users change pods, writes fail, managers crash. The invariants are checked at
//! each write.

use api::{Job, Pod, PodPhase};
use serde_json::{Value, json};

use super::*;
use crate::{
    rules::{
        backoff::PodFailures,
        plan::{PodChange, plan},
        snapshot::{FINALIZER, SnapshotInputs, Unseen},
    },
    testing::{INPUTS, NOW, job, pod, snapshot_of},
};

/// A pseudo-random generator: the same seed gives the same sequence.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

struct Simulation {
    rng: Rng,
    job: Job,
    pods: Vec<Pod>,
    backoff: Option<PodFailures>,
    now: i64,
    created: u32,
    /// How the pods without the finalizer must be counted: succeeded, failed.
    expected: (i32, i32),
    ended: bool,
    with_failures: bool,
}

fn has_our_finalizer(pod: &Pod) -> bool {
    pod.meta.finalizers.iter().any(|it| &**it == FINALIZER)
}

fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && pod.meta.deletion.is_none()
}

fn has_ended(pod: &Pod) -> bool {
    matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

impl Simulation {
    fn new(spec: Value, seed: u64) -> Self {
        let job = job(spec, json!({ "startTime": null, "ready": null, "terminating": null }));
        let rng = Rng(seed);
        Self {
            rng,
            job,
            pods: vec![],
            backoff: None,
            now: NOW,
            created: 0,
            expected: (0, 0),
            ended: false,
            with_failures: true,
        }
    }

    fn roll_failure(&mut self) -> bool {
        self.with_failures && self.rng.one_in(6)
    }

    /// The events between two syncs.
    fn advance(&mut self) {
        self.now += if self.with_failures { self.rng.below(40) as i64 } else { 700 };
        let (now, with_failures) = (self.now, self.with_failures);
        for pod in &mut self.pods {
            let event = if with_failures { self.rng.below(12) } else { 1 };
            if has_ended(pod) {
                continue;
            }
            match event {
                0 if pod.meta.deletion.is_none() => pod.meta.deletion = Some(now),
                0 | 2 => pod.phase = PodPhase::Failed,
                1 => pod.phase = PodPhase::Succeeded,
                3..6 => pod.phase = PodPhase::Running,
                _ => {}
            }
        }
        let is_removed = |rng: &mut Rng, pod: &Pod| {
            !has_our_finalizer(pod) && has_ended(pod) && (pod.meta.deletion.is_some() || rng.one_in(3))
        };
        self.pods.retain(|it| !is_removed(&mut self.rng, it));
        if self.with_failures && self.rng.one_in(9) {
            self.job.spec.suspend = !self.job.spec.suspend;
        }
    }

    fn sync(&mut self) {
        let (job, pods) = (self.job.clone(), self.pods.clone());
        let unseen = match if self.with_failures { self.rng.below(8) } else { 7 } {
            0 => Unseen::Writes,
            1 => Unseen::UnknownCreates,
            _ => Unseen::Nothing,
        };
        let inputs = SnapshotInputs { now: Moment(self.now * 1_000), unseen, backoff: self.backoff, ..INPUTS };
        let snapshot = snapshot_of(&job, &pods, inputs);
        let plan = plan(&snapshot);
        let applied = self.apply(&plan.pods);
        let Some(mut step) = first_step(&snapshot, &plan, &applied) else { return };
        if step.write && !self.store(&step.status) {
            return;
        }
        self.backoff = Some(plan.tally.backoff);
        step.select_deleted(&self.apply(&plan.after_status).deleted);
        if self.roll_failure() {
            self.backoff = None; // The manager crashed and lost its memory.
            return;
        }
        let removed: Vec<bool> =
            step.finalizers_to_remove.iter().map(|at| self.remove_finalizer(&snapshot.job_pods[*at])).collect();
        let LastStep { status, finished } = last_step(&snapshot, step, &removed, Moment(self.now * 1_000));
        if status.is_some_and(|it| self.store(&it)) && finished.is_some() {
            self.ended = true;
        }
    }

    fn apply(&mut self, change: &PodChange) -> Applied {
        let mut applied = Applied::default();
        match change {
            PodChange::Keep => {}
            PodChange::End(positions) => {
                for at in positions.iter().copied() {
                    if !self.roll_failure() {
                        self.pods[at].meta.deletion = Some(self.now);
                        applied.deleted.push(at);
                    }
                }
            }
            PodChange::Suspend(positions) | PodChange::Delete(positions) => {
                for at in positions.iter().copied() {
                    if !self.roll_failure() {
                        self.pods[at].meta.deletion = Some(self.now);
                        self.pods[at].meta.finalizers = Default::default();
                        applied.deleted.push(at);
                    }
                }
            }
            PodChange::Create(creation) => {
                for new in &creation.pods {
                    if self.roll_failure() {
                        break;
                    }
                    applied.created += 1;
                    self.create(new.index, new.failures.map(|it| it.counted));
                }
                let active = self.pods.iter().filter(|it| is_active(it)).count();
                assert!(active <= number(self.job.spec.parallelism) as usize, "{active} active");
                self.assert_unique_indexes();
            }
        }
        applied
    }

    fn create(&mut self, index: Option<u32>, failures: Option<u32>) {
        self.created += 1;
        let mut new = pod(&self.created.to_string());
        if let Some(index) = index {
            new = new.index(index);
        }
        if let Some(failures) = failures {
            new = new.failures(failures);
        }
        let mut new = new.build();
        new.creation = Some(self.now);
        self.pods.push(new);
    }

    fn assert_unique_indexes(&self) {
        let index = |it: &Pod| it.annotations.get(crate::rules::snapshot::INDEX).map(str::to_owned);
        let mut indexes: Vec<String> = self.pods.iter().filter(|it| is_active(it)).filter_map(index).collect();
        indexes.sort();
        assert!(indexes.is_sorted_by(|a, b| a < b), "{indexes:?}");
    }

    /// Stores a status if the call succeeds; the status must be valid.
    fn store(&mut self, status: &JobStatus) -> bool {
        status::check(&self.job.spec, &self.job.status, status).unwrap();
        assert!(self.job.status.failed <= status.failed && self.job.status.succeeded <= status.succeeded);
        if self.roll_failure() {
            return false;
        }
        self.job.status = status.clone();
        true
    }

    /// Removes a finalizer. Allowed only for a pod that the stored status contains.
    fn remove_finalizer(&mut self, job_pod: &JobPod<'_>) -> bool {
        let uid = &job_pod.pod.meta.uid;
        let (status, indexes) = (&self.job.status, &self.job.status.completed_indexes);
        let uncounted = status.uncounted.clone().unwrap_or_default();
        let is_done = job_pod.state == State::Succeeded;
        let stored = crate::rules::indexes::Indexes::parse(indexes, u32::MAX);
        let (succeeded, failed) = if uncounted.failed.contains(uid) {
            (0, 1)
        } else if uncounted.succeeded.contains(uid) {
            (1, 0)
        } else if is_done && job_pod.index().is_some_and(|it| stored.contains(it)) {
            (0, 0) // Counted by its index.
        } else {
            let is_neutral = !has_ended(job_pod.pod)
                || snapshot_of(&self.job, std::slice::from_ref(job_pod.pod), INPUTS).is_deleted_after_success(job_pod);
            assert!(status.is_condition_true("SuccessCriteriaMet") && is_neutral, "{job_pod:?} is counted nowhere");
            (0, 0)
        };
        if self.roll_failure() {
            return false;
        }
        self.expected = (self.expected.0 + succeeded, self.expected.1 + failed);
        let Some(pod) = self.pods.iter_mut().find(|it| it.meta.uid == *uid) else { panic!("pod {uid} does not exist") };
        assert!(has_our_finalizer(pod), "the finalizer of {uid} is removed twice");
        pod.meta.finalizers = Default::default();
        true
    }

    fn run(mut self) {
        for _ in 0..40 {
            self.advance();
            self.sync();
            if self.ended {
                break;
            }
        }
        self.with_failures = false;
        self.job.spec.suspend = false;
        for _ in 0..60 {
            if self.ended {
                break;
            }
            self.advance();
            self.sync();
        }
        let status = &self.job.status;
        assert!(self.ended && status.finished_condition().is_some(), "{status:?} {:?}", self.pods);
        assert!(!self.pods.iter().any(has_our_finalizer), "{:?}", self.pods);
        let (succeeded, failed) = self.expected;
        if !self.job.is_indexed() {
            assert_eq!(status.succeeded, succeeded);
        }
        assert_eq!(status.failed, failed);
        if status.is_condition_true("Complete") && self.job.spec.success_policy.is_none() {
            assert!(status.succeeded >= self.job.spec.completions.unwrap_or(1));
        }
    }
}

#[test]
fn each_pod_is_counted_once_and_each_job_ends_in_random_sequences() {
    let specs = [
        json!({ "parallelism": 3, "completions": 7, "backoffLimit": 100 }),
        json!({ "parallelism": 3, "completions": 7, "backoffLimit": 100, "completionMode": "Indexed" }),
        json!({ "parallelism": 3, "completions": 7, "backoffLimit": 100, "podReplacementPolicy": "Failed" }),
        json!({ "parallelism": 3, "completions": 7, "completionMode": "Indexed", "backoffLimitPerIndex": 1 }),
        json!({ "parallelism": 3, "completions": 7, "completionMode": "Indexed", "backoffLimitPerIndex": 3,
            "podReplacementPolicy": "Failed" }),
        json!({ "parallelism": 3, "completions": null, "backoffLimit": 100 }),
        json!({ "parallelism": 3, "completions": 7, "backoffLimit": 2 }),
        json!({ "parallelism": 3, "completions": 7, "backoffLimit": 100, "completionMode": "Indexed",
            "successPolicy": { "rules": [{ "succeededCount": 2 }] } }),
    ];
    for spec in specs {
        for seed in 0..300 {
            let simulation = Simulation::new(spec.clone(), seed);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulation.run()));
            assert!(outcome.is_ok(), "seed {seed} of {spec}");
        }
    }
}
