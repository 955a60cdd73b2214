//! Which resource an apiVersion and kind mean.
//!
//! References name owners by any version that is served, preferred or not. What is known is the last word of discovery on
//! each group version: one that did not answer is known as before, and one that answers lack is known until they did so for
//! half a minute, as monitors stay: a server that has just begun tells of some types late. A kind that is not known is an error and never a proof
//! that an owner is gone: the next look at discovery may show it. So is one that two resources of a group version have: at
//! the wrong one of them an owner is not found though it lives.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use api::{Atom, Resource};
use clock::Instant;
use discovery::Discovery;
use parking_lot::RwLock;

use crate::graph::TypeName;

/// A type that answers lack is forgotten after they did so for this long.
const LACKED: Duration = Duration::from_secs(30);

/// What is served, by the names that references use.
#[derive(Default)]
pub(crate) struct Kinds(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    known: BTreeMap<TypeName, Vec<Resource>>,
    /// What is known and lacked, and since when each answer has lacked it.
    lacked: BTreeMap<TypeName, Instant>,
    /// Since when what was served is served no more, by answers that are believed.
    gone: BTreeMap<TypeName, Instant>,
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

    /// Since when a type that was served is served no more.
    pub(crate) fn gone_since(&self, name: &TypeName) -> Option<Instant> {
        self.0.read().gone.get(name).copied()
    }

    /// Forgets types of which the server itself says that it has no such resource.
    pub(crate) fn forget(&self, resources: &[Resource], now: Instant) {
        let mut inner = self.0.write();
        let Inner { known, lacked, gone } = &mut *inner;
        for name in resources.iter().map(TypeName::from) {
            let Some(of) = known.get_mut(&name) else { continue };
            of.retain(|it| !resources.contains(it));
            if of.is_empty() {
                known.remove(&name);
                let since = lacked.remove(&name).unwrap_or(now);
                gone.insert(name, since);
            }
        }
    }

    /// Takes in a new answer. Where it is not believed, it may add and change but takes nothing away.
    pub(crate) fn learn(&self, discovery: &Discovery, believed: bool, now: Instant) {
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
        let Inner { known, lacked, gone } = &mut *inner;
        lacked.retain(|name, _| !learned.contains_key(name));
        let stays = |of: &[Resource]| !believed || !of.iter().any(|it| discovery.tells_of(it));
        for (name, of) in std::mem::take(known) {
            let Entry::Vacant(place) = learned.entry(name) else { continue };
            if stays(&of) {
                // Neither lacked nor shown: the doubt begins anew.
                lacked.remove(place.key());
                place.insert(of);
                continue;
            }
            let since = *lacked.entry(place.key().clone()).or_insert(now);
            if now.saturating_duration_since(since) < LACKED {
                place.insert(of);
            } else {
                lacked.remove(place.key());
                gone.insert(place.into_key(), since);
            }
        }
        gone.retain(|name, _| !learned.contains_key(name));
        *known = learned;
    }
}

#[cfg(test)]
mod tests;
