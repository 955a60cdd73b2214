//! Pods that name a Job which is not theirs: any user who may create pods may write any uid into them.

use harness::pass;
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{FINALIZER, SEC, World};

impl World {
    /// Adds a second namespace with other users.
    fn with_second_namespace() -> Self {
        let world = Self::new();
        world.cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "m" } }));
        world
    }

    /// Creates a pod with our finalizer and an ownerReference to the Job.
    fn forge_pod(&self, name: &str, namespace: &str, job: &Value, phase: &str) {
        let owner = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"], "controller": true }]);
        self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": job["spec"]["selector"]["matchLabels"],
                "ownerReferences": owner, "finalizers": [FINALIZER] },
            "spec": { "nodeName": "node", "containers": [{ "name": "c", "image": "i" }] }, "status": { "phase": phase },
        }));
    }

    /// The Job with another name: its uid in a wrong reference.
    fn renamed(job: &Value) -> Value {
        let mut job = job.clone();
        job["metadata"]["name"] = json!("another");
        job
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_001_pods_with_only_the_uid_of_a_job_are_not_counted() {
    let world = World::with_second_namespace();
    let _manager = world.start().await;
    let job = world.job("j", json!({ "parallelism": 1, "completions": 1, "backoffLimit": 0 }));
    pass(5 * SEC).await;
    world.forge_pod("well", "m", &job, "Succeeded");
    world.forge_pod("badly", "m", &job, "Failed");
    world.forge_pod("at-home", "n", &World::renamed(&job), "Failed");
    world.forge_pod("works", "m", &job, "Running");
    world.edit("j", |spec| spec["parallelism"] = json!(2));
    pass(30 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed")), (0, 0), "{}", world.status("j"));
    assert_eq!((world.count("j", "active"), world.conditions("j")), (1, vec![]));
    assert_eq!(world.call_count("delete pods"), 0, "no pod is surplus");
    assert_eq!(world.call_count("patch pods"), 0, "no pod of others is patched");
}

#[tokio::test(start_paused = true)]
async fn pods_with_only_the_uid_of_a_job_fulfil_no_expectation() {
    let world = World::with_second_namespace();
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create pods" && std::mem::take(&mut first)).then_some(Interception::Fail)
    });
    let job = world.job("j", json!({}));
    pass(5 * SEC).await;
    world.forge_pod("elsewhere", "m", &job, "Running");
    world.forge_pod("renamed", "n", &World::renamed(&job), "Running");
    world.forge_pod("going", "m", &job, "Running");
    world.cluster.delete("pods", "m", "going");
    world.edit("j", |spec| spec["parallelism"] = json!(2));
    pass(60 * SEC).await;
    assert_eq!(world.call_count("create pods"), 1, "the outcome of the first create is unknown");
}

#[tokio::test(start_paused = true)]
async fn pods_with_only_the_uid_of_a_job_take_no_slot() {
    let world = World::with_second_namespace();
    let _manager = world.start().await;
    let job = world.job("j", json!({ "suspend": true }));
    pass(5 * SEC).await;
    for pod in ["a", "b"] {
        world.forge_pod(pod, "m", &job, "Running");
        world.forge_pod(pod, "n", &World::renamed(&job), "Running");
    }
    pass(SEC).await;
    world.edit("j", |spec| spec["suspend"] = json!(false));
    pass(5 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.count("j", "active")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_pod_with_only_the_uid_of_a_job_removes_no_finalizer_of_its_pods() {
    let world = World::with_second_namespace();
    let _manager = world.start().await;
    let job = world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    world.forge_pod("elsewhere", "m", &job, "Running");
    world.forge_pod("renamed", "n", &World::renamed(&job), "Running");
    world.cluster.delete("pods", "m", "elsewhere");
    world.cluster.delete("pods", "n", "renamed");
    pass(30 * SEC).await;
    assert_eq!((world.active_pods().len(), world.with_finalizer()), (2, 2), "{:?}", world.lines());
    assert!(world.cluster.list("pods", "m").is_empty(), "it is not counted, so it has no finalizer");
}
