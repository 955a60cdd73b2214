//! Rolling updates.

use harness::{failure, name, pass};
use serde_json::{Value, json};

use crate::world::{MS, SEC, World, image, pairs, rolling};

async fn stuck() -> (World, harness::Manager) {
    World::with_broken_rollout(json!("25%"), json!("25%")).await
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_022_023_024_a_broken_rollout_stays_contained() {
    let (world, _manager) = stuck().await;
    pass(60 * SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 5)]));
    world.run_set("one", 7);
    pass(60 * SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 5)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_025_a_reverted_rollout_deletes_its_broken_pods_first() {
    let (world, _manager) = stuck().await;
    world.run_set("one", 7);
    world.set_image("one");
    pass(100 * MS).await;
    assert_eq!(world.sizes(), pairs(&[("two", 1), ("one", 10)]));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("two", 0), ("one", 10)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_026_034_a_third_template_replaces_the_broken_pods() {
    let (world, _manager) = stuck().await;
    world.set_image("three");
    pass(100 * MS).await;
    assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 0), ("three", 5)]));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 0), ("three", 10)]));
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_027_sizes_and_available_pods_stay_within_their_limits() {
    let (world, _manager) = stuck().await;
    for available in 0..200 {
        let (old, new) = (world.set_of("one"), world.set_of("two"));
        let size = |it: &Value| it["spec"]["replicas"].as_i64().unwrap();
        assert!(size(&old) + size(&new) <= 13);
        let (old, new) = (size(&old), (available / 3).min(size(&new)));
        assert!(old + new >= 8, "{old} {new}");
        world.run_set("one", old);
        world.run_set("two", new);
        pass(100 * MS).await;
    }
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 10)]));
    let events = world.events().await;
    let name = name(&world.set_of("two"));
    for (from, to) in [("0", "3"), ("3", "5"), ("5", "6")] {
        let event = format!("Normal ScalingReplicaSet: Scaled up replica set {name} from {from} to {to}");
        assert!(events.contains(&event), "{event} in {events:?}");
    }
    assert!(
        events.contains(&format!("Normal NewReplicaSetAvailable: ReplicaSet \"{name}\" has successfully progressed."))
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_028_029_one_pod_and_no_surge() {
    let (world, _manager) = World::running(json!({ "replicas": 1, "strategy": rolling(json!(1), json!(0)) })).await;
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 1), ("two", 1)]));
    world.run_set("two", 0);
    pass(10 * SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 1), ("two", 1)]));
    world.run_set("two", 1);
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 1)]));

    let (world, _manager) = World::running(json!({ "replicas": 2, "strategy": rolling(json!(0), json!("1%")) })).await;
    world.set_image("two");
    let mut seen = vec![];
    for _ in 0..20 {
        pass(100 * MS).await;
        world.run_sets();
        let sizes: Vec<i64> = world.sizes().into_iter().map(|it| it.1).collect();
        if seen.last() != Some(&sizes) {
            seen.push(sizes);
        }
    }
    assert_eq!(seen, [vec![1, 1], vec![0, 2]]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_032_a_late_status_of_an_old_set_is_awaited() {
    let (world, _manager) = World::running(json!({ "replicas": 10, "strategy": rolling(json!(3), json!(2)) })).await;
    world.set_image("two");
    pass(100 * MS).await;
    // The status of the old set still counts ten available pods.
    world.run_set("two", 3);
    pass(5 * SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 5)]));
    world.run_set("two", 5);
    pass(5 * SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 5)]));
    assert!(world.logged("Sync failed").is_empty() && world.logged("cannot").is_empty());
    world.run_set("one", 8);
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 3), ("two", 10)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_033_a_conflict_is_repeated_from_the_newer_cache() {
    let (world, _manager) = World::running(json!({ "replicas": 10, "strategy": rolling(json!(3), json!(2)) })).await;
    let cluster = world.cluster.clone();
    let mut first = true;
    world.fail_requests(move |line, call| {
        let is_scaled_up = |it: &Value| image(it) == "two" && it["spec"]["replicas"].as_i64() > Some(0);
        let set = cluster.get("replicasets.apps", harness::NAMESPACE, &call.name).filter(is_scaled_up);
        if line.starts_with("patch replicasets") && set.is_some() && std::mem::take(&mut first) {
            // Another client changes the new ReplicaSet at this moment.
            cluster.update("replicasets.apps", harness::NAMESPACE, &call.name, |it| {
                it["metadata"]["labels"]["other"] = json!("1");
            });
        }
        None
    });
    world.set_image("two");
    for _ in 0..60 {
        pass(50 * MS).await;
        world.run_sets();
        let total: i64 = world.sizes().iter().map(|it| it.1).sum();
        assert!(total <= 13, "{:?}", world.sizes());
    }
    assert_eq!(world.response_count(409), 1);
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 10)]));
}

