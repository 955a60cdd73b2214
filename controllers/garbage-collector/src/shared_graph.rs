//! The state that monitors and workers share: the graph, the proofs that objects are gone, and the queues.
//!
//! The list of due items is part of the graph, so a standby collects them without acting. From the start of the term
//! they are moved into the queues after each change.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use api::{Meta, Resource, Uid, Version};
use clock::Instant;
use controller::{Lane, Queue};
use events::{EventType, ObjectReference, Recorder};
use parking_lot::Mutex;

use crate::{
    graph::{Coordinates, Dependent, Due, Graph, Item, Misplaced, MonitorId, NodeView, TypeName},
    owners::absence_proofs::{AbsenceCache, OrphanedOwners},
    rules::evidence::Gone,
};

/// The known objects, their owners, and the queues.
pub(crate) struct SharedGraph {
    graph: Mutex<Graph>,
    absences: AbsenceCache,
    /// Owners whose dependents this process orphaned.
    pub(crate) orphaned: OrphanedOwners,
    /// The queue of attempts to delete.
    pub(crate) deletes: Queue<Item>,
    /// The queue of attempts to orphan.
    pub(crate) orphans: Queue<Uid>,
    recorder: Recorder,
    /// When the term began. Nothing is queued before.
    term_start: OnceLock<Instant>,
    /// Changed under the lock of the graph.
    restores: AtomicU64,
}

/// The number of observed restores of etcd to an older state. Proofs from before the last restore are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restores(u64);

/// The interface for a monitor to report objects, one after the other, under the lock of the graph.
pub(crate) struct GraphUpdate<'a> {
    graph: &'a mut Graph,
    shared: &'a SharedGraph,
}

impl SharedGraph {
    pub(crate) fn new(graph: Graph, deletes: Queue<Item>, orphans: Queue<Uid>, recorder: Recorder) -> Self {
        Self {
            graph: Mutex::new(graph),
            absences: AbsenceCache::default(),
            orphaned: OrphanedOwners::default(),
            deletes,
            orphans,
            recorder,
            term_start: OnceLock::new(),
            restores: AtomicU64::new(0),
        }
    }

    /// Runs `update` under the lock, so that all its reports are applied before any read. Then queues what became due.
    pub(crate) fn update<R>(&self, update: impl FnOnce(&mut GraphUpdate<'_>) -> R) -> R {
        let mut graph = self.graph.lock();
        let result = update(&mut GraphUpdate { graph: &mut graph, shared: self });
        self.enqueue_due(&mut graph, Lane::Now);
        result
    }

    /// Runs `read` on the graph, which is locked meanwhile.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Graph) -> R) -> R {
        read(&self.graph.lock())
    }

    /// Begins the term: queues what is due so far. From now on, new due items are queued at once.
    pub(crate) fn begin_term(&self, now: Instant) {
        let mut graph = self.graph.lock();
        // A second call changes nothing.
        let _ = self.term_start.set(now);
        self.enqueue_due(&mut graph, Lane::Slow);
    }

    /// When the term began, if it has.
    pub(crate) fn term_start(&self) -> Option<Instant> {
        self.term_start.get().copied()
    }

    /// What a pass needs to know of its item; `None` if there is nothing to do for it.
    pub(crate) fn node(&self, item: &Item) -> Option<NodeView> {
        self.graph.lock().node(item)
    }

    /// The newest resourceVersion of an object that a monitor has shown.
    pub(crate) fn version(&self, uid: &Uid) -> Option<Version> {
        Some(self.node(&Item::Observed(uid.clone()))?.meta?.version)
    }

    /// True if the object names an owner of this type, or is itself looked up as an owner of this type.
    pub(crate) fn has_owner_of_type(&self, object: &Uid, of: &TypeName) -> bool {
        let Some(view) = self.graph.lock().view(object) else { return false };
        match view.meta {
            Some(meta) => meta.owners.iter().any(|it| it.kind == of.kind && it.api_version == of.api_version),
            None => view.coordinates.is_some_and(|it| it.kind == of.kind && it.api_version == of.api_version),
        }
    }

