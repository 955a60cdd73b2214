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
use events::{ObjectReference, Recorder, Type};
use parking_lot::Mutex;
use workqueue::{Lane, Queue};

use crate::{
    absent::{Absent, Orphaned},
    evidence::Gone,
    graph::{Coordinates, Dependent, Due, Graph, Item, Misplaced, MonitorId, NodeView, TypeName},
};

/// The known objects, their owners, and the queues.
pub(crate) struct Known {
    graph: Mutex<Graph>,
    absent: Absent,
    /// Owners whose dependents this process orphaned.
    pub(crate) orphaned: Orphaned,
    /// The queue of attempts to delete.
    pub(crate) deletes: Queue<Item>,
    /// The queue of attempts to orphan.
    pub(crate) orphans: Queue<Uid>,
    recorder: Recorder,
    /// When the term began. Nothing is queued before.
    began: OnceLock<Instant>,
    /// Changed under the lock of the graph.
    restores: AtomicU64,
}

/// The number of observed restores of etcd to an older state. Proofs from before the last restore are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restores(u64);

/// The interface for a monitor to report objects, one after the other, under the lock of the graph.
pub(crate) struct Telling<'a> {
    graph: &'a mut Graph,
    known: &'a Known,
}

impl Known {
    pub(crate) fn new(graph: Graph, deletes: Queue<Item>, orphans: Queue<Uid>, recorder: Recorder) -> Self {
        Self {
            graph: Mutex::new(graph),
            absent: Absent::default(),
            orphaned: Orphaned::default(),
            deletes,
            orphans,
            recorder,
            began: OnceLock::new(),
            restores: AtomicU64::new(0),
        }
    }

