//! Compares random events with a naive model. The model stores objects and claims, and iterates over all of them for
//! each answer.

mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
};

use api::{Atom, Meta, OwnerRef, Uid, Version};
use proptest::test_runner::{Config, RngSeed, TestRunner};

use self::steps::{Claim, NAMES, Step, TYPES, namespace, resource, shown_by, steps};
use super::super::{Coordinates, Graph, Item, MonitorId, ObjectState, TypeName, fixture};
use crate::rules::evidence::Gone;

#[derive(Debug, Clone, PartialEq)]
enum NodeState {
    Observed(MonitorId, Meta),
    Referenced(Coordinates),
    /// With the references that still block owners.
    Unwatched(Coordinates, Vec<OwnerRef>),
    Gone,
}

#[derive(Default)]
struct Model {
    types: BTreeMap<MonitorId, TypeName>,
    known: BTreeMap<Uid, NodeState>,
    delete: BTreeSet<Uid>,
    later: BTreeSet<Uid>,
    orphan: BTreeSet<Uid>,
    misplaced: BTreeSet<(Uid, Uid)>,
    /// Objects whose known state had a failed write.
    awaited: BTreeSet<Uid>,
    /// Objects from whose known state references were removed.
    detached: BTreeSet<Uid>,
    /// Each resourceVersion, not shown yet, in which an object had none of our finalizers.
    finalizers_removed: BTreeSet<(Uid, u64)>,
    /// Proofs about objects that no monitor shows and that a reference names.
    absent: BTreeMap<Uid, BTreeSet<Coordinates>>,
}

fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.deletion.is_some() && meta.finalizers.iter().any(|it| **it == *finalizer)
}

/// All claims of an object about an owner, without blockOwnerDeletion.
fn claims_of(meta: &Meta, owner: &Uid) -> Vec<(Atom, Atom, Atom)> {
    let refs = meta.owners.iter().filter(|it| it.uid == *owner);
    refs.map(|it| (it.api_version.clone(), it.kind.clone(), it.name.clone())).collect()
}

fn referenced(meta: &Meta, owner: &Uid) -> Vec<Coordinates> {
    let refs = meta.owners.iter().filter(|it| it.uid == *owner);
    refs.map(|it| Coordinates::referenced(it, &meta.namespace)).collect()
}

fn has_no_finalizers(meta: &Meta) -> bool {
    meta.deletion.is_none() && meta.finalizers.is_empty()
}

fn is_foreground(meta: &Meta) -> bool {
    has(meta, "foregroundDeletion") && !has(meta, "orphan")
}

impl Model {
    fn meta(&self, uid: &Uid) -> Option<&Meta> {
        match self.known.get(uid) {
            Some(NodeState::Observed(_, meta)) => Some(meta),
            _ => None,
        }
    }

    /// A resourceVersion at this distance from the known one.
    fn version(&self, name: &str, away: i64) -> u64 {
        let known = self.meta(&Uid::new(name)).and_then(|it| it.version.number());
        known.unwrap_or(30).saturating_add_signed(away)
    }

    fn coordinates(&self, uid: &Uid) -> Option<Coordinates> {
        match self.known.get(uid)? {
            NodeState::Observed(by, meta) => {
                let TypeName { api_version, kind } = self.types[by].clone();
                let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
                Some(Coordinates { kind, api_version, namespace, name, uid: uid.clone() })
            }
            NodeState::Referenced(coordinates) | NodeState::Unwatched(coordinates, _) => Some(coordinates.clone()),
            NodeState::Gone => None,
        }
    }

    fn foreground(&self, uid: &Uid) -> bool {
        self.meta(uid).is_some_and(is_foreground)
    }

    fn dependents(&self, owner: &Uid) -> Vec<Uid> {
        let names = |uid: &&Uid| self.meta(uid).is_some_and(|it| it.owners.iter().any(|it| it.uid == *owner));
        self.known.keys().filter(names).cloned().collect()
    }

    /// Its dependents, and unwatched objects that still block it.
    fn below(&self, owner: &Uid) -> Vec<Uid> {
        let names = |uid: &&Uid| self.refs(uid).iter().any(|it| it.uid == *owner);
        self.known.keys().filter(names).cloned().collect()
    }

