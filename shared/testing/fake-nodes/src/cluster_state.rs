use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    kubelet::is_terminal, list_watch::Change, node::NodeSpec, node_script::NodeScript, quantity::Resources, schedule,
};

type Key = (String, String);

/// The fleet's cache of the cluster, and which of its nodes are silent. It notifies the tasks that a change concerns.
pub(crate) struct ClusterState {
    known: Mutex<Known>,
    /// One channel for each node of the fleet: its pods, its silence or its script changed.
    nodes: BTreeMap<String, watch::Sender<u64>>,
    /// The channel of the scheduler.
    scheduler: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    pods: BTreeMap<Key, Arc<Pod>>,
    by_node: BTreeMap<String, BTreeSet<Key>>,
    waiting: BTreeSet<Key>,
    nodes: BTreeMap<String, Arc<Node>>,
    /// Nodes that were made silent by a call.
    silent: BTreeSet<String>,
    /// The scripts of the nodes of the fleet. A deleted node keeps its last one, as its machine continues as it is.
    scripts: BTreeMap<String, NodeScript>,
    /// Until both were listed, pods and nodes are unknown.
    pods_listed: bool,
    nodes_listed: bool,
}

/// The input of a scheduling decision.
pub(crate) struct SchedulingInput {
    pub(crate) waiting: Vec<Arc<Pod>>,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) used: BTreeMap<String, Resources>,
}

impl ClusterState {
    pub(crate) fn new(specs: &[NodeSpec]) -> Self {
        let nodes = specs.iter().map(|it| (it.name.clone(), watch::Sender::new(0))).collect();
        let scripts = specs.iter().map(|it| (it.name.clone(), script(&it.name, &it.annotations).unwrap_or_default()));
        let known = Known { scripts: scripts.collect(), ..Known::default() };
        Self { known: Mutex::new(known), nodes, scheduler: watch::Sender::new(0) }
    }

    pub(crate) fn on_pods_changed(&self, change: Change<Pod>) {
        let mut known = self.known.lock();
        let changed = match change {
            Change::All(pods) => {
                let before = std::mem::take(&mut known.by_node).into_keys();
                let mut changed: BTreeSet<String> = before.collect();
                known.pods.clear();
                known.waiting.clear();
                known.pods_listed = true;
                for pod in pods {
                    changed.extend(known.put(pod));
                }
                changed
            }
            Change::Put(pod) => known.put(pod),
            Change::Gone(pod) => known.remove(&key(&pod)).into_iter().collect(),
        };
        drop(known);
        for node in changed {
            self.notify(&node);
        }
        notify(&self.scheduler);
    }

    pub(crate) fn on_nodes_changed(&self, change: Change<Node>) {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        let mut known = self.known.lock();
        let mut changed = Vec::new();
        match change {
            Change::All(nodes) => {
                known.nodes.clear();
                known.nodes_listed = true;
                for node in nodes {
                    changed.extend(known.put_node(name(&node), node));
                }
            }
            Change::Put(node) => changed.extend(known.put_node(name(&node), node)),
            Change::Gone(node) => drop(known.nodes.remove(&name(&node))),
        }
        drop(known);
        for node in changed {
            self.notify(&node);
        }
        notify(&self.scheduler);
    }

    /// The pods of a node, in order.
    pub(crate) fn pods_of(&self, node: &str) -> Vec<Arc<Pod>> {
        let known = self.known.lock();
        let keys = known.by_node.get(node).into_iter().flatten();
        keys.filter_map(|it| known.pods.get(it).cloned()).collect()
    }

