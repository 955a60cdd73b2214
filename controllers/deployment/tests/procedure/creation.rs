//! The creation of ReplicaSets, their revisions and annotations.

use harness::{NAMESPACE, failure, name, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{
    DESIRED, HASH, HISTORY, MAX, MS, REVISION, SEC, STATUS, World, annotation, image, owner, pairs, rolling,
};

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_001_a_new_deployment_gets_a_set_with_the_hash_of_its_template() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy(json!({}));
    pass(SEC).await;
    let set = &world.sets()[0];
    let hash = set["metadata"]["labels"][HASH].as_str().unwrap();
    assert_eq!(name(set), format!("d-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({ "app": "d", HASH: hash }));
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], json!({ "app": "d", HASH: hash }));
    assert_eq!((set["spec"]["replicas"].as_i64(), owner(set)), (Some(3), Some("d")));
    assert_eq!([REVISION, DESIRED, MAX].map(|it| annotation(set, it)), ["1", "3", "4"]);
    assert_eq!(world.revision(), "1");
    let events = world.events().await;
    assert_eq!(events, [format!("Normal ScalingReplicaSet: Scaled up replica set d-{hash} from 0 to 3")]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_019_the_first_sync_needs_one_write_of_the_status_and_no_conflict() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy(json!({}));
    pass(SEC).await;
    assert_eq!(world.lines(), ["create replicasets", STATUS]);
    assert_eq!(world.response_count(409), 0);
    world.run_rollout().await;
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.response_count(409), 0, "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_018_a_complete_deployment_sends_no_request_even_after_a_restart() {
    let (world, manager) = World::running(json!({})).await;
    pass(60 * SEC).await;
    drop(manager);
    let _manager = world.start().await;
    pass(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_002_003_annotations_of_users_reach_the_new_set_and_stay() {
    let world = World::new();
    let _manager = world.start().await;
    let skipped = "kubectl.kubernetes.io/last-applied-configuration";
    world.deploy_as("d", json!({ "a": "1", skipped: "{}", "deprecated.deployment.rollback.to": "x" }), json!({}));
    world.run_rollout().await;
    let keys = |set: &Value| set["metadata"]["annotations"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&world.sets()[0]), ["a", DESIRED, MAX, REVISION]);
    world.set_image("two");
    world.run_rollout().await;
    world.update(|it| it["metadata"]["annotations"]["b"] = json!("2"));
    world.run_rollout().await;
    assert_eq!((annotation(&world.set_of("two"), "b"), annotation(&world.set_of("one"), "b")), ("2", ""));
    world.update(|it| drop(it["metadata"]["annotations"].as_object_mut().unwrap().remove("b")));
    world.run_rollout().await;
    assert_eq!(annotation(&world.set_of("two"), "b"), "2");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_004_005_a_reverted_template_uses_its_set_again() {
    let (world, _manager) = World::running(json!({})).await;
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]));
    assert_eq!(world.revision(), "2");
    world.set_image("one");
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("two", 0), ("one", 3)]));
    let first = world.set_of("one");
    assert_eq!((annotation(&first, REVISION), annotation(&first, HISTORY)), ("3", "1"));
    assert_eq!(world.revision(), "3");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_009_other_changes_begin_no_rollout() {
    let (world, _manager) = World::running(json!({})).await;
    world.set_image("two");
    world.run_rollout().await;
    world.edit(|spec| {
        spec["minReadySeconds"] = json!(1);
        spec["strategy"]["rollingUpdate"]["maxSurge"] = json!(2);
        spec["revisionHistoryLimit"] = json!(5);
    });
    world.run_rollout().await;
    world.scale(4);
    world.run_rollout().await;
    world.edit(|spec| spec["paused"] = json!(true));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 4)]));
    let ready = |it: &str| world.set_of(it)["spec"]["minReadySeconds"].as_i64().unwrap_or_default();
    assert_eq!((ready("one"), ready("two")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_012_a_refused_creation_is_shown_and_repeated() {
    let world = World::new();
    let _manager = world.start().await;
    let refusal = || Interception::status(403, "Forbidden", "exceeded quota: q");
    world.fail_requests(move |line, _| (line == "create replicasets").then(refusal));
    world.deploy(json!({}));
    pass(5 * SEC).await;
    assert_eq!(world.condition("Progressing"), "False ReplicaSetCreateError");
    assert_eq!(world.count("observedGeneration"), 1);
    let name = name(&world.created()[0]);
    let message = format!("Failed to create new replica set \"{name}\": exceeded quota: q");
    let status = world.status();
    let messages: Vec<&Value> = status["conditions"].as_array().unwrap().iter().map(|it| &it["message"]).collect();
    assert!(messages.contains(&&json!(message)), "{messages:?}");
    assert_eq!(world.events().await, [format!("Warning ReplicaSetCreateError: {message}")]);
    assert!(world.call_count("create replicasets") > 3);
    assert_eq!(world.call_count(STATUS), 1);
    pass(1_200 * SEC).await;
    let attempts = world.call_count("create replicasets");
    assert!(attempts < 25, "the deadline does not shorten the back-off: {attempts}");
    world.cluster.stop_intercepting();
    world.update(|it| it["metadata"]["labels"] = json!({ "a": "b" }));
    pass(20 * SEC).await;
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetCreated");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_013_in_a_terminating_namespace_nothing_is_reported_or_repeated() {
    let world = World::new();
    let _manager = world.start().await;
    let cause = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
    world.fail_requests(move |line, _| {
        let body = json!({ "kind": "Status", "reason": "Forbidden", "message": "terminates", "details": cause });
        (line == "create replicasets").then(|| Interception::Answer { status: 403, headers: vec![], body })
    });
    world.deploy(json!({}));
    pass(60 * SEC).await;
    assert_eq!(world.lines(), ["create replicasets"]);
    assert_eq!((world.condition("Progressing"), world.events().await), (String::new(), vec![]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_014_an_equal_set_that_exists_is_used_without_an_event() {
    let world = World::new();
    let _manager = world.start().await;
    // The cache learns of the set while the request is on its way.
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, call| {
        if line != "create replicasets" {
            return None;
        }
        cluster.create(call.json());
        Some(Interception::Delay(SEC))
    });
    world.deploy(json!({}));
    pass(5 * SEC).await;
    assert_eq!(world.lines(), ["create replicasets", STATUS]);
    assert_eq!((world.revision(), world.count("collisionCount")), (json!("1"), 0));
    assert_eq!(world.condition("Progressing"), "True FoundNewReplicaSet");
    assert_eq!(world.events().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_015_a_name_in_use_is_counted_and_the_next_set_has_another_one() {
    let (world, _manager) = World::running(json!({})).await;
    let first = name(&world.sets()[0]);
    world.update_set("one", |it| it["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1));
    world.run_rollout().await;
    assert_eq!(world.count("collisionCount"), 1);
    let second = world.sets().into_iter().find(|it| name(it) != first).unwrap();
    assert_eq!((image(&second), second["spec"]["replicas"].as_i64()), ("one", Some(3)));
    assert!(name(&second).starts_with("d-"));
    assert_eq!((world.sets().len(), dry_runs(&world), world.response_count(409)), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_016_a_name_in_use_that_the_cache_does_not_show_is_no_collision() {
    let (world, _manager) = World::running(json!({})).await;
    world.cluster.freeze_watches("replicasets");
    // Another manager has created the set.
    let cluster = world.cluster.clone();
    let mut first = true;
    world.fail_requests(move |line, call| {
        if line == "create replicasets" && std::mem::take(&mut first) {
            cluster.create(call.json());
        }
        None
    });
    world.set_image("two");
    pass(5 * SEC).await;
    assert!(world.call_count("create replicasets") > 1, "it is repeated");
    assert!(world.created().windows(2).all(|it| name(&it[0]) == name(&it[1])));
    assert_eq!(world.count("collisionCount"), 0);
    world.cluster.unfreeze_watches("replicasets");
    world.run_rollout().await;
    assert_eq!((world.sets().len(), world.count("collisionCount")), (2, 0));
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]));
}

/// Webhooks that replace the image in each created ReplicaSet.
fn mirror_images(world: &World) {
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, call| {
        if line != "create replicasets" {
            return None;
        }
        let mut set = call.json();
        if cluster.get("replicasets.apps", NAMESPACE, &name(&set)).is_some() {
            return None;
        }
        let image = &mut set["spec"]["template"]["spec"]["containers"][0]["image"];
        *image = json!(format!("mirror/{}", image.as_str().unwrap()));
        let body = if call.query.contains("dryRun=All") { set } else { cluster.create(set) };
        Some(Interception::Answer { status: 201, headers: vec![], body })
    });
}

fn dry_runs(world: &World) -> usize {
    world.calls().iter().filter(|it| it.query.contains("dryRun=All")).count()
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_017_a_webhook_that_changes_templates_causes_no_endless_creation() {
    let (world, _manager) = World::running(json!({})).await;
    mirror_images(&world);
    world.set_image("two");
    world.run_rollout().await;
    pass(600 * SEC).await;
    assert_eq!((world.sets().len(), world.call_count("create replicasets") - dry_runs(&world)), (2, 1));
    assert!((10..=11).contains(&dry_runs(&world)), "{}", dry_runs(&world));
    assert_eq!(world.condition("Progressing"), "False ReplicaSetTemplateChanged");
    assert_eq!((world.count("collisionCount"), world.count("observedGeneration")), (0, 2));
    assert_eq!(world.sizes(), pairs(&[("one", 3), ("mirror/two", 1)]), "no old pod is deleted");
    pass(2 * SEC).await;
    let events = world.cluster.list("events", NAMESPACE);
    let changed = events.iter().filter(|it| it["reason"] == "ReplicaSetTemplateChanged");
    assert_eq!(changed.map(|it| it["count"].as_i64().unwrap_or(1)).sum::<i64>(), 1);
    world.cluster.stop_intercepting();
    let set = name(&world.set_of("mirror/two"));
    world.cluster.remove("replicasets.apps", NAMESPACE, &set);
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]), "it continues when the set is removed");
}

/// Without a deadline there is no condition. Scaling the changed set increases its generation.
#[tokio::test(start_paused = true)]
async fn acceptance_deploy_017_after_scaling_a_webhook_causes_no_further_set() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy(json!({ "progressDeadlineSeconds": i32::MAX }));
    world.run_rollout().await;
    mirror_images(&world);
    world.set_image("two");
    world.run_rollout().await;
    for replicas in [6, 9] {
        world.edit(|spec| spec["replicas"] = json!(replicas));
        world.run_rollout().await;
    }
    assert!(world.set_of("mirror/two")["metadata"]["generation"].as_i64() > Some(1), "it was scaled");
    assert_eq!((world.sets().len(), world.count("collisionCount")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_continues_when_the_server_changes_templates_no_more() {
    let (world, _manager) = World::running(json!({})).await;
    mirror_images(&world);
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.condition("Progressing"), "False ReplicaSetTemplateChanged");
    world.cluster.stop_intercepting();
    pass(60 * SEC).await;
    world.run_rollout().await;
    assert_eq!(world.count("collisionCount"), 1);
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("mirror/two", 0), ("two", 3)]));
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_by_a_set_that_was_never_changed_is_a_collision() {
    let world = World::new();
    let manager = world.start().await;
    world.deploy(json!({}));
    world.run_rollout().await;
    drop(manager);
    // A ReplicaSet with the name of the next one, but of another template.
    let first = world.sets().remove(0);
    world.cluster.remove("replicasets.apps", NAMESPACE, &name(&first));
    let mut other = first.clone();
    other["metadata"] = json!({ "name": name(&first), "namespace": NAMESPACE,
        "labels": first["metadata"]["labels"], "ownerReferences": first["metadata"]["ownerReferences"] });
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    world.cluster.create(other);
    // The first status with the counter is not stored.
    let mut first = true;
    world.fail_requests(
        move |line, _| {
            if line == STATUS && std::mem::take(&mut first) { failure(409, "Conflict") } else { None }
        },
    );
    let _manager = world.start().await;
    world.run_rollout().await;
    assert!(world.events().await.iter().all(|it| !it.contains("ReplicaSetTemplateChanged")));
    assert_eq!(world.count("collisionCount"), 1);
    assert_eq!(world.set_of("one")["spec"]["replicas"], 3);
    assert_eq!(world.set_of("other")["spec"]["replicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_is_lost_is_repeated_before_anything_else() {
    let (world, _manager) = World::running(json!({})).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create replicasets" && std::mem::take(&mut first)).then_some(Interception::LoseAnswer)
    });
    world.set_image("two");
    pass(MS).await;
    world.set_image("three");
    world.run_rollout().await;
    let created: Vec<String> = world.created().iter().map(|it| image(it).to_owned()).collect();
    assert_eq!(created, ["two", "three"]);
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 0), ("three", 3)]));
}

