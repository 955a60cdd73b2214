//! Edges from owners to dependents. A reference has a node of its owner as long as it exists, whether the owner was
//! observed or not. So an owner that is observed late finds its dependents.

use std::sync::Arc;

use api::{OwnerRef, Uid};

use super::{
    Coordinates, Graph,
    ids::Id,
    node::{Node, NodeState, Refs, has_reference, is_blocking, owners_of, refs_to, same_claims},
};
use crate::owners::absence_proofs::AbsenceProofs;

impl Graph {
    /// Links an observed dependent to one of its owners. An unknown owner becomes due, because it may be long gone. The
    /// dependent becomes due if its reference looks wrong.
    pub(super) fn link(&mut self, dependent: Id, owner: &Uid) {
        let Some(observed) = self.nodes.get(dependent).and_then(Node::observed) else { return };
        let (refs, namespace) = (self.refs(observed), observed.namespace.clone());
        let Some(first) = refs.iter().find(|it| it.uid == *owner) else { return };
        let id = match self.nodes.find(owner) {
            Some(id) => {
                // The node was kept only because it blocks another owner, so it was not looked up yet.
                let is_new = |it: &Node| it.below.as_ref().is_none_or(|below| below.dependents.is_empty());
                let unwatched = |it: &&Node| matches!(it.state, NodeState::Unwatched { .. });
                if self.nodes.get(id).filter(unwatched).is_some_and(is_new) {
                    self.mark_due_delete(id);
                }
                id
            }
            None => {
                let coordinates = Arc::new(Coordinates::referenced(first, &namespace));
                let referenced = NodeState::Referenced { coordinates, proofs: AbsenceProofs::default() };
                let id = self.nodes.insert(Node::new(owner.clone(), referenced));
                self.mark_due_delete(id);
                id
            }
        };
        self.add_edge(dependent, id, is_blocking(&refs, owner));
        self.examine(dependent, id);
    }

    /// Unlinks a dependent from one of its owners. `blocked`: the dependent blocked the owner's deletion.
    pub(super) fn unlink(&mut self, dependent: Id, owner: &Uid, blocked: bool) {
        let Some(id) = self.nodes.find(owner) else { return };
        let waits = self.nodes.get(dependent).is_some_and(|it| it.lifecycle().foreground);
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Some(below) = &mut node.below else { return };
        if !below.dependents.remove(dependent) {
            return;
        }
        if waits {
            decrement(&mut below.deleting_dependents);
        }
        let was_last = below.dependents.is_empty();
        if was_last {
            node.below = None;
        } else if blocked && dependent != id {
            decrement(&mut below.blocking);
        }
        if node.observed().is_none() && !node.is_needed() {
            // Nothing would ever remove this node, and a lookup of it has no use.
            self.remove_node(id);
        } else if blocked && dependent != id {
            self.mark_due_if_unblocked(id);
        }
    }

    /// Unlinks an unwatched dependent that blocks its owner, without further effects, because a new edge follows at
    /// once.
    pub(super) fn unlink_unwatched(&mut self, dependent: Id, owner: &Uid) {
        let node = self.nodes.find(owner).and_then(|id| self.nodes.get_mut(id));
        if let Some(below) = node.and_then(|it| it.below.as_mut())
            && below.dependents.remove(dependent)
        {
            decrement(&mut below.blocking);
        }
    }

    /// Handles that a dependent does not block this owner any more.
    pub(super) fn on_unblocked(&mut self, owner: &Uid) {
        if let Some(id) = self.nodes.find(owner) {
            self.mark_due_if_unblocked(id);
        }
    }

    /// The references by which a node is a dependent.
    pub(super) fn edges(&self, node: &Node) -> Arc<[OwnerRef]> {
        node.observed().map_or_else(|| node.blocking_refs().into(), |it| self.refs(it))
    }

    /// Changes the edges of a dependent from its old references to its present ones.
    pub(super) fn relink(&mut self, dependent: Id, old: &[OwnerRef]) {
        let Some(observed) = self.nodes.get(dependent).and_then(Node::observed) else { return };
        let new = self.refs(observed);
        if *old == *new {
            return;
        }
        for owner in owners_of(&new) {
            if !has_reference(old, owner) {
                self.link(dependent, owner);
            } else if same_claims(old, &new, owner) {
                self.update_blocking(dependent, owner, is_blocking(old, owner), is_blocking(&new, owner));
            } else {
                self.relink_claim(dependent, owner, old);
            }
        }
        for owner in owners_of(old).filter(|it| !has_reference(&new, it)) {
            self.unlink(dependent, owner, is_blocking(old, owner));
        }
        // A removed or changed reference may have been the reason that the dependent could not be checked. So check the
        // unchanged references again.
        if owners_of(old).any(|it| !same_claims(old, &new, it)) {
            for owner in owners_of(&new).filter(|it| same_claims(old, &new, it)) {
                if let Some(id) = self.nodes.find(owner) {
                    self.examine(dependent, id);
                }
            }
        }
    }

    /// Adds a dependent to the count of those that wait for their own dependents, or removes it.
    pub(super) fn recount(&mut self, refs: &[OwnerRef], waits: bool) {
        for owner in owners_of(refs) {
            let Some(node) = self.nodes.find(owner).and_then(|id| self.nodes.get_mut(id)) else { continue };
            if let Some(below) = &mut node.below {
                let count = &mut below.deleting_dependents;
                *count = if waits { *count + 1 } else { count.saturating_sub(1) };
            }
        }
    }

