//! Creation, deletion and repair of pods.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use client::Limits;
use harness::{NAMESPACE, failure, line, pass};
use serde_json::json;
use statefulset_controller::Options;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, claim_templates};

#[tokio::test(start_paused = true)]
async fn acceptance_sts_001_pods_appear_in_order_with_their_identity() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(json!({ "volumeClaimTemplates": claim_templates() }));
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0"]);
    let pod = world.pod("web-0");
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-0");
    assert_eq!((&labels["apps.kubernetes.io/pod-index"], &labels["app"]), (&json!("0"), &json!("web")));
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-0"), &json!("svc")));
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-web-0");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    world.run_pod("web-0");
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0", "web-1"]);
    world.kubelet(5).await;
    assert_eq!((world.pods().len(), world.count("readyReplicas"), world.count("availableReplicas")), (3, 3, 3));
    let events = world.events().await;
    assert!(events.contains(&"Normal SuccessfulCreate: Create Pod web-2 in StatefulSet web successful".to_owned()));
    let claim = "Normal SuccessfulCreate: Create Claim data-web-0 Pod web-0 in StatefulSet web success".to_owned();
    assert!(events.contains(&claim), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_004_parallel_creates_and_deletes_a_thousand_pods() {
    let world = World::new();
    let [now, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (started, ended, at_most) = (now.clone(), now, most.clone());
    let is_of_pod = |line: &str| line == "create pods" || line.starts_with("delete pods");
    world.fail_requests(move |line, _| {
        is_of_pod(line).then(|| {
            at_most.fetch_max(started.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Interception::Delay(100 * MS)
        })
    });
    world.cluster.on_response(move |call| {
        if is_of_pod(&line(call)) {
            ended.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let _manager = world.start().await;
    world.set(json!({ "replicas": 1000, "podManagementPolicy": "Parallel" }));
    pass(30 * SEC).await;
    assert_eq!(world.pods().len(), 1000);
    assert_eq!((world.call_count("create pods"), most.swap(0, Ordering::SeqCst)), (1000, 64));
    world.scale(0);
    pass(30 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("delete pods")), (0, 1000));
    assert_eq!(most.load(Ordering::SeqCst), 64);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_050_recreate_creates_no_pod_before_the_last_old_one_is_gone() {
    let spec = json!({ "updateStrategy": { "type": "Recreate" }, "volumeClaimTemplates": claim_templates() });
    let (world, _manager) = World::running_with(Options { recreate: true, ..Options::default() }, spec).await;
    world.set_image("two");
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), world.active_pods().len()), (3, 0));
    ["web-0", "web-1"].iter().for_each(|it| world.cluster.remove("pods", NAMESPACE, it));
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), 0);
    world.cluster.remove("pods", NAMESPACE, "web-2");
    world.kubelet(10).await;
    assert!((0..3).all(|it| world.image(&format!("web-{it}")) == "two"));
    assert_eq!((world.pods().len(), world.claims().len()), (3, 3));
}

/// The pods that exist count as successes.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_parallel_set_that_is_always_refused_does_not_stop_the_others() {
    let (world, _manager) = World::running(json!({ "replicas": 5, "podManagementPolicy": "Parallel" })).await;
    world.fail_requests(|line, call| {
        let is_refused = line == "create pods" && call.json()["metadata"]["name"] == "web-1";
        if is_refused { failure(403, "Forbidden") } else { None }
    });
    ["web-1", "web-3"].iter().for_each(|it| world.cluster.remove("pods", NAMESPACE, it));
    pass(5 * SEC).await;
    assert_eq!(world.pods(), ["web-0", "web-2", "web-3", "web-4"]);
}

