use fake_nodes::{NodeSpec, Options};
use serde_json::json;

use crate::world::{World, advance, condition};

#[tokio::test(start_paused = true)]
async fn pods_are_bound_where_they_fit_and_the_others_have_a_reason() {
    let nodes = vec![NodeSpec::new("a").pods(2), NodeSpec::new("b").pods(1).taint("gpu", "yes", "NoSchedule")];
    let world = World::new(Options { nodes, ..Options::with_nodes(0) }).await;
    for name in ["p1", "p2", "p3"] {
        world.create(name, json!({}), &[]);
    }
    let tolerations = json!([{ "key": "gpu", "operator": "Exists" }]);
    let selector = json!({ "kubernetes.io/hostname": "b" });
    world.create("gpu", json!({ "tolerations": tolerations, "nodeSelector": selector }), &[]);
    world.create("gated", json!({ "schedulingGates": [{ "name": "later" }] }), &[]);
    world.create("foreign", json!({ "schedulerName": "somebody-else" }), &[]);
    advance(2).await;
    let node = |name: &str| world.pod(name).unwrap()["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let placed = ["p1", "p2", "p3", "gpu"].map(node);
    assert_eq!(placed.iter().filter(|it| *it == "a").count(), 2, "{placed:?}");
    assert_eq!(placed.iter().filter(|it| *it == "b").count(), 1, "{placed:?}");
    assert_eq!((node("gated"), node("foreign")), (String::new(), String::new()));
    let waiting = ["p1", "p2", "p3"].into_iter().find(|it| node(it).is_empty()).unwrap();
    let scheduled = condition(&world.pod(waiting).unwrap(), "PodScheduled");
    assert_eq!((&scheduled["status"], &scheduled["reason"]), (&json!("False"), &json!("Unschedulable")));
    assert!(scheduled["message"].as_str().unwrap().starts_with("0/2 nodes are available: "), "{scheduled}");

    let bound = ["p1", "p2"].into_iter().find(|it| node(it) == "a").unwrap();
    world.cluster.delete("pods", "default", bound);
    advance(2).await;
    assert!(!node(waiting).is_empty(), "there are free resources again");
    assert_eq!(condition(&world.pod(waiting).unwrap(), "PodScheduled")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn events_report_the_lifecycle_of_a_pod() {
    let world = World::new(Options { events: true, ..Options::with_nodes(1) }).await;
    let lines = [("run-for", "1s"), ("crashes", "2"), ("backoff", "2s")];
    world.create("p", json!({ "restartPolicy": "OnFailure" }), &lines);
    advance(20).await;
    let mut reasons: Vec<String> = world
        .cluster
        .list("events", "default")
        .iter()
        .filter(|it| it["involvedObject"]["name"] == "p")
        .map(|it| it["reason"].as_str().unwrap().to_owned())
        .collect();
    reasons.sort();
    assert_eq!(reasons, ["BackOff", "Scheduled", "Started", "Started", "Started"]);
}
