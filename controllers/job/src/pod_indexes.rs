//! The indexes of pods that this controller declares.

use api::{CONTROLLER_UID_LABELS, Entry, Pod, Uid};
use informer::{Index, Store};
use workload::{has_finalizer, is_terminal};

use crate::rules::snapshot::FINALIZER;

/// Pods of a Job.
pub(crate) struct PodIndexes {
    /// Pods by the uid of their Job, without the finished ones that have no finalizer any more. A Job with a hundred
    /// thousand completions or failures needs to read only its last pods.
    pub(crate) work: Index<Pod, Uid>,
    /// Pods without a controller, by the uid of the Job in their labels.
    pub(crate) orphans: Index<Pod, Uid>,
}

impl PodIndexes {
    pub(crate) fn declare(pods: &Store<Pod>) -> Self {
        Self {
            work: pods.declare_index("job: owner", job_of),
            orphans: pods.declare_index("job: label", labelled_job_of),
        }
    }
}

/// The uid of the Job in the labels of a pod.
pub(crate) fn job_in_labels(pod: &Pod) -> Option<Uid> {
    CONTROLLER_UID_LABELS.iter().find_map(|label| pod.labels.get(label)).map(Uid::new)
}

/// The Job whose sync needs this pod. A pod that does not decode may be needed.
fn job_of(entry: &Entry<Pod>) -> Option<Uid> {
    let is_done = |pod: &Pod| is_terminal(pod) && !has_finalizer(pod, FINALIZER);
    if entry.readable().is_some_and(|pod| is_done(pod)) {
        return None;
    }
    let owner = entry.meta().controller()?;
    (&*owner.kind == "Job").then(|| owner.uid.clone())
}

/// The Job that a pod without a controller names. A pod that does not decode cannot be adopted.
fn labelled_job_of(entry: &Entry<Pod>) -> Option<Uid> {
    let pod = entry.readable()?;
    if pod.meta.as_ref().controller().is_some() { None } else { job_in_labels(pod) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{Cached, Unreadable};
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: Value, phase: &str) -> Entry<Pod> {
        let mut object = json!({ "metadata": { "name": "p", "namespace": "ns" }, "status": { "phase": phase } });
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        Entry::Readable(Arc::new(Pod::decode_object(object.to_string().as_bytes()).unwrap()))
    }

    fn owners(kind: &str) -> Value {
        json!([{ "apiVersion": "batch/v1", "kind": kind, "name": "j", "uid": "u1", "controller": true }])
    }

    #[test]
    fn pods_that_a_sync_needs_are_indexed_by_their_job() {
        let of = |kind: &str, phase: &str, finalizers: &[&str]| {
            job_of(&pod(json!({ "ownerReferences": owners(kind), "finalizers": finalizers }), phase))
        };
        let job = Some(Uid::new("u1"));
        for (phase, finalizers) in [("Running", &[][..]), ("Failed", &[FINALIZER]), ("Succeeded", &[FINALIZER])] {
            assert_eq!(of("Job", phase, finalizers), job, "{phase}");
        }
        for ended in ["Succeeded", "Failed"] {
            assert_eq!(of("Job", ended, &["example.com/theirs"]), None, "it was counted: {ended}");
        }
        assert_eq!(of("ReplicaSet", "Running", &[FINALIZER]), None);
    }

    #[test]
    fn a_pod_that_does_not_decode_is_indexed_by_its_job() {
        let Entry::Readable(ended) = pod(json!({ "ownerReferences": owners("Job") }), "Failed") else { unreachable!() };
        let entry = Entry::Unreadable(Arc::new(Unreadable { meta: ended.meta.clone(), why: "spec".to_owned() }));
        assert_eq!((job_of(&entry), labelled_job_of(&entry)), (Some(Uid::new("u1")), None));
    }

    #[test]
    fn orphans_are_indexed_by_the_job_in_their_labels() {
        let of = |label: &str, owners: Value| {
            labelled_job_of(&pod(json!({ "labels": { label: "u1" }, "ownerReferences": owners }), "Running"))
        };
        for label in CONTROLLER_UID_LABELS {
            assert_eq!(of(label, json!([])), Some(Uid::new("u1")), "{label}");
            assert_eq!(of(label, owners("Job")), None, "{label}: it has a controller");
        }
        assert_eq!(of("app", json!([])), None);
    }
}
