//! The due items. They are part of the state: kept until they are taken (a standby does not take them), once for each
//! node, and dropped with the node.

use std::collections::BTreeMap;

use api::Uid;

use super::{
    Due, Graph, Item, Misplaced,
    ids::Id,
    node::{Flags, NodeState, refs_to},
    slab::Slab,
};

/// Nodes in the order in which they became due. The flag in the node shows if it is still due.
#[derive(Default)]
pub(super) struct DueLists {
    delete: DueList,
    delete_later: DueList,
    orphan: DueList,
    /// Dependents with references into another namespace, and the owners in these references.
    misplaced: BTreeMap<Id, Vec<Uid>>,
}

#[derive(Default)]
struct DueList {
    ids: Vec<Id>,
    /// The number of nodes that are still due.
    live: usize,
}

/// Below this length, entries of removed nodes are not cleaned up.
const SMALL: usize = 64;

impl Graph {
    /// Takes everything that is due.
    pub(crate) fn take_due(&mut self) -> Due {
        let Self { nodes, due_lists, .. } = self;
        // A node that is due now need not be due later too. So take those first, while both flags are set.
        let later = due_lists.delete_later.take(nodes, Flags::DELETE_LATER).into_iter();
        let later = later.filter(|id| nodes.get(*id).is_some_and(|it| !it.due.has(Flags::DELETE))).collect::<Vec<_>>();
        let delete = due_lists.delete.take(nodes, Flags::DELETE);
        let orphan = due_lists.orphan.take(nodes, Flags::ORPHAN);
        let misplaced = std::mem::take(&mut due_lists.misplaced);
        Due {
            delete: delete.into_iter().filter_map(|id| self.item(id)).collect(),
            delete_later: later.into_iter().filter_map(|id| self.item(id)).collect(),
            orphan: orphan.into_iter().filter_map(|id| self.nodes.get(id).map(|it| it.uid.clone())).collect(),
            misplaced: misplaced.into_iter().flat_map(|(id, owners)| self.misplaced(id, owners)).collect(),
        }
    }

    /// True if [`Graph::take_due`] would return nothing.
    pub(crate) fn has_nothing_due(&self) -> bool {
        let DueLists { delete, delete_later, orphan, misplaced } = &self.due_lists;
        delete.live + delete_later.live + orphan.live == 0 && misplaced.is_empty()
    }

    #[cfg(test)]
    pub(super) fn due_entries(&self) -> usize {
        let DueLists { delete, delete_later, orphan, misplaced } = &self.due_lists;
        delete.ids.len() + delete_later.ids.len() + orphan.ids.len() + misplaced.len()
    }

    pub(super) fn mark_due_delete(&mut self, id: Id) {
        self.due_lists.delete.add(&mut self.nodes, id, Flags::DELETE);
    }

    /// Makes an object due whose last pass has no valid result.
    pub(crate) fn mark_due_again(&mut self, uid: &Uid) {
        let Some(id) = self.nodes.find(uid) else { return };
        if self.nodes.get(id).is_some_and(|it| it.lifecycle().orphaning) {
            self.mark_due_orphan(id);
        }
        self.mark_due_delete(id);
    }

    pub(super) fn mark_due_delete_later(&mut self, id: Id) {
        self.due_lists.delete_later.add(&mut self.nodes, id, Flags::DELETE_LATER);
    }

    pub(super) fn mark_due_orphan(&mut self, id: Id) {
        self.due_lists.orphan.add(&mut self.nodes, id, Flags::ORPHAN);
    }

    pub(super) fn mark_due_misplaced(&mut self, dependent: Id, owner: Uid) {
        let owners = self.due_lists.misplaced.entry(dependent).or_default();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// Cancels what a node is due for, because it is removed or gets another identity.
    pub(super) fn clear_due(&mut self, id: Id) {
        let Self { nodes, due_lists: DueLists { delete, delete_later, orphan, misplaced }, .. } = self;
        delete.drop(nodes, id, Flags::DELETE);
        delete_later.drop(nodes, id, Flags::DELETE_LATER);
        orphan.drop(nodes, id, Flags::ORPHAN);
        misplaced.remove(&id);
        if let Some(node) = nodes.get_mut(id) {
            node.due.clear(Flags::DELETE_NEWER);
            node.due.clear(Flags::REFERENCES_REMOVED);
        }
    }

    pub(super) fn item(&self, id: Id) -> Option<Item> {
        let node = self.nodes.get(id)?;
        match &node.state {
            NodeState::Observed(_) => Some(Item::Observed(node.uid.clone())),
            NodeState::Referenced { coordinates, .. } | NodeState::Unwatched { coordinates, .. } => {
                Some(Item::Virtual(coordinates.clone()))
            }
            NodeState::Gone { .. } => None,
        }
    }

    /// The events to report, for the references that still exist.
    fn misplaced(&self, dependent: Id, owners: Vec<Uid>) -> Vec<Misplaced> {
        let Some(node) = self.nodes.get(dependent) else { return Vec::new() };
        let (Some(observed), Some(coordinates)) = (node.observed(), self.coordinates(node)) else { return Vec::new() };
        let refs = self.refs(observed);
        let named = owners.iter().filter_map(|it| refs_to(&refs, it).next());
        named.map(|it| Misplaced { dependent: coordinates.clone(), owner: it.clone() }).collect()
    }
}

impl DueList {
    fn add(&mut self, nodes: &mut Slab, id: Id, flag: Flags) {
        if nodes.get_mut(id).is_some_and(|it| it.due.set(flag)) {
            self.ids.push(id);
            self.live += 1;
        }
    }

    fn drop(&mut self, nodes: &mut Slab, id: Id, flag: Flags) {
        if nodes.get_mut(id).is_some_and(|it| it.due.clear(flag)) {
            self.live -= 1;
            // Its entry stays in the list, and the id may already belong to another node.
            if self.ids.len() > 2 * self.live + SMALL {
                let live = self.take(nodes, flag);
                for id in live {
                    self.add(nodes, id, flag);
                }
            }
        }
    }

    fn take(&mut self, nodes: &mut Slab, flag: Flags) -> Vec<Id> {
        let mut ids = std::mem::take(self).ids;
        ids.retain(|id| nodes.get_mut(*id).is_some_and(|it| it.due.clear(flag)));
        ids
    }
}
