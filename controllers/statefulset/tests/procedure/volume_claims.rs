//! Claims: creation, repair and owner references.

use harness::{NAMESPACE, failure, pass};
use serde_json::json;

use crate::world::{SEC, World, claim_templates, retention};

fn with_claims(retention: serde_json::Value) -> serde_json::Value {
    json!({ "volumeClaimTemplates": claim_templates(), "persistentVolumeClaimRetentionPolicy": retention })
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_022_the_claim_of_a_pending_pod_is_created_again() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(with_claims(retention("Retain", "Retain")));
    pass(SEC).await;
    world.cluster.remove("persistentvolumeclaims", NAMESPACE, "data-web-0");
    pass(SEC).await;
    assert_eq!(world.claims(), ["data-web-0"]);
    assert_eq!(world.call_count("create persistentvolumeclaims"), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_023_no_pod_is_created_while_its_claim_is_being_deleted() {
    let world = World::new();
    world.cluster.create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-web-0", "namespace": NAMESPACE, "finalizers": ["kubernetes.io/pvc-protection"],
            "deletionTimestamp": world.second() },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }));
    let _manager = world.start().await;
    world.set(with_claims(retention("Retain", "Retain")));
    pass(5 * SEC).await;
    assert_eq!(world.pods(), [""; 0]);
    let event =
        "Warning FailedCreate: Create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted";
    assert!(world.events().await.contains(&event.to_owned()));
    world.cluster.remove("persistentvolumeclaims", NAMESPACE, "data-web-0");
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0"], "the end of the claim enqueues the set");
}

