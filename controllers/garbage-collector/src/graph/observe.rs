//! Applies the states that monitors show. Only the new object counts, compared with the known state. So an event that
//! was lost, merged or repeated does not change the final state (#115570).

use api::{Meta, OwnerRef, Uid, Version};

use super::{
    Graph, MonitorId,
    ids::Id,
    node::{Flags, Lifecycle, Node, NodeState, Observed, has_reference, is_blocking, owners_of},
};
use crate::owners::absence_proofs::AbsenceProofs;

impl Graph {
    /// Applies an object as a monitor shows it now, added or changed. A state older than the known one is ignored,
    /// because it came late.
    pub(crate) fn observe(&mut self, by: MonitorId, meta: Meta) {
        if !self.has_newer(by, &meta) {
            self.observe_any(by, meta);
        }
    }

    /// True if this monitor has shown a newer state of this object.
    pub(crate) fn has_newer(&self, by: MonitorId, than: &Meta) -> bool {
        let known = self.nodes.find(&than.uid).and_then(|id| self.nodes.get(id)?.observed());
        known.is_some_and(|it| it.by == by && than.version.is_older_than(&it.version))
    }

    /// Applies an object of a complete set, which replaces everything that this monitor has shown. It counts even if
    /// its resourceVersion is older: after a restore of etcd, resourceVersions start again from the restored one.
    pub(crate) fn observe_any(&mut self, by: MonitorId, meta: Meta) {
        // Without a uid, no reference can name it, and no DELETE could name it safely.
        if meta.uid.is_empty() || !self.monitors.contains_key(&by) {
            return;
        }
        match self.nodes.find(&meta.uid) {
            None => {
                let id = self
                    .nodes
                    .insert(Node::new(meta.uid.clone(), NodeState::Gone { proofs: AbsenceProofs::default() }));
                self.add_observed(id, by, meta);
            }
            Some(id) if self.nodes.get(id).is_some_and(|it| it.observed().is_some()) => {
                self.update_observed(id, by, meta)
            }
            Some(id) => self.add_observed(id, by, meta),
        }
    }

    /// A finalizer of ours was removed, or was found removed, at this resourceVersion. A client may delete the object
    /// again before a monitor shows that; then a state that looks unchanged is a new one.
    pub(crate) fn on_finalizers_removed(&mut self, uid: &Uid, at: &Version) {
        let Some(id) = self.nodes.find(uid) else { return };
        let Some(Node { state: NodeState::Observed(known), .. }) = self.nodes.get_mut(id) else { return };
        if known.version.is_older_than(at) {
            known.mark_finalizers_removed(at.clone());
        } else if at.is_older_than(&known.version) {
            // The watch was faster than the worker.
            self.react(id, Lifecycle::default());
        }
    }

    /// A write for this state of an object failed, because there is a newer one. The object becomes due when that is
    /// shown.
    pub(crate) fn await_newer(&mut self, uid: &Uid, than: &Version) {
        let Some(id) = self.nodes.find(uid) else { return };
        let Some(Node { state: NodeState::Observed(known), due, .. }) = self.nodes.get_mut(id) else { return };
        if known.version == *than {
            due.set(Flags::DELETE_NEWER);
        } else {
            self.mark_due_delete(id);
        }
    }

    /// References to these owners were removed from this state of an object. A client may restore them before a monitor
    /// shows that; then all its owners are checked again.
    pub(crate) fn on_references_removed(&mut self, uid: &Uid, from: &Version, owners: &[Uid]) {
        let Some(id) = self.nodes.find(uid) else { return };
        let Some(known) = self.nodes.get(id).and_then(Node::observed) else { return };
        if known.version != *from {
            // The watch was faster than the worker.
            let refs = self.refs(known);
            if owners.iter().any(|it| has_reference(&refs, it)) {
                self.mark_due_delete(id);
            }
        } else if let Some(node) = self.nodes.get_mut(id) {
            node.due.set(Flags::REFERENCES_REMOVED);
        }
    }

