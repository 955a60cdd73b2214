//! Users who change nodes and pods, and everything that happens to machines.

use clock::Instant;
use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    HOME, LEASES, MS, NODE_LEASES, NODES, PODS, SEC, SimulatedCluster,
    kubelets::{Link, Machine, Power, second},
    model::{EXCLUDED, LEGACY_ZONE, NOT_READY, OUT_OF_SERVICE, OUTAGE, UNREACHABLE, ZONE, list, text, zone},
    node_checks::{LABELS, TTL},
};
use crate::deletion;

/// The keys of the NoExecute taints of users.
const USER_TAINTS: [&str; 2] = ["k", "l"];
/// How many names of pods there are. A name that is unused may come back on another node.
const POD_NAMES: usize = 10;
const FINALIZER: &str = "example.com/held";

/// What users do in a run. Few kinds of edits leave each state for longer, so that the checks are stricter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Edits {
    All,
    /// Machines fail and return.
    Machines,
    /// Whole zones and the whole cluster go dark for a long time.
    Darkness,
    /// Taints and pods.
    Pods,
}

impl Edits {
    pub(super) fn random(rng: &mut Rng) -> Self {
        [Self::All, Self::Machines, Self::Darkness, Self::Pods][rng.usize(..4)]
    }

    /// The duration of the run in milliseconds.
    pub(super) fn duration(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Darkness => rng.u32(400_000..1_300_000),
            Self::All | Self::Machines | Self::Pods => rng.u32(100_000..400_000),
        }
    }

    /// The time until the next edit in milliseconds.
    fn pause(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Darkness => rng.u32(10_000..90_000),
            Self::All | Self::Machines | Self::Pods => rng.u32(500..12_000),
        }
    }

    fn edit(self, cluster: &SimulatedCluster, has_faults: bool, rng: &mut Rng) {
        match (self, rng.u8(0..12)) {
            (Self::Darkness, 0..=4) | (Self::All | Self::Machines, 0) => darken(cluster, rng),
            (Self::Darkness, 5..=8) | (Self::Machines, 1..=7) | (Self::All, 1..=3) => change_machine(cluster, rng),
            (Self::Pods, 0..=3) | (Self::All, 4 | 5) | (Self::Machines, 8) => change_taints(cluster, rng),
            (Self::Pods, 4 | 5) | (Self::All, 6 | 7) | (Self::Machines, 9) => change_node(cluster, rng),
            (_, 11) => disturb(cluster, has_faults, rng),
            _ => change_pod(cluster, rng),
        }
    }
}

/// Changes something from time to time, until the run is over.
pub(super) async fn change_randomly(cluster: SimulatedCluster, edits: Edits, has_faults: bool, mut rng: Rng) {
    loop {
        cluster.world.sleep(MS * edits.pause(&mut rng)).await;
        if cluster.is_over() {
            return;
        }
        edits.edit(&cluster, has_faults, &mut rng);
    }
}

/// Creates a node whose machine runs, in the zone with this name; empty for none.
pub(super) fn create_node(cluster: &SimulatedCluster, name: &str, zone: &str, rng: &mut Rng) {
    let machine = Machine::random(rng, cluster.now());
    cluster.machines.lock().insert(name, machine);
    create_node_object(cluster, name, zone);
}

/// Registers a node as a kubelet does, with the taint that admission adds. It has no status yet.
fn create_node_object(cluster: &SimulatedCluster, name: &str, zone: &str) {
    let mut labels = json!({ LABELS[0].0: "linux", LABELS[1].0: "amd64" });
    // One zone has only the old label, and one has the old label and another new one.
    match zone {
        "" => {}
        "old" => labels[LEGACY_ZONE] = json!(zone),
        "both" => (labels[LEGACY_ZONE], labels[ZONE]) = (json!(zone), json!("a")),
        _ => labels[ZONE] = json!(zone),
    }
    cluster.world.cluster().create(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "spec": { "taints": [{ "key": NOT_READY, "effect": "NoSchedule" }] },
        "status": { "conditions": [{
            "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": "by the network",
            "lastHeartbeatTime": second(&cluster.world), "lastTransitionTime": second(&cluster.world),
        }] },
    }));
}

