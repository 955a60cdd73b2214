use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::*;
use crate::NodeSpec;

fn node(spec: NodeSpec) -> Node {
    spec.object(0, 0, &crate::NodeScript::default(), "2027-01-15T08:00:00Z".parse().unwrap())
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([{ "name": "c", "resources": { "requests": spec["requests"] } }]);
    let spec: PodSpec = serde_json::from_value(spec).unwrap();
    let meta = serde_json::from_value(json!({ "name": name, "namespace": "n" })).unwrap();
    Pod { metadata: meta, spec: Some(spec), status: None }
}

fn placed(spec: Value, nodes: &[Node]) -> Placement {
    let nodes: Vec<&Node> = nodes.iter().collect();
    place([&pod("p", spec)], &nodes, &mut BTreeMap::new()).remove(0).1
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    let term = json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
    terms(&[term])
}

fn terms(terms: &[Value]) -> Value {
    json!({ "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
}

#[test]
fn pod_is_placed_by_node_selector_and_affinity() {
    let nodes = [node(NodeSpec::new("a")), node(NodeSpec::new("b").label("zone", "5"))];
    let field = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["b"] }] });
    for (name, spec, on_b) in [
        ("by label", json!({ "nodeSelector": { "zone": "5" } }), true),
        ("by a label that none has", json!({ "nodeSelector": { "zone": "6" } }), false),
        ("In", expression("zone", "In", &["4", "5"]), true),
        ("In, not among them", expression("zone", "In", &["4"]), false),
        ("Exists", expression("zone", "Exists", &[]), true),
        ("Gt", expression("zone", "Gt", &["4"]), true),
        ("Gt is not Ge", expression("zone", "Gt", &["5"]), false),
        ("Lt", expression("zone", "Lt", &["6"]), true),
        ("by name", terms(std::slice::from_ref(&field)), true),
        ("one matching term is enough", terms(&[json!({}), field]), true),
        ("a term without requirements matches nothing", terms(&[json!({})]), false),
        ("an unknown operator", expression("zone", "Near", &["5"]), false),
    ] {
        let want = if on_b {
            Placement::On("b".to_owned())
        } else {
            let why = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
            Placement::Nowhere(why.to_owned())
        };
        assert_eq!(placed(spec, &nodes), want, "{name}");
    }
    for (name, spec) in [
        ("NotIn holds where the label is missing", expression("zone", "NotIn", &["5"])),
        ("DoesNotExist", expression("zone", "DoesNotExist", &[])),
    ] {
        assert_eq!(placed(spec, &nodes), Placement::On("a".to_owned()), "{name}");
    }
}

#[test]
fn pod_without_toleration_is_not_placed_on_tainted_node() {
    let tainted = [node(NodeSpec::new("a").taint("gpu", "yes", "NoSchedule"))];
    for (name, toleration, fits) in [
        ("nothing", json!([]), false),
        ("the same", json!([{ "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule" }]), true),
        ("equal is what no operator means", json!([{ "key": "gpu", "value": "yes" }]), true),
        ("another value", json!([{ "key": "gpu", "value": "no" }]), false),
        ("any value", json!([{ "key": "gpu", "operator": "Exists" }]), true),
        ("anything", json!([{ "operator": "Exists" }]), true),
        ("another key", json!([{ "key": "cpu", "operator": "Exists" }]), false),
        ("another effect", json!([{ "key": "gpu", "operator": "Exists", "effect": "NoExecute" }]), false),
    ] {
        let placement = placed(json!({ "tolerations": toleration }), &tainted);
        let why = "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}.";
        let want = if fits { Placement::On("a".into()) } else { Placement::Nowhere(why.into()) };
        assert_eq!(placement, want, "{name}");
    }
    let preferred = [node(NodeSpec::new("a").taint("gpu", "yes", "PreferNoSchedule"))];
    assert_eq!(placed(json!({}), &preferred), Placement::On("a".into()), "PreferNoSchedule is ignored");
}

