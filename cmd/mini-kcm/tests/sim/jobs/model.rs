//! A model of Jobs and their pods. The controller's writes are checked against it. It is computed from the stored
//! writes alone and does not depend on the controller's code.

use std::{collections::BTreeMap, time::Duration};

use clock::Instant;
use serde_json::Value;

/// More than the maximum staleness of a controller: a frozen watch, a hung call, and an expiring Lease.
pub(super) const LAG: Duration = Duration::from_secs(200);
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const OURS: &str = "kubernetes.io/job-controller";

/// Every Job and every pod that ever existed.
#[derive(Default)]
pub(super) struct Model {
    /// By uid.
    pub(super) pods: BTreeMap<String, Pod>,
    /// By uid.
    pub(super) jobs: BTreeMap<String, Job>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Running,
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
    /// Every Job that ever controlled it.
    pub(super) jobs_ever: Vec<String>,
    /// Its controller is not a Job.
    pub(super) foreign: bool,
    /// The Job for which a manager created it, and this manager.
    pub(super) created_for: Option<(String, String)>,
    pub(super) tracked: bool,
    pub(super) phase: Phase,
    pub(super) deleting: bool,
    pub(super) gone: bool,
    pub(super) index: Option<i64>,
    /// Earlier failures of its index, from its annotation.
    pub(super) failures: Option<i64>,
    pub(super) created_at: Option<Instant>,
    /// The time when its phase became final.
    pub(super) ended: Option<Instant>,
    /// A rule of the failure policies in `workload` ignores this failure.
    pub(super) ignored: bool,
    pub(super) labels: Value,
    /// Its labels or its owner were changed by a user.
    pub(super) changed_by_user: bool,
    /// The Job for which a manager last removed its finalizer while this Job was not finished. A later Job that adopts
    /// the pod counts it again.
    pub(super) finalizer_removed_for: Option<String>,
    /// A tracked pod that was removed, or whose finalizer was removed while it ran. It will not be counted.
    pub(super) uncountable: bool,
    /// A manager deleted it while it ran.
    pub(super) deleted_by_manager: bool,
}

/// One Job.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The last stored object.
    pub(super) object: Value,
    pub(super) gone: bool,
    /// The time since which it is being deleted or gone.
    pub(super) deleted_since: Option<Instant>,
    /// The process that wrote the finished condition.
    pub(super) finished_by: Option<String>,
    /// By pod uid: whether the pod was counted as failed, and whether its uid has left the list.
    pub(super) counted: BTreeMap<String, (bool, bool)>,
    /// The last time when more pods ran than wanted, or other ones than wanted.
    pub(super) surplus_at: Option<Instant>,
    /// Its parallelism and completions, each with the time since which they are set. Both are 0 for a suspended Job.
    pub(super) size_history: Vec<(Instant, i64, i64)>,
}

