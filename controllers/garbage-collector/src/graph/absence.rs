//! Handles objects that are deleted, and owners that never existed.

use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
};

use api::{Atom, OwnerRef, Uid};

use super::{
    Coordinates, Graph, MonitorId,
    ids::Id,
    node::{Node, NodeState, has_reference, is_blocking, owners_of, refs_to},
};
use crate::rules::evidence::Gone;

/// A lookup that found nothing.
struct Probe<'a> {
    coordinates: &'a Coordinates,
    /// Its type is cluster-scoped.
    anywhere: bool,
}

impl Probe<'_> {
    /// True if a claim from this namespace means the object that was looked up.
    fn matches_namespace(&self, namespace: &Atom) -> bool {
        self.anywhere || self.coordinates.namespace == *namespace
    }

    /// True if these coordinates, referenced or observed, mean the object that was looked up.
    fn matches(&self, other: &Coordinates) -> bool {
        let Coordinates { kind, api_version, namespace, name, uid } = self.coordinates;
        let same = other.uid == *uid && other.name == *name && other.kind == *kind && other.api_version == *api_version;
        same && (self.anywhere || other.namespace == *namespace)
    }
}

impl Graph {
    /// Applies a DELETED event. Returns the proof, if a reference names the object.
    pub(crate) fn on_deleted(&mut self, by: MonitorId, uid: &Uid) -> Option<Gone> {
        self.monitors.get_mut(&by)?.proved_gone.remove(uid);
        let id = self.nodes.find(uid)?;
        let node = self.nodes.get(id)?;
        match &node.state {
            // A live read was faster than the watch.
            NodeState::Gone { .. } => None,
            // The object is served by two types under one uid. The deletion from the second type is only a deletion
            // there.
            NodeState::Observed(observed) if observed.by != by => None,
            NodeState::Observed(_) => {
                let named = if node.has_dependents() { self.coordinates(node) } else { None };
                let proof = named.map(Gone::from_deleted_event);
                self.mark_gone(id, proof.clone());
                proof
            }
            // Only references are known, and they may be wrong.
            NodeState::Referenced { .. } => {
                self.mark_gone(id, None);
                None
            }
            NodeState::Unwatched { .. } => {
                self.mark_due_delete(id);
                None
            }
        }
    }

    /// A new complete set of this monitor does not contain the object. Its dependents become due, but nothing is
    /// proved: the list may be older than the known state, and the type may be served only in part.
    pub(crate) fn on_missing(&mut self, by: MonitorId, uid: &Uid) {
        if let Some(monitor) = self.monitors.get_mut(&by) {
            monitor.proved_gone.remove(uid);
        }
        let Some(id) = self.nodes.find(uid) else { return };
        if self.nodes.get(id).and_then(Node::observed).is_some_and(|it| it.by == by) {
            self.mark_gone(id, None);
        }
    }

    /// This monitor has received a complete set. An object that was proved gone and is in the set may be in a later set
    /// of a server that lags too.
    pub(crate) fn on_complete_set(&mut self, by: MonitorId, contains: impl Fn(&Uid) -> bool) {
        if let Some(monitor) = self.monitors.get_mut(&by) {
            monitor.proved_gone.retain(|uid, _| contains(uid));
        }
    }

    /// A live read found that the object does not exist. That proves nothing about the same uid at other coordinates.
    /// If the type is cluster-scoped, claims from every namespace mean this object. True if a reference names exactly
    /// this object.
    pub(crate) fn on_proved_absent(&mut self, probed: &Coordinates, gone: Gone) -> bool {
        let probe = &Probe { coordinates: probed, anywhere: gone.owner().namespace.is_empty() };
        let Some(id) = self.nodes.find(&probed.uid) else { return false };
        let Some(node) = self.nodes.get(id) else { return false };
        let (matching, is_referenced_otherwise) = self.split(id, probe);
        match &node.state {
            NodeState::Gone { .. } => drop(self.keep_proof(id, gone)),
            // The read was faster than the watch.
            NodeState::Observed(_) | NodeState::Unwatched { .. }
                if self.coordinates(node).is_some_and(|it| probe.matches(&it)) =>
            {
                let shown = node.observed().map(|it| (it.by, it.version.clone()));
                if let Some((by, version)) = shown
                    && let Some(monitor) = self.monitors.get_mut(&by)
                {
                    monitor.proved_gone.insert(probed.uid.clone(), version);
                }
                self.mark_gone(id, Some(gone));
            }
            NodeState::Referenced { .. } if !is_referenced_otherwise => self.mark_gone(id, Some(gone)),
            NodeState::Observed(_) | NodeState::Unwatched { .. } => self.mark_due_all(&matching),
            NodeState::Referenced { coordinates, .. } => {
                let was_probed = probe.matches(coordinates);
                self.mark_due_all(&matching);
                let claims = self.keep_proof(id, gone);
                if was_probed {
                    self.select_next_coordinates(id, probed, &claims);
                }
            }
        }
        !matching.is_empty()
    }

