//! The node object and its Lease.

use std::{collections::BTreeMap, time::Duration};

use clock::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec as Spec, NodeStatus,
            NodeSystemInfo, Taint,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
};

use crate::{node_script::NodeScript, script::PREFIX};

/// The duration of a node Lease, as kubelets set it.
const LEASE: Duration = Duration::from_secs(40);
/// The memory that is reserved for the system.
const RESERVED_MEMORY_KI: u64 = 100 * 1024;

/// A node to be registered.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    /// Its name and its host name.
    pub name: String,
    /// Additional labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, see [`NodeScript`].
    pub annotations: BTreeMap<String, String>,
    /// The taints that it is registered with.
    pub taints: Vec<Taint>,
    /// Cores.
    pub cpu: u32,
    /// Memory in GiB.
    pub memory: u32,
    /// The highest number of pods.
    pub pods: u32,
    /// The kubelet version, such as `v1.36.2`.
    pub version: String,
}

impl NodeSpec {
    /// Four cores, 16 GiB, 110 pods.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            cpu: 4,
            memory: 16,
            pods: 110,
            version: "v1.36.2".to_owned(),
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a line of its script.
    #[must_use]
    pub fn script(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(format!("{PREFIX}{key}"), value.to_owned());
        self
    }

    /// Adds a taint; an empty value means none.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let value = Some(value.to_owned()).filter(|it| !it.is_empty());
        self.taints.push(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None });
        self
    }

    /// Sets the number of cores.
    #[must_use]
    pub fn cpu(mut self, cores: u32) -> Self {
        self.cpu = cores;
        self
    }

    /// Sets the highest number of pods.
    #[must_use]
    pub fn pods(mut self, pods: u32) -> Self {
        self.pods = pods;
        self
    }

    /// The object that is registered. `number` makes the addresses of nodes different.
    pub(crate) fn object(&self, number: usize, seed: u64, script: &NodeScript, now: Timestamp) -> Node {
        let mut labels = BTreeMap::from(
            [
                ("kubernetes.io/hostname", self.name.as_str()),
                ("kubernetes.io/os", "linux"),
                ("kubernetes.io/arch", "amd64"),
                ("beta.kubernetes.io/os", "linux"),
                ("beta.kubernetes.io/arch", "amd64"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        labels.extend(self.labels.clone());
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: (!self.annotations.is_empty()).then(|| self.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(Spec {
                provider_id: Some(format!("fake://{}", self.name)),
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..Spec::default()
            }),
            status: script.posts_status.then(|| self.status(number, seed, script, None, now)),
        }
    }

    /// The status for later writes. A condition that does not change keeps its time.
    pub(crate) fn status(
        &self,
        number: usize,
        seed: u64,
        script: &NodeScript,
        before: Option<&NodeStatus>,
        now: Timestamp,
    ) -> NodeStatus {
        let memory_ki = u64::from(self.memory) * 1024 * 1024;
        let offered = |memory_ki: u64| {
            BTreeMap::from([
                ("cpu".to_owned(), Quantity(self.cpu.to_string())),
                ("ephemeral-storage".to_owned(), Quantity("100Gi".to_owned())),
                ("memory".to_owned(), Quantity(format!("{memory_ki}Ki"))),
                ("pods".to_owned(), Quantity(self.pods.to_string())),
            ])
        };
        let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
        NodeStatus {
            addresses: Some(vec![address("InternalIP", host_ip(number)), address("Hostname", self.name.clone())]),
            capacity: Some(offered(memory_ki)),
            allocatable: Some(offered(memory_ki.saturating_sub(RESERVED_MEMORY_KI))),
            conditions: Some(conditions(script, before, now)),
            daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }) }),
            node_info: Some(self.info(number, seed)),
            ..NodeStatus::default()
        }
    }

    /// The Lease of the node. `held` is the existing one.
    pub(crate) fn lease(&self, node_uid: &str, held: Option<&Lease>, now: Timestamp) -> Lease {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        };
        let mut lease = held.cloned().unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.owner_references = Some(vec![owner]);
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.name.clone()),
            lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        });
        lease
    }

    fn info(&self, number: usize, seed: u64) -> NodeSystemInfo {
        let mut rng = fastrand::Rng::with_seed(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut id = || format!("{:016x}{:016x}", rng.u64(..), rng.u64(..));
        NodeSystemInfo {
            architecture: "amd64".to_owned(),
            boot_id: id(),
            machine_id: id(),
            system_uuid: id(),
            container_runtime_version: "fake://1".to_owned(),
            kernel_version: "6.12.0-fake".to_owned(),
            kubelet_version: self.version.clone(),
            operating_system: "linux".to_owned(),
            os_image: "Fake Linux".to_owned(),
            ..NodeSystemInfo::default()
        }
    }
}

/// The address of a node.
pub(crate) fn host_ip(number: usize) -> String {
    let number = number + 1;
    format!("10.{}.{}.{}", 128 + (number >> 16 & 63), number >> 8 & 255, number & 255)
}