    /// Runs `telling` under the lock, so that all its reports are applied before any read. Then queues what became due.
    pub(crate) fn tell<R>(&self, telling: impl FnOnce(&mut Telling<'_>) -> R) -> R {
        let mut graph = self.graph.lock();
        let told = telling(&mut Telling { graph: &mut graph, known: self });
        self.pour(&mut graph, Lane::Now);
        told
    }

    /// Runs `question` on the graph, which is locked meanwhile.
    pub(crate) fn ask<R>(&self, question: impl FnOnce(&Graph) -> R) -> R {
        question(&self.graph.lock())
    }

    /// Begins the term: queues what is due so far. From now on, new due items are queued at once.
    pub(crate) fn begin(&self, now: Instant) {
        let mut graph = self.graph.lock();
        // A second call changes nothing.
        let _ = self.began.set(now);
        self.pour(&mut graph, Lane::Slow);
    }

    /// When the term began, if it has.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began.get().copied()
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
    pub(crate) fn names(&self, object: &Uid, of: &TypeName) -> bool {
        let Some(portrait) = self.graph.lock().portrait(object) else { return false };
        match portrait.meta {
            Some(meta) => meta.owners.iter().any(|it| it.kind == of.kind && it.api_version == of.api_version),
            None => portrait.coordinates.is_some_and(|it| it.kind == of.kind && it.api_version == of.api_version),
        }
    }

    pub(crate) fn dependents(&self, owner: &Uid) -> Vec<Dependent> {
        self.graph.lock().dependents(owner)
    }

    pub(crate) fn blocking(&self, owner: &Uid) -> Vec<(Item, bool)> {
        self.graph.lock().blocking(owner)
    }

    /// The proof that the claimed object is gone, either as a cluster-scoped object or in the namespace of its
    /// dependent.
    pub(crate) fn gone(&self, claim: &Coordinates) -> Option<Gone> {
        self.gone_in(&self.graph.lock(), claim)
    }

    /// The same when the caller holds the lock of the graph.
    fn gone_in(&self, graph: &Graph, claim: &Coordinates) -> Option<Gone> {
        graph.gone(claim).or_else(|| self.absent.of(claim))
    }

    pub(crate) fn restores(&self) -> Restores {
        Restores(self.restores.load(Ordering::Acquire))
    }

    /// Caches a proof for later reads, unless etcd was restored after the read was sent.
    pub(crate) fn remember(&self, gone: Gone, asked: Restores) {
        let _graph = self.graph.lock();
        if self.restores() == asked {
            self.absent.remember(gone);
        }
    }

    /// Records that the object at these coordinates of the graph is gone, and makes its dependents due.
    pub(crate) fn proved_absent(&self, probed: &Coordinates, gone: Gone) {
        self.absent.remember(gone.clone());
        let mut graph = self.graph.lock();
        graph.proved_absent(probed, gone);
        self.pour(&mut graph, Lane::Now);
    }

    /// A live read of `asked` found the object. Proofs of its uid are removed, unless its deletion was proved after the
    /// read was sent.
    pub(crate) fn found(&self, asked: &Coordinates, was_proved_before: bool) {
        let mut graph = self.graph.lock();
        let is_newer = !was_proved_before && self.gone_in(&graph, asked).is_some();
        if !is_newer {
            self.absent.forget(&asked.uid);
            graph.forget_proofs_of(&asked.uid);
        }
    }

    /// Records that a live read found an owner at these coordinates.
    pub(crate) fn lives(&self, at: &Coordinates) {
        let mut graph = self.graph.lock();
        graph.lives(at);
        self.pour(&mut graph, Lane::Now);
    }

    /// A write for this state of an object failed, because there is a newer one. The object becomes due when that is
    /// shown.
    pub(crate) fn await_newer(&self, object: &Uid, than: &Version) {
        let mut graph = self.graph.lock();
        graph.await_newer(object, than);
        self.pour(&mut graph, Lane::Now);
    }

    /// Records that references to these owners were removed from this state of an object.
    pub(crate) fn detached(&self, object: &Uid, from: &Version, owners: &[Uid]) {
        let mut graph = self.graph.lock();
        graph.detached(object, from, owners);
        self.pour(&mut graph, Lane::Now);
    }

    /// Releases the owners that an unwatched object blocks, because its existence can no longer be checked. True if it
    /// blocked any.
    pub(crate) fn holds_no_more(&self, object: &Uid) -> bool {
        let mut graph = self.graph.lock();
        let held = graph.holds_no_more(object);
        self.pour(&mut graph, Lane::Now);
        held
    }

    /// Records that at this resourceVersion an object had none of our finalizers.
    pub(crate) fn let_go(&self, object: &Uid, at: &Version) {
        let mut graph = self.graph.lock();
        graph.let_go(object, at);
        self.pour(&mut graph, Lane::Now);
    }

    /// Moves due items into the queues. Runs under the lock of the graph, so that the queue keeps their order.
    fn pour(&self, graph: &mut Graph, lane: Lane) {
        // Most reports make nothing due.
        if self.began.get().is_none() || graph.nothing_is_due() {
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
            complain(&self.recorder, &misplaced);
        }
    }
}

impl Telling<'_> {
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
            self.known.absent.forget(&uid);
        }
    }

    /// Records the state of an object from a complete set, or from a store that was compared with one. It counts even
    /// if its resourceVersion is older.
    pub(crate) fn observe_any(&mut self, by: MonitorId, meta: Meta) {
        self.known.absent.forget(&meta.uid);
        self.graph.observe_any(by, meta);
    }

    /// Records a restore of etcd to an older state: all earlier proofs become invalid.
    pub(crate) fn restored(&mut self) {
        self.known.restores.fetch_add(1, Ordering::AcqRel);
        self.known.absent.clear();
        // The owners may exist again and be deleted in another way.
        self.known.orphaned.clear();
        self.graph.forget_proofs();
    }

    /// Records the DELETED event of an object, which is a proof.
    pub(crate) fn deleted(&mut self, by: MonitorId, uid: &Uid) {
        if let Some(gone) = self.graph.deleted(by, uid) {
            self.known.absent.remember(gone);
        }
    }

    /// Records that a new complete set does not contain an object. That makes its dependents due, but proves nothing.
    pub(crate) fn missing(&mut self, by: MonitorId, uid: &Uid) {
        self.graph.missing(by, uid);
    }

    /// The graph, for the comparison with a new complete set.
    pub(crate) fn graph(&self) -> &Graph {
        self.graph
    }
}

/// Records an event for the user about an owner reference into another namespace.
fn complain(recorder: &Recorder, misplaced: &Misplaced) {
    let Misplaced { dependent, owner } = misplaced;
    let namespace = &dependent.namespace;
    let named = Coordinates::claimed(owner, namespace);
    let message = format!("ownerRef {named} does not exist in namespace \"{namespace}\"");
    tracing::warn!(object = %dependent, %message, "An object names an owner that it cannot have");
    recorder.event(&reference(dependent), Type::Warning, "OwnerRefInvalidNamespace", message);
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
