//! Namespaces that terminate, with content of many kinds, under all faults. The guarantees of the controller are
//! checked as invariants.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use test_cluster::{Change, DiscoveryFault, Interception};
use testing::sim::{Scenario, World, Write};

use crate::manager::manager;

const SEC: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// The resources that may have content.
const KINDS: [&str; 7] =
    ["pods", "configmaps", "secrets", "jobs.batch", "widgets.example.com", "gadgets.parts.example.com", POLICIES];
/// The policies that protect pods.
const POLICIES: &str = "meshnetworkpolicies.net.example.com";
/// The ConfigMap that owns a network policy.
const OWNER: &str = "owner";
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// A namespace that is never deleted.
const NEVER_DELETED: &str = "stays";
/// How long an API server may still accept objects in a terminating namespace. It observes the termination through its
/// own watch.
const ADMISSION_LAG: u32 = 4_500;
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease and a long back-off in sequence. It
/// is less than the resync period, which would hide a lost enqueue.
const TIME_LIMIT: Duration = Duration::from_secs(290);

/// The size of a scenario.
#[derive(Clone, Copy)]
struct Size {
    terminating: usize,
    objects: usize,
    /// Other changes happen while namespaces terminate: groups fail, kinds are removed, namespaces are created again.
    with_changes: bool,
}

/// For many seeds: two managers and many changes.
pub(crate) fn random() -> Scenario {
    Scenario::new("namespaces", |world| run(world, Size { terminating: 3, objects: 3, with_changes: true }))
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("namespaces, swept", |world| run(world, Size { terminating: 2, objects: 2, with_changes: false }))
}

async fn run(world: World, size: Size) -> Result<(), String> {
    let mut rng = world.rng();
    check_guarantees(&world);
    define_kind(&world, "example.com", "widgets", "Widget");
    define_kind(&world, "parts.example.com", "gadgets", "Gadget");
    define_kind(&world, "net.example.com", "meshnetworkpolicies", "MeshNetworkPolicy");
    // A clone of the generator, so that the rest of the run does not depend on this choice. A webhook hangs for a
    // widget of one namespace.
    let hangs = size.with_changes && rng.clone().u8(0..4) == 0;
    // The server of gadgets does not support deletecollection.
    let reporter = world.clone();
    world.cluster().intercept(move |call| {
        if call.verb == "delete" && !has_uid_precondition(&call.body) {
            reporter.fail(format!("DELETE {} has no uid precondition", call.path));
        }
        let refused = call.verb == "deletecollection" && call.resource == "gadgets";
        let of_all = call.verb == "list" && call.resource == "widgets" && call.namespace.is_empty();
        match (refused, hangs && of_all) {
            (true, _) => Interception::status(405, "MethodNotAllowed", "not supported"),
            (_, true) => Interception::Hang,
            _ => Interception::Pass,
        }
    });
    let deleted: Vec<String> = (0..size.terminating).map(|it| format!("n{it}")).collect();
    for namespace in deleted.iter().map(String::as_str).chain([NEVER_DELETED]) {
        fill(&world, namespace, size.objects, &mut rng);
    }
    // A clone of the generator, so that the rest of the run does not depend on this choice.
    let own = size.with_changes && rng.clone().bool();
    let mut flags = vec!["--controllers=namespace"];
    flags.extend(own.then_some("--use-service-account-credentials"));
    world.run_elected("a", LEASE, manager(&flags));
    world.spawn("kubelet", kubelet(world.clone()));
    world.spawn("collector", collector(world.clone()));
    if size.with_changes {
        world.spawn("changes", change_cluster(world.clone(), rng.fork()));
    }
    world.sleep(MS * rng.u32(0..3_000)).await;
    world.run_elected("b", LEASE, manager(&flags));
    for namespace in &deleted {
        world.sleep(MS * rng.u32(0..2_500)).await;
        world.cluster().delete("namespaces", "", namespace);
        world.spawn("late", create_late(world.clone(), namespace.clone(), MS * rng.u32(0..ADMISSION_LAG), rng.bool()));
    }
    let wait = if size.with_changes { rng.u32(2_000..45_000) } else { 12_000 };
    world.sleep(MS * wait).await;
    // All finalizers are removed and all faults end.
    world.calm();
    for group in ["example.com", "parts.example.com"] {
        world.cluster().restore_group(group);
    }
    remove_finalizers(&world);
    let gone = || deleted.iter().all(|it| !is_terminating(world.cluster().get("namespaces", "", it).as_ref()));
    world.eventually(TIME_LIMIT, "all namespaces that were deleted are gone", gone).await
}

