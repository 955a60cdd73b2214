//! Writes of the status.

use harness::{failure, pass};
use serde_json::json;

use crate::world::{SEC, World, claim_templates, retention};

#[tokio::test(start_paused = true)]
async fn acceptance_sts_066_the_status_is_written_once_although_pods_cannot_be_managed() {
    let world = World::new();
    world.fail_requests(|line, _| (line == "create pods").then(|| failure(403, "Forbidden")).flatten());
    let _manager = world.start().await;
    world.set(json!({}));
    pass(2 * SEC).await;
    assert_eq!(world.call_count("update statefulsets/status"), 1);
    assert!(world.call_count("create pods") > 1);
    assert_eq!(world.count("observedGeneration"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_067_the_error_of_pods_has_precedence_over_that_of_the_status() {
    let world = World::new();
    world.fail_requests(|line, _| match line {
        "create pods" => failure(403, "Forbidden"),
        "update statefulsets/status web" => failure(500, "InternalError"),
        _ => None,
    });
    let _manager = world.start().await;
    world.set(json!({}));
    pass(SEC).await;
    assert!(!world.logged("cannot create pod web-0").is_empty());
    let of_status = world.logged("cannot store the status");
    assert!(!of_status.is_empty() && of_status.iter().all(|it| it.contains("Another write of this sync failed")));
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_068_a_set_at_rest_sends_no_request() {
    let both = retention("Delete", "Delete");
    let spec = json!({ "volumeClaimTemplates": claim_templates(), "persistentVolumeClaimRetentionPolicy": both });
    let (world, manager) = World::running(spec).await;
    world.cluster.update("statefulsets.apps", "n", "web", |it| it["metadata"]["labels"] = json!({ "a": "b" }));
    pass(60 * SEC).await;
    drop(manager);
    let _manager = world.start().await;
    pass(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_054_with_on_delete_min_ready_seconds_only_counts_available_pods() {
    let spec = json!({ "replicas": 1, "minReadySeconds": 30, "updateStrategy": { "type": "OnDelete" } });
    let world = World::new();
    let _manager = world.start().await;
    world.set(spec);
    world.kubelet(3).await;
    assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (1, 0));
    pass(40 * SEC).await;
    assert_eq!(world.count("availableReplicas"), 1);
    world.set_image("two");
    world.cluster.remove("pods", "n", "web-0");
    world.kubelet(3).await;
    assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (1, 0));
    assert_eq!(world.text("currentRevision"), world.text("updateRevision"), "a ready pod is sufficient");
}

#[tokio::test(start_paused = true)]
async fn acceptance_sts_035_an_update_by_on_delete_ends_when_the_user_has_deleted_all_pods() {
    let (world, _manager) = World::running(json!({ "updateStrategy": { "type": "OnDelete" } })).await;
    world.set_image("two");
    world.kubelet(3).await;
    assert_eq!(world.call_count("delete pods"), 0);
    assert_ne!(world.text("currentRevision"), world.text("updateRevision"));
    for pod in ["web-0", "web-1", "web-2"] {
        world.cluster.remove("pods", "n", pod);
        world.kubelet(3).await;
    }
    assert_eq!(world.text("currentRevision"), world.text("updateRevision"));
}

/// The back-off of a set whose syncs fail must not replace the timer for `minReadySeconds`.
#[tokio::test(start_paused = true)]
async fn a_creation_that_is_always_refused_does_not_delay_the_count_of_available_pods() {
    let world = World::new();
    world.fail_requests(|line, call| {
        let is_refused = line == "create pods" && call.json()["metadata"]["name"] == "web-1";
        if is_refused { failure(403, "Forbidden") } else { None }
    });
    let _manager = world.start().await;
    world.set(json!({ "replicas": 2, "podManagementPolicy": "Parallel", "minReadySeconds": 60 }));
    pass(30 * SEC).await;
    world.run_pod("web-0");
    pass(58 * SEC).await;
    assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (1, 0));
    pass(5 * SEC).await;
    assert_eq!(world.count("availableReplicas"), 1);
}