    fn refs(&self, uid: &Uid) -> &[OwnerRef] {
        match &self.known[uid] {
            NodeState::Observed(_, meta) => &meta.owners,
            NodeState::Unwatched(_, holds) => holds,
            NodeState::Referenced(_) | NodeState::Gone => &[],
        }
    }

    fn blocking(&self, owner: &Uid) -> BTreeSet<Uid> {
        let blocks = |uid: &Uid| self.refs(uid).iter().any(|it| it.uid == *owner && it.block_owner_deletion);
        self.below(owner).into_iter().filter(|it| it != owner && blocks(it)).collect()
    }

    /// Every waiting owner, and whether a dependent blocks it.
    fn waiting(&self) -> BTreeMap<Uid, bool> {
        let waiting = self.known.keys().filter(|it| self.foreground(it));
        waiting.map(|it| (it.clone(), !self.blocking(it).is_empty())).collect()
    }

    fn clear_due(&mut self, uid: &Uid) {
        self.delete.remove(uid);
        self.later.remove(uid);
        self.orphan.remove(uid);
        self.misplaced.retain(|(dependent, _)| dependent != uid);
        self.awaited.remove(uid);
        self.detached.remove(uid);
        self.finalizers_removed.retain(|(it, _)| it != uid);
    }

    fn remove_unneeded(&mut self) {
        let needless = |uid: &&Uid| self.meta(uid).is_none() && self.refs(uid).is_empty() && self.below(uid).is_empty();
        let needless: Vec<Uid> = self.known.keys().filter(needless).cloned().collect();
        for uid in needless {
            self.known.remove(&uid);
            self.absent.remove(&uid);
            self.clear_due(&uid);
        }
    }

    /// The proof that the referenced object is gone.
    fn proof(&self, claim: &Coordinates) -> Option<Coordinates> {
        let anywhere = Coordinates { namespace: Atom::default(), ..claim.clone() };
        let proofs = self.absent.get(&claim.uid)?;
        [claim.clone(), anywhere].into_iter().find(|it| proofs.contains(it))
    }

    /// All claims of dependents about an owner.
    fn claims(&self, owner: &Uid) -> BTreeSet<Coordinates> {
        let dependents = self.dependents(owner).into_iter().filter_map(|it| self.meta(&it).cloned());
        dependents.flat_map(|it| referenced(&it, owner)).collect()
    }

    /// Keeps a proof, and of the other proofs those that a claim needs.
    fn keep_proof(&mut self, proof: &Coordinates) {
        self.absent.entry(proof.uid.clone()).or_default().insert(proof.clone());
        let kept = self.claims(&proof.uid).iter().filter_map(|it| self.proof(it)).collect();
        self.absent.insert(proof.uid.clone(), kept);
    }

    fn examine(&mut self, dependent: &Uid, owner: &Uid) {
        let Some(identity) = self.coordinates(owner) else {
            self.delete.insert(dependent.clone());
            return;
        };
        let seen = self.meta(owner).is_some();
        let meta = self.meta(dependent).unwrap();
        let elsewhere = !identity.namespace.is_empty() && identity.namespace != meta.namespace;
        let misnamed = meta.owners.iter().any(|it| it.uid == *owner && !identity.match_ref(it));
        let wrongly_scoped = !seen && identity.namespace.is_empty() && !meta.namespace.is_empty();
        let waits = dependent != owner && self.foreground(owner);
        if elsewhere && seen {
            self.misplaced.insert((dependent.clone(), owner.clone()));
        }
        if elsewhere || misnamed || wrongly_scoped || waits {
            self.delete.insert(dependent.clone());
        }
    }

