//! Discovery: the kinds that the server serves, and the groups that could not be read.
//!
//! `parse` parses discovery documents into a [`Discovery`], `read` requests them, and [`Discoveries`] shares one result
//! between all callers that wait for it.

mod parse;
mod read;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{Atom, Resource};
use clock::{Clock, Instant};
use tokio::sync::Mutex;

use crate::Api;

/// How long a complete discovery is reused. It is short, because an aggregated API may return with its objects.
const REUSE_COMPLETE: Duration = Duration::from_secs(30);
/// How long an incomplete discovery is reused: only for callers that already wait for it.
const REUSE_INCOMPLETE: Duration = Duration::from_secs(1);

/// A resource in one version of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// The resource.
    pub resource: Resource,
    /// True when this is the version that the server prefers, of all versions that list the resource.
    pub preferred: bool,
    verbs: Box<[Atom]>,
}

impl ServedResource {
    /// A resource with these verbs.
    #[must_use]
    pub fn new(resource: Resource, preferred: bool, verbs: impl IntoIterator<Item = impl Into<Atom>>) -> Self {
        Self { resource, preferred, verbs: verbs.into_iter().map(Into::into).collect() }
    }

    /// True when the resource supports this verb.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|it| **it == *verb)
    }
}

/// What the server served at one moment. Subresources are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Every resource of every version; of one resource, the versions in the server's order of preference.
    pub served: Vec<ServedResource>,
    /// The error of each `group/version` that could not be read.
    pub failed: BTreeMap<String, String>,
    /// The error of each root (`/api`, `/apis`) that could not be read.
    pub broken: BTreeMap<&'static str, String>,
    /// Group versions whose names do not parse.
    pub unparsable: Vec<String>,
}

impl Discovery {
    /// Reads what the server serves. It never fails as a whole: the result names what could not be read.
    pub async fn read(api: &Api) -> Self {
        read::read(api).await
    }

    /// Of each resource the first of its versions, in the server's order of preference, that is wanted; in order of
    /// group and name.
    pub fn choose(&self, wanted: impl Fn(&ServedResource) -> bool) -> Vec<&ServedResource> {
        let mut chosen: BTreeMap<(&str, &str), &ServedResource> = BTreeMap::new();
        for served in self.served.iter().filter(|it| wanted(it)) {
            chosen.entry((&*served.resource.group, &*served.resource.plural)).or_insert(served);
        }
        chosen.into_values().collect()
    }

    /// True if the group version of this resource was read. Otherwise its absence here proves nothing.
    #[must_use]
    pub fn has_read(&self, resource: &Resource) -> bool {
        let root = if resource.group.is_empty() { parse::CORE } else { parse::NAMED };
        !self.served.is_empty() && !self.broken.contains_key(root) && !self.failed.contains_key(&resource.api_version())
    }

    /// True when every group was read. A discovery without resources is not complete: it proves no absence.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let Self { served, failed, broken, unparsable } = self;
        broken.is_empty() && failed.is_empty() && unparsable.is_empty() && !served.is_empty()
    }

    /// Why this is not complete, with the message of upstream.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if !self.broken.is_empty() {
            let causes: Vec<String> = self.broken.iter().map(|(root, why)| format!("{root}: {why}")).collect();
            return Some(causes.join("; "));
        }
        if self.failed.is_empty() {
            let is_empty = self.served.is_empty() && self.unparsable.is_empty();
            return is_empty.then(|| "the server lists no resources at all".to_owned());
        }
        let causes: Vec<String> =
            self.failed.iter().map(|(gv, why)| format!("{gv}: {why}{}", api_service_hint(gv))).collect();
        Some(format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            causes.len(),
            causes.join(", ")
        ))
    }

    /// The group versions whose names do not parse.
    #[must_use]
    pub fn parse_failure(&self) -> Option<String> {
        (!self.unparsable.is_empty()).then(|| self.unparsable.join(", "))
    }
}

/// Names the APIService to check. It is named after its group and version.
fn api_service_hint(group_version: &str) -> String {
    let parts = group_version.split_once('/');
    parts.map_or_else(String::new, |(group, version)| format!(" (see APIService {version}.{group})"))
}

/// A discovery shared by all callers for which it is new enough. At most one request runs at a time.
pub struct Discoveries {
    clock: Clock,
    last: Mutex<Option<LastDiscovery>>,
}

#[derive(Clone)]
struct LastDiscovery {
    /// When it was requested.
    requested: Instant,
    received: Instant,
    discovery: Arc<Discovery>,
}

impl LastDiscovery {
    fn is_new_enough(&self, since: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.received);
        self.requested >= since && age <= if self.discovery.is_complete() { REUSE_COMPLETE } else { REUSE_INCOMPLETE }
    }
}

impl Discoveries {
    /// No discovery yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, last: Mutex::new(None) }
    }

    /// A discovery that was requested at `since` or later.
    pub async fn requested_since(&self, api: &Api, since: Instant) -> Arc<Discovery> {
        let called = self.clock.now();
        let mut last = self.last.lock().await;
        if let Some(last_discovery) = &*last
            && last_discovery.is_new_enough(since, called)
        {
            return last_discovery.discovery.clone();
        }
        let requested = self.clock.now();
        let discovery = Arc::new(Discovery::read(api).await);
        *last = Some(LastDiscovery { requested, received: self.clock.now(), discovery: discovery.clone() });
        discovery
    }

    /// Frees the memory unless a caller uses the lock.
    pub fn forget(&self) {
        // A caller that holds the lock needs the discovery.
        if let Ok(mut last) = self.last.try_lock() {
            *last = None;
        }
    }
}
