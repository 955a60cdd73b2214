//! Which nodes get a pod.

use harness::{NAMESPACE, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{HASH, SEC, World, custom_taint, on_delete, target, template};

const AUTOMATIC: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

#[tokio::test(start_paused = true)]
async fn acceptance_ds_001_each_node_gets_a_pod_that_fits_only_there() {
    let world = World::with_nodes(5);
    let _manager = world.start().await;
    let uid = world.set(json!({}))["metadata"]["uid"].clone();
    pass(SEC).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-3", "node-4", "node-5"]);
    let events = world.events().await;
    for body in world.created() {
        let (metadata, spec) = (&body["metadata"], &body["spec"]);
        let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [target(&body)] }] });
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } });
        assert_eq!((&spec["nodeName"], &spec["affinity"]["nodeAffinity"]), (&Value::Null, &required));
        let tolerations = AUTOMATIC.map(|(key, effect)| json!({ "key": key, "operator": "Exists", "effect": effect }));
        assert_eq!(spec["tolerations"], json!(tolerations));
        let name = metadata["name"].as_str().unwrap();
        let suffix = name.strip_prefix("web-").unwrap();
        assert!(suffix.len() == 10 && suffix.chars().all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it)), "{name}");
        assert_eq!(metadata["generateName"], "web-");
        let labels = &metadata["labels"];
        assert_eq!((&labels["app"], &labels["pod-template-generation"]), (&json!("web"), &json!("1")));
        assert_eq!(format!("web-{}", labels[HASH].as_str().unwrap()), world.revisions()[0].0);
        let owner = &metadata["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"], &owner["controller"]), (&json!("DaemonSet"), &uid, &json!(true)));
        assert!(events.contains(&format!("Normal SuccessfulCreate: Created pod: {name}")), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_002_without_nodes_nothing_is_created_and_the_status_is_zero() {
    let world = World::with_nodes(0);
    let _manager = world.start().await;
    world.set(json!({}));
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), 0);
    let fields = ["desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled", "numberUnavailable"];
    assert_eq!((fields.map(|it| world.count(it)), world.count("observedGeneration")), ([0; 4], 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_003_004_the_state_and_the_resources_of_a_node_do_not_matter() {
    let world = World::with_nodes(2);
    let small = |it: &mut Value| it["status"]["allocatable"] = json!({ "cpu": "100m", "memory": "1Gi", "pods": "0" });
    world.update_node("node-1", |it| it["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]));
    world.update_node("node-2", small);
    let _manager = world.start().await;
    let resources = json!({ "requests": { "cpu": "2" } });
    world.set(json!({ "template": template(
        json!({ "containers": [{ "name": "main", "image": "one", "resources": resources }] })) }));
    world.kubelet(5).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2"]);
    world.update_node("node-1", small);
    pass(5 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (2, 0));
}

/// Whether a node with these taints gets a pod with this spec.
async fn gets_pod(taints: Value, spec: Value) -> bool {
    let world = World::with_nodes(0);
    world.add_tainted_node("node-1", taints);
    let _manager = world.start().await;
    world.set(json!({ "template": template(spec) }));
    pass(SEC).await;
    assert_eq!(world.count("observedGeneration"), 1);
    world.pod_nodes() == ["node-1"]
}

fn taint(key: &str, effect: &str) -> Value {
    json!([{ "key": format!("node.kubernetes.io/{key}"), "effect": effect }])
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_005_a_node_without_network_gets_only_pods_of_the_host_network() {
    let no_network = || taint("network-unavailable", "NoSchedule");
    assert!(gets_pod(no_network(), json!({ "hostNetwork": true })).await);
    assert!(!gets_pod(no_network(), json!({})).await);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_006_007_008_taints_of_the_state_of_a_node_are_tolerated() {
    for (key, effect) in AUTOMATIC {
        let taints = json!([{ "key": key, "effect": effect }]);
        assert!(gets_pod(taints.clone(), json!({})).await, "{key}");
        let (world, _manager) = World::running(1, json!({})).await;
        world.update_node("node-1", |it| {
            it["spec"]["unschedulable"] = json!(true);
            it["spec"]["taints"] = taints;
        });
        pass(5 * SEC).await;
        assert_eq!((world.call_count("delete pods"), world.count("desiredNumberScheduled")), (0, 1), "{key}");
    }
    assert!(!gets_pod(taint("memory-pressure", "NoExecute"), json!({})).await, "only with the effect NoSchedule");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_009_a_taint_against_scheduling_keeps_running_pods_and_they_are_misscheduled() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.taint("node-2", custom_taint("NoSchedule"));
    world.add_tainted_node("node-3", custom_taint("NoSchedule"));
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods") + world.call_count("delete pods"), 0);
    // Upstream does not enqueue the set, so that its counters are stale until another event.
    assert_eq!((world.count("desiredNumberScheduled"), world.count("numberMisscheduled")), (1, 1));
    world.cluster.remove("pods", NAMESPACE, &world.pod_on("node-2"));
    pass(5 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.count("numberMisscheduled")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_010_a_taint_against_execution_deletes_the_pod() {
    let (world, _manager) = World::running(2, json!({})).await;
    let pod = world.pod_on("node-2");
    world.taint("node-2", custom_taint("NoExecute"));
    world.kubelet(5).await;
    assert_eq!((world.deleted(), world.call_count("create pods")), (vec![pod.clone()], 0));
    assert_eq!((world.count("desiredNumberScheduled"), world.count("numberMisscheduled")), (1, 0));
    assert!(world.events().await.contains(&format!("Normal SuccessfulDelete: Deleted pod: {pod}")));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_011_a_toleration_of_the_template_is_respected() {
    let toleration = |effect: &str| json!({ "key": "example.com/custom", "value": "x", "effect": effect });
    let tolerates = |effect: &str| json!({ "tolerations": [toleration(effect)] });
    for (effect, tolerated, wanted) in [
        ("NoSchedule", "NoSchedule", true),
        ("NoExecute", "NoExecute", true),
        ("NoExecute", "NoSchedule", false),
        ("PreferNoSchedule", "NoExecute", true),
    ] {
        assert_eq!(gets_pod(custom_taint(effect), tolerates(tolerated)).await, wanted, "{effect} {tolerated}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_012_013_pods_follow_the_labels_of_nodes() {
    let world = World::with_nodes(7);
    ["node-1", "node-4", "node-6"].iter().for_each(|it| world.label_node(it, json!({ "color": "blue" })));
    let _manager = world.start().await;
    world.set(json!({ "template": template(json!({ "nodeSelector": { "color": "blue" } })) }));
    world.kubelet(5).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-4", "node-6"]);
    world.label_node("node-2", json!({ "color": "blue" }));
    world.kubelet(5).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-4", "node-6"]);
    world.label_node("node-4", json!({ "color": "green" }));
    world.kubelet(5).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-6"]);
    assert_eq!((world.count("desiredNumberScheduled"), world.call_count("delete pods")), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_015_a_node_name_in_the_template_excludes_other_nodes() {
    let zones = [("a", vec!["node-2"]), ("b", vec![])];
    for (zone, wanted) in zones {
        let world = World::with_nodes(3);
        world.label_node("node-2", json!({ "zone": "a" }));
        world.label_node("node-3", json!({ "zone": "b" }));
        let _manager = world.start().await;
        world.set(json!({ "template": template(json!({ "nodeName": "node-2", "nodeSelector": { "zone": zone } })) }));
        pass(5 * SEC).await;
        assert_eq!(world.pod_nodes(), wanted);
        assert_eq!(world.count("desiredNumberScheduled"), i64::from(zone == "a"));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_016_a_pod_is_created_although_its_host_port_is_in_use() {
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    let world = World::with_nodes(1);
    world.add_pod("foreign", json!({ "app": "other" }), "node-1", 60);
    world.update_pod("foreign", |it| it["spec"]["containers"][0]["ports"] = ports.clone());
    let _manager = world.start().await;
    world.set(json!({ "template": template(
        json!({ "containers": [{ "name": "main", "image": "one", "ports": ports }] })) }));
    pass(SEC).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-1"]);
    assert_eq!(world.call_count("delete pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_017_an_unscheduled_pod_of_a_removed_node_is_deleted_and_a_bound_one_is_not() {
    let world = World::with_nodes(3);
    let _manager = world.start().await;
    world.set(json!({}));
    pass(SEC).await;
    let (unscheduled, bound) = (world.pod_on("node-1"), world.pod_on("node-2"));
    world.run(&bound);
    pass(SEC).await;
    // No other event follows.
    ["node-1", "node-2"].iter().for_each(|it| world.cluster.remove("nodes", "", it));
    pass(SEC).await;
    assert_eq!(world.deleted(), [unscheduled]);
    assert_eq!(world.pod_nodes(), ["node-2", "node-3"]);
    assert_eq!((world.count("desiredNumberScheduled"), world.count("currentNumberScheduled")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_a_node_without_an_unscheduled_pod_corrects_the_counters() {
    let (world, _manager) = World::running(2, json!({})).await;
    assert_eq!(world.count("desiredNumberScheduled"), 2);
    world.cluster.remove("nodes", "", "node-2");
    pass(SEC).await;
    assert_eq!((world.count("desiredNumberScheduled"), world.count("numberAvailable")), (1, 1));
    assert_eq!(world.call_count("delete pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_018_of_two_pods_of_a_node_the_scheduled_one_is_kept_even_if_it_is_younger() {
    let world = World::with_nodes(1);
    world.add_pod("older", json!({ "app": "web" }), "node-1", 60);
    world.add_pod("younger", json!({ "app": "web" }), "node-1", 10);
    let terms = json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-1"] }] }]);
    world.update_pod("older", |it| {
        it["spec"].as_object_mut().unwrap().remove("nodeName");
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        it["spec"]["affinity"] = json!({ "nodeAffinity": required });
        it["status"] = json!({ "phase": "Pending" });
    });
    let _manager = world.start().await;
    world.set(json!({ "updateStrategy": on_delete() }));
    pass(5 * SEC).await;
    assert_eq!((world.deleted(), world.pods()), (vec!["older".to_owned()], vec!["younger".to_owned()]));
    assert_eq!(world.call_count("create pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_required_node_affinity_is_replaced() {
    let matches = |zone: &str| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] });
    let preferred = json!([{ "weight": 1, "preference": matches("b") }]);
    let selector = json!({ "matchLabels": { "app": "db" } });
    let apart = json!([{ "labelSelector": selector, "topologyKey": "kubernetes.io/hostname" }]);
    let world = World::with_nodes(2);
    world.label_node("node-2", json!({ "zone": "a" }));
    let _manager = world.start().await;
    world.set(json!({ "template": template(json!({ "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [matches("a")] },
            "preferredDuringSchedulingIgnoredDuringExecution": preferred },
        "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": apart } } })) }));
    pass(SEC).await;
    let [body] = &world.created()[..] else { panic!("{:?}", world.lines()) };
    let affinity = &body["spec"]["affinity"];
    let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-2"] }] });
    assert_eq!(required["nodeSelectorTerms"], json!([term]));
    assert_eq!(affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"], preferred);
    assert_eq!(affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"], apart);
}

/// A slow server delays the creation of the revision.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_during_a_long_sync_gets_no_pod() {
    let world = World::with_nodes(1);
    let _manager = world.start().await;
    let slow = |line: &str| (line == "create controllerrevisions").then_some(Interception::DelayAnswer(10 * SEC));
    world.fail_requests(move |line, _| slow(line));
    world.set(json!({}));
    pass(5 * SEC).await;
    world.taint("node-1", json!([custom_taint("NoSchedule")]));
    pass(60 * SEC).await;
    assert_eq!(world.pod_nodes(), [""; 0], "{:?}", world.lines());
}