impl Pod {
    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running && !self.gone
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_running() && !self.deleting
    }

    /// True when it failed, or a user deleted it, unless a manager deleted it before.
    pub(super) fn may_have_failed(&self) -> bool {
        let ended = self.phase == Phase::Failed || self.deleting || self.gone;
        ended && !self.deleted_by_manager
    }

    pub(super) fn is_controlled_by(&self, job: &str) -> bool {
        self.job.as_deref() == Some(job)
    }

    /// Updates the pod from the stored object.
    pub(super) fn update_from(&mut self, object: &Value, now: Instant) {
        let metadata = &object["metadata"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        if self.uid.is_empty() {
            self.uid = text(&metadata["uid"]);
            self.namespace = text(&metadata["namespace"]);
            self.name = text(&metadata["name"]);
            self.created_at = Some(now);
        }
        let controller = controller(object);
        let of_job = |it: &&Value| it["kind"] == "Job" && it["apiVersion"] == "batch/v1";
        self.job = controller.filter(of_job).map(|it| text(&it["uid"]));
        self.foreign = controller.is_some() && self.job.is_none();
        if let Some(job) = self.job.clone().filter(|it| !self.jobs_ever.contains(it)) {
            self.jobs_ever.push(job);
        }
        self.tracked = is_tracked(object);
        let phase = match object["status"]["phase"].as_str() {
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Running,
        };
        if phase != self.phase && phase != Phase::Running {
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

/// True when an Ignore rule of `workload` matches this failure.
fn is_ignored(pod: &Value) -> bool {
    let ended = |it: &Value| it["state"]["terminated"]["exitCode"] == 44;
    let list = |it: &str| pod["status"][it].as_array().cloned().unwrap_or_default();
    list("containerStatuses").iter().any(ended)
        || list("conditions").iter().any(|it| it["type"] == "DisruptionTarget" && it["status"] == "True")
}

impl Job {
    pub(super) fn update_from(&mut self, object: Value, now: Instant) {
        if self.uid.is_empty() {
            let text = |it: &str| object["metadata"][it].as_str().unwrap_or_default().to_owned();
            (self.uid, self.namespace, self.name) = (text("uid"), text("namespace"), text("name"));
        }
        if object["metadata"]["deletionTimestamp"].is_string() && self.deleted_since.is_none() {
            self.deleted_since = Some(now);
        }
        self.object = object;
        let wanted =
            (now, if self.is_suspended() { 0 } else { self.parallelism() }, self.completions().unwrap_or(i64::MAX));
        if self.size_history.last().is_none_or(|it| (it.1, it.2) != (wanted.1, wanted.2)) {
            self.size_history.push(wanted);
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

    /// True when its completions change together with its parallelism.
    pub(super) fn is_elastic(&self) -> bool {
        self.is_indexed() && self.spec("completions") == self.spec("parallelism")
    }

    /// True when a pod is replaced only after it has ended, and not while it terminates.
    pub(super) fn may_replace_only_ended(&self) -> bool {
        *self.spec("podReplacementPolicy") == "Failed" || !self.spec("podFailurePolicy").is_null()
    }

    /// True when another controller manages it.
    pub(super) fn is_foreign(&self) -> bool {
        self.spec("managedBy").as_str().is_some_and(|it| it != OURS)
    }

    pub(super) fn is_finished(&self) -> bool {
        is_finished(&self.object)
    }

    /// The largest parallelism and the most completions that a controller may still observe.
    pub(super) fn largest_size(&self, now: Instant) -> (i64, i64) {
        let seen = self.size_history.iter().enumerate().filter(|(at, _)| {
            let until = self.size_history.get(at + 1).map(|it| it.0);
            until.is_none_or(|it| it + LAG > now)
        });
        seen.fold((0, 0), |most, (_, it)| (most.0.max(it.1), most.1.max(it.2)))
    }

    /// True when a controller may observe that the Job has too many pods.
    pub(super) fn may_shrink(&self, now: Instant) -> bool {
        self.surplus_at.is_some_and(|it| it + LAG > now)
    }
}

impl Model {
    /// The pods that a Job controls.
    pub(super) fn pods_of<'a>(&'a self, job: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |it| it.is_controlled_by(job))
    }

    /// Records whether a Job has too many pods now, either really or in a stale cache. A pod whose finalizer is not
    /// removed may look active together with the other pods of that time, because its end may not be observed yet.
    pub(super) fn record_surplus(&mut self, job: &str, now: Instant) {
        let unseen = |it: &&Pod| it.tracked && !it.deleting && it.ended.is_some_and(|it| it + LAG > now);
        let ends: Vec<Instant> = self.pods_of(job).filter(unseen).filter_map(|it| it.ended).collect();
        let mut surplus = self.has_surplus(job, |it| it.is_active());
        for end in ends {
            let worked = |it: &Pod| it.is_active() || (unseen(&it) && it.ended.is_some_and(|it| it >= end));
            surplus |= self.has_surplus(job, |it| worked(it) && it.created_at.is_some_and(|it| it < end));
        }
        if let Some(it) = self.jobs.get_mut(job).filter(|_| surplus) {
            it.surplus_at = Some(now);
        }
    }

    /// True when a Job has too many pods, counting these pods as active.
    fn has_surplus(&self, job: &str, is_active: impl Fn(&Pod) -> bool) -> bool {
        let Some(it) = self.jobs.get(job).filter(|it| !it.gone) else { return false };
        let active: Vec<&Pod> = self.pods_of(job).filter(|it| is_active(it)).collect();
        let is_done = |pod: &&Pod| pod.jobs_ever.contains(&it.uid) && pod.phase == Phase::Succeeded && !is_active(pod);
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

/// The controlling owner.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|it| it["controller"] == true)
}

pub(super) fn has_condition(job: &Value, condition: &str) -> bool {
    let all = job["status"]["conditions"].as_array();
    all.is_some_and(|it| it.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

pub(super) fn is_finished(job: &Value) -> bool {
    has_condition(job, "Complete") || has_condition(job, "Failed")
}

/// The uids in one of the lists of uncounted pods.
pub(super) fn uncounted(job: &Value, list: &str) -> Vec<String> {
    let all = job["status"]["uncountedTerminatedPods"][list].as_array();
    all.into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Parses indexes such as `0-2,4`.
pub(super) fn indexes(text: &Value) -> Vec<i64> {
    let spans = text.as_str().unwrap_or_default().split(',').filter(|it| !it.is_empty());
    spans
        .flat_map(|it| {
            let (first, last) = it.split_once('-').unwrap_or((it, it));
            first.parse().unwrap_or(i64::MAX)..=last.parse().unwrap_or(-1)
        })
        .collect()
}
