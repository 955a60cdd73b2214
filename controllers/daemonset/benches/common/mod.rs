//! An in-memory cluster and the whole controller: informers, handlers, work queue, workers and client.

use std::time::Duration;

use controller::Builder;
use daemonset_controller::{NAME, Options};
use harness::bench::{MeasuredController, PATIENCE, change_label};
use serde_json::{Value, json};
use test_cluster::TestCluster;
use tokio::time::{sleep, timeout};

pub(crate) const NAMESPACE: &str = "default";
const SETS: &str = "daemonsets.apps";
const HASH: &str = "controller-revision-hash";
/// A controller without a sync for this long is idle: before that, no key is queued or delayed for longer.
const REST: Duration = Duration::from_secs(6);

/// A manager that runs only the DaemonSet controller.
pub(crate) struct Manager(pub(crate) MeasuredController);

impl Manager {
    /// Sends requests without a rate limit. `declare` adds more to the controller.
    pub(crate) fn start(cluster: &TestCluster, declare: impl FnOnce(&mut Builder)) -> Self {
        Self(MeasuredController::start(cluster, NAME, "daemonset", |builder| {
            daemonset_controller::start(builder, Options::default());
            declare(builder);
        }))
    }

    /// Returns when each set has this number of available and current pods, and nothing is queued.
    pub(crate) async fn wait_until_complete(&self, cluster: &TestCluster, pods: usize) {
        let has_all = |set: &Value| {
            ["desiredNumberScheduled", "numberAvailable", "updatedNumberScheduled"]
                .into_iter()
                .all(|it| set["status"][it] == pods)
        };
        timeout(PATIENCE, until_all(cluster, has_all)).await.expect("the pods are counted");
        self.0.until_idle(REST).await;
    }

    /// See [`MeasuredController::measure_syncs`].
    pub(crate) async fn measure_syncs(&self, cluster: &TestCluster, set: &str, rounds: u64) -> (f64, f64) {
        self.0.measure_syncs(cluster, [SETS, NAMESPACE, set], rounds, change_label).await
    }
}

/// A set of the cluster.
pub(crate) struct Set {
    name: String,
    uid: String,
    /// The label of its pods.
    hash: String,
}

/// Creates these sets. Without nodes a first manager creates only their revisions, and then ends.
pub(crate) async fn create_sets(cluster: &TestCluster, names: impl IntoIterator<Item = String>) -> Vec<Set> {
    names.into_iter().for_each(|it| drop(cluster.create(set(&it))));
    let manager = Manager::start(cluster, |_| {});
    let is_observed = |it: &Value| it["status"]["observedGeneration"] == it["metadata"]["generation"];
    timeout(PATIENCE, until_all(cluster, is_observed)).await.expect("each set has a revision");
    drop(manager);
    let revisions = cluster.list("controllerrevisions.apps", NAMESPACE);
    let described = |set: &Value| {
        let uid = &set["metadata"]["uid"];
        let revision = revisions.iter().find(|it| it["metadata"]["ownerReferences"][0]["uid"] == *uid);
        let revision = revision.expect("a revision");
        Set { name: text(&set["metadata"]["name"]), uid: text(uid), hash: text(&revision["metadata"]["labels"][HASH]) }
    };
    cluster.list(SETS, NAMESPACE).iter().map(described).collect()
}

async fn until_all(cluster: &TestCluster, is_done: impl Fn(&Value) -> bool) {
    while !cluster.list(SETS, NAMESPACE).iter().all(&is_done) {
        sleep(Duration::from_millis(10)).await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn set(name: &str) -> Value {
    let toleration = json!({ "key": "node-role.kubernetes.io/control-plane", "operator": "Exists",
        "effect": "NoSchedule" });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": {
                "nodeSelector": { "kubernetes.io/os": "linux" }, "tolerations": [toleration],
                "containers": [{ "name": "main", "image": "example.com/main:1" }],
            } },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } },
        },
    })
}

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

/// A ready node with these taints and this number of images.
pub(crate) fn node(number: usize, taints: &Value, images: usize) -> Value {
    let name = node_name(number);
    let image = |it: usize| {
        let tag = format!("registry.example.com/team/image-{it:02}:1.{number}");
        let digest = format!("registry.example.com/team/image-{it:02}@sha256:{number:032x}{it:032x}");
        json!({ "names": [digest, tag], "sizeBytes": 100_000_000 + it })
    };
    let images: Vec<Value> = (0..images).map(image).collect();
    let resources = json!({ "cpu": "16", "memory": "65807280Ki", "ephemeral-storage": "103079844Ki", "pods": "110",
        "hugepages-1Gi": "0", "hugepages-2Mi": "0" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": "eu-central-1a",
            "node.kubernetes.io/instance-type": "m5.4xlarge",
        } },
        "spec": { "taints": taints },
        "status": {
            "capacity": resources, "allocatable": resources, "conditions": conditions(0), "images": images,
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Hostname", "address": name }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "nodeInfo": {
                "machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"),
                "bootID": format!("{number:032x}"), "kernelVersion": "6.12.0", "osImage": "Linux",
                "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

/// The conditions of a ready node with this heartbeat.
pub(crate) fn conditions(beat: u64) -> Value {
    let time = format!("2026-05-19T{:02}:{:02}:{:02}Z", 10 + beat / 3600 % 10, beat / 60 % 60, beat % 60);
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({ "type": type_, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time, "lastTransitionTime": "2026-05-19T09:00:00Z" })
    };
    json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ])
}

/// A ready pod of a set on this node, as the controller would create it.
pub(crate) fn pod(set: &Set, node: &str) -> Value {
    let Set { name, uid, hash } = set;
    let ready = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": "2026-05-19T09:00:00Z" });
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(ready);
    let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-{node}"), "generateName": format!("{name}-"), "namespace": NAMESPACE,
            "labels": { "app": name, HASH: hash, "pod-template-generation": "1" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": {
            "nodeName": node, "nodeSelector": { "kubernetes.io/os": "linux" },
            "affinity": { "nodeAffinity":
                { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } },
            "containers": [{ "name": "main", "image": "example.com/main:1" }],
        },
        "status": {
            "phase": "Running", "podIP": "10.1.0.1", "startTime": "2026-05-19T09:00:00Z", "conditions": conditions,
        },
    })
}