    fn observe(&mut self, by: MonitorId, meta: Meta, any: bool) {
        let uid = meta.uid.clone();
        let old = self.meta(&uid).cloned();
        if matches!(self.known.get(&uid), Some(NodeState::Observed(of, _)) if *of != by) {
            return;
        }
        let is_older = old.as_ref().is_some_and(|it| meta.version.is_older_than(&it.version));
        if is_older && !any {
            return;
        }
        if is_older {
            self.finalizers_removed.retain(|(it, _)| *it != uid);
        }
        self.absent.remove(&uid);
        let (waiting, identity) = (self.waiting(), self.coordinates(&uid).filter(|_| old.is_some()));
        if old.is_none() {
            self.clear_due(&uid);
        }
        self.known.insert(uid.clone(), NodeState::Observed(by, meta.clone()));
        for owner in meta.owners.iter().map(|it| &it.uid).collect::<BTreeSet<_>>() {
            self.link(&uid, &meta, old.as_ref(), owner);
        }
        if let Some(old) = &old {
            let same = |owner: &Uid| claims_of(old, owner) == claims_of(&meta, owner);
            if old.owners.iter().any(|it| !same(&it.uid)) {
                let kept: BTreeSet<_> = meta.owners.iter().map(|it| &it.uid).filter(|it| same(it)).collect();
                kept.into_iter().for_each(|owner| self.examine(&uid, owner));
            }
        }
        self.remove_unneeded();
        if self.coordinates(&uid) != identity {
            for dependent in self.dependents(&uid) {
                self.examine(&dependent, &uid);
            }
        }
        if old.as_ref().is_some_and(|it| it.version != meta.version) {
            self.is_newer(&uid, &meta);
        }
        let same_deletion = old.filter(|_| !self.were_finalizers_removed(&uid, &meta) && !is_older);
        self.react(&uid, &meta, same_deletion.as_ref());
        self.unblocked(&waiting);
    }

    /// What waited for a newer state does not wait any more.
    fn is_newer(&mut self, uid: &Uid, meta: &Meta) {
        if self.awaited.remove(uid) {
            self.delete.insert(uid.clone());
        }
        if self.detached.remove(uid) {
            meta.owners.iter().for_each(|it| self.examine(uid, &it.uid));
        }
    }

    /// True if its finalizer was removed before this state, but after all states shown until now. If this state is
    /// older than the last removal, that removal has no effect any more.
    fn were_finalizers_removed(&mut self, uid: &Uid, meta: &Meta) -> bool {
        let last =
            self.finalizers_removed.iter().filter(|(it, _)| it == uid).map(|(_, at)| Version::from(*at)).next_back();
        let Some(last) = last else { return false };
        let is_over = meta.version.is_older_than(&last);
        // An object without finalizers has none to remove: each one that is added is new.
        if !is_over || has_no_finalizers(meta) {
            self.finalizers_removed.retain(|(it, _)| it != uid);
        }
        last.is_older_than(&meta.version)
    }

    fn react(&mut self, uid: &Uid, meta: &Meta, old: Option<&Meta>) {
        if has(meta, "orphan") && !old.is_some_and(|it| has(it, "orphan")) {
            self.orphan.insert(uid.clone());
        }
        if is_foreground(meta) && !old.is_some_and(is_foreground) {
            self.delete.extend(self.below(uid));
            self.delete.insert(uid.clone());
        }
    }

    fn on_finalizers_removed(&mut self, uid: &Uid, at: u64) {
        let Some(meta) = self.meta(uid).cloned() else { return };
        if Version::from(at).is_older_than(&meta.version) {
            // The report is late: a newer state is shown already.
            self.react(uid, &meta, None);
        } else if Version::from(at) != meta.version && !has_no_finalizers(&meta) {
            self.finalizers_removed.insert((uid.clone(), at));
        }
    }

    /// If the known state is not the one of the failed write, there is nothing to wait for.
    fn await_newer(&mut self, uid: &Uid, than: u64) {
        match self.meta(uid).map(|it| it.version == Version::from(than)) {
            Some(true) => drop(self.awaited.insert(uid.clone())),
            Some(false) => drop(self.delete.insert(uid.clone())),
            None => {}
        }
    }

    fn detach(&mut self, uid: &Uid, from: u64, owners: &[Uid]) {
        let Some(meta) = self.meta(uid) else { return };
        if meta.version == Version::from(from) {
            self.detached.insert(uid.clone());
        } else if meta.owners.iter().any(|it| owners.contains(&it.uid)) {
            self.delete.insert(uid.clone());
        }
    }

