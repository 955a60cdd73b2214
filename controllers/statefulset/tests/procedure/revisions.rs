//! Revisions, rollouts and rollbacks.

use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_sts_026_a_new_set_has_one_revision() {
    let (world, _manager) = World::running(json!({})).await;
    let [(name, 1)] = &world.revisions()[..] else { panic!("{:?}", world.revisions()) };
    assert_eq!((&world.text("currentRevision"), &world.text("updateRevision")), (name, name));
    assert!((0..3).all(|it| world.revision(&format!("web-{it}")) == *name));
    let stored = world.cluster.get("controllerrevisions.apps", NAMESPACE, name).unwrap();
    assert_eq!(stored["metadata"]["labels"]["app"], "web");
    assert_eq!(stored["data"]["spec"]["template"]["$patch"], "replace");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_027_an_unchanged_template_makes_no_revision() {
    let (world, manager) = World::running(json!({})).await;
    world.scale(4);
    world.edit(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(1));
    world.kubelet(5).await;
    drop(manager);
    let _manager = world.start().await;
    world.kubelet(5).await;
    assert_eq!(world.revisions().len(), 1);
    assert_eq!(world.call_count("create controllerrevisions"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_028_a_changed_template_is_rolled_out_from_the_highest_ordinal() {
    for max_unavailable in [false, true] {
        check_rollout(statefulset_controller::Options { max_unavailable, ..Default::default() }).await;
    }
}

async fn check_rollout(options: statefulset_controller::Options) {
    let (world, _manager) = World::running_with(options, json!({})).await;
    world.set_image("two");
    pass(SEC).await;
    let deletions = || {
        let lines = world.lines();
        lines.into_iter().filter(|it| it.starts_with("delete pods")).collect::<Vec<_>>()
    };
    assert_eq!(deletions(), ["delete pods web-2"]);
    world.kubelet(20).await;
    assert_eq!(deletions(), ["delete pods web-2", "delete pods web-1", "delete pods web-0"]);
    assert!((0..3).all(|it| world.image(&format!("web-{it}")) == "two"));
    assert_eq!(world.revisions().len(), 2);
    assert_eq!(world.text("currentRevision"), world.text("updateRevision"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_030_a_revert_renumbers_the_first_revision() {
    let (world, _manager) = World::running(json!({})).await;
    let first = world.revisions()[0].0.clone();
    world.set_image("two");
    world.kubelet(20).await;
    world.set_image("one");
    world.kubelet(20).await;
    let [(second, 2), (third, 3)] = &world.revisions()[..] else { panic!("{:?}", world.revisions()) };
    assert_eq!((third, &world.text("currentRevision")), (&first, &first));
    assert_ne!(second, &first);
    assert!((0..3).all(|it| world.image(&format!("web-{it}")) == "one"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_031_a_lost_pod_below_the_partition_returns_at_the_old_revision() {
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } });
    let (world, _manager) = World::running(json!({ "replicas": 4, "updateStrategy": rolling })).await;
    world.set_image("two");
    world.kubelet(20).await;
    let images = || (0..4).map(|it| world.image(&format!("web-{it}"))).collect::<Vec<_>>();
    assert_eq!(images(), ["one", "one", "two", "two"]);
    world.cluster.remove("pods", NAMESPACE, "web-0");
    world.kubelet(5).await;
    assert_eq!(images(), ["one", "one", "two", "two"]);
    assert_ne!(world.text("currentRevision"), world.text("updateRevision"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_037_the_history_has_its_limit() {
    for (limit, wanted) in [(2, 3), (0, 1), (-1, 6)] {
        let (world, _manager) = World::running(json!({ "revisionHistoryLimit": limit })).await;
        for image in ["two", "three", "four", "five", "six"] {
            world.set_image(image);
            world.kubelet(20).await;
        }
        let live = world.text("currentRevision");
        let revisions = world.revisions();
        // The limit, and the one that is live.
        assert_eq!(revisions.len(), wanted, "{limit}: {revisions:?}");
        assert_eq!(revisions.last().map(|it| &it.0), Some(&live), "the newest is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_038_a_name_that_other_data_has_is_avoided() {
    let (other, _manager) = World::running(json!({})).await;
    let name = other.revisions()[0].0.clone();
    let world = World::new();
    world.cluster.create(json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": { "name": name, "namespace": NAMESPACE }, "data": { "x": 1 }, "revision": 1 }));
    let _manager = world.start().await;
    world.set(json!({}));
    world.kubelet(10).await;
    assert_eq!(world.count("collisionCount"), 1);
    assert_ne!(world.text("updateRevision"), name);
    assert_eq!(world.count("readyReplicas"), 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_039_a_refused_deletion_changes_no_counter() {
    let (world, _manager) = World::running(json!({})).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then(|| failure(500, "InternalError")).flatten());
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.count("currentReplicas"), 3);
    world.cluster.stop_intercepting();
    world.cluster.clear_requests();
    pass(5 * SEC).await;
    let calls = world.calls();
    let after = calls.iter().skip_while(|it| it.verb != "delete");
    let mut stored = after.filter(|it| it.path.ends_with("/status")).map(|it| it.json()["status"].clone());
    let first = stored.next().unwrap();
    assert_eq!(first["currentReplicas"], 2, "the pod still counts as a replica: {first}");
    assert_eq!(first["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_070_a_restart_during_a_rollout_restarts_no_pod_twice() {
    let (world, manager) = World::running(json!({})).await;
    world.set_image("two");
    world.kubelet(2).await;
    drop(manager);
    let _manager = world.start().await;
    world.kubelet(20).await;
    assert_eq!((world.call_count("delete pods"), world.revisions().len()), (3, 2));
    assert!((0..3).all(|it| world.image(&format!("web-{it}")) == "two"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_071_an_orphaned_revision_is_adopted_and_used() {
    let (world, manager) = World::running(json!({})).await;
    let name = world.revisions()[0].0.clone();
    drop(manager);
    world.cluster.update("controllerrevisions.apps", NAMESPACE, &name, |it| {
        it["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    });
    let _manager = world.start().await;
    world.kubelet(5).await;
    assert_eq!(world.revisions(), [(name.clone(), 1)]);
    let stored = world.cluster.get("controllerrevisions.apps", NAMESPACE, &name).unwrap();
    assert_eq!(stored["metadata"]["ownerReferences"][0]["name"], "web");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_072_the_gauges_carry_namespace_name_and_policy_until_the_set_is_deleted() {
    let world = World::new();
    let options = statefulset_controller::Options { max_unavailable: true, ..Default::default() };
    let manager = world.start_with(options).await;
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0, "maxUnavailable": 2 } });
    world.set(json!({ "updateStrategy": rolling }));
    world.kubelet(10).await;
    let labels = r#"{pod_management_policy="OrderedReady",statefulset_name="web",statefulset_namespace="n"}"#;
    let of = |name: &str| manager.metric_lines(&format!("statefulset_controller_statefulset_{name}{labels}"));
    assert_eq!(manager.metric(&format!("statefulset_controller_statefulset_max_unavailable{labels}")), 2);
    assert_eq!(manager.metric(&format!("statefulset_controller_statefulset_unavailable_replicas{labels}")), 0);
    assert_eq!(of("unavailable_replicas").len(), 1);
    world.cluster.remove("statefulsets.apps", NAMESPACE, "web");
    pass(SEC).await;
    assert_eq!((of("max_unavailable").len(), of("unavailable_replicas").len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_broken_only_in_the_cache_is_not_deleted() {
    let options = statefulset_controller::Options { max_unavailable: true, ..Default::default() };
    let world = World::new();
    let manager = world.start_with(options).await;
    world.set(json!({ "podManagementPolicy": "Parallel" }));
    pass(SEC).await;
    // The watch does not show that the pods become ready.
    world.cluster.freeze_watches("pods");
    (0..3).for_each(|it| world.run_pod(&format!("web-{it}")));
    world.set_image("two");
    pass(SEC).await;
    let deleted =
        || (0..3).filter(|it| !world.pod(&format!("web-{it}"))["metadata"]["deletionTimestamp"].is_null()).count();
    assert!(world.call_count("delete pods") > 0 && deleted() == 0, "{:?}", world.lines());
    assert!(world.events().await.iter().all(|it| !it.contains("FailedDelete")));
    drop(manager);
}

/// The pods are read after the revision is stored, which may take long.
#[tokio::test(start_paused = true)]
async fn a_pod_that_becomes_unready_while_the_revision_is_created_delays_the_update() {
    let (world, _manager) = World::running(json!({ "replicas": 3 })).await;
    let slow = |line: &str| (line == "create controllerrevisions").then_some(Interception::DelayAnswer(10 * SEC));
    world.fail_requests(move |line, _| slow(line));
    world.set_image("two");
    pass(5 * SEC).await;
    let set_unready = |it: &mut Value| it["status"]["conditions"][0]["status"] = json!("False");
    world.cluster.update("pods", NAMESPACE, "web-0", set_unready);
    pass(60 * SEC).await;
    assert_eq!((world.revisions().len(), world.call_count("delete pods")), (2, 0));
}

/// Upstream makes the new revision the current one, so that a pod below the partition gets the new template.
#[tokio::test(start_paused = true)]
async fn a_current_revision_that_the_cache_does_not_show_stays_the_current_one() {
    let world = World::new();
    // Another manager has stored the revision.
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, call| {
        if line == "create controllerrevisions" && std::mem::take(&mut first) {
            let mut revision = call.json();
            revision["metadata"]["namespace"] = json!(NAMESPACE);
            cluster.create(revision);
        }
        None
    });
    let _manager = world.start().await;
    world.cluster.freeze_watches("controllerrevisions.apps");
    world.set(json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 3 } } }));
    world.kubelet(10).await;
    let before = world.text("currentRevision");
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.text("currentRevision"), before);
    assert_ne!(world.text("updateRevision"), before);
    world.cluster.unfreeze_watches("controllerrevisions.apps");
    world.cluster.remove("pods", NAMESPACE, "web-1");
    world.kubelet(10).await;
    assert_eq!((world.image("web-1"), world.text("currentRevision")), ("one".to_owned(), before));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_033_with_a_partition_of_all_replicas_only_the_update_revision_changes() {
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 3 } });
    let (world, _manager) = World::running(json!({ "updateStrategy": rolling })).await;
    let before = world.text("updateRevision");
    world.set_image("two");
    world.kubelet(5).await;
    assert_eq!((world.call_count("delete pods"), world.text("currentRevision")), (0, before.clone()));
    assert_ne!(world.text("updateRevision"), before);
}

/// The garbage collector has orphaned them, so the history of the set does not contain them.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_being_deleted_creates_no_revision() {
    let (world, _manager) = World::running(json!({})).await;
    let (name, status) = (world.revisions()[0].0.clone(), world.status());
    world.cluster.update("statefulsets.apps", NAMESPACE, "web", |it| {
        it["metadata"]["finalizers"] = json!(["orphan"]);
        it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    });
    world.cluster.update("controllerrevisions.apps", NAMESPACE, &name, |it| {
        it["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    });
    world.cluster.remove("pods", NAMESPACE, "web-2");
    pass(5 * SEC).await;
    assert_eq!((world.count("replicas"), world.text("currentRevision")), (2, name.clone()));
    assert_eq!(world.status()["updateRevision"], status["updateRevision"]);
    let writes = ["create controllerrevisions", "patch controllerrevisions", "delete controllerrevisions"];
    assert_eq!(writes.map(|it| world.call_count(it)), [0; 3], "{:?}", world.lines());
    let stored = world.cluster.get("controllerrevisions.apps", NAMESPACE, &name).unwrap();
    assert!(stored["metadata"]["ownerReferences"].is_null());
}