fn update_node(cluster: &SimulatedCluster, name: &str, change: impl FnOnce(&mut Value)) {
    if cluster.world.cluster().get(NODES, "", name).is_some() {
        cluster.world.cluster().update(NODES, "", name, change);
    }
}

/// Removes a field, and returns true if it was there.
fn remove(object: &mut Value, field: &str) -> bool {
    object.as_object_mut().is_some_and(|it| it.remove(field).is_some())
}

pub(super) fn change_one_machine(cluster: &SimulatedCluster, name: &str, change: impl FnOnce(&mut Machine)) {
    if let Some(machine) = cluster.machines.lock().get_mut(name) {
        change(machine);
    }
}

fn random_machine(cluster: &SimulatedCluster, rng: &mut Rng) -> String {
    rng.choice(cluster.machines.lock().names()).unwrap_or_default()
}

/// One zone, or the whole cluster, is off for a while.
fn darken(cluster: &SimulatedCluster, rng: &mut Rng) {
    let name = random_machine(cluster, rng);
    let zone_of = |name: &str| cluster.model.lock().nodes.get(name).map(|it| zone(&it.object));
    let darkened = zone_of(&name);
    let (of_cluster, seconds) = (rng.u8(0..3) == 0, rng.u32(30..500));
    let all = cluster.machines.lock().names();
    for other in all {
        if of_cluster || zone_of(&other) == darkened {
            // Not all fail and return in the same second.
            let until = cluster.now() + SEC * seconds + MS * rng.u32(..9_000);
            switch_off(cluster, &other, until);
        }
    }
}

fn switch_off(cluster: &SimulatedCluster, name: &str, until: Instant) {
    change_one_machine(cluster, name, |it| {
        if it.is_on() {
            it.power = Power::OffUntil(until);
        }
    });
}

/// A machine fails, returns, or posts another status.
fn change_machine(cluster: &SimulatedCluster, rng: &mut Rng) {
    let name = random_machine(cluster, rng);
    let (dead, all) = cluster.machines.lock().dead_and_all();
    match rng.u8(0..14) {
        0..=2 => switch_off(cluster, &name, cluster.now() + MS * rng.u32(5_000..300_000)),
        // About as long as the grace.
        3 | 4 => switch_off(cluster, &name, cluster.now() + MS * rng.u32(25_000..65_000)),
        5 | 6 if dead * 2 < all => change_one_machine(cluster, &name, |it| it.power = Power::Dead),
        5..=7 => change_one_machine(cluster, &name, Machine::start),
        8 => change_one_machine(cluster, &name, |it| it.set_link(Link::LeaseOnly)),
        9 => {
            change_one_machine(cluster, &name, |it| it.set_link(Link::StatusOnly));
            if rng.bool() {
                cluster.world.cluster().remove(LEASES, NODE_LEASES, &name);
            }
        }
        10 => change_one_machine(cluster, &name, |it| it.set_link(Link::Complete)),
        11 | 12 => change_one_machine(cluster, &name, |it| it.is_ready = !it.is_ready),
        _ => change_one_machine(cluster, &name, |it| it.has_memory_pressure = !it.has_memory_pressure),
    }
}

/// Adds or removes a taint.
fn change_taints(cluster: &SimulatedCluster, rng: &mut Rng) {
    let name = random_machine(cluster, rng);
    let key = USER_TAINTS[rng.usize(..USER_TAINTS.len())];
    match rng.u8(0..10) {
        0..=3 => {
            let mut taint = json!({ "key": key, "value": "v", "effect": "NoExecute" });
            if rng.bool() {
                taint["timeAdded"] = json!(second(&cluster.world));
            }
            add_taint(cluster, &name, taint);
        }
        4 | 5 => remove_taint(cluster, &name, &[key], "NoExecute"),
        6 => add_taint(cluster, &name, json!({ "key": key, "value": "v", "effect": "NoSchedule" })),
        7 => add_taint(cluster, &name, json!({ "key": OUT_OF_SERVICE, "value": "down", "effect": "NoExecute" })),
        8 => remove_taint(cluster, &name, &[OUT_OF_SERVICE], "NoExecute"),
        // A user wants to keep the pods.
        _ => remove_taint(cluster, &name, &OUTAGE, "NoExecute"),
    }
}

