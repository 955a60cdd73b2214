//! Writes of the status, and events that require none.

use harness::{failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, adds, custom_taint, template};

const SETS: &str = "daemonset";
const STATUS: &str = "update daemonsets/status web";

#[tokio::test(start_paused = true)]
async fn the_status_has_the_counts_of_nodes_and_pods() {
    let (world, _manager) = World::running(3, json!({})).await;
    let fields = ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable"];
    assert_eq!(fields.map(|it| world.count(it)), [3; 4]);
    let fields = ["updatedNumberScheduled", "numberMisscheduled", "numberUnavailable", "observedGeneration"];
    assert_eq!(fields.map(|it| world.count(it)), [3, 0, 0, 1]);
    let pod = world.pod_on("node-2");
    world.update_pod(&pod, |it| it["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]));
    pass(SEC).await;
    let fields = ["currentNumberScheduled", "numberReady", "numberAvailable", "numberUnavailable"];
    assert_eq!(fields.map(|it| world.count(it)), [3, 2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_032_the_status_is_written_although_pods_cannot_be_created() {
    let world = World::with_nodes(3);
    world.fail_requests(|line, _| (line == "create pods").then(|| failure(403, "Forbidden")).flatten());
    let _manager = world.start().await;
    world.set(json!({}));
    pass(2 * SEC).await;
    let lines = world.lines();
    let order: Vec<&String> = lines.iter().filter(|it| *it == "create pods" || *it == STATUS).take(3).collect();
    assert_eq!(order, ["create pods", STATUS, "create pods"]);
    assert_eq!(world.call_count(STATUS), 1);
    assert_eq!((world.count("desiredNumberScheduled"), world.count("observedGeneration")), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_058_a_failed_write_of_the_status_is_repeated_once_with_the_state_of_the_server() {
    for (code, reason) in [(409, "Conflict"), (500, "InternalError")] {
        let (world, _manager) = World::running(1, json!({})).await;
        let mut first = true;
        world.fail_requests(move |line, _| {
            let fails = line == STATUS && std::mem::take(&mut first);
            if fails { failure(code, reason) } else { None }
        });
        world.edit(|spec| spec["revisionHistoryLimit"] = json!(3));
        pass(5 * SEC).await;
        assert_eq!(world.lines(), [STATUS, "get daemonsets web", STATUS], "{code}");
        assert_eq!(world.count("observedGeneration"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_058_the_error_of_the_read_has_precedence_over_that_of_the_write() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.fail_requests(|line, _| match line {
        STATUS => Some(Interception::status(500, "InternalError", "the write failed")),
        "get daemonsets web" => Some(Interception::status(500, "InternalError", "the read failed")),
        _ => None,
    });
    world.edit(|spec| spec["revisionHistoryLimit"] = json!(3));
    pass(SEC).await;
    let lines = world.lines();
    assert!(lines.len() >= 4, "the sync is repeated: {lines:?}");
    assert!(lines.chunks(2).all(|it| it[0] == STATUS && it.get(1).is_none_or(|it| it == "get daemonsets web")));
    assert!(!world.logged("the read failed").is_empty() && world.logged("the write failed").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_059_069_a_set_at_rest_sends_no_request_even_after_a_restart() {
    let (world, manager) = World::running(5, json!({})).await;
    let pod = world.pod_on("node-1");
    world.update_pod(&pod, |it| it["metadata"]["annotations"] = json!({ "a": "b" }));
    pass(60 * SEC).await;
    drop(manager);
    let _manager = world.start().await;
    pass(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_072_conditions_of_other_writers_stay() {
    let (world, _manager) = World::running(1, json!({})).await;
    let conditions = json!([{ "type": "Checked", "status": "True", "reason": "r", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    world.update_set(|it| it["status"]["conditions"] = conditions.clone());
    world.add_node("node-2");
    pass(SEC).await;
    assert_eq!(world.count("desiredNumberScheduled"), 2);
    assert_eq!(world.status()["conditions"], conditions);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_counts_a_pod_when_it_becomes_available() {
    let world = World::with_nodes(1);
    let manager = world.start().await;
    world.set(json!({ "minReadySeconds": 30 }));
    pass(SEC).await;
    world.run_pending();
    pass(10 * SEC).await;
    drop(manager);
    let _manager = world.start().await;
    pass(18 * SEC).await;
    assert_eq!((world.count("numberReady"), world.count("numberAvailable")), (1, 0));
    // Upstream waits for the full time again.
    pass(4 * SEC).await;
    assert_eq!(world.count("numberAvailable"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_065_changes_of_a_node_other_than_labels_and_taints_enqueue_nothing() {
    let (world, manager) = World::running(1, json!({})).await;
    let before = adds(&manager, SETS);
    let heartbeat = json!([{ "type": "Ready", "status": "False", "lastHeartbeatTime": world.second() }]);
    world.update_node("node-1", |it| it["status"]["conditions"] = heartbeat);
    world.update_node("node-1", |it| it["status"]["allocatable"] = json!({ "cpu": "1" }));
    world.update_node("node-1", |it| it["metadata"]["annotations"] = json!({ "a": "b" }));
    world.update_node("node-1", |it| it["spec"]["unschedulable"] = json!(true));
    pass(5 * SEC).await;
    assert_eq!(adds(&manager, SETS), before);
    world.label_node("node-1", json!({ "a": "b" }));
    pass(5 * SEC).await;
    assert_eq!(adds(&manager, SETS), before, "a label that no set selects");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_066_a_taint_that_matters_to_no_set_enqueues_no_set() {
    let tolerations = json!([{ "key": "example.com/custom", "operator": "Exists" }]);
    let spec = json!({ "template": template(json!({ "tolerations": tolerations })) });
    let (world, manager) = World::running(1, spec).await;
    let before = adds(&manager, SETS);
    world.taint("node-1", custom_taint("NoSchedule"));
    pass(5 * SEC).await;
    world.taint("node-1", custom_taint("NoExecute"));
    pass(5 * SEC).await;
    assert_eq!(adds(&manager, SETS), before);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_067_the_counter_of_misscheduled_pods_is_corrected_when_the_taint_is_removed() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.taint("node-2", custom_taint("NoSchedule"));
    pass(5 * SEC).await;
    assert_eq!(world.count("numberMisscheduled"), 1);
    world.taint("node-2", json!([]));
    pass(5 * SEC).await;
    assert_eq!((world.count("numberMisscheduled"), world.count("desiredNumberScheduled")), (0, 2));
    assert_eq!(world.call_count("create pods") + world.call_count("delete pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_068_a_node_that_needs_no_pod_and_has_none_enqueues_no_set() {
    let world = World::with_nodes(2);
    world.label_node("node-1", json!({ "color": "blue" }));
    let manager = world.start().await;
    world.set(json!({ "template": template(json!({ "nodeSelector": { "color": "blue" } })) }));
    world.kubelet(10).await;
    let before = adds(&manager, SETS);
    world.label_node("node-2", json!({ "color": "green" }));
    pass(500 * MS).await;
    world.taint("node-2", custom_taint("NoExecute"));
    pass(5 * SEC).await;
    assert_eq!(adds(&manager, SETS), before);
    assert_eq!(world.pod_nodes(), ["node-1"]);
}
