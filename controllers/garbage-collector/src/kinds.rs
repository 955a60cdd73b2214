//! Which resource an apiVersion and kind mean.
//!
//! References name owners by any version that is served, preferred or not. What is known is the last word of discovery on
//! each group version: one that did not answer is known as before, and one that answers lack is known until `monitors::plan`
//! says that it is served no more. A kind that is not known is an error and never a proof that an owner is gone: the next
//! look at discovery may show it. So is one that two resources of a group version have: at the wrong one of them an owner is
//! not found though it lives.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use api::{Atom, Resource};
use clock::Instant;
use discovery::Discovery;
use parking_lot::RwLock;

use crate::graph::TypeName;

/// An object whose type is served no more blocks its owners for so long.
pub(crate) const BLOCKS_UNSERVED: Duration = Duration::from_secs(300);

/// What is served, by the names that references use.
#[derive(Default)]
pub(crate) struct Kinds(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    known: BTreeMap<TypeName, Vec<Resource>>,
    /// Since when what was served is known no more: for [`BLOCKS_UNSERVED`] after that.
    gone: BTreeMap<TypeName, Instant>,
    /// Resources that answered 415 to a strategic merge patch, such as custom ones: as long as they are known.
    merge_only: BTreeSet<Resource>,
}

/// Nobody can tell where objects of this name are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("unable to get REST mapping for {api_version}/{kind}: no such kind is known to be served")]
    Unserved { api_version: Atom, kind: Atom },
    #[error("unable to get REST mapping for {api_version}/{kind}: {resources} are of this kind")]
    Ambiguous { api_version: Atom, kind: Atom, resources: String },
}

impl Kinds {
    /// Where objects of this type are.
    pub(crate) fn resource(&self, api_version: &Atom, kind: &Atom) -> Result<Resource, Unknown> {
        let name = TypeName { api_version: api_version.clone(), kind: kind.clone() };
        let inner = self.0.read();
        let found = inner.known.get(&name).map(Vec::as_slice).unwrap_or_default();
        let TypeName { api_version, kind } = name;
        match found {
            [only] => Ok(only.clone()),
            [] => Err(Unknown::Unserved { api_version, kind }),
            several => {
                let resources: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(Unknown::Ambiguous { api_version, kind, resources: resources.join(" and ") })
            }
        }
    }

    /// For how long objects of this type, which was served once and is not known, block their owners yet.
    pub(crate) fn blocks_for(&self, name: &TypeName, now: Instant) -> Duration {
        let since = self.0.read().gone.get(name).copied();
        since.map_or(Duration::ZERO, |it| BLOCKS_UNSERVED.saturating_sub(now.saturating_duration_since(it)))
    }

    /// True for a resource that takes merge patches and no strategic ones.
    pub(crate) fn is_merge_only(&self, resource: &Resource) -> bool {
        self.0.read().merge_only.contains(resource)
    }

    pub(crate) fn mark_merge_only(&self, resource: &Resource) {
        self.0.write().merge_only.insert(resource.clone());
    }

    /// All resources that are known.
    pub(crate) fn resources(&self) -> BTreeSet<Resource> {
        self.0.read().known.values().flatten().cloned().collect()
    }

    /// Forgets types of which the server itself says that it has no such resource.
    pub(crate) fn forget(&self, resources: &[Resource], now: Instant) {
        let mut inner = self.0.write();
        let Inner { known, gone, merge_only: _ } = &mut *inner;
        for name in resources.iter().map(TypeName::from) {
            let Some(of) = known.get_mut(&name) else { continue };
            of.retain(|it| !resources.contains(it));
            if of.is_empty() {
                known.remove(&name);
                gone.insert(name, now);
            }
        }
    }

    /// Takes in a new answer. What it lacks stays known unless it is served no more.
    pub(crate) fn learn(&self, discovery: &Discovery, unserved: &BTreeSet<Resource>, now: Instant) {
        let mut learned: BTreeMap<TypeName, Vec<Resource>> = BTreeMap::new();
        for served in discovery.served.iter().filter(|it| !it.resource.kind.is_empty()) {
            let name = TypeName::from(&served.resource);
            // Several resources may have one kind: an owner is read, so it is one that can be.
            if served.offers("get") {
                let alike = learned.entry(name).or_default();
                if !alike.contains(&served.resource) {
                    alike.push(served.resource.clone());
                }
            }
        }
        let mut inner = self.0.write();
        let Inner { known, gone, merge_only } = &mut *inner;
        for (name, of) in std::mem::take(known) {
            let mut kept = of.into_iter().filter(|it| !unserved.contains(it)).peekable();
            match learned.entry(name) {
                Entry::Vacant(place) if kept.peek().is_none() => drop(gone.insert(place.into_key(), now)),
                Entry::Vacant(place) => drop(place.insert(kept.collect())),
                // Until then nobody can tell where an object of the kind is.
                Entry::Occupied(mut place) => {
                    let new = place.get_mut();
                    for it in kept {
                        if !new.contains(&it) {
                            new.push(it);
                        }
                    }
                }
            }
        }
        let is_recent = |since: Instant| now.saturating_duration_since(since) < BLOCKS_UNSERVED;
        gone.retain(|name, since| !learned.contains_key(name) && is_recent(*since));
        merge_only.retain(|it| learned.get(&TypeName::from(it)).is_some_and(|of| of.contains(it)));
        *known = learned;
    }
}

#[cfg(test)]
mod tests;