    pub(crate) fn dependents(&self, owner: &Uid) -> Vec<Dependent> {
        self.graph.lock().dependents(owner)
    }

    pub(crate) fn blocking(&self, owner: &Uid) -> Vec<(Item, bool)> {
        self.graph.lock().blocking(owner)
    }

    /// The proof that the referenced object is gone, either as a cluster-scoped object or in the namespace of its
    /// dependent.
    pub(crate) fn absence_proof(&self, claim: &Coordinates) -> Option<Gone> {
        self.absence_proof_in(&self.graph.lock(), claim)
    }

    /// The same when the caller holds the lock of the graph.
    fn absence_proof_in(&self, graph: &Graph, claim: &Coordinates) -> Option<Gone> {
        graph.absence_proof(claim).or_else(|| self.absences.get(claim))
    }

    pub(crate) fn restores(&self) -> Restores {
        Restores(self.restores.load(Ordering::Acquire))
    }

    /// Caches a proof for later reads, unless etcd was restored after the read was sent.
    pub(crate) fn cache_proof(&self, gone: Gone, asked: Restores) {
        let _graph = self.graph.lock();
        if self.restores() == asked {
            self.absences.insert(gone);
        }
    }

    /// Records that the object at these coordinates of the graph is gone, and makes its dependents due. If etcd was
    /// restored after the read was sent, the object is checked again instead.
    pub(crate) fn on_proved_absent(&self, probed: &Coordinates, gone: Gone, asked: Restores) {
        let mut graph = self.graph.lock();
        if self.restores() == asked {
            self.absences.insert(gone.clone());
            graph.on_proved_absent(probed, gone);
        } else {
            graph.mark_due_again(&probed.uid);
        }
        self.enqueue_due(&mut graph, Lane::Now);
    }

    /// A live read of `asked` found the object. Proofs of its uid are removed, unless its deletion was proved after the
    /// read was sent.
    pub(crate) fn drop_refuted_proofs(&self, asked: &Coordinates, was_proved_before: bool) {
        let mut graph = self.graph.lock();
        let is_newer = !was_proved_before && self.absence_proof_in(&graph, asked).is_some();
        if !is_newer {
            self.absences.remove(&asked.uid);
            graph.drop_proofs_of(&asked.uid);
        }
    }

    /// Records that a live read found an owner at these coordinates.
    pub(crate) fn on_live_owner(&self, at: &Coordinates) {
        let mut graph = self.graph.lock();
        graph.on_live_owner(at);
        self.enqueue_due(&mut graph, Lane::Now);
    }

    /// A write for this state of an object failed, because there is a newer one. The object becomes due when that is
    /// shown.
    pub(crate) fn await_newer(&self, object: &Uid, than: &Version) {
        let mut graph = self.graph.lock();
        graph.await_newer(object, than);
        self.enqueue_due(&mut graph, Lane::Now);
    }

    /// Records that references to these owners were removed from this state of an object.
    pub(crate) fn on_references_removed(&self, object: &Uid, from: &Version, owners: &[Uid]) {
        let mut graph = self.graph.lock();
        graph.on_references_removed(object, from, owners);
        self.enqueue_due(&mut graph, Lane::Now);
    }

    /// Unblocks the owners that an unwatched object blocks, because its existence can no longer be checked. True if it
    /// blocked any.
    pub(crate) fn unblock_owners(&self, object: &Uid) -> bool {
        let mut graph = self.graph.lock();
        let held = graph.unblock_owners(object);
        self.enqueue_due(&mut graph, Lane::Now);
        held
    }

    /// Records that at this resourceVersion an object had none of our finalizers.
    pub(crate) fn on_finalizers_removed(&self, object: &Uid, at: &Version) {
        let mut graph = self.graph.lock();
        graph.on_finalizers_removed(object, at);
        self.enqueue_due(&mut graph, Lane::Now);
    }

