//! The pods that a pass deletes. Pure. The pods of missing nodes are not part of it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use api::{Atom, ConditionStatus, Node, Pod};
use workload::is_terminal;

use crate::rules::{
    steps::{Steps, sort_by_priority},
    terminated::surplus,
};

/// The taint of a node that an administrator has put out of service (KEP-2268).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The pods to delete. Each pod is in one field at most.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Terminating pods by their node, which is out of service.
    pub(crate) out_of_service: BTreeMap<Atom, Vec<Arc<Pod>>>,
    /// Terminating pods without a node.
    pub(crate) unscheduled: Vec<Arc<Pod>>,
    /// Terminated pods above the threshold, in the order of their deletion.
    pub(crate) terminated: Vec<Arc<Pod>>,
}

/// Decides for these pods and nodes. A threshold of zero or less keeps all terminated pods.
pub(crate) fn plan(pods: Vec<Arc<Pod>>, nodes: &[Arc<Node>], threshold: i32) -> Plan {
    let out_of_service: HashSet<Atom> =
        nodes.iter().filter(|it| is_out_of_service(it)).map(|it| Atom::from(&*it.meta.name)).collect();
    let (mut plan, mut terminated) = (Plan::default(), Vec::new());
    for pod in pods {
        if Steps::of(&pod).are_done() {
            continue;
        }
        let is_terminating = pod.meta.deletion.is_some();
        if is_terminating && pod.node.is_empty() {
            plan.unscheduled.push(pod);
        } else if is_terminating && out_of_service.contains(&pod.node) {
            plan.out_of_service.entry(pod.node.clone()).or_default().push(pod);
        } else if is_terminal(&pod) {
            terminated.push(pod);
        }
    }
    plan.out_of_service.values_mut().for_each(|it| sort_by_priority(it));
    sort_by_priority(&mut plan.unscheduled);
    plan.terminated = surplus(terminated, threshold);
    plan
}

/// The node is not ready and has the taint, whatever its value and effect.
pub(crate) fn is_out_of_service(node: &Node) -> bool {
    let is_ready = node.condition("Ready").is_some_and(|it| it.status == ConditionStatus::True);
    !is_ready && node.taints.iter().any(|it| &*it.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests;