/// The guarantees of the namespace controller.
fn check_guarantees(world: &World) {
    world.always("a namespace is finalized only when it is empty", |write| {
        if write.resource() != "namespaces" || !is_finalization(write) {
            return Ok(());
        }
        let left = KINDS.iter().filter(|kind| !write.list(kind, write.name()).is_empty());
        match left.copied().collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => Ok(()),
            left => Err(format!("{} finalizes {} although it contains {left}", write.by, write.name())),
        }
    });
    world.always("pods are deleted before everything else", |write| {
        let content = !write.namespace().is_empty() && !matches!(&*write.resource(), "pods" | "events");
        let other = content && by_manager(write) && is_deletion(write);
        // An object that the server accepts late may arrive at the same time as our DELETE. Network policies must wait
        // even for that.
        let counts = |pod: &Value| write.resource() == POLICIES || pod["metadata"]["name"] != "late";
        let early = other && write.list("pods", write.namespace()).iter().any(counts);
        if early {
            Err(format!("{} deletes {} {} while pods exist", write.by, write.resource(), write.name()))
        } else {
            Ok(())
        }
    });
    world.always("nothing outside of terminating namespaces is written", |write| {
        let own = matches!(&*write.resource(), "leases.coordination.k8s.io" | "events") || is_own_account(write);
        if !by_manager(write) || own {
            return Ok(());
        }
        let ends = match write.namespace() {
            "" => write.resource() == "namespaces" && is_terminating(write.before().as_ref()),
            namespace => is_terminating(write.get("namespaces", "", namespace).as_ref()),
        };
        let what = || format!("{} writes {} {}/{}", write.by, write.resource(), write.namespace(), write.name());
        if ends { Ok(()) } else { Err(what()) }
    });
    world.always("objects are deleted, never changed", |write| {
        let content = !write.namespace().is_empty() && !matches!(write.kind(), "Lease" | "Event");
        let kept = content && by_manager(write) && !is_deletion(write) && !is_own_account(write);
        if kept { Err(format!("{} changes {} {}", write.by, write.resource(), write.name())) } else { Ok(()) }
    });
}

/// True when the delete has a uid precondition, so that it cannot delete a successor with the same name.
fn has_uid_precondition(options: &[u8]) -> bool {
    serde_json::from_slice::<Value>(options).is_ok_and(|it| it["preconditions"]["uid"].is_string())
}

/// The controller's account under `--use-service-account-credentials`, which is created when it is missing.
fn is_own_account(write: &Write) -> bool {
    write.resource() == "serviceaccounts"
        && write.namespace() == "kube-system"
        && write.name() == "namespace-controller"
}

fn by_manager(write: &Write) -> bool {
    write.by != "world"
}

fn is_terminating(object: Option<&Value>) -> bool {
    object.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
}

fn is_deletion(write: &Write) -> bool {
    write.change() == Change::Removed
        || (!is_terminating(write.before().as_ref()) && is_terminating(write.after().as_ref()))
}

/// True when the write removes the finalizer of the namespace.
fn is_finalization(write: &Write) -> bool {
    let held = |it: Option<Value>| {
        it.is_some_and(|it| it["spec"]["finalizers"].as_array().is_some_and(|it| it.contains(&json!("kubernetes"))))
    };
    held(write.before()) && !held(write.after())
}

fn define_kind(world: &World, group: &str, plural: &str, kind: &str) {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    world.cluster().create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    }));
}

fn fill(world: &World, namespace: &str, objects: usize, rng: &mut Rng) {
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
    for number in 0..rng.usize(1..=objects) {
        let held: &[&str] = if rng.u8(0..4) == 0 { &["x.io/hold"] } else { &[] };
        pod(world, namespace, &format!("p{number}"), rng.u32(0..8), held);
    }
    let kinds = [
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("batch/v1", "Job"),
        ("example.com/v1", "Widget"),
        ("parts.example.com/v1", "Gadget"),
        ("net.example.com/v1", "MeshNetworkPolicy"),
    ];
    for (api_version, kind) in kinds {
        for number in 0..rng.usize(0..=objects) {
            let held: &[&str] = if rng.u8(0..5) == 0 { &["x.io/hold"] } else { &[] };
            object(world, api_version, kind, namespace, &format!("o{number}"), held);
        }
    }
    // A clone of the generator, so that the rest of the run does not depend on this choice.
    if rng.clone().bool() {
        owned_policy(world, namespace);
    }
    // This gadget waits for dependents that cannot be determined.
    if rng.u8(0..4) == 0 {
        object(world, "parts.example.com/v1", "Gadget", namespace, "waits", &["foregroundDeletion"]);
        world.cluster().delete("gadgets.parts.example.com", namespace, "waits");
    }
}

