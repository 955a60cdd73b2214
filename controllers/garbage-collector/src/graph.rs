//! What is known of objects and their owners, and what is due because of it.
//!
//! A machine: monitors tell it what they show, workers what they proved, and it says what is to be looked at. It does no I/O
//! and knows no time. Nothing here is a decision: before each write the facts are asked for anew.
//!
//! A node is *observed* while a monitor shows its object. Before that, or when its type is watched no more, it is *virtual*:
//! some reference names it, rightly or not, and somebody is to look for it under the coordinates that were claimed. When it
//! went it stays as *gone* as long as something names it. So each reference leads to a node, and whoever shows up late finds
//! its dependents; a node that is not observed goes with the last reference to it, so that nothing is looked for in vain.
//!
//! Five things make something due:
//! - a reference to an owner that was never heard of: the owner, as it may be long gone;
//! - a reference that does not fit what its owner is, or leads to one that went or waits: the dependent;
//! - an owner goes, or waits for its dependents from now on: all of them;
//! - the last dependent that blocked a waiting owner leaves it: the owner;
//! - an object is to be orphaned from now on: it.
//!
//! Each is harmless when it was for nothing. Order of observation does not matter, as nothing is an edge: only what is known
//! before and after counts. An object costs 160 to 180 bytes, however many depend on its owner.
//!
//! Reading order: `words`, `observe`, `edges`, `absence`, `due`, `ask`, `picture`; then how it lies in memory: `node`, `plain`, `slab`, `ids`.

mod words;

mod absence;
mod ask;
mod due;
mod edges;
mod observe;
mod picture;

mod ids;
mod node;
mod plain;
mod slab;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::Resource;

use self::{due::Lines, ids::Ids, slab::Slab};
pub(crate) use self::{
    picture::{Portrait, Seen, Vertex},
    words::{Coordinates, Dependent, Due, Item, Misplaced, MonitorId, NodeView, TypeName},
};

/// See the module. What is fed is compared with what is known, so feeding twice is of no effect.
pub(crate) struct Graph {
    nodes: Slab,
    monitors: BTreeMap<MonitorId, Monitor>,
    begun: u32,
    lines: Lines,
}

struct Monitor {
    of: Resource,
    type_name: TypeName,
    /// What it shows.
    members: Ids,
}

impl Graph {
    /// Empty. Equal seeds and equal histories make equal orders.
    pub(crate) fn new(seed: u64) -> Self {
        Self { nodes: Slab::new(seed), monitors: BTreeMap::new(), begun: 0, lines: Lines::default() }
    }

    /// A monitor of a type begins.
    pub(crate) fn monitor(&mut self, of: &Resource) -> MonitorId {
        let id = MonitorId(self.begun);
        self.begun += 1;
        let monitor = Monitor { of: of.clone(), type_name: TypeName::from(of), members: Ids::default() };
        self.monitors.insert(id, monitor);
        id
    }
}
