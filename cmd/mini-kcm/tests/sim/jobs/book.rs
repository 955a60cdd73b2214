//! What the writes on the API say of Jobs and their pods: the book that a controller's work is held against. It is kept from
//! the stored writes alone, and knows nothing of how a controller works.

use std::{collections::BTreeMap, time::Duration};

use clock::Instant;
use serde_json::Value;

/// Longer than a controller may be behind what is stored: a frozen watch, a call that hangs, and a Lease that expires.
pub(super) const LAG: Duration = Duration::from_secs(200);
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const OURS: &str = "kubernetes.io/job-controller";

/// Every Job and every pod that ever was.
#[derive(Default)]
pub(super) struct Book {
    /// By uid.
    pub(super) pods: BTreeMap<String, Pod>,
    /// By uid.
    pub(super) jobs: BTreeMap<String, Job>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Works,
    Succeeded,
    Failed,
}

/// One pod.
#[derive(Debug, Clone, Default)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The Job that controls it now.
    pub(super) job: Option<String>,
    /// Every Job that ever did.
    pub(super) of: Vec<String>,
    /// What controls it is no Job.
    pub(super) foreign: bool,
    /// The Job that a manager made it for, and which manager.
    pub(super) made: Option<(String, String)>,
    pub(super) tracked: bool,
    pub(super) phase: Phase,
    pub(super) deleting: bool,
    pub(super) gone: bool,
    pub(super) index: Option<i64>,
    /// Failures of its index before it, by its annotation.
    pub(super) failures: Option<i64>,
    pub(super) born: Option<Instant>,
    /// When its phase became final.
    pub(super) ended: Option<Instant>,
    /// A rule of the failure policies that are used here ignores how it failed.
    pub(super) ignored: bool,
    pub(super) labels: Value,
    /// Somebody changed its labels or its owner.
    pub(super) touched: bool,
    /// A manager took its finalizer while its Job was under way.
    pub(super) released: bool,
    /// And it worked then: nobody will count it.
    pub(super) given_up: bool,
    /// A manager deleted it while it worked.
    pub(super) deleted_by_manager: bool,
}

/// One Job.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// As stored last.
    pub(super) object: Value,
    pub(super) gone: bool,
    /// Since when it is being deleted, or gone.
    pub(super) ends: Option<Instant>,
    /// Who wrote that it is finished.
    pub(super) finished_by: Option<String>,
    /// By the uid of a pod: whether it was counted as failed, and whether it has left its list.
    pub(super) counted: BTreeMap<String, (bool, bool)>,
    /// When more of its pods worked than it wants, or others than it wants.
    pub(super) overfull: Option<Instant>,
    /// Since when it had which parallelism and how many completions; a suspended Job wants none of both.
    pub(super) sizes: Vec<(Instant, i64, i64)>,
}

impl Pod {
    pub(super) fn works(&self) -> bool {
        self.phase == Phase::Works && !self.gone
    }

    pub(super) fn is_active(&self) -> bool {
        self.works() && !self.deleting
    }

    /// It ended badly, or a user deleted it; unless a manager did so before.
    pub(super) fn may_have_failed(&self) -> bool {
        let ended = self.phase == Phase::Failed || self.deleting || self.gone;
        ended && !self.deleted_by_manager
    }

    pub(super) fn is_of(&self, job: &str) -> bool {
        self.job.as_deref() == Some(job)
    }

    /// Takes in what is stored now.
    pub(super) fn read(&mut self, object: &Value, now: Instant) {
        let metadata = &object["metadata"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        if self.uid.is_empty() {
            self.uid = text(&metadata["uid"]);
            self.namespace = text(&metadata["namespace"]);
            self.name = text(&metadata["name"]);
            self.born = Some(now);
        }
        let controller = controller(object);
        let of_job = |it: &&Value| it["kind"] == "Job" && it["apiVersion"] == "batch/v1";
        self.job = controller.filter(of_job).map(|it| text(&it["uid"]));
        self.foreign = controller.is_some() && self.job.is_none();
        if let Some(job) = self.job.clone().filter(|it| !self.of.contains(it)) {
            self.of.push(job);
        }
        self.tracked = is_tracked(object);
        let phase = match object["status"]["phase"].as_str() {
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Works,
        };
        if phase != self.phase && phase != Phase::Works {
            self.ended = Some(now);
        }
        self.phase = phase;
        self.deleting = metadata["deletionTimestamp"].is_string();
        let note = |key: &str| metadata["annotations"][key].as_str()?.parse().ok();
        self.index = note(INDEX);
        self.failures = note(FAILURES);
        self.ignored = is_ignored(object);
        self.labels = metadata["labels"].clone();
    }
}

/// How the rules of `workload` that say Ignore know it.
fn is_ignored(pod: &Value) -> bool {
    let ended = |it: &Value| it["state"]["terminated"]["exitCode"] == 44;
    let list = |it: &str| pod["status"][it].as_array().cloned().unwrap_or_default();
    list("containerStatuses").iter().any(ended)
        || list("conditions").iter().any(|it| it["type"] == "DisruptionTarget" && it["status"] == "True")
}

impl Job {
    pub(super) fn read(&mut self, object: Value, now: Instant) {
        if self.uid.is_empty() {
            let text = |it: &str| object["metadata"][it].as_str().unwrap_or_default().to_owned();
            (self.uid, self.namespace, self.name) = (text("uid"), text("namespace"), text("name"));
        }
        if object["metadata"]["deletionTimestamp"].is_string() && self.ends.is_none() {
            self.ends = Some(now);
        }
        self.object = object;
        let wanted =
            (now, if self.is_suspended() { 0 } else { self.parallelism() }, self.completions().unwrap_or(i64::MAX));
        if self.sizes.last().is_none_or(|it| (it.1, it.2) != (wanted.1, wanted.2)) {
            self.sizes.push(wanted);
        }
    }