    /// An object is observed that was not observed before. Dependents may have referenced it long before, rightly or
    /// wrongly.
    fn add_observed(&mut self, id: Id, by: MonitorId, meta: Meta) {
        // The live lookup is not needed any more.
        self.clear_due(id);
        let owners = meta.owners.clone();
        if !self.reference_matches(id, by, &meta) {
            self.expand_refs(id);
        }
        let held: Vec<OwnerRef> = self.nodes.get(id).map(|it| it.blocking_refs().to_vec()).unwrap_or_default();
        // This must be done while the node is still unwatched. Owners that it names again are linked below.
        for owner in owners_of(&held) {
            if has_reference(&owners, owner) { self.unlink_unwatched(id, owner) } else { self.unlink(id, owner, true) }
        }
        let observed = Observed::new(by, meta);
        if let Some(node) = self.nodes.get_mut(id) {
            node.state = NodeState::Observed(observed);
        }
        self.add_member(id, by);
        for owner in owners_of(&owners) {
            self.link(id, owner);
        }
        for owner in owners_of(&held).filter(|it| has_reference(&owners, it) && !is_blocking(&owners, it)) {
            self.on_unblocked(owner);
        }
        self.compact_refs(id);
        self.examine_dependents(id);
        self.react(id, Lifecycle::default());
    }

    /// True if the node was referenced with the name, kind and apiVersion that the object has.
    fn reference_matches(&self, id: Id, by: MonitorId, meta: &Meta) -> bool {
        let Some(coordinates) = self.nodes.get(id).and_then(Node::lookup_coordinates) else { return false };
        let of = self.monitors.get(&by).map(|it| &it.type_name);
        coordinates.name == meta.name
            && of.is_some_and(|it| it.kind == coordinates.kind && it.api_version == coordinates.api_version)
    }

    fn update_observed(&mut self, id: Id, by: MonitorId, meta: Meta) {
        let Some(known) = self.nodes.get(id).and_then(Node::observed) else { return };
        // Two types may serve an object under one uid, with separate resourceVersions. The first type counts while it
        // is watched.
        if known.by != by {
            return;
        }
        let is_older = meta.version.is_older_than(&known.version);
        let is_another = known.name != meta.name || known.namespace != meta.namespace;
        // A relist that began earlier shows the same state again.
        let is_newer = known.version != meta.version;
        let (before, old_refs) = (known.lifecycle(), self.refs(known));
        // If the state is older, etcd was restored, and the marked resourceVersion does not exist any more.
        let removed_at = known.finalizers_removed_at().filter(|_| !is_older).cloned();
        if is_another {
            self.expand_refs(id);
        }
        let Some(Node { state: NodeState::Observed(known), .. }) = self.nodes.get_mut(id) else { return };
        *known = Observed::new(by, meta);
        let now = known.lifecycle();
        let were_finalizers_removed = removed_at.as_ref().is_some_and(|it| it.is_older_than(&known.version));
        if let Some(at) = removed_at.filter(|it| known.version.is_older_than(it)) {
            known.mark_finalizers_removed(at);
        }
        // The order matters: first the existing edges, then the new ones.
        if before.foreground != now.foreground {
            self.recount(&old_refs, now.foreground);
        }
        self.relink(id, &old_refs);
        self.compact_refs(id);
        if is_another {
            self.examine_dependents(id);
        }
        if is_newer && self.nodes.get_mut(id).is_some_and(|it| it.due.clear(Flags::REFERENCES_REMOVED)) {
            self.examine_owners(id);
        }
        if is_newer && self.nodes.get_mut(id).is_some_and(|it| it.due.clear(Flags::DELETE_NEWER)) {
            self.mark_due_delete(id);
        }
        // Between the two, the object was in neither state. A relist or a merged event does not show that.
        self.react(id, if were_finalizers_removed || is_older { Lifecycle::default() } else { before });
    }

    /// Processes an object whose state is new. Orphaning comes first, because it makes the wait for dependents
    /// unnecessary.
    fn react(&mut self, id: Id, before: Lifecycle) {
        let Some(now) = self.nodes.get(id).map(Node::lifecycle) else { return };
        if now.orphaning && !before.orphaning {
            self.mark_due_orphan(id);
        }
        if now.foreground && !before.foreground {
            // The owner is queued first: other obstacles are found while its dependents are being deleted.
            self.mark_due_delete(id);
            self.mark_due_dependents(id);
        }
    }

    fn add_member(&mut self, id: Id, by: MonitorId) {
        if let Some(monitor) = self.monitors.get_mut(&by) {
            monitor.members.insert(id);
        }
    }

    pub(super) fn remove_member(&mut self, id: Id, by: MonitorId) {
        if let Some(monitor) = self.monitors.get_mut(&by) {
            monitor.members.remove(id);
        }
    }
}
