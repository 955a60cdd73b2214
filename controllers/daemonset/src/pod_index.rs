//! The index of pods that this controller declares.

use api::{Atom, Entry, Pod};

use crate::rules::snapshot::node_name;

/// The node of a pod that a DaemonSet controls, or for which it was created. Other pods are not in the index.
pub(crate) fn node_of_daemon_pod(entry: &Entry<Pod>) -> Option<Atom> {
    let pod = entry.readable()?;
    let is_of_a_set = pod.meta.as_ref().controller().is_some_and(|it| &*it.kind == "DaemonSet");
    Some(node_name(pod)).filter(|it| is_of_a_set && !it.is_empty()).cloned()
}