    /// A live read found an object that no monitor shows. No event will show its deletion, so it is looked up at these
    /// coordinates until it is gone. Other claims about it may be wrong.
    pub(crate) fn on_live_owner(&mut self, at: &Coordinates) {
        let Some(id) = self.nodes.find(&at.uid) else { return };
        match self.nodes.get(id).map(|it| &it.state) {
            // Its deletion was proved while the response was in flight.
            Some(NodeState::Referenced { proofs, .. } | NodeState::Gone { proofs }) if proofs.get(at).is_some() => {}
            Some(NodeState::Referenced { coordinates, .. }) if is_referenced_at(coordinates, at) => {}
            Some(NodeState::Referenced { .. } | NodeState::Gone { .. }) => self.look_up_at(id, at.clone()),
            // A monitor shows it, or it is looked up already.
            Some(NodeState::Observed(_) | NodeState::Unwatched { .. }) | None => {}
        }
    }

    /// The object exists: removes the proofs about its uid, which were for other names or from before a restore of
    /// etcd.
    pub(crate) fn drop_proofs_of(&mut self, uid: &Uid) {
        if let Some(node) = self.nodes.find(uid).and_then(|id| self.nodes.get_mut(id)) {
            drop(node.take_proofs());
        }
    }

    /// Removes all proofs after a restore of etcd, because every object may exist again.
    pub(crate) fn drop_proofs(&mut self) {
        for node in self.nodes.iter_mut() {
            drop(node.take_proofs());
        }
    }

    /// Ends a monitor. That proves nothing about its objects. Objects with dependents, or that block an owner, are
    /// looked up live from now on; the others are removed.
    pub(crate) fn stop_monitor(&mut self, by: MonitorId) {
        let members: Vec<Id> = self.monitors.get(&by).map(|it| it.members.iter().collect()).unwrap_or_default();
        let awaited: Vec<bool> = members.iter().map(|id| self.is_blocking_waiting_owner(*id)).collect();
        for id in &members {
            self.unwatch(*id);
        }
        // Only after the loop above: their dependents may have been removed in it, in any order.
        for (id, is_blocking_waiting_owner) in members.into_iter().zip(awaited) {
            if is_blocking_waiting_owner || self.nodes.get(id).is_some_and(Node::has_dependents) {
                self.mark_due_delete(id);
            }
        }
        self.monitors.remove(&by);
    }

    /// Unblocks the owners that an unwatched object blocks, because its existence can no longer be checked. True if it
    /// blocked any.
    pub(crate) fn unblock_owners(&mut self, uid: &Uid) -> bool {
        let Some(id) = self.nodes.find(uid) else { return false };
        let Some(Node { state: NodeState::Unwatched { blocking_refs, .. }, .. }) = self.nodes.get_mut(id) else {
            return false;
        };
        let held = std::mem::take(blocking_refs);
        for owner in owners_of(&held) {
            self.unlink(id, owner, true);
        }
        if self.nodes.get(id).is_some_and(|it| !it.is_needed()) {
            self.remove_node(id);
        }
        !held.is_empty()
    }

    /// True if it blocks a waiting owner.
    fn is_blocking_waiting_owner(&self, id: Id) -> bool {
        let waits = |it: &Uid| {
            let owner = self.nodes.find(it).filter(|it| *it != id);
            owner.and_then(|it| self.nodes.get(it)).is_some_and(|it| it.lifecycle().foreground)
        };
        let Some(observed) = self.nodes.get(id).and_then(Node::observed) else { return false };
        self.refs(observed).iter().any(|it| it.block_owner_deletion && waits(&it.uid))
    }

    /// Makes an observed node unwatched.
    fn unwatch(&mut self, id: Id) {
        let Some(node) = self.nodes.get(id) else { return };
        let (Some(observed), Some(coordinates)) = (node.observed(), self.coordinates(node)) else { return };
        let (by, refs, waits) = (observed.by, self.refs(observed), node.lifecycle().foreground);
        let blocks = |it: &&OwnerRef| it.block_owner_deletion && !it.uid.is_empty() && it.uid != node.uid;
        let blocking_refs: Arc<[OwnerRef]> = refs.iter().filter(blocks).cloned().collect();
        if waits {
            // It is unknown from now on if it still waits for its dependents.
            self.recount(&refs, false);
        }
        self.remove_member(id, by);
        self.clear_due(id);
        self.expand_refs(id);
        let released: Vec<&Uid> = owners_of(&refs).filter(|it| !has_reference(&blocking_refs, it)).collect();
        if let Some(node) = self.nodes.get_mut(id) {
            node.state =
                NodeState::Unwatched { coordinates: Arc::new(coordinates), blocking_refs: blocking_refs.clone() };
        }
        for owner in released {
            self.unlink(id, owner, false);
        }
        if self.nodes.get(id).is_some_and(|it| !it.is_needed()) {
            self.remove_node(id);
        }
    }

