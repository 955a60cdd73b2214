//! Adoption and release of pods.

use harness::{NAMESPACE, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{SEC, World};

fn orphan(world: &World, name: &str, app: &str) {
    let metadata = json!({ "name": name, "namespace": NAMESPACE, "labels": { "app": app } });
    world.cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": { "containers": [{ "name": "c", "image": "i" }] } }));
}

fn owner(pod: &Value) -> Option<&str> {
    pod["metadata"]["ownerReferences"][0]["name"].as_str()
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_056_only_orphans_with_a_fitting_name_are_adopted() {
    let (world, _manager) = World::running(json!({ "podManagementPolicy": "Parallel" })).await;
    for name in ["web-7", "other-1", "web-x", "web-1-1"] {
        orphan(&world, name, "web");
    }
    orphan(&world, "web-8", "other");
    pass(SEC).await;
    let owners = ["other-1", "web-x", "web-1-1", "web-8"].map(|it| owner(&world.pod(it)).map(str::to_owned));
    assert_eq!(owners, [const { None }; 4]);
    // The adopted one is not wanted, so it is deleted: not by the sync that knows only its state before the adoption.
    let lines = world.lines();
    let of_orphan: Vec<&String> = lines.iter().filter(|it| it.ends_with("web-7")).collect();
    assert_eq!(of_orphan, ["patch pods web-7", "delete pods web-7", "delete pods web-7"]);
    assert_eq!(world.call_count("patch pods"), 1);
    assert_eq!(world.call_count("get statefulsets web"), 1, "the set is read before an adoption");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_057_a_pod_that_is_not_selected_any_more_is_released() {
    let (world, _manager) = World::running(json!({})).await;
    world.cluster.update("pods", NAMESPACE, "web-1", |it| it["metadata"]["labels"]["app"] = json!("other"));
    pass(SEC).await;
    assert_eq!(owner(&world.pod("web-1")), None);
    assert!(world.call_count("create pods") > 0, "a new pod of its name is attempted");
    world.cluster.remove("pods", NAMESPACE, "web-1");
    world.kubelet(60).await;
    assert_eq!(owner(&world.pod("web-1")), Some("web"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_058_a_set_that_is_being_deleted_on_the_server_adopts_nothing() {
    let (world, _manager) = World::running(json!({})).await;
    world.cluster.freeze_watches("statefulsets");
    world.cluster.update("statefulsets.apps", NAMESPACE, "web", |it| {
        it["metadata"]["finalizers"] = json!(["orphan"]);
        it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    });
    orphan(&world, "web-7", "web");
    pass(5 * SEC).await;
    assert_eq!(owner(&world.pod("web-7")), None);
    assert_eq!(world.call_count("patch pods"), 0);
    assert!(world.call_count("get statefulsets web") > 1, "it is retried");
    assert!(!world.logged("has just been deleted").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_015_a_set_that_is_deleted_only_gets_its_status() {
    let (world, _manager) = World::running(json!({})).await;
    world.cluster.update("statefulsets.apps", NAMESPACE, "web", |it| {
        it["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    });
    orphan(&world, "web-7", "web");
    world.cluster.remove("pods", NAMESPACE, "web-2");
    pass(5 * SEC).await;
    assert_eq!(owner(&world.pod("web-7")), None);
    assert_eq!(world.call_count("create pods") + world.call_count("delete pods") + world.call_count("patch pods"), 0);
    assert_eq!(world.count("replicas"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sync_deletes_no_more_pods_when_the_set_was_deleted_meanwhile() {
    let (world, _manager) = World::running(json!({ "podManagementPolicy": "Parallel" })).await;
    world.cluster.intercept(|call| match (call.verb, &*call.name) {
        ("delete", "web-2") => Interception::Delay(10 * SEC),
        _ => Interception::Pass,
    });
    world.scale(0);
    pass(SEC).await;
    world.cluster.remove("statefulsets.apps", NAMESPACE, "web");
    for pod in ["web-0", "web-1"] {
        world.cluster.update("pods", NAMESPACE, pod, |it| it["metadata"]["ownerReferences"] = json!([]));
    }
    pass(20 * SEC).await;
    assert_eq!(world.call_count("delete pods web-2"), 1);
    assert_eq!(world.active_pods(), ["web-0", "web-1"], "the orphans stay");
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_appears_while_the_cache_of_sets_cannot_be_read_is_adopted_later() {
    let (world, _manager) = World::running(json!({})).await;
    world.set_named("other", json!({ "replicas": 0 }));
    pass(SEC).await;
    let set_finalizers = |value: Value| {
        world.cluster.update("statefulsets.apps", NAMESPACE, "other", |it| it["metadata"]["finalizers"] = value);
    };
    // Not even the metadata decodes, so the cache is not trusted.
    set_finalizers(json!(7));
    pass(SEC).await;
    orphan(&world, "web-7", "web");
    pass(5 * SEC).await;
    assert_eq!(world.call_count("patch pods web-7"), 0);
    set_finalizers(json!([]));
    pass(120 * SEC).await;
    assert_eq!(world.call_count("patch pods web-7"), 1);
}