/// With the default limits a long plan takes a minute.
#[tokio::test(start_paused = true)]
async fn a_corrected_spec_ends_a_plan_that_is_being_executed() {
    let (world, manager) = World::running(json!({ "replicas": 200, "podManagementPolicy": "Parallel" })).await;
    drop(manager);
    let _manager = world.start_with_limits(Options::default(), Limits { qps: 10.0, burst: 1 }).await;
    pass(5 * SEC).await;
    world.scale(10);
    pass(5 * SEC).await;
    world.scale(200);
    pass(SEC).await;
    // Requests that wait for the rate limit are sent.
    pass(60 * SEC).await;
    let deleted = world.call_count("delete pods");
    assert!((30..=120).contains(&deleted), "{deleted}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_005_a_failed_creation_is_repeated_and_the_status_is_written() {
    let world = World::new();
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create pods" && std::mem::replace(&mut first, false)).then(|| failure(500, "InternalError")).flatten()
    });
    let _manager = world.start().await;
    world.set(json!({ "podManagementPolicy": "Parallel" }));
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0", "web-1", "web-2"]);
    let lines = world.lines();
    let is_relevant = |it: &&String| *it == "create pods" || it.starts_with("update statefulsets/status");
    let order: Vec<&String> = lines.iter().filter(is_relevant).take(3).collect();
    assert_eq!(order, ["create pods", "update statefulsets/status web", "create pods"], "{lines:?}");
    assert_eq!(world.call_count("create pods"), 4);
    let event = "Warning FailedCreate: Create Pod web-0 in StatefulSet web failed error: not now".to_owned();
    assert!(world.events().await.contains(&event));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_007_scaling_down_goes_one_by_one() {
    let (world, _manager) = World::running(json!({})).await;
    world.scale(1);
    pass(SEC).await;
    let deleting = |pod: &str| !world.pod(pod)["metadata"]["deletionTimestamp"].is_null();
    assert!(deleting("web-2") && !deleting("web-1"));
    world.remove_terminating_pods();
    pass(SEC).await;
    assert!(deleting("web-1"));
    world.kubelet(3).await;
    assert_eq!(world.pods(), ["web-0"]);
    let event = "Normal SuccessfulDelete: Delete Pod web-2 in StatefulSet web successful".to_owned();
    assert!(world.events().await.contains(&event));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_011_a_failed_deletion_is_repeated() {
    let (world, _manager) = World::running(json!({})).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "delete pods web-2" && std::mem::replace(&mut first, false))
            .then(|| failure(500, "InternalError"))
            .flatten()
    });
    world.scale(2);
    pass(SEC).await;
    assert_eq!(world.call_count("delete pods web-2"), 2);
    assert_eq!(world.count("replicas"), 3);
    world.kubelet(3).await;
    assert_eq!((world.pods().len(), world.count("replicas")), (2, 2));
    let event = "Warning FailedDelete: Delete Pod web-2 in StatefulSet web failed error: not now".to_owned();
    assert!(world.events().await.contains(&event));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_017_an_ended_pod_is_deleted_once_and_created_again_when_it_is_gone() {
    for phase in ["Failed", "Succeeded"] {
        let (world, _manager) = World::running(json!({})).await;
        world
            .cluster
            .update("pods", NAMESPACE, "web-1", |it| it["metadata"]["finalizers"] = json!(["example.com/hold"]));
        world.end_pod("web-1", phase, 0);
        pass(5 * SEC).await;
        assert_eq!((world.call_count("delete pods web-1"), world.call_count("create pods")), (1, 0), "{phase}");
        world.cluster.remove("pods", NAMESPACE, "web-1");
        pass(SEC).await;
        assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (1, 1), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_019_a_failed_deletion_of_an_ended_pod_is_repeated_once() {
    let (world, _manager) = World::running(json!({})).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "delete pods web-1" && std::mem::replace(&mut first, false))
            .then(|| failure(500, "InternalError"))
            .flatten()
    });
    world.end_pod("web-1", "Failed", 1);
    pass(5 * SEC).await;
    assert_eq!(world.call_count("delete pods web-1"), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_020_an_evicted_pod_is_created_again_with_its_name() {
    let (world, _manager) = World::running(json!({})).await;
    let before = world.pod("web-1")["metadata"]["uid"].clone();
    world.end_pod("web-1", "Failed", 137);
    world.kubelet(5).await;
    assert_ne!(world.pod("web-1")["metadata"]["uid"], before);
    assert_eq!(world.count("readyReplicas"), 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_021_a_pod_without_the_label_of_its_name_gets_it_back() {
    let (world, _manager) = World::running(json!({})).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "patch pods web-0" && std::mem::replace(&mut first, false)).then(|| failure(409, "Conflict")).flatten()
    });
    world.cluster.update("pods", NAMESPACE, "web-0", |it| {
        it["metadata"]["labels"].as_object_mut().unwrap().remove("statefulset.kubernetes.io/pod-name");
    });
    pass(5 * SEC).await;
    assert_eq!(world.label("web-0", "statefulset.kubernetes.io/pod-name"), "web-0");
    assert_eq!(world.call_count("patch pods web-0"), 2);
    let event = "Normal SuccessfulUpdate: Update Pod web-0 in StatefulSet web successful".to_owned();
    assert!(world.events().await.contains(&event));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_025_a_pod_of_the_same_name_is_an_error_without_an_event() {
    let world = World::new();
    world
        .cluster
        .create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-0", "namespace": NAMESPACE },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } }));
    let _manager = world.start().await;
    world.set(json!({}));
    pass(SEC).await;
    assert!(world.call_count("create pods") > 1, "it is retried");
    assert_eq!(world.events().await, [""; 0]);
    pass(600 * SEC).await;
    world.cluster.remove("pods", NAMESPACE, "web-0");
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0"], "the name is free, and the back-off is not waited for");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_052_a_set_is_synced_when_a_pod_becomes_available() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(json!({ "replicas": 2, "minReadySeconds": 5 }));
    pass(SEC).await;
    world.run_pod("web-0");
    pass(4 * SEC).await;
    assert_eq!((world.pods().len(), world.count("availableReplicas")), (1, 0));
    pass(1100 * MS).await;
    assert_eq!((world.pods().len(), world.count("availableReplicas")), (2, 1));
}

/// No event of a pod says that it becomes available: the sync itself computes the time.
#[tokio::test(start_paused = true)]
async fn acceptance_sts_051_052_a_new_leader_syncs_a_set_when_a_pod_becomes_available() {
    let world = World::new();
    let manager = world.start().await;
    world.set(json!({ "replicas": 2, "minReadySeconds": 5 }));
    pass(SEC).await;
    world.run_pod("web-0");
    pass(2 * SEC).await;
    drop(manager);
    let _manager = world.start().await;
    pass(SEC).await;
    assert_eq!(world.pods().len(), 1);
    pass(2 * SEC).await;
    assert_eq!((world.pods().len(), world.count("availableReplicas")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_016_a_surplus_pod_is_deleted_although_a_missing_one_cannot_be_created() {
    let (world, _manager) = World::running(json!({ "podManagementPolicy": "Parallel" })).await;
    world.fail_requests(|line, _| (line == "create pods").then(|| failure(403, "Forbidden")).flatten());
    world.cluster.remove("pods", NAMESPACE, "web-0");
    world.scale(2);
    pass(SEC).await;
    assert!(world.call_count("create pods") > 0);
    assert_eq!(world.call_count("delete pods web-2"), 1);
}

/// A delete by name would delete the pod that another client created in the meantime.
#[tokio::test(start_paused = true)]
async fn a_deletion_names_the_uid_of_the_pod() {
    let (world, _manager) = World::running(json!({})).await;
    world.scale(2);
    pass(SEC).await;
    let calls = world.calls();
    let deletion = calls.iter().find(|it| it.verb == "delete").unwrap().json();
    assert_eq!(deletion["preconditions"]["uid"], world.pod("web-2")["metadata"]["uid"]);
}

/// The server accepts it if the selector has only `DoesNotExist`.
#[tokio::test(start_paused = true)]
async fn a_template_without_labels_gets_pods() {
    let world = World::new();
    let _manager = world.start().await;
    let selector = json!({ "matchExpressions": [{ "key": "legacy", "operator": "DoesNotExist" }] });
    world.cluster.create(json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": { "replicas": 1, "serviceName": "svc", "selector": selector,
            "template": { "spec": { "containers": [{ "name": "main", "image": "one" }] } } } }));
    pass(SEC).await;
    assert_eq!(world.label("web-0", "statefulset.kubernetes.io/pod-name"), "web-0");
}

/// Upstream deletes it, because its cache shows its owner.
#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_owner_is_not_deleted_although_the_cache_is_late() {
    let (world, _manager) = World::running(json!({})).await;
    world.cluster.freeze_watches("pods");
    world.cluster.update("pods", NAMESPACE, "web-2", |it| it["metadata"]["ownerReferences"] = json!([]));
    world.scale(2);
    pass(5 * SEC).await;
    assert!(world.call_count("delete pods") > 0 && world.pod("web-2")["metadata"]["deletionTimestamp"].is_null());
    assert!(world.events().await.iter().all(|it| !it.contains("FailedDelete")));
}