#[test]
fn not_ready_taint_of_ready_node_is_ignored() {
    let mut new = node(NodeSpec::new("a").taint("node.kubernetes.io/not-ready", "", "NoSchedule"));
    assert_eq!(placed(json!({}), std::slice::from_ref(&new)), Placement::On("a".into()));
    let conditions = new.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions.iter_mut().for_each(|it| it.status = "Unknown".into());
    let why = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.";
    assert_eq!(placed(json!({}), &[new]), Placement::Nowhere(why.into()));
    let ended = node(NodeSpec::new("a").taint("node.kubernetes.io/not-ready", "", "NoExecute"));
    assert_ne!(placed(json!({}), &[ended]), Placement::On("a".into()), "the node is not ready, so the taint counts");
}

#[test]
fn cordoned_node_accepts_only_tolerating_pods() {
    let mut cordoned = node(NodeSpec::new("a"));
    cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
    let why = Placement::Nowhere("0/1 nodes are available: 1 node(s) were unschedulable.".into());
    assert_eq!(placed(json!({}), std::slice::from_ref(&cordoned)), why);
    let daemon = json!({ "tolerations": [{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }] });
    assert_eq!(placed(daemon, &[cordoned]), Placement::On("a".into()));
    assert_eq!(placed(json!({}), &[]), Placement::Nowhere("no nodes available to schedule pods".into()));
}

#[test]
fn pods_fill_the_emptiest_node_first_and_then_wait() {
    let nodes = [node(NodeSpec::new("a").pods(2)), node(NodeSpec::new("b").pods(1))];
    let nodes: Vec<&Node> = nodes.iter().collect();
    let pods: Vec<Pod> = (0..4).map(|it| pod(&format!("p{it}"), json!({}))).collect();
    let mut used = BTreeMap::new();
    let placed: Vec<Placement> = place(&pods, &nodes, &mut used).into_iter().map(|it| it.1).collect();
    let on = |name: &str| Placement::On(name.to_owned());
    let full = Placement::Nowhere("0/2 nodes are available: 2 Too many pods.".to_owned());
    assert_eq!(placed, [on("a"), on("b"), on("a"), full]);
    assert_eq!(used["a"].pods, 2);
}

#[test]
fn used_resources_are_not_available() {
    let nodes = [node(NodeSpec::new("a").cpu(2)), node(NodeSpec::new("b").cpu(1))];
    let wants = |cpu: &str, memory: &str| json!({ "requests": { "cpu": cpu, "memory": memory } });
    assert_eq!(placed(wants("1500m", "1Gi"), &nodes), Placement::On("a".into()));
    let why = "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.";
    assert_eq!(placed(wants("1500m", "20Gi"), &nodes), Placement::Nowhere(why.into()));
    let refs: Vec<&Node> = nodes.iter().collect();
    let mut used = BTreeMap::from([("a".to_owned(), Resources { cpu: 600, memory: 0, pods: 1 })]);
    let placed = place([&pod("p", wants("1500m", "1Gi"))], &refs, &mut used).remove(0).1;
    assert_eq!(placed, Placement::Nowhere("0/2 nodes are available: 2 Insufficient cpu.".into()));
}

#[test]
fn pods_are_placed_by_priority_and_then_by_age() {
    let nodes = [node(NodeSpec::new("a").pods(1))];
    let nodes: Vec<&Node> = nodes.iter().collect();
    let aged = |name: &str, born: &str, priority: i32| {
        let mut pod = pod(name, json!({ "priority": priority }));
        pod.metadata.creation_timestamp = serde_json::from_value(json!(born)).unwrap();
        pod
    };
    let (old, new) = (aged("z", "2027-01-15T08:00:00Z", 0), aged("a", "2027-01-15T08:00:01Z", 0));
    let first = |pods: &[&Pod]| place(pods.to_vec(), &nodes, &mut BTreeMap::new())[0].0.metadata.name.clone();
    assert_eq!(first(&[&new, &old]).as_deref(), Some("z"));
    let important = aged("b", "2027-01-15T08:00:02Z", 1);
    assert_eq!(first(&[&new, &old, &important]).as_deref(), Some("b"));
}

#[test]
fn only_pods_without_scheduling_gates_wait() {
    let waits = |spec: Value| is_waiting(&pod("p", spec));
    assert!(waits(json!({})));
    assert!(!waits(json!({ "nodeName": "a" })));
    assert!(!waits(json!({ "schedulingGates": [{ "name": "later" }] })));
    let mut deleted = pod("p", json!({}));
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
    assert!(!is_waiting(&deleted));
}