    /// The object is gone, with a proof or without one. Its dependents become due, and an owner that it was the last to
    /// block may be finalized. Without dependents the node is removed.
    fn mark_gone(&mut self, id: Id, proof: Option<Gone>) {
        let Some(node) = self.nodes.get(id) else { return };
        let (by, owners) = (node.observed().map(|it| it.by), self.edges(node));
        // An object that names itself also stops being its own dependent.
        for owner in owners_of(&owners) {
            self.unlink(id, owner, is_blocking(&owners, owner));
        }
        if let Some(by) = by {
            self.remove_member(id, by);
        }
        self.clear_due(id);
        self.expand_refs(id);
        let Some(node) = self.nodes.get_mut(id) else { return };
        let mut proofs = node.take_proofs();
        proof.into_iter().for_each(|it| proofs.insert(it));
        node.state = NodeState::Gone { proofs };
        if node.has_dependents() {
            self.mark_due_dependents(id);
        } else {
            self.remove_node(id);
        }
    }

    /// The dependents with a reference to exactly this object, and whether a dependent has a reference with other
    /// coordinates. A dependent may have both.
    fn split(&self, owner: Id, probe: &Probe<'_>) -> (Vec<Id>, bool) {
        let (mut matching, mut is_referenced_otherwise) = (Vec::new(), false);
        for dependent in self.dependents_of(owner) {
            let Some(observed) = self.nodes.get(dependent).and_then(Node::observed) else { continue };
            let fits = probe.matches_namespace(&observed.namespace);
            let refs = self.refs(observed);
            let is_match = |it: &OwnerRef| fits && probe.coordinates.match_ref(it);
            if refs_to(&refs, &probe.coordinates.uid).any(is_match) {
                matching.push(dependent);
            }
            is_referenced_otherwise |= refs_to(&refs, &probe.coordinates.uid).any(|it| !is_match(it));
        }
        (matching, is_referenced_otherwise)
    }

    /// Keeps the proofs for claims that dependents of this owner make, and returns these claims.
    fn keep_proof(&mut self, owner: Id, gone: Gone) -> BTreeSet<Coordinates> {
        let mut claims = BTreeSet::new();
        for observed in self.dependents_of(owner).iter().filter_map(|id| self.nodes.get(*id)?.observed()) {
            let refs = self.refs(observed);
            let of_it = refs_to(&refs, &gone.owner().uid);
            claims.extend(of_it.map(|it| Coordinates::referenced(it, &observed.namespace)));
        }
        if let Some(Node { state: NodeState::Referenced { proofs, .. } | NodeState::Gone { proofs }, .. }) =
            self.nodes.get_mut(owner)
        {
            proofs.insert(gone);
            proofs.retain(&claims);
        }
        claims
    }

    /// Selects the next coordinates that are not proved absent, in sort order and cyclic; if there are none, the owner
    /// is gone. A queued item keeps the coordinates that it was queued with.
    fn select_next_coordinates(&mut self, owner: Id, probed: &Coordinates, claims: &BTreeSet<Coordinates>) {
        let Some(proofs) = self.nodes.get(owner).and_then(Node::proofs) else { return };
        let mut in_order = claims.range((Excluded(probed), Unbounded)).chain(claims);
        match in_order.find(|it| proofs.get(it).is_none()) {
            Some(next) => self.look_up_at(owner, next.clone()),
            None => self.mark_gone(owner, None),
        }
    }

    /// Looks up an object that no monitor shows at these coordinates from now on.
    fn look_up_at(&mut self, id: Id, coordinates: Coordinates) {
        self.clear_due(id);
        self.expand_refs(id);
        if let Some(node) = self.nodes.get_mut(id) {
            node.state = NodeState::Referenced { coordinates: Arc::new(coordinates), proofs: node.take_proofs() };
        }
        self.mark_due_delete_later(id);
    }

    fn mark_due_all(&mut self, ids: &[Id]) {
        for id in ids {
            self.mark_due_delete(*id);
        }
    }
}

/// True if the claim means the object that was found. For a cluster-scoped type, a claim has the namespace of the
/// dependent that made it.
fn is_referenced_at(claim: &Coordinates, at: &Coordinates) -> bool {
    let namespace = if at.namespace.is_empty() { &at.namespace } else { &claim.namespace };
    *at == Coordinates { namespace: namespace.clone(), ..claim.clone() }
}