/// Upstream 1.36 creates pods before it deletes others, and 1.37 does neither after the failure.
#[tokio::test(start_paused = true)]
async fn a_surplus_pod_that_cannot_be_deleted_prevents_no_creation() {
    let (world, _manager) = World::running(json!({ "podManagementPolicy": "Parallel" })).await;
    world.fail_requests(|line, _| if line == "delete pods web-2" { failure(403, "Forbidden") } else { None });
    world.scale(2);
    pass(5 * SEC).await;
    world.cluster.remove("pods", NAMESPACE, "web-0");
    world.kubelet(30).await;
    assert_eq!(world.pods(), ["web-0", "web-1", "web-2"]);
    world.set_image("two");
    world.kubelet(30).await;
    assert_eq!(world.image("web-1"), "one", "a rollout begins when the surplus is gone");
}

/// The status does not change with the last creation, so no event of it causes a sync. Upstream creates the pod at the next
/// resync.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_lost_before_it_was_observed_is_created_again() {
    let world = World::new();
    let mut refused = 0;
    world.fail_requests(move |line, _| {
        refused += usize::from(line == "create pods");
        if line == "create pods" && refused <= 5 { failure(403, "Forbidden") } else { None }
    });
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(json!({ "replicas": 1 }));
    pass(SEC).await;
    assert_eq!(world.call_count("create pods"), 6, "{:?}", world.lines());
    world.cluster.remove("pods", NAMESPACE, "web-0");
    world.cluster.compact();
    world.cluster.break_watches("pods");
    pass(60 * SEC).await;
    assert_eq!(world.call_count("create pods"), 7, "{:?}", world.lines());
}
