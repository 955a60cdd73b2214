//! Which kinds the server serves, and which groups do not answer.
//!
//! `parse` turns documents into a [`Discovery`], `read` asks for them, and [`Discoveries`] shares one answer between
//! namespaces.

mod parse;
mod read;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::Resource;
use client::Api;
use clock::{Clock, Instant};
use tokio::sync::Mutex;

/// A whole answer serves this long: what is added later cannot come into a namespace that terminates, but an aggregated
/// API may come back with objects of its own.
const WHOLE: Duration = Duration::from_secs(30);
/// An answer with holes serves those that stand in line for it, and soon after is asked for anew.
const WITH_HOLES: Duration = Duration::from_secs(1);

/// A kind whose objects can be deleted from a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// What it is, and where.
    pub resource: Resource,
    /// `list` is offered.
    pub list: bool,
    /// `deletecollection` is offered.
    pub delete_collection: bool,
}

/// What discovery knows of pods.
#[derive(Debug, PartialEq, Eq)]
pub enum Pods<'a> {
    /// They are served.
    Served(&'a Kind),
    /// The server has no pods.
    NotServed,
    /// Whoever could tell did not answer.
    Unknown,
}

/// What the server served at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Every namespaced kind with `delete`, in its preferred version, in order of group and name.
    pub kinds: Vec<Kind>,
    /// Why by `group/version` that could not be asked.
    failed: BTreeMap<String, String>,
    /// Why one of the two roots could not be asked.
    broken: Vec<String>,
    /// Group versions that are none.
    unparsable: Vec<String>,
}

impl Discovery {
    /// Why this is not all, in upstream's words.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if !self.broken.is_empty() {
            return Some(self.broken.join("; "));
        }
        if self.failed.is_empty() {
            return None;
        }
        let causes: Vec<String> = self.failed.iter().map(|(gv, why)| format!("{gv}: {why}{}", hint(gv))).collect();
        Some(format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            causes.len(),
            causes.join(", ")
        ))
    }

    /// Which group versions are none.
    #[must_use]
    pub fn parse_failure(&self) -> Option<String> {
        (!self.unparsable.is_empty()).then(|| self.unparsable.join(", "))
    }

    /// Where pods are, whose end everything else waits for.
    #[must_use]
    pub fn pods(&self) -> Pods<'_> {
        let pods = self.kinds.iter().find(|it| it.resource.group.is_empty() && &*it.resource.plural == "pods");
        match pods {
            Some(kind) => Pods::Served(kind),
            None if self.is_whole() => Pods::NotServed,
            None => Pods::Unknown,
        }
    }

    fn is_whole(&self) -> bool {
        self.broken.is_empty() && self.failed.is_empty() && self.unparsable.is_empty()
    }
}

/// Where to look: an APIService is named after its group and version.
fn hint(group_version: &str) -> String {
    let parts = group_version.split_once('/');
    parts.map_or_else(String::new, |(group, version)| format!(" (see APIService {version}.{group})"))
}

/// One answer for all namespaces that it is new enough for. At most one is asked for at a time.
pub struct Discoveries {
    clock: Clock,
    last: Mutex<Option<Taken>>,
}

#[derive(Clone)]
struct Taken {
    /// When it was asked for.
    asked: Instant,
    answered: Instant,
    discovery: Arc<Discovery>,
}

impl Taken {
    fn serves(&self, since: Instant, came: Instant) -> bool {
        let age = came.saturating_duration_since(self.answered);
        self.asked >= since && age <= if self.discovery.is_whole() { WHOLE } else { WITH_HOLES }
    }
}

impl Discoveries {
    /// No answer yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, last: Mutex::new(None) }
    }

    /// What is served, asked for at `since` or later.
    pub async fn since(&self, api: &Api, since: Instant) -> Arc<Discovery> {
        let came = self.clock.now();
        let mut last = self.last.lock().await;
        if let Some(taken) = &*last
            && taken.serves(since, came)
        {
            return taken.discovery.clone();
        }
        let asked = self.clock.now();
        let discovery = Arc::new(read::read(api).await);
        *last = Some(Taken { asked, answered: self.clock.now(), discovery: discovery.clone() });
        discovery
    }

    /// Gives the memory back while nobody needs it.
    pub fn forget(&self) {
        // Whoever holds it needs it.
        if let Ok(mut last) = self.last.try_lock() {
            *last = None;
        }
    }
}