#[tokio::test(start_paused = true)]
async fn an_error_while_old_sets_are_scaled_down_is_repeated() {
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
        let (world, _manager) =
            World::running(json!({ "replicas": 10, "strategy": rolling(json!(0), json!(2)) })).await;
        let mut left = 2;
        world.fail_requests(move |line, _| {
            let fails = line.starts_with("patch replicasets") && left > 0;
            left -= i32::from(fails);
            if fails { failure(code, reason) } else { None }
        });
        world.set_image("two");
        // No status of a set changes meanwhile, so no event enqueues the Deployment.
        pass(SEC).await;
        assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 2)]), "{code}");
    }
}

/// The ReplicaSet has more pods than its size. They are not available, so they do not count twice.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_deletion_is_refused_does_not_stop_a_rollout() {
    let (world, _manager) = World::running(json!({ "replicas": 10, "strategy": rolling(json!(3), json!(2)) })).await;
    world.set_image("two");
    pass(100 * MS).await;
    for _ in 0..60 {
        world.run_sets();
        world.update_set("one", |it| {
            let size = it["spec"]["replicas"].as_i64().unwrap();
            it["status"]["replicas"] = json!(size + 1);
        });
        pass(50 * MS).await;
    }
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 10)]));
}

#[tokio::test(start_paused = true)]
async fn the_revision_of_a_created_set_is_stored_although_old_sets_could_not_be_scaled_down() {
    let (world, _manager) = World::running(json!({ "replicas": 10, "strategy": rolling(json!(3), json!(2)) })).await;
    world.fail_requests(|line, _| if line.starts_with("patch replicasets") { failure(409, "Conflict") } else { None });
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 10), ("two", 3)]));
    assert_eq!((world.revision(), world.condition("Progressing")), (json!("2"), "True NewReplicaSetCreated".into()));
    world.cluster.stop_intercepting();
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 10)]));
}

#[tokio::test(start_paused = true)]
async fn the_revision_of_an_existing_set_is_stored_although_old_sets_cannot_be_scaled_down() {
    let (world, _manager) = World::running(json!({ "strategy": rolling(json!(0), json!(1)) })).await;
    world.set_image("two");
    world.run_rollout().await;
    let refused = format!("patch replicasets {}", name(&world.set_of("two")));
    world.fail_requests(move |line, _| if line == refused { failure(403, "Forbidden") } else { None });
    world.set_image("one");
    pass(5 * SEC).await;
    assert_eq!(world.sizes(), pairs(&[("two", 3), ("one", 0)]));
    assert_eq!((world.revision(), world.condition("Progressing")), (json!("3"), "True FoundNewReplicaSet".into()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_080_a_restart_in_mid_rollout_continues_it() {
    for lost in [false, true] {
        let (world, manager) = stuck().await;
        drop(manager);
        if lost {
            // The last status was not stored.
            world.update(|it| it["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("1"));
        }
        world.cluster.clear_requests();
        let _manager = world.start().await;
        pass(5 * SEC).await;
        assert_eq!(world.call_count("patch replicasets") + world.call_count("create replicasets"), 0);
        assert_eq!(world.revision(), "2");
        world.run_rollout().await;
        assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 10)]));
    }
}
