//! The reads of workers. Every result is copied, so that the lock is held briefly.

use api::{Resource, Uid, Version};

use super::{
    Coordinates, Dependent, Graph, Item, MonitorId, NodeView,
    node::{Node, NodeState, has_reference},
};
use crate::rules::evidence::Gone;

impl Graph {
    /// What a pass needs to know of its item; `None` if there is nothing to do, because the object is gone, or was
    /// observed since.
    pub(crate) fn node(&self, item: &Item) -> Option<NodeView> {
        let node = self.nodes.get(self.nodes.find(item.uid())?)?;
        let below = node.below.as_deref();
        let (coordinates, resource, meta) = match (item, &node.state) {
            (Item::Observed(_), NodeState::Observed(observed)) => {
                let resource = self.monitors.get(&observed.by).map(|it| it.of.clone());
                (self.coordinates(node)?, resource, Some(observed.meta(&node.uid, self.refs(observed))))
            }
            // The claim that the item was queued with, even if the graph has another one by now.
            (Item::Virtual(claim), NodeState::Referenced { .. } | NodeState::Unwatched { .. }) => {
                (Coordinates::clone(claim), None, None)
            }
            _ => return None,
        };
        let lifecycle = node.lifecycle();
        Some(NodeView {
            coordinates,
            resource,
            meta,
            deleting: lifecycle.deleting,
            deleting_dependents: lifecycle.foreground,
            has_dependents: below.is_some(),
            has_waiting_dependent: below.is_some_and(|it| it.deleting_dependents > 0),
        })
    }

    /// All dependents of this owner, for orphaning.
    pub(crate) fn dependents(&self, owner: &Uid) -> Vec<Dependent> {
        self.dependent_nodes(owner).filter_map(|it| self.dependent(it)).collect()
    }

    /// The dependents that block the deletion of this owner (blockOwnerDeletion), and whether each waits for its own
    /// dependents.
    pub(crate) fn blocking(&self, owner: &Uid) -> Vec<(Item, bool)> {
        let Some(id) = self.nodes.find(owner) else { return Vec::new() };
        // If no dependent blocks, do not iterate over them.
        if self.nodes.get(id).is_none_or(|it| it.blocking() == 0) {
            return Vec::new();
        }
        let blocks = |it: &Node| {
            it.observed().map_or_else(|| has_reference(it.blocking_refs(), owner), |it| it.is_blocking(owner, id))
        };
        let blocking = self.dependent_nodes(owner).filter(|it| it.uid != *owner && blocks(it));
        let item = |it: &Node| match it.lookup_coordinates() {
            Some(coordinates) => Item::Virtual(coordinates.clone()),
            None => Item::Observed(it.uid.clone()),
        };
        blocking.map(|it| (item(it), it.lifecycle().foreground)).collect()
    }

    /// The proof that the referenced object is gone, if the graph has it. The graph keeps it while a reference names
    /// these coordinates.
    pub(crate) fn absence_proof(&self, claim: &Coordinates) -> Option<Gone> {
        self.nodes.get(self.nodes.find(&claim.uid)?)?.proofs()?.get(claim).cloned()
    }

    /// True if a monitor shows the object.
    pub(crate) fn is_shown(&self, uid: &Uid) -> bool {
        self.nodes.find(uid).and_then(|id| self.nodes.get(id)).is_some_and(|it| it.observed().is_some())
    }

    /// True if this monitor has shown this state of an object, or if another one shows the object. Also true if the
    /// object is shown in a state newer than `whole`, the version of the last complete set or event: then a set that
    /// was cut off brought that state, and the next set may come from a server that lags.
    pub(crate) fn is_shown_at(&self, by: MonitorId, uid: &Uid, version: &Version, whole: &Version) -> bool {
        let known = self.nodes.find(uid).and_then(|id| self.nodes.get(id)?.observed());
        // A live read may prove an object gone while a set that contains it is being received.
        let was_shown = || self.monitors.get(&by).is_some_and(|it| it.proved_gone.get(uid) == Some(version));
        known.is_some_and(|it| it.by != by || it.version == *version || whole.is_older_than(&it.version)) || was_shown()
    }

    /// True for an unwatched object that blocks an owner.
    pub(crate) fn is_unwatched_blocker(&self, uid: &Uid) -> bool {
        self.nodes.find(uid).and_then(|id| self.nodes.get(id)).is_some_and(|it| !it.blocking_refs().is_empty())
    }

    /// The objects that a monitor shows.
    pub(crate) fn observed_by(&self, by: MonitorId) -> impl Iterator<Item = &Uid> {
        let members = self.monitors.get(&by).into_iter().flat_map(|it| it.members.iter());
        members.filter_map(|id| self.nodes.get(id)).map(|it| &it.uid)
    }

    /// The number of objects that a monitor shows.
    pub(crate) fn observed_count(&self, by: MonitorId) -> usize {
        self.monitors.get(&by).map_or(0, |it| it.members.len())
    }

    /// The number of observed objects, and of objects that are known only from references.
    pub(crate) fn size(&self) -> (usize, usize) {
        let observed = self.monitors.values().map(|it| it.members.len()).sum();
        (observed, self.nodes.len() - observed)
    }

    /// The coordinates of an object, observed or referenced; `None` if it is gone.
    pub(super) fn coordinates(&self, node: &Node) -> Option<Coordinates> {
        match &node.state {
            NodeState::Observed(observed) => {
                let type_name = &self.monitors.get(&observed.by)?.type_name;
                Some(Coordinates {
                    kind: type_name.kind.clone(),
                    api_version: type_name.api_version.clone(),
                    namespace: observed.namespace.clone(),
                    name: observed.name.clone(),
                    uid: node.uid.clone(),
                })
            }
            NodeState::Referenced { coordinates, .. } | NodeState::Unwatched { coordinates, .. } => {
                Some(Coordinates::clone(coordinates))
            }
            NodeState::Gone { .. } => None,
        }
    }

    pub(super) fn dependent_nodes(&self, owner: &Uid) -> impl Iterator<Item = &Node> {
        let node = self.nodes.find(owner).and_then(|id| self.nodes.get(id));
        let below = node.and_then(|it| it.below.as_deref());
        below.into_iter().flat_map(|it| it.dependents.iter()).filter_map(|id| self.nodes.get(id))
    }

    pub(super) fn resource(&self, by: MonitorId) -> Option<&Resource> {
        self.monitors.get(&by).map(|it| &it.of)
    }

    fn dependent(&self, node: &Node) -> Option<Dependent> {
        let observed = node.observed()?;
        Some(Dependent {
            coordinates: self.coordinates(node)?,
            resource: self.resource(observed.by)?.clone(),
            by: observed.by,
            version: observed.version.clone(),
            owners: self.refs(observed),
        })
    }
}