/// The request may still be running, so nothing else is decided.
#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_repeated_before_anything_else() {
    let created = |world: &World| world.created().iter().map(|it| image(it).to_owned()).collect::<Vec<_>>();
    for seconds in [0, 5, 20] {
        let (world, _manager) = World::running(json!({})).await;
        world.fail_requests(|line, _| (line == "create replicasets").then_some(Interception::Fail));
        world.set_image("two");
        pass(MS).await;
        pass(seconds * SEC).await;
        world.cluster.stop_intercepting();
        if seconds == 20 {
            let attempts = created(&world);
            assert!((4..20).contains(&attempts.len()) && attempts.iter().all(|it| it == "two"), "{attempts:?}");
            pass(66 * SEC).await;
            assert_eq!(created(&world).len(), attempts.len(), "it may still be stored");
            pass(20 * SEC).await;
            world.run_rollout().await;
            assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]));
        } else {
            pass(8 * SEC).await;
            world.run_rollout().await;
            assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]), "{seconds}");
        }
    }
}

/// With a mistaken image its pods would start although the user has paused the rollout.
#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_not_repeated_while_the_deployment_is_paused() {
    let (world, _manager) = World::running(json!({})).await;
    world.fail_requests(|line, _| (line == "create replicasets").then_some(Interception::Fail));
    world.set_image("two");
    pass(MS).await;
    world.edit(|spec| spec["paused"] = json!(true));
    world.cluster.stop_intercepting();
    world.cluster.clear_requests();
    pass(200 * SEC).await;
    assert_eq!((world.call_count("create replicasets"), world.count("observedGeneration")), (0, 3));
    world.edit(|spec| spec["paused"] = json!(false));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]));
}

