//! Jobs and pods for table tests of the rules.

use api::{Cached, Job, Pod};
use serde_json::{Value, json};

use crate::rules::{
    moment::Moment,
    snapshot::{ClaimedPod, Snapshot, SnapshotInputs, Unseen, gather},
};

/// The current time of all tests, in seconds: 2026-01-02T03:04:05Z.
pub(crate) const NOW: i64 = 1_767_323_045;

/// The RFC 3339 time this many seconds after [`NOW`].
pub(crate) fn at(seconds: i64) -> String {
    let (day, within) = ((NOW + seconds).div_euclid(86_400) - 20_455, (NOW + seconds).rem_euclid(86_400));
    format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", day + 2, within / 3_600, within / 60 % 60, within % 60)
}

/// A started Job with parallelism 2 and completions 4, with these changes of `spec` and `status`.
pub(crate) fn job(spec: Value, status: Value) -> Job {
    let mut object = json!({
        "metadata": { "name": "j", "namespace": "ns", "uid": "job-uid", "resourceVersion": "1" },
        "spec": { "parallelism": 2, "completions": 4, "template": { "spec": { "restartPolicy": "Never" } } },
        "status": { "startTime": at(-60), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {} },
    });
    merge(&mut object["spec"], spec);
    merge(&mut object["status"], status);
    decode(&object)
}

/// The same Job with a deletionTimestamp.
pub(crate) fn deleted(job: &Job) -> Job {
    let mut job = job.clone();
    job.meta.deletion = Some(NOW);
    job
}

/// A pending pod with our finalizer.
pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder(json!({
        "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "creationTimestamp": at(-50),
            "finalizers": ["batch.kubernetes.io/job-tracking"], "annotations": {} },
        "spec": {},
        "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] },
    }))
}

/// Builds a pod with chained calls.
pub(crate) struct PodBuilder(Value);

impl PodBuilder {
    pub(crate) fn running(mut self) -> Self {
        self.0["spec"]["nodeName"] = json!("node");
        self.0["status"]["phase"] = json!("Running");
        self
    }

    pub(crate) fn ready(self) -> Self {
        self.running().condition("Ready", "True", -40)
    }

    /// Succeeded this many seconds after [`NOW`].
    pub(crate) fn succeeded(self, seconds: i64) -> Self {
        self.running().phase("Succeeded").exit("main", 0, seconds)
    }

    /// Failed with exit code 1, this many seconds after [`NOW`].
    pub(crate) fn failed(self, seconds: i64) -> Self {
        self.running().phase("Failed").exit("main", 1, seconds)
    }

    pub(crate) fn phase(mut self, phase: &str) -> Self {
        self.0["status"]["phase"] = json!(phase);
        self
    }

    pub(crate) fn exit(mut self, container: &str, code: i32, seconds: i64) -> Self {
        let ended = json!({ "name": container, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "finishedAt": at(seconds) } } });
        push(&mut self.0["status"]["containerStatuses"], ended);
        self
    }

    pub(crate) fn restarts(mut self, list: &str, restarts: i32) -> Self {
        let running = json!({ "name": "main", "restartCount": restarts, "state": { "running": {} } });
        self.0["status"][list] = json!([running]);
        self
    }

    pub(crate) fn condition(mut self, type_: &str, status: &str, seconds: i64) -> Self {
        let condition = json!({ "type": type_, "status": status, "lastTransitionTime": at(seconds) });
        push(&mut self.0["status"]["conditions"], condition);
        self
    }

    pub(crate) fn index(self, index: u32) -> Self {
        self.annotation("batch.kubernetes.io/job-completion-index", &index.to_string())
    }

    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// Sets the annotation with the number of failures before this pod.
    pub(crate) fn failures(self, count: u32) -> Self {
        self.annotation("batch.kubernetes.io/job-index-failure-count", &count.to_string())
    }

    pub(crate) fn deleting(mut self) -> Self {
        self.0["metadata"]["deletionTimestamp"] = json!(at(-5));
        self.0["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        self
    }

    /// Without our finalizer.
    pub(crate) fn without_finalizer(mut self) -> Self {
        self.0["metadata"]["finalizers"] = json!([]);
        self
    }

    pub(crate) fn created(mut self, seconds: i64) -> Self {
        self.0["metadata"]["creationTimestamp"] = json!(at(seconds));
        self
    }

    pub(crate) fn build(self) -> Pod {
        decode(&self.0)
    }
}

impl From<PodBuilder> for Pod {
    fn from(builder: PodBuilder) -> Self {
        builder.build()
    }
}

/// Empty memory at [`NOW`].
pub(crate) const INPUTS: SnapshotInputs = SnapshotInputs {
    now: Moment(NOW * 1_000),
    unseen: Unseen::Nothing,
    backoff: Some(crate::rules::backoff::PodFailures { failures: 0, last: 0 }),
    free_slots: usize::MAX,
    next_slot: None,
    clear_start_time: true,
};

/// The snapshot of a sync with these pods.
pub(crate) fn snapshot_of<'a>(job: &'a Job, pods: &'a [Pod], inputs: SnapshotInputs) -> Snapshot<'a> {
    gather(job, pods.iter().map(|pod| ClaimedPod { pod, adopted: false }), |_| false, inputs)
}

pub(crate) fn pods<const N: usize>(pods: [PodBuilder; N]) -> Vec<Pod> {
    pods.into_iter().map(PodBuilder::build).collect()
}

/// A condition of a Job with status True.
pub(crate) fn true_condition(type_: &str, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at(-10) })
}

fn push(list: &mut Value, item: Value) {
    if let Value::Array(list) = list {
        list.push(item);
    }
}

fn merge(object: &mut Value, change: Value) {
    if let (Value::Object(object), Value::Object(change)) = (object, change) {
        object.extend(change);
    }
}

fn decode<T: Cached>(object: &Value) -> T {
    T::decode_object(object.to_string().as_bytes()).unwrap()
}
