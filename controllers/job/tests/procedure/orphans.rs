//! Pods that no Job will count lose the finalizer, and matching orphans are adopted.

use harness::{failure, pass};
use serde_json::{Value, json};

use crate::world::{FINALIZER, MS, SEC, World};

fn owner(kind: &str, api_version: &str, uid: &Value) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": "j", "uid": uid, "controller": true, "blockOwnerDeletion": true }])
}

impl World {
    /// Creates a running pod.
    fn create_pod(&self, name: &str, labels: Value, owners: Value, finalizers: Value) {
        self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "labels": labels, "ownerReferences": owners, "finalizers": finalizers },
            "spec": { "nodeName": "node", "containers": [{ "name": "c", "image": "i" }] }, "status": { "phase": "Running" },
        }));
    }

    /// Like the garbage collector with `propagationPolicy: Orphan`.
    fn orphan_all(&self) {
        for pod in self.pods() {
            self.cluster.update("pods", "n", &pod, |it| it["metadata"]["ownerReferences"] = json!([]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_022_orphaned_pods_of_a_deleted_job_lose_the_finalizer() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 3 }));
    pass(5 * SEC).await;
    world.active_pods().iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    world.cluster.update("jobs.batch", "n", "j", |it| it["metadata"]["finalizers"] = json!(["orphan"]));
    world.cluster.delete("jobs.batch", "n", "j");
    world.orphan_all();
    pass(3 * SEC).await;
    world.cluster.update("jobs.batch", "n", "j", |it| it["metadata"]["finalizers"] = json!([]));
    pass(5 * SEC).await;
    assert_eq!((world.active_pods().len(), world.with_finalizer()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_023_pods_of_a_deleted_job_lose_the_finalizer() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("background", json!({ "parallelism": 2, "completions": 2 }));
    world.job("foreground", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    world.active_pods().iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    world.cluster.delete("jobs.batch", "n", "background");
    world
        .cluster
        .update("jobs.batch", "n", "foreground", |it| it["metadata"]["finalizers"] = json!(["foregroundDeletion"]));
    world.cluster.delete("jobs.batch", "n", "foreground");
    pass(5 * SEC).await;
    assert_eq!((world.pods().len(), world.with_finalizer()), (4, 0), "the garbage collector deletes the pods");
    assert_eq!(world.call_count("delete"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_023_a_pod_with_changed_labels_loses_the_finalizer_when_its_job_is_deleted() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    drop(manager);
    world.cluster.update("jobs.batch", "n", "j", |it| it["metadata"]["finalizers"] = json!(["foregroundDeletion"]));
    world.cluster.delete("jobs.batch", "n", "j");
    for (pod, ended) in world.active_pods().iter().zip([true, false]) {
        world.cluster.update("pods", "n", pod, |it| it["metadata"]["labels"] = json!({ "app": "lost" }));
        if ended {
            world.fail(pod);
        }
    }
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(
        (world.pods().len(), world.with_finalizer()),
        (2, 0),
        "the Job is kept until its pods are gone: {:?}",
        world.lines()
    );
    assert_eq!(world.call_count("delete"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_024_pods_orphaned_without_a_leader_lose_the_finalizer() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    drop(manager);
    world.cluster.remove("jobs.batch", "n", "j");
    world.orphan_all();
    let _manager = world.start().await;
    pass(3 * SEC).await;
    assert_eq!((world.pods().len(), world.with_finalizer()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_025_pods_of_other_kinds_keep_their_finalizer() {
    let world = World::new();
    let job = world.job("j", json!({ "suspend": true }));
    let uid = &job["metadata"]["uid"];
    world.create_pod("set", json!({}), owner("ReplicaSet", "apps/v1", &json!("u")), json!([FINALIZER]));
    world.create_pod("other-group", json!({}), owner("Job", "example.com/v1", &json!("v")), json!([FINALIZER]));
    world.create_pod("gone", json!({}), owner("Job", "batch/v1", &json!("w")), json!([FINALIZER]));
    let _manager = world.start().await;
    pass(3 * SEC).await;
    for pod in ["set", "other-group", "gone"] {
        world.delete_pod_gracefully(pod);
    }
    pass(5 * SEC).await;
    assert!(world.has_finalizer("set") && world.has_finalizer("other-group"));
    assert!(!world.has_finalizer("gone"), "its Job does not exist, {uid} is another one");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_026_a_matching_orphan_is_adopted_and_a_pod_that_no_longer_matches_is_released() {
    let world = World::new();
    let selector = json!({ "matchLabels": { "app": "x" } });
    let job =
        world.job("j", json!({ "manualSelector": true, "selector": selector, "parallelism": 2, "completions": 2 }));
    world.create_pod("orphan", json!({ "app": "x" }), json!([]), json!([]));
    let _manager = world.start().await;
    pass(3 * SEC).await;
    let adopted = world.pod("orphan");
    assert_eq!(adopted["metadata"]["ownerReferences"], owner("Job", "batch/v1", &job["metadata"]["uid"]));
    assert!(world.has_finalizer("orphan"));
    assert_eq!((world.active_pods().len(), world.call_count("get jobs j")), (2, 1));
    world.cluster.update("pods", "n", "orphan", |it| it["metadata"]["labels"] = json!({ "app": "y" }));
    pass(5 * SEC).await;
    let released = world.pod("orphan");
    assert!(released["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{released}");
    assert!(!world.has_finalizer("orphan"));
    assert_eq!(world.active_pods().len(), 3, "a new pod replaces it, and the released pod still runs");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_owner_is_adopted_again_by_its_uid_label() {
    let world = World::new();
    let job = world.job("j", json!({}));
    let _manager = world.start().await;
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    world.orphan_all();
    pass(5 * SEC).await;
    assert_eq!(world.pod(&pod)["metadata"]["ownerReferences"], owner("Job", "batch/v1", &job["metadata"]["uid"]));
    assert!(world.has_finalizer(&pod));
    assert_eq!(world.active_pods().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_surplus_pod_is_not_counted() {
    for held in [json!([]), json!([FINALIZER])] {
        let world = World::new();
        let _manager = world.start().await;
        let selector = json!({ "matchLabels": { "app": "x" } });
        let spec = json!({ "manualSelector": true, "selector": selector, "backoffLimit": 0 });
        world.job("j", spec);
        pass(5 * SEC).await;
        let own = world.active_pods()[0].clone();
        world.run_pod(&own);
        pass(5 * SEC).await;
        // A pending pod is deleted before a running one.
        world.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "extra", "namespace": "n", "labels": { "app": "x" }, "finalizers": held },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        }));
        pass(10 * SEC).await;
        let calls: Vec<String> = world.lines().into_iter().filter(|it| it.ends_with(" extra")).collect();
        assert_eq!(calls, ["patch pods extra", "patch pods extra", "delete pods extra"], "{held}");
        assert_eq!((world.pods(), world.count("j", "failed")), (vec![own], 0), "{held}");
        assert_eq!(world.conditions("j"), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_owner_during_finalizer_removal_is_adopted_and_loses_its_finalizer() {
    let world = World::new();
    let selector = json!({ "matchLabels": { "app": "x" } });
    world.job("j", json!({ "manualSelector": true, "selector": selector, "parallelism": 2, "completions": 2 }));
    let _manager = world.start().await;
    pass(5 * SEC).await;
    let pods = world.active_pods();
    let patch = format!("patch pods {}", pods[0]);
    let (words, mut first) = (patch.clone(), true);
    world.fail_requests(move |line, _| {
        let is_first = line == words && std::mem::take(&mut first);
        is_first.then_some(test_cluster::Interception::Delay(3 * SEC))
    });
    world.succeed(&pods[0]);
    while world.call_count(&patch) == 0 {
        pass(20 * MS).await;
    }
    world.cluster.update("pods", "n", &pods[0], |it| it["metadata"]["ownerReferences"] = json!([]));
    pass(10 * SEC).await;
    assert_eq!((world.with_finalizer(), world.count("j", "active")), (1, 1), "{:?}", world.lines());
    world.succeed(&pods[1]);
    pass(10 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer()), (2, 0), "{:?}", world.lines());
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_027_a_job_deleted_on_the_server_but_not_in_the_cache_adopts_nothing() {
    let world = World::new();
    let selector = json!({ "matchLabels": { "app": "x" } });
    world.job("j", json!({ "manualSelector": true, "selector": selector }));
    let _manager = world.start().await;
    pass(5 * SEC).await;
    world.cluster.freeze_watches("jobs.batch");
    world.cluster.update("jobs.batch", "n", "j", |it| it["metadata"]["finalizers"] = json!(["orphan"]));
    world.cluster.delete("jobs.batch", "n", "j");
    world.create_pod("orphan", json!({ "app": "x" }), json!([]), json!([]));
    pass(5 * SEC).await;
    assert!(world.call_count("get jobs j") >= 1);
    assert!(world.pod("orphan")["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(world.call_count("patch pods orphan"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_068_a_late_pod_of_a_finished_job_loses_its_finalizer_despite_errors() {
    let world = World::new();
    let _manager = world.start().await;
    let job = world.job("j", json!({}));
    pass(5 * SEC).await;
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    let mut left = 3;
    world.fail_requests(move |line, _| {
        if line == "patch pods late" && left > 0 {
            left -= 1;
            return failure(504, "Timeout");
        }
        None
    });
    world.create_pod(
        "late",
        json!({ "app": "x" }),
        owner("Job", "batch/v1", &job["metadata"]["uid"]),
        json!([FINALIZER]),
    );
    pass(30 * SEC).await;
    assert!(!world.has_finalizer("late"));
    assert_eq!(world.call_count("patch pods late"), 4);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_that_is_not_cached_yet_keep_their_finalizer() {
    let world = World::new();
    let _manager = world.start().await;
    pass(SEC).await;
    world.cluster.freeze_watches("jobs.batch");
    let job = world.job("j", json!({ "suspend": true }));
    world.create_pod(
        "early",
        json!({ "app": "x" }),
        owner("Job", "batch/v1", &job["metadata"]["uid"]),
        json!([FINALIZER]),
    );
    world.delete_pod_gracefully("early");
    pass(5 * SEC).await;
    assert!(world.has_finalizer("early"), "the Job exists on the server");
    assert_eq!(world.call_count("get jobs j"), 1);
    // A 404 because Jobs are not served at the moment does not prove that the Job is gone.
    world.fail_requests(|line, _| if line.starts_with("get jobs") { failure(404, "NotFound") } else { None });
    world.create_pod(
        "next",
        json!({ "app": "x" }),
        owner("Job", "batch/v1", &job["metadata"]["uid"]),
        json!([FINALIZER]),
    );
    world.delete_pod_gracefully("next");
    pass(5 * SEC).await;
    assert!(world.call_count("get jobs j") >= 2 && world.has_finalizer("early") && world.has_finalizer("next"));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_job_lose_the_finalizer_when_the_job_informer_syncs_late() {
    let world = World::new();
    world.create_pod("left", json!({ "app": "x" }), owner("Job", "batch/v1", &json!("u")), json!([FINALIZER]));
    world.delete_pod_gracefully("left");
    let mut first = true;
    world.cluster.intercept(move |call| {
        let is_first = call.resource == "jobs" && std::mem::take(&mut first);
        if is_first { test_cluster::Interception::Delay(3 * SEC) } else { test_cluster::Interception::Pass }
    });
    let _manager = world.start().await;
    pass(60 * SEC).await;
    assert!(world.pods().is_empty() || !world.has_finalizer("left"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_removed_finalizer_is_not_removed_again_when_the_end_is_observed_first() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    let cluster = world.cluster.clone();
    let patch = format!("patch pods {pod}");
    let wanted = patch.clone();
    world.fail_requests(move |line, _| {
        if line == wanted {
            cluster.freeze_watches("pods");
        }
        None
    });
    world.succeed(&pod);
    pass(10 * SEC).await;
    assert_eq!((world.conditions("j").len(), world.with_finalizer()), (2, 0), "{:?}", world.lines());
    assert_eq!(world.call_count(&patch), 1, "{:?}", world.lines());
    pass(300 * SEC).await;
    assert_eq!(world.call_count(&patch), 1, "and not later");
}
