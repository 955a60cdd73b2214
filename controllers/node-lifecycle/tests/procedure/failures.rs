//! Writes that are refused, that conflict, or whose answer is lost.

use harness::{failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, is_status};

#[tokio::test(start_paused = true)]
async fn a_refused_status_is_repeated_soon_after_the_server_works_again() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "patch nodes/status a" { failure(500, "InternalError") } else { None });
    world.kubelets(&["b"], 400 * SEC).await;
    assert_eq!((world.ready("a"), world.taints("a").len()), ("True".to_owned(), 0));
    let count = world.call_count("patch nodes/status a");
    assert!(count > 10 && count <= 90, "{count}");
    assert!(!world.logged("cannot write the status of the node").is_empty());
    world.fail_requests(|_, _| None);
    world.kubelets(&["b"], 406 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"], "not later than upstream's next pass");
    assert_eq!(world.event_count("NodeNotReady").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_taint_is_repeated_at_the_pace() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "patch nodes a" { failure(403, "Forbidden") } else { None });
    world.kubelets(&["b"], 200 * SEC).await;
    assert_eq!(world.taints("a"), [""; 0]);
    world.fail_requests(|_, _| None);
    world.kubelets(&["b"], 211 * SEC).await;
    assert_eq!(world.taints("a"), ["unreachable:NoExecute", "unreachable:NoSchedule"]);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_whose_syncs_fail_do_not_enqueue_each_other_without_a_pause() {
    let world = World::with(&["a", "b", "c", "d", "e"]);
    let _manager = world.start().await;
    // Without a limit the test would not end when they do.
    let mut failures = 0;
    world.fail_requests(move |line, _| {
        failures += usize::from(line.starts_with("patch nodes"));
        if line.starts_with("patch nodes") && failures < 1_000 { failure(500, "InternalError") } else { None }
    });
    // Both wait for a taint, and are silent at the second 50.
    ["a", "b"].iter().for_each(|it| world.post(it, "False"));
    world.kubelets(&["c", "d", "e"], 80 * SEC).await;
    for line in ["patch nodes/status a", "patch nodes/status b"] {
        let count = world.call_count(line);
        assert!((4..=60).contains(&count), "{line}: {count}");
    }
    world.fail_requests(|_, _| None);
    world.kubelets(&["c", "d", "e"], 110 * SEC).await;
    assert_eq!(["a", "b"].map(|it| world.no_execute(it)), [["unreachable"], ["unreachable"]]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_patch_of_a_ready_node_is_repeated_without_another_change() {
    for is_label in [false, true] {
        let world = World::with(&["a", "b"]);
        let _manager = world.start().await;
        world.fail_requests(|line, _| if line == "patch nodes a" { failure(500, "InternalError") } else { None });
        world.update("a", |it| match is_label {
            true => it["metadata"]["labels"]["kubernetes.io/arch"] = json!("arm64"),
            false => it["spec"]["unschedulable"] = json!(true),
        });
        world.kubelets(&["a", "b"], 60 * SEC).await;
        assert!(world.call_count("patch nodes a") >= 12);
        world.fail_requests(|_, _| None);
        world.kubelets(&["a", "b"], 65 * SEC + 100 * MS).await;
        match is_label {
            true => assert_eq!(world.node("a")["metadata"]["labels"]["beta.kubernetes.io/arch"], "arm64"),
            false => assert_eq!(world.taints("a"), ["unschedulable:NoSchedule"]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_the_returning_kubelet_does_not_make_the_node_unknown() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    let cluster = world.cluster.clone();
    let mut posted = false;
    world.fail_requests(move |line, _| {
        if line == "patch nodes/status a" && !std::mem::replace(&mut posted, true) {
            cluster.update("nodes", "", "a", |it| {
                it["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2027-01-15T08:00:50Z");
            });
        }
        None
    });
    world.kubelets(&["b"], 90 * SEC).await;
    assert_eq!(world.lines(), ["patch nodes/status a", "get nodes a"]);
    assert_eq!((world.calls()[0].status, world.ready("a")), (409, "True".to_owned()));
    world.kubelets(&["b"], 110 * SEC).await;
    assert_eq!(world.unknown_at("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_taint_conflicts_with_the_returning_kubelet_and_is_not_set() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    let cluster = world.cluster.clone();
    let mut posted = false;
    world.fail_requests(move |line, _| {
        if line == "patch nodes a" && !std::mem::replace(&mut posted, true) {
            cluster.update("nodes", "", "a", |it| {
                it["status"]["conditions"][0] = json!({ "type": "Ready", "status": "True", "reason": "Kubelet",
                    "lastHeartbeatTime": "2027-01-15T08:00:50Z", "lastTransitionTime": "2027-01-15T08:00:50Z" });
            });
        }
        None
    });
    world.kubelets(&["b"], 60 * SEC).await;
    assert_eq!(world.taints("a"), [""; 0]);
    assert_eq!(world.lines(), ["patch nodes/status a", "patch nodes a", "get nodes a"]);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_double_nothing() {
    for line in ["patch nodes/status a", "patch nodes a"] {
        let world = World::with(&["a", "b"]);
        let _manager = world.start().await;
        let mut lost = false;
        world.fail_requests(move |it, _| {
            (it == line && !std::mem::replace(&mut lost, true)).then_some(Interception::LoseAnswer)
        });
        world.kubelets(&["b"], 100 * SEC).await;
        assert_eq!(world.ready("a"), "Unknown");
        assert_eq!(world.taints("a"), ["unreachable:NoExecute", "unreachable:NoSchedule"], "{line}");
        assert_eq!(world.condition("a", "Ready")["lastTransitionTime"], "2027-01-15T08:00:50Z", "{line}");
        let taints = world.node("a")["spec"]["taints"].clone();
        assert!(taints.as_array().unwrap().iter().all(|it| it["timeAdded"] == "2027-01-15T08:00:50Z"), "{taints}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_live_read_after_a_conflict_is_repeated() {
    let world = World::with(&["a"]);
    let _manager = world.start().await;
    let cluster = world.cluster.clone();
    let mut changed = false;
    let mut reads = 0;
    world.fail_requests(move |line, _| match line {
        "patch nodes a" if !std::mem::replace(&mut changed, true) => {
            cluster.update("nodes", "", "a", |it| it["metadata"]["labels"] = json!({ "color": "red" }));
            None
        }
        "get nodes a" => {
            reads += 1;
            if reads < 3 { failure(500, "InternalError") } else { None }
        }
        _ => None,
    });
    world.update("a", |it| it["spec"]["unschedulable"] = json!(true));
    pass(5 * SEC).await;
    assert_eq!(world.taints("a"), ["unschedulable:NoSchedule"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_decode_is_left_alone() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b"], 10 * SEC).await;
    world.update("a", |it| it["spec"]["unschedulable"] = json!("perhaps"));
    world.kubelets(&["b"], 200 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert!(!world.logged("cannot read the node from the cache").is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_write_of_a_node_has_its_uid_or_version() {
    let world = World::with(&["a", "b", "c"]);
    world.add_pod("on-a", "a");
    let _manager = world.start().await;
    world.post_with("c", "True", &["DiskPressure"]);
    world.kubelets(&["b", "c"], 60 * SEC).await;
    world.post("a", "True");
    pass(100 * MS).await;
    let calls = world.calls();
    assert!(calls.iter().filter(|it| it.resource == "nodes").count() >= 4 && calls.iter().any(is_status));
    for call in calls {
        let metadata = call.json()["metadata"].clone();
        let is_exact = match &*call.resource {
            "nodes" => metadata["resourceVersion"].is_string(),
            _ => metadata["uid"].is_string(),
        };
        assert!(is_exact && call.verb == "patch", "{} {metadata}", harness::line(&call));
    }
}
