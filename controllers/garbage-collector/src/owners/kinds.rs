//! Maps an apiVersion and kind to a resource.
//!
//! References may name owners by any served version, preferred or not. For each group version the last discovery answer
//! counts. A group version that did not answer keeps its types. A type that an answer lacks stays known until
//! `monitors::plan` decides that it is no longer served. An unknown kind is an error, and never a proof that an owner
//! is gone: the next discovery may show it. A kind with two resources in one group version is an error too: at the
//! wrong resource, a live owner is not found.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use api::{Atom, Resource};
use client::discovery::Discovery;
use clock::Instant;
use parking_lot::RwLock;

use crate::graph::TypeName;

/// How long an object whose type is no longer served blocks its owners.
pub(crate) const BLOCKS_UNSERVED: Duration = Duration::from_secs(300);

/// The served resources, by the names in references.
#[derive(Default)]
pub(crate) struct Kinds(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    known: BTreeMap<TypeName, Vec<Resource>>,
    /// Types that are no longer known, and since when. They are kept for [`BLOCKS_UNSERVED`].
    gone: BTreeMap<TypeName, Instant>,
    /// Resources that answered 415 to a strategic merge patch, such as custom resources. They are kept while the
    /// resource is known.
    merge_only: BTreeSet<Resource>,
}

/// It is unknown where objects of this type are served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KindError {
    #[error("unable to get REST mapping for {api_version}/{kind}: no such kind is known to be served")]
    Unserved { api_version: Atom, kind: Atom },
    #[error("unable to get REST mapping for {api_version}/{kind}: {resources} are of this kind")]
    Ambiguous { api_version: Atom, kind: Atom, resources: String },
}

impl Kinds {
    /// The resource that serves objects of this type.
    pub(crate) fn resource(&self, api_version: &Atom, kind: &Atom) -> Result<Resource, KindError> {
        let name = TypeName { api_version: api_version.clone(), kind: kind.clone() };
        let inner = self.0.read();
        let found = inner.known.get(&name).map(Vec::as_slice).unwrap_or_default();
        let TypeName { api_version, kind } = name;
        match found {
            [only] => Ok(only.clone()),
            [] => Err(KindError::Unserved { api_version, kind }),
            several => {
                let resources: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(KindError::Ambiguous { api_version, kind, resources: resources.join(" and ") })
            }
        }
    }

    /// How long objects of this type, which was served once and is unknown now, still block their owners.
    pub(crate) fn remaining_block(&self, name: &TypeName, now: Instant) -> Duration {
        let since = self.0.read().gone.get(name).copied();
        since.map_or(Duration::ZERO, |it| BLOCKS_UNSERVED.saturating_sub(now.saturating_duration_since(it)))
    }

    /// True if the resource accepts merge patches, but no strategic merge patches.
    pub(crate) fn is_merge_only(&self, resource: &Resource) -> bool {
        self.0.read().merge_only.contains(resource)
    }

    pub(crate) fn mark_merge_only(&self, resource: &Resource) {
        self.0.write().merge_only.insert(resource.clone());
    }

    /// All known resources.
    pub(crate) fn resources(&self) -> BTreeSet<Resource> {
        self.0.read().known.values().flatten().cloned().collect()
    }

    /// Removes types that the server itself does not know.
    pub(crate) fn remove(&self, resources: &[Resource], now: Instant) {
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

    /// Applies a new discovery answer. A type that it lacks stays known, unless it is in `unserved`.
    pub(crate) fn apply_discovery(&self, discovery: &Discovery, unserved: &BTreeSet<Resource>, now: Instant) {
        let mut served_types: BTreeMap<TypeName, Vec<Resource>> = BTreeMap::new();
        for served in discovery.served.iter().filter(|it| !it.resource.kind.is_empty()) {
            let name = TypeName::from(&served.resource);
            // Several resources may have one kind. Owners are read, so only resources with `get` count.
            if served.has_verb("get") {
                let alike = served_types.entry(name).or_default();
                if !alike.contains(&served.resource) {
                    alike.push(served.resource.clone());
                }
            }
        }
        let mut inner = self.0.write();
        let Inner { known, gone, merge_only } = &mut *inner;
        for (name, of) in std::mem::take(known) {
            let mut kept = of.into_iter().filter(|it| !unserved.contains(it)).peekable();
            match served_types.entry(name) {
                Entry::Vacant(place) if kept.peek().is_none() => drop(gone.insert(place.into_key(), now)),
                Entry::Vacant(place) => drop(place.insert(kept.collect())),
                // Until then it is unknown where an object of the kind is.
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
        gone.retain(|name, since| !served_types.contains_key(name) && is_recent(*since));
        merge_only.retain(|it| served_types.get(&TypeName::from(it)).is_some_and(|of| of.contains(it)));
        *known = served_types;
    }
}

#[cfg(test)]
mod tests;