    fn link(&mut self, uid: &Uid, meta: &Meta, old: Option<&Meta>, owner: &Uid) {
        let claims = |it: &Meta| claims_of(it, owner);
        if old.is_some_and(|it| claims(it) == claims(meta)) {
            return;
        }
        // The reference is corrected in place, and no other reference keeps the old claim of the owner.
        let alone = old.is_some_and(|it| !claims(it).is_empty()) && self.below(owner) == [uid.clone()];
        if alone && self.meta(owner).is_none() && self.refs(owner).is_empty() {
            self.known.remove(owner);
            self.absent.remove(owner);
            self.clear_due(owner);
        }
        if !self.known.contains_key(owner) {
            let first = meta.owners.iter().find(|it| it.uid == *owner).unwrap();
            self.known.insert(owner.clone(), NodeState::Referenced(Coordinates::referenced(first, &meta.namespace)));
            self.delete.insert(owner.clone());
        } else if matches!(self.known[owner], NodeState::Unwatched(..)) && self.below(owner) == [uid.clone()] {
            self.delete.insert(owner.clone());
        }
        self.examine(uid, owner);
    }

    fn unblocked(&mut self, before: &BTreeMap<Uid, bool>) {
        for (uid, blocked) in self.waiting() {
            if !blocked && before.get(&uid) == Some(&true) {
                self.delete.insert(uid);
            }
        }
    }

    /// It is no longer observed.
    fn stop_observing(&mut self, uid: &Uid, known: NodeState) {
        let waiting = self.waiting();
        self.known.insert(uid.clone(), known);
        self.clear_due(uid);
        self.remove_unneeded();
        self.unblocked(&waiting);
    }

    fn mark_gone(&mut self, uid: &Uid, proof: Option<Coordinates>) {
        self.absent.entry(uid.clone()).or_default().extend(proof);
        self.stop_observing(uid, NodeState::Gone);
        self.delete.extend(self.below(uid));
    }

    fn stop(&mut self, by: MonitorId) {
        let shown = |it: &&Uid| matches!(&self.known[*it], NodeState::Observed(of, _) if *of == by);
        let shown: Vec<Uid> = self.known.keys().filter(shown).cloned().collect();
        let holds = |uid: &Uid| -> Vec<OwnerRef> {
            let blocks = |it: &&OwnerRef| it.block_owner_deletion && it.uid != *uid;
            self.refs(uid).iter().filter(blocks).cloned().collect()
        };
        let held: Vec<_> = shown.into_iter().map(|uid| (holds(&uid), uid)).collect();
        let awaited = |holds: &[OwnerRef]| holds.iter().any(|it| self.foreground(&it.uid));
        let awaited: BTreeSet<Uid> = held.iter().filter(|it| awaited(&it.0)).map(|it| it.1.clone()).collect();
        let stopped: Vec<Uid> = held.iter().map(|it| it.1.clone()).collect();
        for (holds, uid) in held {
            let coordinates = self.coordinates(&uid).unwrap();
            self.stop_observing(&uid, NodeState::Unwatched(coordinates, holds));
        }
        for uid in stopped {
            if awaited.contains(&uid) || !self.below(&uid).is_empty() {
                self.delete.insert(uid);
            }
        }
        self.remove_unneeded();
        self.types.remove(&by);
    }