    /// True once the pods were listed.
    pub(crate) fn has_listed_pods(&self) -> bool {
        self.known.lock().pods_listed
    }

    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.known.lock().nodes.get(name).cloned()
    }

    /// The present state; `None` before everything was listed. `bound` has the nodes of pods that were bound but are
    /// not yet seen as bound.
    pub(crate) fn scheduling_input(&self, bound: &mut BTreeMap<String, (Key, String)>) -> Option<SchedulingInput> {
        let known = self.known.lock();
        if !(known.pods_listed && known.nodes_listed) {
            return None;
        }
        bound.retain(|uid, (key, _)| {
            let pod = known.pods.get(key).filter(|it| it.metadata.uid.as_deref() == Some(uid));
            pod.is_some_and(|it| it.spec.as_ref().is_some_and(|it| it.node_name.is_none()))
        });
        let waiting = known.waiting.iter().filter_map(|it| known.pods.get(it));
        let waiting = waiting.filter(|it| !bound.contains_key(crate::kubelet::uid(it))).cloned().collect();
        let nodes = self.nodes.keys().filter_map(|it| known.nodes.get(it).cloned()).collect();
        let mut used: BTreeMap<String, Resources> = BTreeMap::new();
        let mut count = |node: &str, key: &Key| {
            let Some(pod) = known.pods.get(key).filter(|it| !is_terminal(it)) else { return };
            if let Some(spec) = &pod.spec {
                *used.entry(node.to_owned()).or_default() += Resources::needed(spec);
            }
        };
        for node in self.nodes.keys() {
            known.by_node.get(node).into_iter().flatten().for_each(|it| count(node, it));
        }
        bound.values().for_each(|(key, node)| count(node, key));
        Some(SchedulingInput { waiting, nodes, used })
    }

    pub(crate) fn is_silent(&self, node: &str) -> bool {
        let known = self.known.lock();
        known.silent.contains(node) || known.scripts.get(node).is_some_and(|it| it.silent)
    }

    /// The script of a node of the fleet.
    pub(crate) fn script(&self, node: &str) -> NodeScript {
        self.known.lock().scripts.get(node).cloned().unwrap_or_default()
    }

    /// Returns false when there is no such node.
    pub(crate) fn set_silent(&self, node: &str, silent: bool) -> bool {
        let mut known = self.known.lock();
        if silent {
            known.silent.insert(node.to_owned());
        } else {
            known.silent.remove(node);
        }
        drop(known);
        self.notify(node);
        self.nodes.contains_key(node)
    }

    pub(crate) fn silent(&self) -> BTreeSet<String> {
        let known = self.known.lock();
        let by_script = known.scripts.iter().filter(|(_, it)| it.silent).map(|(node, _)| node);
        known.silent.iter().chain(by_script).cloned().collect()
    }

    /// Notifications about a node of the fleet. For other nodes none ever comes.
    pub(crate) fn subscribe(&self, node: &str) -> watch::Receiver<u64> {
        self.nodes.get(node).map_or_else(|| watch::Sender::new(0).subscribe(), watch::Sender::subscribe)
    }

    pub(crate) fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.scheduler.subscribe()
    }

    fn notify(&self, node: &str) {
        if let Some(sender) = self.nodes.get(node) {
            notify(sender);
        }
    }
}

/// The script of a node; `None`, with a warning, if it is invalid.
fn script(node: &str, annotations: &BTreeMap<String, String>) -> Option<NodeScript> {
    NodeScript::of(annotations).inspect_err(|err| tracing::warn!(%err, node, "the script of a node is invalid")).ok()
}

impl Known {
    /// Returns the name if the script of the node has changed.
    fn put_node(&mut self, name: String, node: Node) -> Option<String> {
        let annotations = node.metadata.annotations.clone().unwrap_or_default();
        self.nodes.insert(name.clone(), Arc::new(node));
        let known = self.scripts.get_mut(&name)?;
        // An invalid script changes nothing.
        let new = script(&name, &annotations)?;
        let is_new = *known != new;
        *known = new;
        is_new.then_some(name)
    }

    /// Returns the nodes that the change concerns.
    fn put(&mut self, pod: Pod) -> BTreeSet<String> {
        let key = key(&pod);
        let mut changed: BTreeSet<String> = self.remove(&key).into_iter().collect();
        if let Some(node) = node_of(&pod) {
            self.by_node.entry(node.to_owned()).or_default().insert(key.clone());
            changed.insert(node.to_owned());
        } else if schedule::is_waiting(&pod) {
            self.waiting.insert(key.clone());
        }
        self.pods.insert(key, Arc::new(pod));
        changed
    }

    /// Returns the node that the pod was on.
    fn remove(&mut self, key: &Key) -> Option<String> {
        let gone = self.pods.remove(key)?;
        self.waiting.remove(key);
        let node = node_of(&gone)?;
        if let Some(keys) = self.by_node.get_mut(node) {
            keys.remove(key);
        }
        Some(node.to_owned())
    }
}

pub(crate) fn key(pod: &Pod) -> Key {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn notify(sender: &watch::Sender<u64>) {
    sender.send_modify(|it| *it = it.wrapping_add(1));
}
