//! Saves memory for references: most objects have one reference, and its coordinates are those in the node of the
//! owner.

use std::sync::Arc;

use api::{Atom, OwnerRef};

use super::{
    Graph,
    ids::Id,
    node::{Node, NodeState, Observed, Refs},
};

impl Graph {
    /// The references of an object as they were observed.
    pub(super) fn refs(&self, observed: &Observed) -> Arc<[OwnerRef]> {
        match &observed.owners {
            Refs::Full(refs) => refs.clone(),
            Refs::Compact { owner, controller, blocks } => {
                let named = self.nodes.get(*owner).and_then(|it| self.named(it));
                named
                    .map(|it| OwnerRef { controller: *controller, block_owner_deletion: *blocks, ..it })
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Drops the coordinates of an object's only reference, if the node of its owner has the same ones.
    pub(super) fn compact_refs(&mut self, id: Id) {
        let Some(Refs::Full(refs)) = self.nodes.get(id).and_then(Node::observed).map(|it| &it.owners) else { return };
        let [only] = &**refs else { return };
        let Some(owner) = self.nodes.find(&only.uid) else { return };
        if !self.nodes.get(owner).is_some_and(|it| self.is_named_by(it, only)) {
            return;
        }
        let compact = Refs::Compact { owner, controller: only.controller, blocks: only.block_owner_deletion };
        if let Some(Node { state: NodeState::Observed(observed), .. }) = self.nodes.get_mut(id) {
            observed.owners = compact;
        }
    }

    /// Must be called before the coordinates of a node change: dependents then store their references in full.
    pub(super) fn expand_refs(&mut self, owner: Id) {
        let mut expanded: Vec<(bool, bool, Arc<[OwnerRef]>)> = Vec::new();
        for dependent in self.dependents_of(owner) {
            let Some(observed) = self.nodes.get(dependent).and_then(Node::observed) else { continue };
            let Refs::Compact { controller, blocks, .. } = observed.owners else { continue };
            let known = expanded.iter().find(|it| (it.0, it.1) == (controller, blocks)).map(|it| it.2.clone());
            let refs = known.unwrap_or_else(|| {
                let refs = self.refs(observed);
                expanded.push((controller, blocks, refs.clone()));
                refs
            });
            if let Some(Node { state: NodeState::Observed(observed), .. }) = self.nodes.get_mut(dependent) {
                observed.owners = Refs::Full(refs);
            }
        }
    }

    /// True if a reference has exactly the coordinates of this node.
    pub(super) fn is_named_by(&self, node: &Node, by: &OwnerRef) -> bool {
        match &node.state {
            NodeState::Observed(observed) => {
                self.monitors.get(&observed.by).map(|it| &it.type_name).is_some_and(|it| {
                    node.uid == by.uid
                        && *observed.name == *by.name
                        && it.kind == by.kind
                        && it.api_version == by.api_version
                })
            }
            NodeState::Referenced { coordinates, .. } | NodeState::Unwatched { coordinates, .. } => {
                coordinates.match_ref(by)
            }
            NodeState::Gone { .. } => false,
        }
    }

    /// A reference with the coordinates of this node.
    fn named(&self, node: &Node) -> Option<OwnerRef> {
        let (api_version, kind, name) = match &node.state {
            NodeState::Observed(observed) => {
                let of = &self.monitors.get(&observed.by)?.type_name;
                (of.api_version.clone(), of.kind.clone(), &observed.name)
            }
            NodeState::Referenced { coordinates: it, .. } | NodeState::Unwatched { coordinates: it, .. } => {
                (it.api_version.clone(), it.kind.clone(), &it.name)
            }
            NodeState::Gone { .. } => return None,
        };
        let (name, uid) = (Atom::from(&**name), node.uid.clone());
        Some(OwnerRef { api_version, kind, name, uid, controller: false, block_owner_deletion: false })
    }
}
