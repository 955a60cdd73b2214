//! The graph: known objects, their owners, and the items that are due because of them.
//!
//! Monitors report what they observe, workers report what they proved, and the graph lists what must be checked. It
//! does no I/O and reads no clock. It makes no decision: before each write, the facts are read live.
//!
//! A node is *observed* while a monitor shows its object. Before that, or after its type is no longer watched, it is
//! *virtual*: a reference names it, rightly or wrongly, and a worker must look it up at the referenced coordinates.
//! After its deletion, a node is kept as *gone* as long as a reference names it. So each reference leads to a node, and
//! an owner that is observed late finds its dependents. A node that is not observed is removed with the last reference
//! to it, so no lookup is useless.
//!
//! Five situations make an item due:
//! - a reference to an unknown owner: the owner, because it may be long gone;
//! - a reference that does not match its owner, or whose owner is gone or waiting: the dependent;
//! - an owner is deleted, or begins to wait for its dependents: all its dependents;
//! - the last blocking dependent of a waiting owner is gone: the owner;
//! - an object must be orphaned from now on: the object.
//!
//! An unnecessary due item does no harm. The order of observations does not matter, because the graph compares states,
//! before and after, and ignores event types. An object costs 160 to 180 bytes, for any number of dependents of its
//! owner.
//!
//! Reading order: `types`, `observe`, `edges`, `absence`, `due`, `read`, `debug_view`; then the memory layout: `node`,
//! `compact_refs`, `slab`, `ids`.

mod types;

mod absence;
mod debug_view;
mod due;
mod edges;
mod observe;
mod read;

mod compact_refs;
mod ids;
mod node;
mod slab;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::{Resource, Uid, Version};

pub(crate) use self::{
    debug_view::{ObjectState, ObjectView, Vertex},
    types::{Coordinates, Dependent, Due, Item, Misplaced, MonitorId, NodeView, TypeName},
};
use self::{due::DueLists, ids::Ids, slab::Slab};

/// See the module. Each report is compared with the known state, so a repeated report has no effect.
pub(crate) struct Graph {
    nodes: Slab,
    monitors: BTreeMap<MonitorId, Monitor>,
    begun: u32,
    due_lists: DueLists,
}

struct Monitor {
    of: Resource,
    type_name: TypeName,
    /// The objects that it shows.
    members: Ids,
    /// Objects that a live read proved gone before this monitor showed it, each with the state that it showed last.
    proved_gone: BTreeMap<Uid, Version>,
}

impl Graph {
    /// An empty graph. Equal seeds and equal histories give equal orders.
    pub(crate) fn new(seed: u64) -> Self {
        Self { nodes: Slab::new(seed), monitors: BTreeMap::new(), begun: 0, due_lists: DueLists::default() }
    }

    /// Begins a monitor of a type.
    pub(crate) fn monitor(&mut self, of: &Resource) -> MonitorId {
        let id = MonitorId(self.begun);
        self.begun += 1;
        let monitor = Monitor {
            of: of.clone(),
            type_name: TypeName::from(of),
            members: Ids::default(),
            proved_gone: BTreeMap::new(),
        };
        self.monitors.insert(id, monitor);
        id
    }
}
