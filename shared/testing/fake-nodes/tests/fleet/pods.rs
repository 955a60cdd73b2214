use fake_nodes::Options;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{World, advance, condition};

#[tokio::test(start_paused = true)]
async fn pod_runs_to_completion() {
    let world = World::new(Options::with_nodes(1)).await;
    let spec = json!({ "nodeName": "node-1", "restartPolicy": "Never" });
    world.create("p", spec, &[("start-after", "1s"), ("run-for", "5s"), ("ready-after", "2s")]);
    advance(0).await;
    assert_eq!(world.phase("p"), "Pending");
    let waiting = world.pod("p").unwrap()["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
    assert_eq!(waiting, "ContainerCreating");
    advance(1).await;
    assert_eq!(condition(&world.pod("p").unwrap(), "Ready")["status"], "False");
    advance(2).await;
    assert_eq!(condition(&world.pod("p").unwrap(), "Ready")["status"], "True");
    assert_eq!(world.pod("p").unwrap()["status"]["podIP"], "10.64.1.2");
    advance(3).await;
    let pod = world.pod("p").unwrap();
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert_eq!(condition(&pod, "Ready")["reason"], "PodCompleted");
}

#[tokio::test(start_paused = true)]
async fn status_is_written_once_per_change() {
    let world = World::new(Options::with_nodes(1)).await;
    let lines = [("run-for", "2s"), ("crashes", "2"), ("backoff", "3s")];
    world.create("p", json!({ "nodeName": "node-1", "restartPolicy": "OnFailure" }), &lines);
    advance(60).await;
    assert_eq!(world.phase("p"), "Succeeded");
    let writes = world.cluster.requests().into_iter().filter(|it| it.resource == "pods" && it.subresource == "status");
    // Running, restarted at once, waiting, running, ended.
    assert_eq!(writes.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_ends_within_its_grace_and_is_removed() {
    let world = World::new(Options::with_nodes(1)).await;
    world.create("gentle", json!({ "nodeName": "node-1" }), &[("stop-after", "3s")]);
    world.create("stubborn", json!({ "nodeName": "node-1" }), &[("hang", "true")]);
    advance(1).await;
    world.cluster.clear_requests();
    world.mark_deleted("gentle", 30);
    world.mark_deleted("stubborn", 5);
    advance(2).await;
    assert_eq!((world.phase("gentle").as_str(), world.phase("stubborn").as_str()), ("Running", "Running"));
    advance(1).await;
    assert_eq!((world.phase("gentle").as_str(), world.phase("stubborn").as_str()), ("gone", "Running"));
    advance(2).await;
    assert_eq!(world.phase("stubborn"), "gone");
    let exit_codes: Vec<String> = world
        .cluster
        .requests()
        .into_iter()
        .filter(|it| it.subresource == "status")
        .map(|it| {
            let terminated = &it.json()["status"]["containerStatuses"][0]["state"]["terminated"];
            format!("{} {}", it.name, terminated["exitCode"])
        })
        .collect();
    assert_eq!(exit_codes, ["gentle 143", "stubborn 137"], "the last status before the removal");
}

#[tokio::test(start_paused = true)]
async fn pod_with_finalizer_remains_until_the_finalizer_is_removed() {
    let world = World::new(Options::with_nodes(1)).await;
    world.create("p", json!({ "nodeName": "node-1" }), &[]);
    world.cluster.update("pods", "default", "p", |it| it["metadata"]["finalizers"] = json!(["example.com/hold"]));
    advance(1).await;
    world.mark_deleted("p", 30);
    advance(5).await;
    assert_eq!(world.phase("p"), "Failed");
    let deletes = world.cluster.requests().into_iter().filter(|it| it.verb == "delete").count();
    assert_eq!(deletes, 1);
    world.cluster.update("pods", "default", "p", |it| it["metadata"]["finalizers"] = json!([]));
    advance(1).await;
    assert_eq!(world.phase("p"), "gone");
}

#[tokio::test(start_paused = true)]
async fn successor_of_same_name_is_a_new_pod() {
    let world = World::new(Options::with_nodes(1)).await;
    let spec = json!({ "nodeName": "node-1", "restartPolicy": "Never" });
    world.create("p", spec.clone(), &[("run-for", "5s")]);
    advance(4).await;
    world.cluster.remove("pods", "default", "p");
    world.create("p", spec, &[("run-for", "5s")]);
    advance(4).await;
    assert_eq!(world.phase("p"), "Running");
    advance(2).await;
    assert_eq!(world.phase("p"), "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn conditions_of_other_clients_survive_status_writes() {
    let world = World::new(Options::with_nodes(1)).await;
    world.create("p", json!({ "nodeName": "node-1", "restartPolicy": "Never" }), &[("run-for", "5s")]);
    advance(1).await;
    world.cluster.update("pods", "default", "p", |it| {
        let disrupted = json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" });
        it["status"]["conditions"].as_array_mut().unwrap().push(disrupted);
    });
    advance(5).await;
    let pod = world.pod("p").unwrap();
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(condition(&pod, "DisruptionTarget")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn removal_of_a_pod_that_ended_elsewhere_is_tried_once_a_second_at_most() {
    let world = World::new(Options::with_nodes(1)).await;
    world.create("p", json!({}), &[]);
    world.mark_deleted("p", 30);
    world.cluster.update("pods", "default", "p", |it| {
        it["status"]["phase"] = json!("Succeeded");
        it["spec"]["nodeName"] = json!("node-1");
    });
    world.cluster.intercept(|call| match call.verb {
        "delete" => Interception::status(403, "Forbidden", "not now"),
        _ => Interception::Pass,
    });
    advance(10).await;
    let asked = world.cluster.requests().into_iter().filter(|it| it.verb == "delete").count();
    assert!((9..=11).contains(&asked), "{asked} in ten seconds");
    world.cluster.stop_intercepting();
    advance(2).await;
    assert_eq!(world.phase("p"), "gone");
}