    /// `anywhere`: its type is cluster-scoped.
    fn absent(&mut self, probed: &Coordinates, anywhere: bool) -> bool {
        let anywhere = anywhere || probed.namespace.is_empty();
        let is_probed = |it: &Coordinates| {
            let namespace = if anywhere { &probed.namespace } else { &it.namespace };
            Coordinates { namespace: namespace.clone(), ..it.clone() } == *probed
        };
        let namespace = if anywhere { Atom::default() } else { probed.namespace.clone() };
        let proof = Coordinates { namespace, ..probed.clone() };
        let (mut matching, mut others) = (Vec::new(), 0);
        for dependent in self.dependents(&probed.uid) {
            let meta = self.meta(&dependent).unwrap();
            let fits = anywhere || probed.namespace == meta.namespace;
            let of_it = || meta.owners.iter().filter(|it| it.uid == probed.uid);
            others += usize::from(of_it().any(|it| !(fits && probed.match_ref(it))));
            if of_it().any(|it| fits && probed.match_ref(it)) {
                matching.push(dependent);
            }
        }
        let is_known = matching.len();
        match self.known.get(&probed.uid).cloned() {
            None => {}
            Some(NodeState::Gone) => self.keep_proof(&proof),
            Some(NodeState::Observed(..) | NodeState::Unwatched(..))
                if self.coordinates(&probed.uid).is_some_and(|it| is_probed(&it)) =>
            {
                self.mark_gone(&probed.uid, Some(proof));
            }
            Some(NodeState::Referenced(..)) if others == 0 => self.mark_gone(&probed.uid, Some(proof)),
            Some(NodeState::Observed(..) | NodeState::Unwatched(..)) => self.delete.extend(matching),
            Some(NodeState::Referenced(referenced)) => {
                self.delete.extend(matching);
                self.keep_proof(&proof);
                if is_probed(&referenced) {
                    let claims = self.claims(&probed.uid);
                    let mut in_order = claims.range((Excluded(probed), Unbounded)).chain(&claims);
                    let next = in_order.find(|it| self.proof(it).is_none()).cloned();
                    match next {
                        Some(next) => self.claim(next),
                        None => self.mark_gone(&probed.uid, None),
                    }
                }
            }
        }
        is_known > 0
    }

    fn on_live_owner(&mut self, at: &Coordinates) {
        let is_found = |referenced: &Coordinates| {
            let same_place = at.namespace.is_empty() || at.namespace == referenced.namespace;
            let same_type = (&at.api_version, &at.kind) == (&referenced.api_version, &referenced.kind);
            same_place && same_type && at.name == referenced.name
        };
        let is_looked_for = match self.known.get(&at.uid) {
            None | Some(NodeState::Observed(..) | NodeState::Unwatched(..)) => true,
            Some(NodeState::Referenced(referenced)) => is_found(referenced),
            Some(NodeState::Gone) => false,
        };
        if !is_looked_for && self.proof(at).is_none() {
            self.claim(at.clone());
        }
    }

    fn claim(&mut self, at: Coordinates) {
        self.clear_due(&at.uid);
        self.later.insert(at.uid.clone());
        self.known.insert(at.uid.clone(), NodeState::Referenced(at));
    }

    /// True if it blocked an owner.
    fn unblock_owners(&mut self, uid: &Uid) -> bool {
        let waiting = self.waiting();
        let Some(NodeState::Unwatched(_, holds)) = self.known.get_mut(uid) else { return false };
        let held = !std::mem::take(holds).is_empty();
        self.remove_unneeded();
        self.unblocked(&waiting);
        held
    }

    fn is_due(&self, uid: &Uid) -> bool {
        [&self.delete, &self.later, &self.orphan].iter().any(|it| it.contains(uid))
    }

    fn take(&mut self) -> BTreeSet<String> {
        let item = |uid: &Uid, verb: &str| match &self.known[uid] {
            NodeState::Observed(..) => Some(format!("delete {uid}")),
            NodeState::Referenced(it) | NodeState::Unwatched(it, _) => {
                Some(format!("{verb} {}/{} {}/{} {}", it.api_version, it.kind, it.namespace, it.name, it.uid))
            }
            NodeState::Gone => None,
        };
        let later = self.later.difference(&self.delete).filter_map(|it| item(it, "later"));
        let mut due: BTreeSet<String> = self.delete.iter().filter_map(|it| item(it, "look for")).chain(later).collect();
        due.extend(self.orphan.iter().map(|it| format!("orphan {it}")));
        for (dependent, owner) in &self.misplaced {
            if self.meta(dependent).is_some_and(|it| it.owners.iter().any(|it| it.uid == *owner)) {
                due.insert(format!("{dependent} is not where {owner} is"));
            }
        }
        self.delete.clear();
        self.later.clear();
        self.orphan.clear();
        self.misplaced.clear();
        due
    }
}