/// The request may still be running, so nothing else is decided until it has certainly ended.
#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_not_repeated_for_another_template() {
    let (world, _manager) = World::running(json!({})).await;
    world.fail_requests(|line, _| (line == "create replicasets").then_some(Interception::Fail));
    world.set_image("two");
    pass(MS).await;
    world.set_image("three");
    world.cluster.stop_intercepting();
    world.cluster.clear_requests();
    pass(85 * SEC).await;
    assert_eq!((world.call_count("create replicasets"), world.sizes()), (0, pairs(&[("one", 3)])));
    pass(10 * SEC).await;
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("three", 3)]));
}

/// The user has reversed what it was sent for.
#[tokio::test(start_paused = true)]
async fn a_patch_without_an_answer_is_not_repeated_when_the_deployment_was_changed() {
    let (world, _manager) = World::running(json!({})).await;
    world.fail_requests(|line, _| line.starts_with("patch replicasets").then_some(Interception::Fail));
    world.edit(|spec| spec["replicas"] = json!(0));
    pass(MS).await;
    assert!(world.lines().iter().any(|it| it.starts_with("patch replicasets")));
    world.edit(|spec| spec["replicas"] = json!(3));
    world.cluster.stop_intercepting();
    world.cluster.clear_requests();
    pass(200 * SEC).await;
    let patches: Vec<String> = world.lines().into_iter().filter(|it| it.starts_with("patch replicasets")).collect();
    assert_eq!((patches, world.sizes()), (Vec::new(), pairs(&[("one", 3)])));
}

