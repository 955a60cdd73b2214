//! Objects and a graph to report them to, for tests.

use std::sync::Arc;

use api::{Atom, Meta, OwnerRef, Resource, Uid, Version};

use super::{Coordinates, Due, Graph, Item, MonitorId};
use crate::rules::evidence::Gone;

/// An object in namespace `ns` whose uid is its name.
pub(crate) fn object(name: &str) -> Object {
    Object(Meta {
        name: name.into(),
        namespace: "ns".into(),
        uid: Uid::new(name),
        version: Version::from(1),
        ..Meta::default()
    })
}

/// A reference to the Pod of this name and uid.
pub(crate) fn to(name: &str) -> OwnerRef {
    OwnerRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: name.into(),
        uid: Uid::new(name),
        controller: false,
        block_owner_deletion: false,
    }
}

/// The same with blockOwnerDeletion.
pub(crate) fn blocking(name: &str) -> OwnerRef {
    OwnerRef { block_owner_deletion: true, ..to(name) }
}

/// A reference with these fields.
pub(crate) fn named(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerRef {
    OwnerRef { api_version: api_version.into(), kind: kind.into(), uid: Uid::new(uid), ..to(name) }
}

/// The coordinates that a reference names if an object of this namespace has it.
pub(crate) fn claim(by: &OwnerRef, namespace: &str) -> Coordinates {
    Coordinates::referenced(by, &Atom::from(namespace))
}

#[derive(Clone)]
pub(crate) struct Object(pub(crate) Meta);

impl Object {
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        self.0.namespace = namespace.into();
        self
    }

    pub(crate) fn cluster_scoped(self) -> Self {
        self.in_namespace("")
    }

    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.0.uid = Uid::new(uid);
        self
    }

    pub(crate) fn version(mut self, version: u64) -> Self {
        self.0.version = Version::from(version);
        self
    }

    pub(crate) fn owned_by(mut self, owners: impl IntoIterator<Item = OwnerRef>) -> Self {
        self.0.owners = owners.into_iter().collect();
        self
    }

    pub(crate) fn deleting(mut self, finalizers: &[&str]) -> Self {
        self.0.deletion = Some(1);
        self.0.finalizers = finalizers.iter().map(|it| Atom::from(*it)).collect::<Arc<[Atom]>>();
        self
    }

    pub(crate) fn foreground(self) -> Self {
        self.deleting(&["foregroundDeletion"])
    }

    pub(crate) fn orphaning(self) -> Self {
        self.deleting(&["orphan"])
    }
}

/// A graph with monitors of three types.
pub(crate) struct World {
    pub(crate) graph: Graph,
    pub(crate) pods: MonitorId,
    pub(crate) sets: MonitorId,
    pub(crate) nodes: MonitorId,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut graph = Graph::new(1);
        let pods = graph.monitor(&Resource::namespaced("", "v1", "pods", "Pod"));
        let sets = graph.monitor(&Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"));
        let nodes = graph.monitor(&Resource::cluster("", "v1", "nodes", "Node"));
        Self { graph, pods, sets, nodes }
    }

    pub(crate) fn pod(&mut self, object: Object) {
        self.graph.observe(self.pods, object.0);
    }

    pub(crate) fn set(&mut self, object: Object) {
        self.graph.observe(self.sets, object.0);
    }

    pub(crate) fn node(&mut self, object: Object) {
        self.graph.observe(self.nodes, object.0);
    }

    pub(crate) fn pod_deleted(&mut self, uid: &str) -> Option<Coordinates> {
        self.graph.on_deleted(self.pods, &Uid::new(uid)).map(|it| it.owner().clone())
    }

    /// A live read of this claim found nothing.
    pub(crate) fn absent(&mut self, claim: &Coordinates) -> bool {
        self.graph.on_proved_absent(claim, Gone::from_deleted_event(claim.clone()))
    }

    /// The same for a cluster-scoped type.
    pub(crate) fn absent_anywhere(&mut self, claim: &Coordinates) -> bool {
        let asked = Coordinates { namespace: Atom::default(), ..claim.clone() };
        self.graph.on_proved_absent(claim, Gone::from_deleted_event(asked))
    }

    /// Takes what is due, as text.
    pub(crate) fn due(&mut self) -> Vec<String> {
        words(&self.graph.take_due())
    }

    /// Discards what is due.
    pub(crate) fn without_due(mut self) -> Self {
        self.graph.take_due();
        self
    }

    pub(crate) fn is_known(&self, uid: &str) -> bool {
        self.graph.view(&Uid::new(uid)).is_some()
    }

    /// Uids of the objects that name this one.
    pub(crate) fn dependents(&self, owner: &str) -> Vec<String> {
        let mut uids: Vec<String> =
            self.graph.dependents(&Uid::new(owner)).iter().map(|it| it.coordinates.uid.to_string()).collect();
        uids.sort();
        uids
    }
}

pub(crate) fn observed(uid: &str) -> Item {
    Item::Observed(Uid::new(uid))
}

pub(crate) fn lookup_coordinates(by: &OwnerRef, namespace: &str) -> Item {
    Item::Virtual(Arc::new(claim(by, namespace)))
}

/// `delete a`, `look for v1/Pod ns/a`, `later v1/Pod ns/a`, `orphan a`, `a is not where b is`.
pub(crate) fn words(due: &Due) -> Vec<String> {
    let Due { delete, delete_later, orphan, misplaced } = due;
    let item = |verb: &str, item: &Item| match item {
        Item::Observed(uid) => format!("delete {uid}"),
        Item::Virtual(it) => format!("{verb} {}/{} {}/{} {}", it.api_version, it.kind, it.namespace, it.name, it.uid),
    };
    let mut words: Vec<String> = delete.iter().map(|it| item("look for", it)).collect();
    words.extend(delete_later.iter().map(|it| item("later", it)));
    words.extend(orphan.iter().map(|it| format!("orphan {it}")));
    words.extend(misplaced.iter().map(|it| format!("{} is not where {} is", it.dependent.uid, it.owner.uid)));
    words
}

/// All permutations.
pub(crate) fn orders<T: Clone>(all: &[T]) -> Vec<Vec<T>> {
    if all.is_empty() {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for at in 0..all.len() {
        let mut rest = all.to_vec();
        let first = rest.remove(at);
        for mut order in self::orders(&rest) {
            order.insert(0, first.clone());
            orders.push(order);
        }
    }
    orders
}