/// Every read of the graph gives the same result as the model.
fn check_agreement(graph: &Graph, model: &Model) {
    assert_eq!(graph.size().0 + graph.size().1, model.known.len());
    for name in NAMES {
        let uid = Uid::new(name);
        let view = graph.view(&uid);
        let seen = match model.known.get(&uid) {
            None => None,
            Some(NodeState::Observed(..)) => Some(ObjectState::Observed),
            Some(NodeState::Referenced(_)) => Some(ObjectState::Virtual),
            Some(NodeState::Unwatched(..)) => Some(ObjectState::Unwatched),
            Some(NodeState::Gone) => Some(ObjectState::Gone),
        };
        assert_eq!(view.as_ref().map(|it| it.state), seen, "{name}");
        let holds = matches!(model.known.get(&uid), Some(NodeState::Unwatched(_, holds)) if !holds.is_empty());
        assert_eq!(graph.is_unwatched_blocker(&uid), holds, "{name}");
        assert_eq!(view.as_ref().is_some_and(|it| it.is_due), model.is_due(&uid), "{name}");
        let counts = view.as_ref().map_or((0, 0), |it| (it.dependents, it.blocking));
        assert_eq!(counts, (model.below(&uid).len(), model.blocking(&uid).len()), "{name}");
        let coordinates = model.coordinates(&uid);
        assert_eq!(view.as_ref().and_then(|it| it.coordinates.clone()), coordinates, "{name}");
        assert_eq!(view.and_then(|it| it.meta).as_ref(), model.meta(&uid), "{name}");

        for claim in model.claims(&uid) {
            let proof = graph.absence_proof(&claim).map(|it| it.owner().clone());
            assert_eq!(proof, model.proof(&claim), "{claim}");
        }
        let mut dependents: Vec<Uid> = graph.dependents(&uid).into_iter().map(|it| it.coordinates.uid).collect();
        dependents.sort();
        assert_eq!(dependents, model.dependents(&uid), "{name}");
        let blocking: BTreeSet<_> = graph.blocking(&uid).into_iter().map(|(it, own)| (it.uid().clone(), own)).collect();
        let naive: BTreeSet<_> =
            model.blocking(&uid).into_iter().map(|it| (it.clone(), model.foreground(&it))).collect();
        assert_eq!(blocking, naive, "{name}");
        if let Some(view) = graph.node(&Item::Observed(uid.clone())) {
            let below = model.dependents(&uid);
            assert_eq!(view.deleting_dependents, model.foreground(&uid), "{name}");
            assert_eq!(view.has_dependents, !model.below(&uid).is_empty(), "{name}");
            assert_eq!(view.has_waiting_dependent, below.iter().any(|it| model.foreground(it)), "{name}");
        }
    }
}

