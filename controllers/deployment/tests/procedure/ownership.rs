//! Adoption, release and deletion.

use harness::{NAMESPACE, name, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{HASH, REVISION, SEC, World, annotation, image, owner, pairs};

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_074_an_orphan_with_the_template_is_adopted_and_not_replaced() {
    let world = World::new();
    let _manager = world.start().await;
    let orphan = world.add_set("mine", "one", json!({ "app": "d" }), json!({}));
    world.deploy(json!({}));
    world.run_rollout().await;
    let sets = world.sets();
    assert_eq!((sets.len(), owner(&sets[0]), name(&sets[0])), (1, Some("d"), "mine".to_owned()));
    assert_eq!(sets[0]["metadata"]["uid"], orphan["metadata"]["uid"]);
    assert_eq!((annotation(&sets[0], REVISION), world.revision()), ("1", json!("1")));
    assert!(sets[0]["metadata"]["labels"][HASH].is_null(), "it gets no hash");
    assert_eq!(world.call_count("get deployments d"), 1, "the Deployment is read before an adoption");
    assert_eq!(world.response_count(409), 0, "nothing else is written before the cache shows the adoption");
    assert_eq!(world.call_count("create replicasets"), 0);
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
}

/// The answer of the server has no reference. Upstream continues too.
#[tokio::test(start_paused = true)]
async fn a_set_whose_adoption_a_webhook_undoes_stops_no_rollout() {
    let world = World::new();
    let orphan = world.add_set("mine", "old", json!({ "app": "d" }), json!({}));
    world.fail_requests(move |line, call| {
        let is_adoption = line == "patch replicasets mine" && call.json()["metadata"]["ownerReferences"].is_array();
        let body = orphan.clone();
        is_adoption.then(|| Interception::Answer { status: 200, headers: Vec::new(), body })
    });
    let _manager = world.start().await;
    world.deploy(json!({}));
    world.run_rollout().await;
    assert_eq!(world.set_of("one")["spec"]["replicas"], 3, "{:?}", world.lines());
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
    let before = world.call_count("get deployments d");
    assert!((1..=20).contains(&before), "{before}");
    pass(60 * SEC).await;
    assert_eq!(world.call_count("get deployments d"), before, "no adoption is tried without a change");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_075_a_set_of_another_controller_is_not_touched() {
    let world = World::new();
    let _manager = world.start().await;
    let owned = |name: &str, controller: bool| {
        world.add_set(name, name, json!({ "app": "d" }), json!({}));
        world.cluster.update("replicasets.apps", NAMESPACE, name, |it| {
            it["metadata"]["ownerReferences"] =
                json!([{ "apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o", "controller": controller }]);
        });
    };
    owned("free", false);
    owned("taken", true);
    world.deploy(json!({}));
    world.run_rollout().await;
    let owners = |image: &str| world.set_of(image)["metadata"]["ownerReferences"].as_array().unwrap().len();
    assert_eq!((owners("free"), owners("taken")), (2, 1));
    let taken = world.set_of("taken");
    assert_eq!((taken["spec"]["replicas"].as_i64(), annotation(&taken, REVISION)), (Some(3), ""));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_076_a_set_whose_labels_do_not_match_is_released_and_adopted_again() {
    let (world, _manager) = World::running(json!({})).await;
    let first = name(&world.sets()[0]);
    let relabel = |label: &str| {
        world
            .cluster
            .update("replicasets.apps", NAMESPACE, &first, |it| it["metadata"]["labels"]["app"] = json!(label));
    };
    relabel("other");
    world.run_rollout().await;
    let released = world.cluster.get("replicasets.apps", NAMESPACE, &first).unwrap();
    assert_eq!((owner(&released), released["spec"]["replicas"].as_i64()), (None, Some(3)), "it keeps its pods");
    let second = world.sets().into_iter().find(|it| name(it) != first).unwrap();
    assert_eq!((image(&second), second["spec"]["replicas"].as_i64()), ("one", Some(3)));
    assert_eq!(world.count("collisionCount"), 1);
    relabel("d");
    world.run_rollout().await;
    let size = |it: &str| world.cluster.get("replicasets.apps", NAMESPACE, it).unwrap()["spec"]["replicas"].as_i64();
    assert_eq!((size(&first), size(&name(&second))), (Some(3), Some(0)), "the older one is the new one");
}

/// Upstream compares only the uid.
#[tokio::test(start_paused = true)]
async fn a_set_with_the_uid_of_the_deployment_and_another_kind_as_its_controller_is_replaced() {
    let (world, _manager) = World::running(json!({})).await;
    let first = name(&world.sets()[0]);
    world.cluster.update("replicasets.apps", NAMESPACE, &first, |it| {
        it["metadata"]["ownerReferences"][0]["kind"] = json!("Other");
    });
    world.run_rollout().await;
    let second = world.sets().into_iter().find(|it| name(it) != first).unwrap();
    assert_eq!((image(&second), second["spec"]["replicas"].as_i64()), ("one", Some(3)));
    assert_eq!((world.call_count("create replicasets"), world.count("collisionCount")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_077_two_deployments_with_one_selector_keep_their_own_sets() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy_as("d", json!({}), json!({}));
    world.deploy_as("e", json!({}), json!({}));
    world.run_rollout().await;
    let mut owners: Vec<String> = world.sets().iter().map(|it| owner(it).unwrap().to_owned()).collect();
    owners.sort();
    assert_eq!(owners, ["d", "e"]);
    world.cluster.clear_requests();
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.cluster.get("deployments.apps", NAMESPACE, "e").unwrap()["status"]["availableReplicas"], 3);
    assert!(world.lines().iter().all(|it| !it.ends_with(" e")), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_078_a_deployment_that_is_being_deleted_gets_only_a_status() {
    let (world, _manager) = World::running(json!({})).await;
    world.delete();
    pass(SEC).await;
    world.cluster.clear_requests();
    world.set_image("two");
    world.add_set("mine", "zero", json!({ "app": "d" }), json!({}));
    world.run_set("one", 2);
    pass(5 * SEC).await;
    assert!(world.lines().iter().all(|it| it.starts_with("update deployments/status")), "{:?}", world.lines());
    assert_eq!(world.count("observedGeneration"), world.stored()["metadata"]["generation"].as_i64().unwrap());
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_078_a_deployment_that_is_being_deleted_on_the_server_adopts_nothing() {
    let (world, _manager) = World::running(json!({})).await;
    world.cluster.freeze_watches("deployments");
    world.delete();
    world.add_set("mine", "zero", json!({ "app": "d" }), json!({}));
    pass(5 * SEC).await;
    assert_eq!(owner(&world.set_of("zero")), None);
    assert_eq!((world.call_count("patch replicasets"), world.call_count("create replicasets")), (0, 0));
    assert!(world.call_count("get deployments d") > 1, "it is retried");
    assert!(!world.logged("has just been deleted").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_079_a_recreated_deployment_adopts_its_orphans() {
    let (world, _manager) = World::running(json!({})).await;
    let uid = world.sets()[0]["metadata"]["uid"].clone();
    world.cluster.remove("deployments.apps", NAMESPACE, "d");
    world.update_set("one", |it| it["metadata"]["ownerReferences"] = json!([]));
    pass(SEC).await;
    world.deploy(json!({}));
    world.run_rollout().await;
    assert_eq!((world.sets().len(), &world.sets()[0]["metadata"]["uid"]), (1, &uid));
    assert_eq!((world.sizes(), world.revision()), (pairs(&[("one", 3)]), json!("1")));
}

#[tokio::test(start_paused = true)]
async fn an_empty_selector_is_reported_and_changes_nothing() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy(json!({}));
    pass(SEC).await;
    world.cluster.clear_requests();
    world.edit(|spec| spec["selector"] = json!({}));
    pass(5 * SEC).await;
    assert_eq!(owner(&world.sets()[0]), Some("d"));
    assert_eq!(world.count("observedGeneration"), 2);
    let message = "Warning SelectingAll: This deployment is selecting all pods. A non-empty selector is required.";
    assert!(world.events().await.contains(&message.to_owned()));
}
