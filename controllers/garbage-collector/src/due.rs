//! What monitors tell and workers ask, in one place: the graph, what is proved gone, and the way of what is due into the
//! queues.
//!
//! What is due is part of the graph, so a standby gathers it without acting. From the beginning of the term on it is poured
//! into the queues after each change.

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

/// What is known of objects and their owners.
pub(crate) struct Known {
    graph: Mutex<Graph>,
    absent: Absent,
    /// Owners whose dependents this process orphaned.
    pub(crate) orphaned: Orphaned,
    /// Attempts to delete.
    pub(crate) deletes: Queue<Item>,
    /// Attempts to orphan.
    pub(crate) orphans: Queue<Uid>,
    recorder: Recorder,
    /// When the term began: nothing goes into the queues before.
    began: OnceLock<Instant>,
    /// Changed under the lock of the graph.
    restores: AtomicU64,
}

/// How often etcd was seen to be restored to an older state. What was proved before the last time holds no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restores(u64);

/// What a monitor tells, one object after the other.
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

    /// Lets a monitor tell what it saw, all of it before anybody looks; what is due because of that is queued.
    pub(crate) fn tell<R>(&self, telling: impl FnOnce(&mut Telling<'_>) -> R) -> R {
        let mut graph = self.graph.lock();
        let told = telling(&mut Telling { graph: &mut graph, known: self });
        self.pour(&mut graph, Lane::Now);
        told
    }

    /// Asks the graph, whose lock is held meanwhile.
    pub(crate) fn ask<R>(&self, question: impl FnOnce(&Graph) -> R) -> R {
        question(&self.graph.lock())
    }

    /// The term begins: what has become due so far is queued, and from now on what becomes so.
    pub(crate) fn begin(&self, now: Instant) {
        let mut graph = self.graph.lock();
        // A second beginning changes nothing.
        let _ = self.began.set(now);
        self.pour(&mut graph, Lane::Slow);
    }

    /// When the term began, if it has.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began.get().copied()
    }

    /// What a pass needs to know of its item; `None`: nothing is to be done about it.
    pub(crate) fn node(&self, item: &Item) -> Option<NodeView> {
        self.graph.lock().node(item)
    }

    /// The newest version of an object that a monitor has shown.
    pub(crate) fn version(&self, uid: &Uid) -> Option<Version> {
        Some(self.node(&Item::Observed(uid.clone()))?.meta?.version)
    }

    /// True for an object that names an owner of this type, or that is itself looked for as one.
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

    /// The proof that what is claimed is gone, be it cluster-scoped or of the namespace where its dependent lives.
    pub(crate) fn gone(&self, claim: &Coordinates) -> Option<Gone> {
        self.graph.lock().gone(claim).or_else(|| self.absent.of(claim))
    }

    pub(crate) fn restores(&self) -> Restores {
        Restores(self.restores.load(Ordering::Acquire))
    }

    /// Remembers a proof for those that will ask, as long as there is room, unless etcd was restored since it was asked for.
    pub(crate) fn remember(&self, gone: Gone, asked: Restores) {
        let _graph = self.graph.lock();
        if self.restores() == asked {
            self.absent.remember(gone);
        }
    }

    /// An object that was asked for by these coordinates, as the graph has them, is gone: its dependents are looked at.
    pub(crate) fn proved_absent(&self, probed: &Coordinates, gone: Gone) {
        self.absent.remember(gone.clone());
        let mut graph = self.graph.lock();
        graph.proved_absent(probed, gone);
        self.pour(&mut graph, Lane::Now);
    }

    /// A live read of `asked` found the object. Proofs of its uid are removed, unless its deletion was proved after the read
    /// was sent.
    pub(crate) fn found(&self, asked: &Coordinates, was_proved_before: bool) {
        let mut graph = self.graph.lock();
        let is_newer = !was_proved_before && (graph.gone(asked).is_some() || self.absent.of(asked).is_some());
        if !is_newer {
            self.absent.forget(&asked.uid);
            graph.forget_proofs_of(&asked.uid);
        }
    }

    /// A live read found an owner at these coordinates.
    pub(crate) fn lives(&self, at: &Coordinates) {
        let mut graph = self.graph.lock();
        graph.lives(at);
        self.pour(&mut graph, Lane::Now);
    }

    /// A write about this state of an object failed, as there is a newer one: it is looked at when that is shown.
    pub(crate) fn await_newer(&self, object: &Uid, than: &Version) {
        let mut graph = self.graph.lock();
        graph.await_newer(object, than);
        self.pour(&mut graph, Lane::Now);
    }

    /// References to these owners were removed from this state of an object.
    pub(crate) fn detached(&self, object: &Uid, from: &Version, owners: &[Uid]) {
        let mut graph = self.graph.lock();
        graph.detached(object, from, owners);
        self.pour(&mut graph, Lane::Now);
    }

    /// Nobody can learn any more whether an object is there that nobody watches: owners wait for it no longer. True if any
    /// did.
    pub(crate) fn holds_no_more(&self, object: &Uid) -> bool {
        let mut graph = self.graph.lock();
        let held = graph.holds_no_more(object);
        self.pour(&mut graph, Lane::Now);
        held
    }

    /// In this version an object bore a finalizer of ours no more.
    pub(crate) fn let_go(&self, object: &Uid, at: &Version) {
        let mut graph = self.graph.lock();
        graph.let_go(object, at);
        self.pour(&mut graph, Lane::Now);
    }

    /// Under the lock of the graph, so that what is due first is queued first.
    fn pour(&self, graph: &mut Graph, lane: Lane) {
        // Most of what is told makes nothing due.
        if self.began.get().is_none() || graph.nothing_is_due() {
            return;
        }
        let Due { delete, delete_later, orphan, misplaced } = graph.take_due();
        for item in delete {
            self.deletes.add_to(item, lane);
        }
        for item in delete_later {
            // No failure: those that fail do not wait behind it.
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
    /// A monitor begins.
    pub(crate) fn monitor(&mut self, of: &Resource) -> MonitorId {
        self.graph.monitor(of)
    }

    /// A monitor ended. That says nothing of its objects.
    pub(crate) fn stop_monitor(&mut self, id: MonitorId) {
        self.graph.stop_monitor(id);
    }

    /// An object is there, in this state, unless a newer one was told.
    pub(crate) fn observe(&mut self, by: MonitorId, meta: Meta) {
        let uid = meta.uid.clone();
        let was_shown = self.graph.is_shown(&uid);
        self.graph.observe(by, meta);
        if !was_shown && self.graph.is_shown(&uid) {
            // It may have been proved gone before etcd was restored.
            self.known.absent.forget(&uid);
        }
    }

    /// An object is there, in this state, as a whole set or a store that was compared with one tells: it counts, however old
    /// its version.
    pub(crate) fn observe_any(&mut self, by: MonitorId, meta: Meta) {
        self.known.absent.forget(&meta.uid);
        self.graph.observe_any(by, meta);
    }

    /// Etcd was restored to an older state: no proof from before serves any more.
    pub(crate) fn restored(&mut self) {
        self.known.restores.fetch_add(1, Ordering::AcqRel);
        self.known.absent.clear();
        // They may be there again and be deleted in another way.
        self.known.orphaned.clear();
        self.graph.forget_proofs();
    }

    /// A watch told of an object's end: the server's own word, and a proof.
    pub(crate) fn deleted(&mut self, by: MonitorId, uid: &Uid) {
        if let Some(gone) = self.graph.deleted(by, uid) {
            self.known.absent.remember(gone);
        }
    }

    /// A whole new set lacks an object: a reason to look, and no proof.
    pub(crate) fn missing(&mut self, by: MonitorId, uid: &Uid) {
        self.graph.missing(by, uid);
    }

    /// The graph itself, to compare a whole new set with it.
    pub(crate) fn graph(&self) -> &Graph {
        self.graph
    }
}

/// Tells the user of a reference that cannot be meant.
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