fn run_steps(steps: &[Step]) {
    let (mut graph, mut model) = (Graph::new(3), Model::default());
    let mut monitors: Vec<MonitorId> = (0..TYPES).map(|of| graph.monitor(&resource(of))).collect();
    model.types = monitors.iter().enumerate().map(|(of, id)| (*id, TypeName::from(&resource(of)))).collect();
    for (now, step) in (30u64..).zip(steps) {
        match step.clone() {
            Step::Observe { uid, other, refs, deleting, finalizers, age, any } => {
                let words = ["foregroundDeletion", "orphan", "example.com/mine"].iter().enumerate();
                let finalizers: Vec<&str> =
                    words.filter(|(at, _)| finalizers >> at & 1 == 1).map(|(_, it)| *it).collect();
                let object = fixture::object(NAMES[uid]).in_namespace(namespace(uid));
                let object = object.owned_by(refs.iter().map(Claim::owner_ref)).deleting(&finalizers);
                let mut meta = object.0;
                meta.version = Version::from(now - age);
                meta.deletion = deleting.then_some(7);
                let by = monitors[shown_by(uid, other)];
                if any {
                    graph.observe_any(by, meta.clone());
                } else {
                    graph.observe(by, meta.clone());
                }
                model.observe(by, meta, any);
            }
            Step::Again { uid, later } => {
                let version = Version::from(model.version(NAMES[uid], later));
                if let Some(NodeState::Observed(by, meta)) = model.known.get(&Uid::new(NAMES[uid])).cloned() {
                    let meta = Meta { version, ..meta };
                    graph.observe(by, meta.clone());
                    model.observe(by, meta, false);
                }
            }
            Step::Deleted { uid, other } => {
                let uid_of = Uid::new(NAMES[uid]);
                let by = monitors[shown_by(uid, other)];
                let shown = matches!(model.known.get(&uid_of), Some(NodeState::Observed(of, _)) if *of == by);
                let named = model.coordinates(&uid_of).filter(|_| shown && !model.below(&uid_of).is_empty());
                let told = graph.on_deleted(by, &uid_of).map(|it| it.owner().clone());
                assert_eq!(told, named);
                match model.known.get(&uid_of) {
                    Some(NodeState::Unwatched(..)) => drop(model.delete.insert(uid_of)),
                    Some(NodeState::Referenced(_)) => model.mark_gone(&uid_of, None),
                    Some(NodeState::Observed(..)) if shown => model.mark_gone(&uid_of, told),
                    None | Some(NodeState::Observed(..) | NodeState::Gone) => {}
                }
            }
            Step::Missing { uid, other } => {
                let (by, uid) = (monitors[shown_by(uid, other)], Uid::new(NAMES[uid]));
                graph.on_missing(by, &uid);
                if matches!(model.known.get(&uid), Some(NodeState::Observed(of, _)) if *of == by) {
                    model.mark_gone(&uid, None);
                }
            }
            Step::Absent { claim, namespace, anywhere } => {
                let probed = fixture::claim(&claim.owner_ref(), namespace);
                let mut asked = probed.clone();
                if anywhere {
                    asked.namespace = Atom::default();
                }
                let known = graph.on_proved_absent(&probed, Gone::from_deleted_event(asked));
                assert_eq!(known, model.absent(&probed, anywhere));
            }
            Step::Restart { of } => {
                graph.stop_monitor(monitors[of]);
                model.stop(monitors[of]);
                monitors[of] = graph.monitor(&resource(of));
                model.types.insert(monitors[of], TypeName::from(&resource(of)));
            }
            Step::FinalizersRemoved { uid, at } => {
                let (uid, at) = (Uid::new(NAMES[uid]), model.version(NAMES[uid], at));
                graph.on_finalizers_removed(&uid, &Version::from(at));
                model.on_finalizers_removed(&uid, at);
            }
            Step::AwaitNewer { uid, than } => {
                let (uid, than) = (Uid::new(NAMES[uid]), model.version(NAMES[uid], than));
                graph.await_newer(&uid, &Version::from(than));
                model.await_newer(&uid, than);
            }
            Step::Detached { uid, from, owners } => {
                let (uid, from) = (Uid::new(NAMES[uid]), model.version(NAMES[uid], from));
                let owners: Vec<Uid> = owners.iter().map(|it| Uid::new(NAMES[*it])).collect();
                graph.on_references_removed(&uid, &Version::from(from), &owners);
                model.detach(&uid, from, &owners);
            }
            Step::LiveOwner { claim, namespace } => {
                let found = fixture::claim(&claim.owner_ref(), namespace);
                graph.on_live_owner(&found);
                model.on_live_owner(&found);
            }
            Step::UnblockOwners { uid } => {
                let uid = Uid::new(NAMES[uid]);
                assert_eq!(graph.unblock_owners(&uid), model.unblock_owners(&uid));
            }
            Step::Take => {
                assert_eq!(graph.has_nothing_due(), has_nothing_due(&model));
                let due = fixture::words(&graph.take_due());
                let once: BTreeSet<String> = due.iter().cloned().collect();
                assert_eq!(due.len(), once.len(), "each once: {due:?}");
                assert_eq!(once, model.take());
            }
        }
        check_agreement(&graph, &model);
    }
}

fn has_nothing_due(model: &Model) -> bool {
    let Model { delete, later, orphan, misplaced, .. } = model;
    delete.is_empty() && later.is_empty() && orphan.is_empty() && misplaced.is_empty()
}

/// `CASES=200000 SEED=9 cargo test -p garbage-collector-controller --lib graph::tests::model` runs others, and more.
#[test]
fn the_graph_agrees_with_a_naive_model_under_random_events() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let cases = variable("CASES").map_or(3_000, |it| u32::try_from(it).unwrap());
    let rng_seed = RngSeed::Fixed(variable("SEED").unwrap_or(7));
    let config = Config { cases, rng_seed, failure_persistence: None, ..Config::default() };
    let check = |steps: Vec<Step>| {
        run_steps(&steps);
        Ok(())
    };
    TestRunner::new(config).run(&steps(), check).unwrap();
}
