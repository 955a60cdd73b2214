//! The parts of the graph that users see.

use std::{collections::BTreeSet, sync::Arc};

use api::{Meta, OwnerRef, Resource, Uid};

use super::{
    Coordinates, Graph,
    ids::Id,
    node::{Flags, Lifecycle, Node, NodeState, Observed},
};

/// How an object is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectState {
    /// A monitor shows it.
    Observed,
    /// It is known only from references.
    Virtual,
    /// A monitor showed it and has stopped.
    Unwatched,
    /// It is gone, and a reference still names it.
    Gone,
}

/// One object of a drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vertex {
    pub(crate) uid: Uid,
    pub(crate) state: ObjectState,
    /// `None` if it is gone.
    pub(crate) coordinates: Option<Coordinates>,
    pub(crate) deleting: bool,
    pub(crate) deleting_dependents: bool,
    pub(crate) owners: Arc<[OwnerRef]>,
}

/// The known state of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectView {
    pub(crate) state: ObjectState,
    pub(crate) coordinates: Option<Coordinates>,
    pub(crate) resource: Option<Resource>,
    pub(crate) meta: Option<Meta>,
    pub(crate) deleting: bool,
    pub(crate) orphaning: bool,
    pub(crate) deleting_dependents: bool,
    pub(crate) dependents: usize,
    pub(crate) blocking: usize,
    /// It would be in the result of [`Graph::take_due`].
    pub(crate) is_due: bool,
}

impl Graph {
    /// All objects with owners or dependents; with `uids`, only those connected with one of them. `None` if there are
    /// more than `most` objects.
    pub(crate) fn vertices(&self, uids: &[Uid], most: usize) -> Option<Vec<Vertex>> {
        let nodes: Vec<&Node> = if uids.is_empty() {
            self.nodes.iter().filter(|it| is_connected(it)).take(most.saturating_add(1)).collect()
        } else {
            self.component(uids, most).into_iter().filter_map(|id| self.nodes.get(id)).collect()
        };
        (nodes.len() <= most).then(|| nodes.into_iter().map(|it| self.vertex(it)).collect())
    }

    /// The known state of one object.
    pub(crate) fn view(&self, uid: &Uid) -> Option<ObjectView> {
        let node = self.nodes.get(self.nodes.find(uid)?)?;
        let Lifecycle { deleting, orphaning, foreground } = node.lifecycle();
        Some(ObjectView {
            state: object_state(node),
            coordinates: self.coordinates(node),
            resource: node.observed().and_then(|it| self.resource(it.by)).cloned(),
            meta: node.observed().map(|it| it.meta(uid, self.refs(it))),
            deleting,
            orphaning,
            deleting_dependents: foreground,
            dependents: node.below.as_deref().map_or(0, |it| it.dependents.len()),
            blocking: node.blocking() as usize,
            is_due: node.due.has(Flags::LISTED),
        })
    }

    /// All nodes reachable through owners and dependents. It stops after `most` plus one, because the graph is locked
    /// meanwhile.
    pub(super) fn component(&self, uids: &[Uid], most: usize) -> BTreeSet<Id> {
        let mut waiting: Vec<Id> = uids.iter().filter_map(|it| self.nodes.find(it)).collect();
        let mut found = BTreeSet::new();
        while found.len() <= most
            && let Some(id) = waiting.pop()
        {
            let Some(node) = self.nodes.get(id).filter(|it| is_connected(it)) else { continue };
            if found.insert(id) {
                waiting.extend(self.dependents_of(id));
                waiting.extend(self.edges(node).iter().filter_map(|it| self.nodes.find(&it.uid)));
            }
        }
        found
    }

    fn vertex(&self, node: &Node) -> Vertex {
        let lifecycle = node.lifecycle();
        Vertex {
            uid: node.uid.clone(),
            state: object_state(node),
            coordinates: self.coordinates(node),
            deleting: lifecycle.deleting,
            deleting_dependents: lifecycle.foreground,
            owners: self.edges(node),
        }
    }
}

/// True if the node has owners or dependents.
fn is_connected(node: &Node) -> bool {
    node.is_needed() || node.observed().is_some_and(Observed::has_owner_refs)
}

fn object_state(node: &Node) -> ObjectState {
    match &node.state {
        NodeState::Observed(_) => ObjectState::Observed,
        NodeState::Referenced { .. } => ObjectState::Virtual,
        NodeState::Unwatched { .. } => ObjectState::Unwatched,
        NodeState::Gone { .. } => ObjectState::Gone,
    }
}
