use api::{Atom, Entry, Pod};
use informer::{Index, Store};

/// The index of pods by `spec.nodeName`. Controllers that declare it share it.
#[must_use]
pub fn pods_of_node(pods: &Store<Pod>) -> Index<Pod, Atom> {
    pods.declare_index("spec.nodeName", node_of)
}

/// The node of a pod. A pod that does not decode, or that is not scheduled, has none.
fn node_of(entry: &Entry<Pod>) -> Option<Atom> {
    let pod = entry.readable()?;
    (!pod.node.is_empty()).then(|| pod.node.clone())
}