    pub(super) fn spec(&self, field: &str) -> &Value {
        &self.object["spec"][field]
    }

    pub(super) fn parallelism(&self) -> i64 {
        self.spec("parallelism").as_i64().unwrap_or(1)
    }

    pub(super) fn completions(&self) -> Option<i64> {
        self.spec("completions").as_i64()
    }

    pub(super) fn is_suspended(&self) -> bool {
        *self.spec("suspend") == true
    }

    pub(super) fn is_indexed(&self) -> bool {
        *self.spec("completionMode") == "Indexed"
    }

    /// Its size follows its parallelism.
    pub(super) fn is_elastic(&self) -> bool {
        self.is_indexed() && self.spec("completions") == self.spec("parallelism")
    }

    /// Only pods that have ended are replaced, not those that are ending.
    pub(super) fn waits_for_the_end(&self) -> bool {
        *self.spec("podReplacementPolicy") == "Failed" || !self.spec("podFailurePolicy").is_null()
    }

    /// Another controller has it.
    pub(super) fn is_foreign(&self) -> bool {
        self.spec("managedBy").as_str().is_some_and(|it| it != OURS)
    }

    pub(super) fn is_finished(&self) -> bool {
        is_finished(&self.object)
    }

    /// What was the largest parallelism, and the most completions, that a controller may still go by.
    pub(super) fn most(&self, now: Instant) -> (i64, i64) {
        let seen = self.sizes.iter().enumerate().filter(|(at, _)| {
            let until = self.sizes.get(at + 1).map(|it| it.0);
            until.is_none_or(|it| it + LAG > now)
        });
        seen.fold((0, 0), |most, (_, it)| (most.0.max(it.1), most.1.max(it.2)))
    }

    /// Whether a controller may believe that some of its pods are too many.
    pub(super) fn may_shrink(&self, now: Instant) -> bool {
        self.overfull.is_some_and(|it| it + LAG > now)
    }
}

impl Book {
    /// The pods that a Job controls.
    pub(super) fn pods_of<'a>(&'a self, job: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |it| it.is_of(job))
    }

    /// Notes whether some pods of a Job are too many now, as they are or as a controller may see them yet: one that was not
    /// let go may not have been shown to have ended, beside those that were there then.
    pub(super) fn weigh(&mut self, job: &str, now: Instant) {
        let unseen = |it: &&Pod| it.tracked && !it.deleting && it.ended.is_some_and(|it| it + LAG > now);
        let ends: Vec<Instant> = self.pods_of(job).filter(unseen).filter_map(|it| it.ended).collect();
        let mut overfull = self.is_overfull(job, |it| it.is_active());
        for end in ends {
            let worked = |it: &Pod| it.is_active() || (unseen(&it) && it.ended.is_some_and(|it| it >= end));
            overfull |= self.is_overfull(job, |it| worked(it) && it.born.is_some_and(|it| it < end));
        }
        if let Some(it) = self.jobs.get_mut(job).filter(|_| overfull) {
            it.overfull = Some(now);
        }
    }

    /// Whether some pods of a Job are too many where these are active.
    fn is_overfull(&self, job: &str, is_active: impl Fn(&Pod) -> bool) -> bool {
        let Some(it) = self.jobs.get(job).filter(|it| !it.gone) else { return false };
        let active: Vec<&Pod> = self.pods_of(job).filter(|it| is_active(it)).collect();
        let is_done = |pod: &&Pod| pod.of.contains(&it.uid) && pod.phase == Phase::Succeeded && !is_active(pod);
        let done = self.pods.values().filter(is_done);
        let most = it.completions().unwrap_or(i64::MAX);
        let mut wanted = if it.is_suspended() { 0 } else { it.parallelism() };
        let mut odd = false;
        if it.is_indexed() {
            let indexes: std::collections::BTreeSet<i64> =
                done.filter_map(|it| it.index).filter(|it| *it < most).collect();
            wanted = wanted.min(most - count(indexes.len()));
            odd = active.iter().enumerate().any(|(at, pod)| {
                pod.index.is_none_or(|it| it >= most) || active[..at].iter().any(|other| other.index == pod.index)
            });
        } else if let Some(most) = it.completions() {
            wanted = wanted.min(most - count(done.count()));
        }
        odd || count(active.len()) > wanted
    }
}

pub(super) fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

pub(super) fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|it| it.iter().any(|it| it == FINALIZER))
}

/// The owner that controls it.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|it| it["controller"] == true)
}

pub(super) fn holds(job: &Value, condition: &str) -> bool {
    let all = job["status"]["conditions"].as_array();
    all.is_some_and(|it| it.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

pub(super) fn is_finished(job: &Value) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

/// The uids of one of the lists of pods that are not in a counter yet.
pub(super) fn uncounted(job: &Value, list: &str) -> Vec<String> {
    let all = job["status"]["uncountedTerminatedPods"][list].as_array();
    all.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Indexes such as `0-2,4`.
pub(super) fn indexes(text: &Value) -> Vec<i64> {
    let spans = text.as_str().unwrap_or_default().split(',').filter(|it| !it.is_empty());
    spans
        .flat_map(|it| {
            let (first, last) = it.split_once('-').unwrap_or((it, it));
            first.parse().unwrap_or(i64::MAX)..=last.parse().unwrap_or(-1)
        })
        .collect()
}