/// The first three numbers of the addresses of its pods.
pub(crate) fn pod_network(number: usize) -> String {
    let number = number + 1;
    format!("10.{}.{}", 64 + (number >> 8 & 63), number & 255)
}

/// Condition, status, reason and message, as a kubelet posts them.
type State = (&'static str, &'static str, &'static str, &'static str);

fn states(script: &NodeScript) -> [State; 4] {
    let has = |resource: &str| script.pressure.contains(resource);
    [
        if has("memory") {
            ("MemoryPressure", "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
        } else {
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
        },
        if has("disk") {
            ("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure")
        } else {
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
        },
        if has("pid") {
            ("PIDPressure", "True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available")
        } else {
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available")
        },
        if script.not_ready {
            ("Ready", "False", "KubeletNotReady", "container runtime network not ready")
        } else {
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        },
    ]
}

/// False when a stored condition is not as the kubelet posts it, for example because a controller has written that the
/// node is not ready.
pub(crate) fn is_posted(script: &NodeScript, stored: Option<&NodeStatus>) -> bool {
    let stored = || stored.iter().flat_map(|it| it.conditions.iter().flatten());
    states(script)
        .iter()
        .all(|(name, status, ..)| stored().find(|it| it.type_ == *name).is_none_or(|it| it.status == *status))
}

fn conditions(script: &NodeScript, before: Option<&NodeStatus>, now: Timestamp) -> Vec<NodeCondition> {
    let conditions = states(script).map(|(name, status, reason, message)| {
        let known = before.iter().flat_map(|it| it.conditions.iter().flatten());
        let same = known.into_iter().find(|it| it.type_ == name && it.status == status);
        NodeCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: same.and_then(|it| it.last_transition_time.clone()).or(Some(Time(now))),
        }
    });
    conditions.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn unchanged_condition_keeps_its_time_and_changed_one_does_not() {
        let node = NodeSpec::new("a");
        let script = NodeScript::default();
        let mut before = node.status(0, 1, &script, None, at(0));
        before.conditions.as_mut().unwrap()[3].status = "Unknown".to_owned();
        let conditions = node.status(0, 1, &script, Some(&before), at(9)).conditions.unwrap();
        let times = |it: &NodeCondition| (it.last_transition_time.clone(), it.last_heartbeat_time.clone());
        assert_eq!(times(&conditions[0]), (Some(Time(at(0))), Some(Time(at(9)))));
        assert_eq!(times(&conditions[3]), (Some(Time(at(9))), Some(Time(at(9)))));
    }

    #[test]
    fn script_decides_what_is_posted_and_when_it_must_be_posted_again() {
        let spec = NodeSpec::new("a").script("not-ready", "true").script("pressure", "disk");
        let script = NodeScript::of(&spec.annotations).unwrap();
        let status = spec.object(0, 1, &script, at(0)).status;
        let shown = status.iter().flat_map(|it| it.conditions.iter().flatten());
        let shown: Vec<(&str, &str)> = shown.map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        let wanted =
            [("MemoryPressure", "False"), ("DiskPressure", "True"), ("PIDPressure", "False"), ("Ready", "False")];
        assert_eq!(shown, wanted);
        assert!(is_posted(&script, status.as_ref()) && is_posted(&script, None));
        assert!(!is_posted(&NodeScript::default(), status.as_ref()));
        let silent = NodeScript { posts_status: false, ..NodeScript::default() };
        assert_eq!(spec.object(0, 1, &silent, at(0)).status, None);
    }

    #[test]
    fn allocatable_is_less_than_capacity_and_equal_seeds_give_equal_nodes() {
        let spec = NodeSpec::new("a").cpu(2).label("zone", "x").taint("t", "", "NoExecute");
        let node = spec.object(3, 7, &NodeScript::default(), at(0));
        let status = node.status.clone().unwrap();
        assert_eq!(status.capacity.unwrap()["memory"].0, "16777216Ki");
        assert_eq!(status.allocatable.unwrap()["memory"].0, "16674816Ki");
        let labels = node.metadata.labels.clone().unwrap();
        assert_eq!((labels["kubernetes.io/hostname"].as_str(), labels["zone"].as_str()), ("a", "x"));
        assert_eq!(node, spec.clone().object(3, 7, &NodeScript::default(), at(0)));
    }

    #[test]
    fn no_two_of_five_thousand_nodes_share_an_address() {
        let hosts: BTreeSet<String> = (0..5000).map(host_ip).collect();
        let networks: BTreeSet<String> = (0..5000).map(pod_network).collect();
        assert_eq!((hosts.len(), networks.len()), (5000, 5000));
    }

    #[test]
    fn renewed_lease_keeps_its_identity() {
        let held = Lease {
            metadata: ObjectMeta { resource_version: Some("7".to_owned()), ..ObjectMeta::default() },
            ..Lease::default()
        };
        let renewed = NodeSpec::new("a").lease("uid", Some(&held), at(1));
        assert_eq!(renewed.metadata.resource_version.as_deref(), Some("7"));
        let spec = renewed.spec.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("a"), Some(40)));
        assert_eq!(renewed.metadata.owner_references.unwrap()[0].uid, "uid");
    }
}