/// A claim in use stays until its pod is gone. Nothing else of the pod waits for that.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_being_deleted_blocks_no_repair_and_no_rollout() {
    let (world, _manager) = World::running(with_claims(retention("Retain", "Retain"))).await;
    world.cluster.update("persistentvolumeclaims", NAMESPACE, "data-web-0", |it| {
        it["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    });
    world.edit(|spec| spec["persistentVolumeClaimRetentionPolicy"] = retention("Delete", "Retain"));
    world.set_image("two");
    pass(5 * SEC).await;
    assert_eq!(world.owners("data-web-0"), ["StatefulSet/web"]);
    assert_eq!(world.call_count("delete pods web-2"), 1, "{:?}", world.lines());
}

/// The claim stays as long as the pod, so that the update must replace the pod.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_being_deleted_does_not_keep_a_pod_that_never_starts() {
    let world = World::new();
    let _manager = world.start().await;
    let mut spec = with_claims(retention("Retain", "Retain"));
    spec["podManagementPolicy"] = json!("Parallel");
    world.set(spec);
    pass(SEC).await;
    for ordinal in 0..3 {
        world.cluster.update("persistentvolumeclaims", NAMESPACE, &format!("data-web-{ordinal}"), |it| {
            it["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
            it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
        });
    }
    world.set_image("two");
    pass(5 * SEC).await;
    assert_eq!(world.call_count("delete pods web-2"), 1, "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_024_a_claim_that_the_cache_does_not_show_is_an_error_without_an_event_of_the_claim() {
    let world = World::new();
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create persistentvolumeclaims" && std::mem::replace(&mut first, false))
            .then(|| failure(409, "AlreadyExists"))
            .flatten()
    });
    let _manager = world.start().await;
    world.set(with_claims(retention("Retain", "Retain")));
    pass(SEC).await;
    let events = world.events().await;
    assert!(!events.iter().any(|it| it.contains("Create Claim data-web-0 for")), "{events:?}");
    assert!(events.iter().any(|it| it.contains("FailedCreate: Create Pod web-0")), "{events:?}");
    assert_eq!((world.claims().len(), world.pods().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_059_all_claims_are_owned_by_a_set_that_deletes_them() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(with_claims(retention("Delete", "Retain")));
    world.kubelet(20).await;
    for ordinal in 0..3 {
        assert_eq!(world.owners(&format!("data-web-{ordinal}")), ["StatefulSet/web"]);
    }
    assert_eq!(world.call_count("update persistentvolumeclaims"), 0, "the creation contained the reference");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_060_a_condemned_pod_owns_its_claim_before_it_is_deleted() {
    let (world, _manager) = World::running(with_claims(retention("Retain", "Delete"))).await;
    assert!(world.owners("data-web-2").is_empty());
    world.scale(2);
    pass(SEC).await;
    assert_eq!(world.owners("data-web-2"), ["Pod/web-2"]);
    let lines = world.lines();
    let at = |words: &str| lines.iter().position(|it| it == words).unwrap();
    assert!(at("update persistentvolumeclaims data-web-2") < at("delete pods web-2"), "{lines:?}");
    assert!(world.owners("data-web-1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_061_with_both_policies_a_condemned_claim_changes_its_owner() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Delete"))).await;
    assert_eq!(world.owners("data-web-2"), ["StatefulSet/web"]);
    world.scale(2);
    pass(SEC).await;
    assert_eq!(world.owners("data-web-2"), ["Pod/web-2"]);
    assert_eq!(world.owners("data-web-1"), ["StatefulSet/web"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_062_a_claim_of_another_controller_loses_our_reference_and_the_user_is_told() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Retain"))).await;
    world.cluster.update("persistentvolumeclaims", NAMESPACE, "data-web-1", |it| {
        let foreign = json!({ "apiVersion": "example.com/v1", "kind": "Backup", "name": "b", "uid": "other",
            "controller": true });
        it["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        it["metadata"]["ownerReferences"].as_array_mut().unwrap().push(foreign);
    });
    pass(6 * SEC).await;
    assert_eq!(world.owners("data-web-1"), ["Backup/b"]);
    let events = world.events().await;
    let event = "Warning ConflictingController: PersistentVolumeClaim data-web-1 has a conflicting OwnerReference that \
                 acts as a manging controller, the retention policy is ignored for this claim";
    assert!(events.contains(&event.to_owned()), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_063_a_pod_waits_until_the_claim_of_the_earlier_one_is_gone() {
    let (world, _manager) = World::running(with_claims(retention("Retain", "Delete"))).await;
    world.scale(2);
    pass(SEC).await;
    world.remove_terminating_pods();
    world.scale(3);
    pass(5 * SEC).await;
    assert_eq!(world.pods(), ["web-0", "web-1"], "no garbage collector runs here");
    world.cluster.remove("persistentvolumeclaims", NAMESPACE, "data-web-2");
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0", "web-1", "web-2"]);
}

/// The garbage collector will delete the claims with the earlier set. Upstream creates the pods with them.
#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_the_claim_of_an_earlier_set_is_gone() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Retain"))).await;
    world.cluster.remove("statefulsets.apps", NAMESPACE, "web");
    (0..3).for_each(|it| world.cluster.remove("pods", NAMESPACE, &format!("web-{it}")));
    world.set(with_claims(retention("Retain", "Retain")));
    pass(60 * SEC).await;
    assert!(world.pods().is_empty(), "no garbage collector runs here");
    (0..3).for_each(|it| world.cluster.remove("persistentvolumeclaims", NAMESPACE, &format!("data-web-{it}")));
    world.kubelet(5).await;
    assert_eq!((world.pods().len(), world.claims().len()), (3, 3));
}

/// Upstream decides from its cache, and the claim is deleted with the pod.
#[tokio::test(start_paused = true)]
async fn a_scale_down_that_was_taken_back_costs_no_claim_although_the_cache_is_late() {
    // In the moment of this request the user takes the scale-down back.
    for moment in ["get persistentvolumeclaims data-web-2", "get statefulsets web"] {
        let (world, _manager) = World::running(with_claims(retention("Retain", "Delete"))).await;
        let (cluster, mut seen) = (world.cluster.clone(), 0);
        world.fail_requests(move |line, _| {
            seen += usize::from(line == moment);
            // The first read of the set precedes the change of the claim, the second one the deletion.
            if line == moment && seen == if moment.starts_with("get s") { 2 } else { 1 } {
                cluster.freeze_watches("statefulsets");
                cluster.update("statefulsets.apps", NAMESPACE, "web", |it| it["spec"]["replicas"] = json!(3));
            }
            None
        });
        world.scale(2);
        pass(20 * SEC).await;
        assert_eq!(world.stored()["spec"]["replicas"], 3, "{moment}");
        assert_eq!(world.call_count("delete pods"), 0, "{moment}: {:?}", world.lines());
        world.cluster.unfreeze_watches("statefulsets");
        world.kubelet(10).await;
        assert!(world.owners("data-web-2").is_empty(), "{moment}: {:?}", world.lines());
        assert_eq!((world.call_count("delete pods"), world.pods().len()), (0, 3), "{moment}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_064_retain_removes_the_references_from_all_claims() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Delete"))).await;
    world.edit(|spec| spec["persistentVolumeClaimRetentionPolicy"] = retention("Retain", "Retain"));
    pass(SEC).await;
    assert!((0..3).all(|it| world.owners(&format!("data-web-{it}")).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_065_after_a_set_is_created_again_its_claims_follow_the_new_uid() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Retain"))).await;
    let pods = || (0..3).map(|it| format!("web-{it}")).collect::<Vec<_>>();
    // As the garbage collector does with the policy Orphan.
    world.cluster.remove("statefulsets.apps", NAMESPACE, "web");
    for pod in pods() {
        for (resource, name) in [("pods", pod.clone()), ("persistentvolumeclaims", format!("data-{pod}"))] {
            world.cluster.update(resource, NAMESPACE, &name, |it| {
                it["metadata"].as_object_mut().unwrap().remove("ownerReferences");
            });
        }
    }
    world.cluster.clear_requests();
    let uid = world.set(with_claims(retention("Delete", "Retain")))["metadata"]["uid"].clone();
    world.kubelet(5).await;
    for pod in pods() {
        assert_eq!(world.pod(&pod)["metadata"]["ownerReferences"][0]["uid"], uid);
        let claim = world.cluster.get("persistentvolumeclaims", NAMESPACE, &format!("data-{pod}")).unwrap();
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], uid);
    }
    assert_eq!(world.call_count("create pods") + world.call_count("delete pods"), 0);
}

/// Without a live read of the set, the claim would get the set as its owner again, and would be deleted with it.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_orphaned_with_its_set_gets_no_owner_again() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Retain"))).await;
    world.cluster.freeze_watches("statefulsets");
    world.cluster.update("statefulsets.apps", NAMESPACE, "web", |it| {
        it["metadata"]["finalizers"] = json!(["orphan"]);
        it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    });
    world.cluster.update("persistentvolumeclaims", NAMESPACE, "data-web-1", |it| {
        it["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    });
    pass(30 * SEC).await;
    assert!(world.call_count("get statefulsets web") > 0, "{:?}", world.lines());
    assert_eq!(world.call_count("update persistentvolumeclaims"), 0);
    assert!(world.owners("data-web-1").is_empty());
    assert!(!world.logged("the set has changed since it was cached").is_empty());
}

/// A client that removes the reference again and again causes one sync in five seconds.
#[tokio::test(start_paused = true)]
async fn changes_of_owners_are_corrected_after_a_delay() {
    let (world, _manager) = World::running(with_claims(retention("Delete", "Retain"))).await;
    for _ in 0..10 {
        world.cluster.update("persistentvolumeclaims", NAMESPACE, "data-web-1", |it| {
            it["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        });
        pass(SEC).await;
    }
    let corrections = world.call_count("update persistentvolumeclaims data-web-1");
    assert!((1..=2).contains(&corrections), "{corrections}");
    pass(5 * SEC).await;
    assert_eq!(world.owners("data-web-1"), ["StatefulSet/web"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_062_a_claim_that_only_another_controller_owns_is_reported_at_the_creation_of_its_pod() {
    let world = World::new();
    let foreign = json!([{ "apiVersion": "example.com/v1", "kind": "Backup", "name": "b", "uid": "other",
        "controller": true }]);
    world.cluster.create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-web-0", "namespace": NAMESPACE, "ownerReferences": foreign },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }));
    let _manager = world.start().await;
    world.set(with_claims(retention("Delete", "Retain")));
    pass(SEC).await;
    assert_eq!(world.pods(), ["web-0"]);
    let events = world.events().await;
    assert!(events.iter().any(|it| it.starts_with("Warning ConflictingController")), "{events:?}");
    assert_eq!(world.call_count("update persistentvolumeclaims"), 0);
}

/// Upstream stops at the first pod that cannot be created.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_wanted_pod_is_corrected_although_another_pod_cannot_be_created() {
    let mut spec = with_claims(retention("Retain", "Delete"));
    spec["replicas"] = json!(4);
    let (world, _manager) = World::running(spec).await;
    world.scale(3);
    pass(SEC).await;
    assert_eq!((world.owners("data-web-3"), world.call_count("delete pods")), (vec!["Pod/web-3".to_owned()], 1));
    world.fail_requests(|line, _| if line == "create pods" { failure(403, "Forbidden") } else { None });
    world.cluster.remove("pods", NAMESPACE, "web-1");
    world.scale(4);
    pass(SEC).await;
    assert!(world.owners("data-web-3").is_empty(), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn the_references_of_a_claim_template_are_kept() {
    for (is_controller, owners) in [(false, &["ConfigMap/c", "StatefulSet/web"][..]), (true, &["ConfigMap/c"])] {
        let world = World::new();
        let _manager = world.start().await;
        let mut spec = with_claims(retention("Delete", "Retain"));
        let owner =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": is_controller });
        spec["volumeClaimTemplates"][0]["metadata"]["ownerReferences"] = json!([owner]);
        world.set(spec);
        pass(SEC).await;
        assert_eq!(world.owners("data-web-0"), owners);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_correction_of_a_claim_is_reported() {
    let (world, _manager) = World::running(with_claims(retention("Retain", "Delete"))).await;
    let is_claim = |line: &str| line.starts_with("update persistentvolumeclaims");
    world.fail_requests(move |line, _| is_claim(line).then(|| failure(403, "Forbidden")).flatten());
    world.scale(2);
    pass(5 * SEC).await;
    assert_eq!(world.call_count("delete pods"), 0, "the claim would stay");
    let event = "Warning FailedUpdate: Update Pod web-2 in StatefulSet web failed error: could not update claim \
                 data-web-2 for delete policy ownerRefs: not now";
    assert!(world.events().await.contains(&event.to_owned()), "{:?}", world.events().await);
}