    /// Moves due items into the queues. Runs under the lock of the graph, so that the queue keeps their order.
    fn enqueue_due(&self, graph: &mut Graph, lane: Lane) {
        // Most reports make nothing due.
        if self.term_start.get().is_none() || graph.has_nothing_due() {
            return;
        }
        let Due { delete, delete_later, orphan, misplaced } = graph.take_due();
        for item in delete {
            self.deletes.add_to(item, lane);
        }
        for item in delete_later {
            // This is no failure: the item must not lengthen the back-off of failed items.
            self.deletes.add_backed_off(item);
        }
        for owner in orphan {
            self.orphans.add_to(owner, lane);
        }
        for misplaced in misplaced {
            report_misplaced(&self.recorder, &misplaced);
        }
    }
}

impl GraphUpdate<'_> {
    /// Begins a monitor.
    pub(crate) fn monitor(&mut self, of: &Resource) -> MonitorId {
        self.graph.monitor(of)
    }

    /// Ends a monitor. That proves nothing about its objects.
    pub(crate) fn stop_monitor(&mut self, id: MonitorId) {
        self.graph.stop_monitor(id);
    }

    /// Records the state of an object, unless a newer one is known.
    pub(crate) fn observe(&mut self, by: MonitorId, meta: Meta) {
        let uid = meta.uid.clone();
        let was_shown = self.graph.is_shown(&uid);
        self.graph.observe(by, meta);
        if !was_shown && self.graph.is_shown(&uid) {
            // It may have been proved gone before etcd was restored.
            self.shared.absences.remove(&uid);
        }
    }

    /// Records the state of an object from a complete set, or from a store that was compared with one. It counts even
    /// if its resourceVersion is older.
    pub(crate) fn observe_any(&mut self, by: MonitorId, meta: Meta) {
        self.shared.absences.remove(&meta.uid);
        self.graph.observe_any(by, meta);
    }

    /// Records a restore of etcd to an older state: all earlier proofs become invalid.
    pub(crate) fn on_etcd_restored(&mut self) {
        self.shared.restores.fetch_add(1, Ordering::AcqRel);
        self.shared.absences.clear();
        // The owners may exist again and be deleted in another way.
        self.shared.orphaned.clear();
        self.graph.drop_proofs();
    }

    /// Records the DELETED event of an object, which is a proof.
    pub(crate) fn on_deleted(&mut self, by: MonitorId, uid: &Uid) {
        if let Some(gone) = self.graph.on_deleted(by, uid) {
            self.shared.absences.insert(gone);
        }
    }

    /// Records that a new complete set does not contain an object. That makes its dependents due, but proves nothing.
    pub(crate) fn on_missing(&mut self, by: MonitorId, uid: &Uid) {
        self.graph.on_missing(by, uid);
    }

    /// Records that a monitor has received a complete set.
    pub(crate) fn on_complete_set(&mut self, by: MonitorId, contains: impl Fn(&Uid) -> bool) {
        self.graph.on_complete_set(by, contains);
    }

    /// The graph, for the comparison with a new complete set.
    pub(crate) fn graph(&self) -> &Graph {
        self.graph
    }
}

/// Records an event for the user about an owner reference into another namespace.
fn report_misplaced(recorder: &Recorder, misplaced: &Misplaced) {
    let Misplaced { dependent, owner } = misplaced;
    let namespace = &dependent.namespace;
    let named = Coordinates::referenced(owner, namespace);
    let message = format!("ownerRef {named} does not exist in namespace \"{namespace}\"");
    tracing::warn!(object = %dependent, %message, "An object names an owner that it cannot have");
    recorder.event(&reference(dependent), EventType::Warning, "OwnerRefInvalidNamespace", message);
}

fn reference(object: &Coordinates) -> ObjectReference {
    let Coordinates { kind, api_version, namespace, name, uid } = object;
    ObjectReference {
        api_version: Some(api_version.to_string()),
        kind: Some(kind.to_string()),
        namespace: Some(namespace.to_string()).filter(|it| !it.is_empty()),
        name: Some(name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}