fn pod(world: &World, namespace: &str, name: &str, grace: u32, held: &[&str]) {
    world.cluster().create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "finalizers": held },
        "spec": { "nodeName": "node", "terminationGracePeriodSeconds": grace, "containers": [] },
        "status": { "phase": "Running" },
    }));
}

fn object(world: &World, api_version: &str, kind: &str, namespace: &str, name: &str, held: &[&str]) {
    let metadata = json!({ "name": name, "namespace": namespace, "finalizers": held });
    world.cluster().create(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {} }));
}

/// A network policy whose owner is a ConfigMap, and which must be deleted after it.
fn owned_policy(world: &World, namespace: &str) {
    object(world, "v1", "ConfigMap", namespace, OWNER, &[]);
    let owner = world.cluster().get("configmaps", namespace, OWNER).unwrap();
    world.cluster().create(json!({
        "apiVersion": "net.example.com/v1", "kind": "MeshNetworkPolicy", "spec": {},
        "metadata": { "name": "owned", "namespace": namespace, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": owner["metadata"]["uid"],
        }] },
    }));
}

/// Deletes network policies without an owner, like the garbage collector.
async fn collector(world: World) {
    loop {
        world.sleep(SEC / 2).await;
        for policy in world.cluster().list(POLICIES, "") {
            let [namespace, name] = ["namespace", "name"].map(|it| policy["metadata"][it].as_str().unwrap().to_owned());
            let is_owned = policy["metadata"]["ownerReferences"].is_array();
            if is_owned && world.cluster().get("configmaps", &namespace, OWNER).is_none() {
                world.cluster().delete(POLICIES, &namespace, &name);
            }
        }
    }
}

/// Another API server has not observed the deletion yet and accepts an object, and also a pod if `with_pod`.
async fn create_late(world: World, namespace: String, after: Duration, with_pod: bool) {
    let policies = || {
        let all = world.cluster().list(POLICIES, &namespace);
        all.iter().filter(|it| !is_terminating(Some(it))).count()
    };
    let before = policies();
    world.sleep(after).await;
    if world.cluster().get("namespaces", "", &namespace).is_none() {
        return world.fail(format!("{namespace} is gone {after:?} after its deletion: it may still get content"));
    }
    if with_pod && policies() < before {
        return world.fail(format!("a pod is created in {namespace} without its network policies"));
    }
    if with_pod {
        pod(&world, &namespace, "late", 2, &[]);
    }
    object(&world, "v1", "ConfigMap", &namespace, "late", &[]);
    object(&world, "example.com/v1", "Widget", &namespace, "late", &[]);
}

/// Removes pods when their grace period is over.
async fn kubelet(world: World) {
    loop {
        world.sleep(SEC).await;
        for pod in world.cluster().list("pods", "") {
            let [namespace, name] = ["namespace", "name"].map(|it| pod["metadata"][it].as_str().unwrap().to_owned());
            let until = pod["metadata"]["deletionTimestamp"].as_str().map(|it| it.parse::<clock::Timestamp>().unwrap());
            if until.is_some_and(|it| it <= world.clock().wall()) {
                world.cluster().delete("pods", &namespace, &name);
            }
        }
    }
}

/// Removes the finalizers of all objects.
fn remove_finalizers(world: &World) {
    for kind in KINDS {
        for object in world.cluster().list(kind, "") {
            let [namespace, name] = ["namespace", "name"].map(|it| object["metadata"][it].as_str().unwrap().to_owned());
            if object["metadata"]["finalizers"] == json!(["x.io/hold"]) {
                world.cluster().update(kind, &namespace, &name, |it| it["metadata"]["finalizers"] = json!([]));
            }
        }
    }
}

/// Other changes in a cluster: groups disappear and return, finalizers are removed, versions are compacted, bookmarks
/// are sent, and deleted namespaces are created again.
async fn change_cluster(world: World, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(300..6_000)).await;
        if world.is_calm() {
            return;
        }
        let cluster = world.cluster();
        match rng.u8(0..8) {
            0 => cluster.fail_discovery("example.com", DiscoveryFault::Stale),
            1 => cluster.break_group("parts.example.com"),
            2 | 3 => ["example.com", "parts.example.com"].iter().for_each(|it| cluster.restore_group(it)),
            4 => remove_finalizers(&world),
            5 => cluster.compact(),
            6 => cluster.send_bookmarks(),
            _ => recreate_namespaces(&world, &mut rng),
        }
    }
}

/// A user creates a deleted namespace again. It must not be deleted with the old one.
fn recreate_namespaces(world: &World, rng: &mut Rng) {
    for number in 0..3 {
        let name = format!("n{number}");
        if world.cluster().get("namespaces", "", &name).is_none() {
            fill(world, &name, 2, rng);
        }
    }
}