/// The first request is stored although its answer is lost, or cannot be stored any more.
#[tokio::test(start_paused = true)]
async fn a_patch_without_an_answer_is_resolved_by_a_read() {
    for change in ["stored", "changed", "deleted"] {
        let (world, _manager) =
            World::running(json!({ "replicas": 10, "strategy": rolling(json!(0), json!(2)) })).await;
        let (cluster, mut first) = (world.cluster.clone(), true);
        world.fail_requests(move |line, call| {
            if !line.starts_with("patch replicasets") || !std::mem::take(&mut first) {
                return None;
            }
            match change {
                "stored" => return Some(Interception::LoseAnswer),
                "changed" => {
                    cluster.update("replicasets.apps", NAMESPACE, &call.name, |it| {
                        it["metadata"]["labels"]["other"] = json!("1");
                    });
                }
                _ => cluster.remove("replicasets.apps", NAMESPACE, &call.name),
            }
            Some(Interception::Fail)
        });
        world.set_image("two");
        pass(SEC).await;
        let want = if change == "deleted" { pairs(&[("two", 10)]) } else { pairs(&[("one", 8), ("two", 2)]) };
        assert_eq!(world.sizes(), want, "{change}");
        assert_eq!(world.response_count(409), 0, "{change}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_of_an_unknown_outcome_that_fails_is_repeated_every_ten_seconds() {
    let (world, _manager) = World::running(json!({})).await;
    world.fail_requests(|line, _| line.contains("replicasets").then_some(Interception::Fail));
    world.set_image("two");
    pass(900 * SEC).await;
    let reads = world.lines().iter().filter(|it| it.starts_with("get replicasets")).count();
    assert!((80..=95).contains(&reads), "{reads}");
    world.cluster.stop_intercepting();
    pass(11 * SEC).await;
    assert_eq!(world.sets().len(), 2, "{:?}", world.lines());
}

/// A webhook may answer so. The request has ended, and a read shows that it has changed nothing.
#[tokio::test(start_paused = true)]
async fn writes_that_the_server_always_fails_delay_no_other_decision() {
    for line in ["create replicasets", "patch replicasets"] {
        let (world, _manager) = World::running(json!({ "strategy": rolling(json!(1), json!(1)) })).await;
        world.fail_requests(move |it, _| if it.starts_with(line) { failure(500, "InternalError") } else { None });
        world.set_image("two");
        pass(5 * SEC).await;
        assert!((4..30).contains(&world.call_count(line)), "with back-off: {:?}", world.lines());
        world.edit(|spec| spec["paused"] = json!(true));
        pass(20 * SEC).await;
        assert_eq!(world.condition("Progressing"), "Unknown DeploymentPaused", "{line}");
        let before = world.call_count(line);
        world.cluster.stop_intercepting();
        pass(60 * SEC).await;
        assert_eq!(world.call_count(line), before, "{line}: nothing is repeated for a Deployment that is paused");
        world.set_image("one");
        world.edit(|spec| spec["paused"] = json!(false));
        world.run_rollout().await;
        assert_eq!(world.sizes().last(), Some(&("one".to_owned(), 3)), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_status_is_no_reason_to_create_a_set_twice() {
    let world = World::new();
    let _manager = world.start().await;
    let mut left = 3;
    world.fail_requests(move |line, _| {
        let fails = line == STATUS && left > 0;
        left -= i32::from(fails);
        if fails { failure(500, "InternalError") } else { None }
    });
    world.deploy(json!({}));
    world.run_rollout().await;
    assert_eq!((world.call_count("create replicasets"), world.sets().len()), (1, 1));
    assert_eq!(world.revision(), "1");
}
