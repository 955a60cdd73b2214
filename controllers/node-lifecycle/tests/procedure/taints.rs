//! Taints and labels of one node.

use harness::pass;
use node_lifecycle_controller::Options;
use serde_json::json;

use crate::world::{MS, SEC, World, is_punctual, of_zone};

#[tokio::test(start_paused = true)]
async fn acceptance_node_011_an_unknown_node_gets_its_taints_with_one_patch() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    world.kubelets(&["b"], 60 * SEC).await;
    assert_eq!(world.taints("a"), ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    assert_eq!(world.lines(), ["patch nodes/status a", "patch nodes a"]);
    let taintings = world.taintings();
    assert!(taintings.len() == 1 && is_punctual(taintings[0].1, 50 * SEC), "{taintings:?}");
    let body = world.calls()[1].json();
    let (key, added) = ("node.kubernetes.io/unreachable", "2027-01-15T08:00:50Z");
    let taint = |effect: &str| json!({ "key": key, "effect": effect, "timeAdded": added });
    assert_eq!(body["spec"], json!({ "taints": [taint("NoSchedule"), taint("NoExecute")] }));
    assert!(body["metadata"]["resourceVersion"].is_string());
    assert_eq!(of_zone(&manager, "evictions_total", ""), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_011_013_the_other_taint_is_replaced_at_once_with_one_patch() {
    for (ready, before, after) in [
        ("Unknown", "not-ready", "unreachable"),
        ("False", "unreachable", "not-ready"),
        ("False", "not-ready", "not-ready"),
    ] {
        let world = World::with(&["b"]);
        let effects = ["NoExecute", "NoSchedule"].map(|effect| format!("{before}:{effect}"));
        world.create_old("a", ready, 3600, &[&effects[0], &effects[1]]);
        let _manager = world.start_with(Options { rate: 0.0, ..Options::default() }).await;
        assert_eq!(world.no_execute("a"), [after], "{ready}: this needs no turn");
        assert_eq!(world.no_schedule("a"), [after]);
        assert_eq!(world.call_count("patch nodes a"), usize::from(before != after));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_013_a_tainted_node_whose_kubelet_posts_not_ready_is_swapped_whatever_the_pace() {
    let world = World::with(&["a", "b", "c", "d", "e"]);
    let manager = world.start().await;
    world.kubelets(&["c", "d", "e"], 51 * SEC).await;
    assert_eq!(world.tainted().len(), 1);
    let first = world.tainted()[0].0.clone();
    let other = if first == "a" { "b" } else { "a" };
    world.cluster.clear_requests();
    world.post(&first, "False");
    world.renew(&first);
    pass(100 * MS).await;
    assert_eq!(world.taints(&first), ["not-ready:NoExecute", "not-ready:NoSchedule"]);
    assert_eq!(world.lines(), [format!("patch nodes {first}")], "the NoSchedule taint is in the same patch");
    assert_eq!(world.no_execute(other), [""; 0], "it still waits");
    assert_eq!(of_zone(&manager, "evictions_total", ""), 1, "a swap is no eviction");
    world.kubelets(&["c", "d", "e"], 101 * SEC + 300 * MS).await;
    assert_eq!(world.taints(&first), ["unreachable:NoExecute", "unreachable:NoSchedule"], "and back");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_014_a_node_that_is_ready_again_loses_its_taints_at_once_and_leaves_the_queue() {
    let world = World::with(&["a", "b", "c", "d", "e", "f", "g"]);
    let _manager = world.start().await;
    let alive = ["d", "e", "f", "g"];
    world.kubelets(&alive, 52 * SEC).await;
    let tainted = world.tainted()[0].0.clone();
    let waiting: Vec<&str> = ["a", "b", "c"].into_iter().filter(|it| *it != tainted).collect();
    world.cluster.clear_requests();
    for node in [&*tainted, waiting[0]] {
        world.post(node, "True");
        world.renew(node);
    }
    pass(20 * MS).await;
    assert_eq!((world.taints(&tainted), world.taints(waiting[0])), (vec![], vec![]), "in the same pass");
    assert_eq!(world.lines().len(), 2, "one patch each");
    let alive = [&alive[..], &[&*tainted, waiting[0]]].concat();
    world.kubelets(&alive, 200 * SEC).await;
    assert_eq!(world.tainted(), [(waiting[1].to_owned(), 60)], "the next one keeps its time");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_015_a_taint_that_a_user_removes_comes_back_at_the_pace() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    world.kubelets(&["b"], 55 * SEC).await;
    world.update("a", |it| it["spec"]["taints"] = json!([]));
    pass(100 * MS).await;
    assert_eq!(world.taints("a"), ["unreachable:NoSchedule"]);
    world.kubelets(&["b"], 80 * SEC).await;
    assert_eq!(world.taints("a"), ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    assert_eq!(world.tainted(), [("a".to_owned(), 50), ("a".to_owned(), 60)]);
    assert_eq!(of_zone(&manager, "evictions_total", ""), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_024_the_pressure_taints_follow_the_conditions() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b"], 5 * SEC).await;
    world.post_with("a", "True", &["MemoryPressure", "PIDPressure"]);
    pass(20 * MS).await;
    assert_eq!(world.taints("a"), ["memory-pressure:NoSchedule", "pid-pressure:NoSchedule"]);
    world.post_with("a", "True", &["PIDPressure"]);
    pass(20 * MS).await;
    assert_eq!(world.taints("a"), ["pid-pressure:NoSchedule"]);
    assert_eq!(world.lines().len(), 2);
    world.kubelets(&["b"], 60 * SEC).await;
    assert_eq!(world.no_schedule("a"), ["unreachable"], "PIDPressure is Unknown");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_025_cordon_and_uncordon() {
    let world = World::with(&["a"]);
    let _manager = world.start().await;
    world.update("a", |it| it["spec"]["unschedulable"] = json!(true));
    pass(20 * MS).await;
    assert_eq!(world.taints("a"), ["unschedulable:NoSchedule"]);
    world.update("a", |it| it["spec"]["unschedulable"] = json!(null));
    pass(20 * MS).await;
    assert_eq!(world.taints("a"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_026_taints_of_users_are_never_changed() {
    let world = World::with(&["a", "b"]);
    let foo = json!({ "key": "foo", "value": "bar", "effect": "NoSchedule" });
    let out = json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
    let ours_by_name = json!({ "key": "node.kubernetes.io/unreachable", "effect": "PreferNoSchedule" });
    let all = json!([foo, out, ours_by_name]);
    world.update("a", |it| it["spec"]["taints"] = all.clone());
    let _manager = world.start().await;
    world.post_with("a", "True", &["DiskPressure"]);
    world.kubelets(&["b"], 60 * SEC).await;
    let first_three = |world: &World| json!(world.node("a")["spec"]["taints"].as_array().unwrap()[..3]);
    assert_eq!(first_three(&world), all);
    assert_eq!(world.no_execute("a"), ["out-of-service", "unreachable"]);
    world.post("a", "True");
    pass(100 * MS).await;
    assert_eq!(world.node("a")["spec"]["taints"], all);
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_a_user_adds_at_the_same_time_is_kept() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    let cluster = world.cluster.clone();
    let mut added = false;
    world.fail_requests(move |line, _| {
        if line == "patch nodes a" && !std::mem::replace(&mut added, true) {
            cluster
                .update("nodes", "", "a", |it| it["spec"]["taints"] = json!([{ "key": "foo", "effect": "NoExecute" }]));
        }
        None
    });
    world.kubelets(&["b"], 60 * SEC).await;
    assert_eq!(world.taints("a"), ["foo:NoExecute", "unreachable:NoExecute", "unreachable:NoSchedule"]);
    assert_eq!(world.lines()[..4], ["patch nodes/status a", "patch nodes a", "get nodes a", "patch nodes a"]);
    let written = world.calls().iter().filter(|it| harness::line(it) == "patch nodes a" && it.status == 200).count();
    assert_eq!(written, 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_027_a_conflict_leads_to_a_live_read_and_five_attempts() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    let mut count = 0;
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == "patch nodes a" {
            // Another client changes the node each time before the write.
            count += 1;
            cluster.update("nodes", "", "a", |it| it["metadata"]["labels"] = json!({ "count": count.to_string() }));
        }
        None
    });
    world.update("a", |it| it["spec"]["unschedulable"] = json!(true));
    pass(1200 * MS).await;
    let lines = world.lines();
    let mut want = vec!["patch nodes a"];
    want.extend(["get nodes a", "patch nodes a"].repeat(4));
    want.push("patch nodes a");
    assert_eq!(lines[..10], want, "the sixth attempt is another sync");
    let times = world.call_times("patch nodes a");
    for pause in times.windows(2).take(4).map(|it| it[1] - it[0]) {
        assert!(pause >= 100 * MS && pause <= 201 * MS, "{times:?}");
    }
    assert!(world.calls().iter().filter(|it| it.verb == "patch").take(5).all(|it| it.status == 409));
    world.fail_requests(|_, _| None);
    world.kubelets(&["a", "b"], 10 * SEC).await;
    assert_eq!(world.taints("a"), ["unschedulable:NoSchedule"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_028_the_older_label_gets_the_value_of_the_present_one() {
    let world = World::new();
    world.add_with(
        "a",
        json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/arch": "amd64", "color": "red" }),
    );
    let _manager = world.start().await;
    let want = json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64", "color": "red" });
    assert_eq!(world.node("a")["metadata"]["labels"], want);
    assert_eq!(world.lines(), ["patch nodes a"]);
    assert!(world.calls()[0].json().get("spec").is_none());
    world.update("a", |it| it["metadata"]["labels"]["beta.kubernetes.io/os"] = json!("windows"));
    pass(20 * MS).await;
    assert_eq!(world.node("a")["metadata"]["labels"], want);
}

#[tokio::test(start_paused = true)]
async fn labels_and_taints_are_written_together() {
    let world = World::new();
    world.add_with("a", json!({ "kubernetes.io/os": "linux" }));
    world.update("a", |it| it["spec"]["unschedulable"] = json!(true));
    let _manager = world.start().await;
    assert_eq!(world.lines(), ["patch nodes a"]);
    assert_eq!(world.taints("a"), ["unschedulable:NoSchedule"]);
    assert_eq!(world.node("a")["metadata"]["labels"]["beta.kubernetes.io/os"], "linux");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_030_stale_taints_of_a_new_node_are_removed_when_it_is_ready() {
    let world = World::with(&["b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 10 * SEC).await;
    let taint = |key: &str, effect: &str| json!({ "key": format!("node.kubernetes.io/{key}"), "effect": effect });
    let taints =
        json!([taint("not-ready", "NoExecute"), taint("unreachable", "NoExecute"), taint("not-ready", "NoSchedule")]);
    world.create("a", json!({}), json!({ "taints": taints }));
    pass(100 * MS).await;
    assert_eq!(world.lines(), ["patch nodes a"], "no condition allows the NoSchedule taint");
    assert_eq!(world.taints("a"), ["not-ready:NoExecute", "unreachable:NoExecute"], "nothing is known of it yet");
    world.post("a", "True");
    pass(20 * MS).await;
    assert_eq!(world.taints("a"), [""; 0]);
    assert_eq!(world.event_count("RegisteredNode").await, 2);
}

#[tokio::test(start_paused = true)]
async fn dead_node_keeps_its_taint_when_a_manager_starts() {
    let world = World::with(&["b"]);
    world.create_old("a", "Unknown", 3600, &["unreachable:NoExecute", "unreachable:NoSchedule"]);
    let manager = world.start().await;
    world.kubelets(&["b"], 200 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "upstream removes it for a moment");
    assert_eq!(of_zone(&manager, "evictions_total", ""), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_node_whose_lease_is_renewed_is_not_tainted() {
    let world = World::with(&["b"]);
    world.create_old("a", "Unknown", 3600, &[]);
    world.renew("a");
    let _manager = world.start().await;
    world.kubelets(&["a", "b"], 100 * SEC).await;
    assert_eq!(world.taints("a"), ["unreachable:NoSchedule"], "its kubelet will post a status");
    world.kubelets(&["b"], 200 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"]);
    let at = world.taintings()[0].1;
    assert!(is_punctual(at, 140_100 * MS), "{at:?}: the last renewal was at the second 90.1");
}