    /// Makes due every dependent whose reference does not match the known state of this owner.
    pub(super) fn examine_dependents(&mut self, owner: Id) {
        for dependent in self.dependents_of(owner) {
            self.examine(dependent, owner);
        }
    }

    /// Makes a dependent due if one of its references does not match the known state of the owner.
    pub(super) fn examine_owners(&mut self, dependent: Id) {
        let Some(observed) = self.nodes.get(dependent).and_then(Node::observed) else { return };
        let refs = self.refs(observed);
        for owner in owners_of(&refs).filter_map(|it| self.nodes.find(it)).collect::<Vec<_>>() {
            self.examine(dependent, owner);
        }
    }

    pub(super) fn mark_due_dependents(&mut self, owner: Id) {
        for dependent in self.dependents_of(owner) {
            self.mark_due_delete(dependent);
        }
    }

    pub(super) fn dependents_of(&self, owner: Id) -> Vec<Id> {
        let below = self.nodes.get(owner).and_then(|it| it.below.as_deref());
        below.map(|it| it.dependents.iter().collect()).unwrap_or_default()
    }

    /// Removes a node without dependents.
    pub(super) fn remove_node(&mut self, id: Id) {
        self.clear_due(id);
        self.nodes.remove(id);
    }

    fn add_edge(&mut self, dependent: Id, owner: Id, blocks: bool) {
        let waits = self.nodes.get(dependent).is_some_and(|it| it.lifecycle().foreground);
        let Some(node) = self.nodes.get_mut(owner) else { return };
        let below = node.below.get_or_insert_default();
        if below.dependents.insert(dependent) {
            // An object does not wait for itself: it would wait forever.
            below.blocking += u32::from(blocks && dependent != owner);
            below.deleting_dependents += u32::from(waits);
        }
    }

    /// Handles a reference whose coordinates changed in place, as a removed and an added reference.
    fn relink_claim(&mut self, dependent: Id, owner: &Uid, old: &[OwnerRef]) {
        let Some(id) = self.nodes.find(owner) else { return };
        let Some(observed) = self.nodes.get(dependent).and_then(Node::observed) else { return };
        let blocks_now = observed.is_blocking(owner, id);
        if self.nodes.get(id).is_some_and(|it| it.observed().is_some()) {
            self.update_blocking(dependent, owner, is_blocking(old, owner), blocks_now);
            self.examine(dependent, id);
        } else {
            // The old claim may have no other reference now.
            self.unlink(dependent, owner, is_blocking(old, owner));
            self.link(dependent, owner);
        }
    }

    fn update_blocking(&mut self, dependent: Id, owner: &Uid, blocked: bool, blocks: bool) {
        let Some(id) = self.nodes.find(owner).filter(|it| *it != dependent && blocked != blocks) else { return };
        let Some(below) = self.nodes.get_mut(id).and_then(|it| it.below.as_mut()) else { return };
        if blocks {
            below.blocking += 1;
        } else {
            decrement(&mut below.blocking);
            self.mark_due_if_unblocked(id);
        }
    }

    /// Makes a waiting owner due if no dependent blocks it any more. While others block it, it has nothing to do.
    fn mark_due_if_unblocked(&mut self, owner: Id) {
        if self.nodes.get(owner).is_some_and(|it| it.blocking() == 0 && it.lifecycle().foreground) {
            self.mark_due_delete(owner);
        }
    }

    fn examine(&mut self, dependent: Id, owner: Id) {
        let (Some(child), Some(node)) = (self.nodes.get(dependent), self.nodes.get(owner)) else { return };
        let Some(observed) = child.observed() else { return };
        let Some(identity) = self.coordinates(node) else {
            // The owner is gone: the dependent must be deleted, if that is confirmed.
            return self.mark_due_delete(dependent);
        };
        let is_seen = node.observed().is_some();
        let elsewhere = !identity.namespace.is_empty() && identity.namespace != observed.namespace;
        let misnamed = match &observed.owners {
            Refs::Full(refs) => refs_to(refs, &node.uid).any(|it| !identity.match_ref(it)),
            Refs::Compact { .. } => false,
        };
        // The owner may be a namespaced object that a cluster-scoped dependent named first, wrongly (#98040).
        let perhaps_namespaced = !is_seen && identity.namespace.is_empty() && !observed.namespace.is_empty();
        let waits = dependent != owner && node.lifecycle().foreground;
        let uid = identity.uid;
        if elsewhere && is_seen {
            self.mark_due_misplaced(dependent, uid);
        }
        if elsewhere || misnamed || perhaps_namespaced || waits {
            self.mark_due_delete(dependent);
        }
    }
}

/// Decrements a count. A wrong count would be a bug here; an overflow would keep an owner forever.
fn decrement(count: &mut u32) {
    debug_assert!(*count > 0, "counted less than there are");
    *count = count.saturating_sub(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "counted less"))]
    fn a_wrong_count_panics_in_debug_and_does_not_overflow() {
        let mut count = 1;
        decrement(&mut count);
        decrement(&mut count);
        assert_eq!(count, 0);
    }
}