pub(super) fn add_taint(cluster: &SimulatedCluster, node: &str, taint: Value) {
    update_node(cluster, node, |it| {
        let mut taints = list(&it["spec"]["taints"]).to_vec();
        if !taints.iter().any(|it| it["key"] == taint["key"] && it["effect"] == taint["effect"]) {
            taints.push(taint);
        }
        it["spec"]["taints"] = json!(taints);
    });
}

pub(super) fn remove_taint(cluster: &SimulatedCluster, node: &str, keys: &[&str], effect: &str) {
    update_node(cluster, node, |it| {
        let mut taints = list(&it["spec"]["taints"]).to_vec();
        taints.retain(|it| !(keys.contains(&&*text(&it["key"])) && it["effect"] == effect));
        it["spec"]["taints"] = json!(taints);
    });
}

/// Deletes, registers, relabels or cordons a node.
fn change_node(cluster: &SimulatedCluster, rng: &mut Rng) {
    let name = random_machine(cluster, rng);
    match rng.u8(0..10) {
        0..=2 => replace_node(cluster, &name, rng),
        3 | 4 => update_node(cluster, &name, |it| {
            let zone = ["a", "b", "c"][rng.usize(..3)];
            it["metadata"]["labels"][ZONE] = json!(zone);
            if rng.u8(0..4) == 0 {
                it["metadata"]["labels"][LEGACY_ZONE] = json!(zone);
            }
        }),
        5 | 6 => update_node(cluster, &name, |it| {
            if !remove(&mut it["spec"], "unschedulable") {
                it["spec"]["unschedulable"] = json!(true);
            }
        }),
        7 => {
            let excluded = cluster.model.lock().nodes.values().filter(|it| it.state().is_excluded).count();
            let all = cluster.machines.lock().names().len();
            update_node(cluster, &name, |it| {
                if !remove(&mut it["metadata"]["labels"], EXCLUDED) && excluded * 3 < all {
                    it["metadata"]["labels"][EXCLUDED] = json!("");
                }
            });
        }
        8 => update_node(cluster, &name, |it| it["metadata"]["labels"][LABELS[0].1] = json!("plan9")),
        _ => update_node(cluster, &name, |it| it["metadata"]["annotations"][TTL] = json!("abc")),
    }
}

/// Deletes a node, with or without its machine and its Lease. Later it may be registered again.
fn replace_node(cluster: &SimulatedCluster, name: &str, rng: &mut Rng) {
    let Some(node) = cluster.world.cluster().get(NODES, "", name) else { return };
    cluster.world.cluster().remove(NODES, "", name);
    if rng.bool() {
        cluster.world.cluster().remove(LEASES, NODE_LEASES, name);
    }
    let (cluster, name, wait) = (cluster.clone(), name.to_owned(), MS * rng.u32(..150_000));
    let (returns, is_alive) = (rng.u8(0..4) > 0, rng.u8(0..4) > 0);
    let zone = if rng.u8(0..4) == 0 { "c".to_owned() } else { zone(&node) };
    let quick = rng.bool();
    let world = cluster.world.clone();
    world.spawn("registration", async move {
        cluster.world.sleep(if quick { wait / 10 } else { wait }).await;
        if !returns || cluster.is_over() || cluster.world.cluster().get(NODES, "", &name).is_some() {
            return;
        }
        create_node_object(&cluster, &name, &zone);
        if is_alive {
            change_one_machine(&cluster, &name, Machine::start);
        }
    });
}

/// Creates, deletes, ends or changes a pod.
fn change_pod(cluster: &SimulatedCluster, rng: &mut Rng) {
    let number = rng.usize(..POD_NAMES);
    let name = format!("p{number}");
    let api = cluster.world.cluster();
    let Some(pod) = api.get(PODS, HOME, &name) else {
        return create_random_pod(cluster, &name, rng);
    };
    match rng.u8(0..10) {
        0 | 1 => deletion::delete(&cluster.world, PODS, HOME, &name),
        2 => {
            // As a user who forces the deletion, and a controller that replaces the pod at once.
            api.remove(PODS, HOME, &name);
            create_random_pod(cluster, &name, rng);
        }
        3..=5 if pod["status"]["phase"] == "Running" => {
            let phase = if rng.bool() { "Succeeded" } else { "Failed" };
            api.update(PODS, HOME, &name, |it| it["status"]["phase"] = phase.into());
        }
        6 | 7 => {
            let toleration = random_toleration(rng);
            api.update(PODS, HOME, &name, |it| {
                let mut all = list(&it["spec"]["tolerations"]).to_vec();
                all.push(toleration);
                it["spec"]["tolerations"] = json!(all);
            });
        }
        8 => drop(api.update(PODS, HOME, &name, |it| it["metadata"]["finalizers"] = json!([]))),
        _ => {}
    }
}

pub(super) fn create_random_pod(cluster: &SimulatedCluster, name: &str, rng: &mut Rng) {
    let nodes = cluster.machines.lock().names();
    let node = if rng.u8(0..12) == 0 { String::new() } else { rng.choice(nodes).unwrap_or_default() };
    let mut tolerations = Vec::new();
    // As admission adds them, with a shorter time.
    if rng.u8(0..3) > 0 {
        let seconds = rng.u8(10..60);
        for key in OUTAGE {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
            }));
        }
    }
    for _ in 0..rng.u8(0..3) {
        tolerations.push(random_toleration(rng));
    }
    create_pod(cluster, name, &node, tolerations, rng.u8(0..6) == 0);
}

fn random_toleration(rng: &mut Rng) -> Value {
    let seconds = [None, None, Some(-1), Some(0), Some(5), Some(20), Some(60), Some(90)][rng.usize(..8)];
    let mut toleration = match rng.u8(0..8) {
        // Tolerates every taint.
        0 => json!({ "operator": "Exists" }),
        1 => json!({ "key": NOT_READY, "operator": "Exists", "effect": "NoExecute" }),
        2 => json!({ "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute" }),
        3 => json!({ "key": USER_TAINTS[0], "value": "other", "effect": "NoExecute" }),
        4 => json!({ "key": USER_TAINTS[0], "operator": "Exists", "effect": "NoSchedule" }),
        5 => json!({ "key": USER_TAINTS[0], "operator": "Exists", "effect": "NoExecute" }),
        6 => json!({ "key": USER_TAINTS[1], "value": "v" }),
        _ => json!({ "key": OUT_OF_SERVICE, "operator": "Exists", "effect": "NoExecute" }),
    };
    // A time is valid only with this effect.
    if let Some(seconds) = seconds
        && toleration["effect"] == "NoExecute"
    {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    toleration
}

/// Creates a pod; without a name of a node it is not scheduled.
pub(super) fn create_pod(
    cluster: &SimulatedCluster,
    name: &str,
    node: &str,
    tolerations: Vec<Value>,
    has_finalizer: bool,
) {
    let finalizers: &[&str] = if has_finalizer { &[FINALIZER] } else { &[] };
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": HOME, "finalizers": finalizers },
        "spec": {
            "containers": [{ "name": "main", "image": "i" }], "tolerations": tolerations,
            "terminationGracePeriodSeconds": 5,
        },
        "status": { "phase": "Pending" },
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    cluster.world.cluster().create(pod);
}

/// Something happens to the API server.
fn disturb(cluster: &SimulatedCluster, has_faults: bool, rng: &mut Rng) {
    let api = cluster.world.cluster();
    match rng.u8(0..5) {
        0 => api.compact(),
        1 => api.send_bookmarks(),
        2 | 3 if has_faults => {
            cluster.machines.lock().take_server_away(cluster.now() + MS * rng.u32(3_000..120_000));
            for resource in [NODES, PODS, LEASES] {
                api.break_watches(resource);
            }
        }
        _ => {}
    }
}
