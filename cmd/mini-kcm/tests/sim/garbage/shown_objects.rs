//! Records what each process was shown by lists and watches, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use serde::Deserialize;
use testing::sim::Delivery;

/// More than the maximum time between the arrival of an event and its processing. A process may be frozen in between.
const KNOWN: Duration = Duration::from_secs(45);

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Whether the observed objects of a group count while discovery does not list the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HiddenGroups {
    /// They do not count: the process may have dropped them.
    Ignored,
    /// They count.
    Counted,
}

/// What all processes were shown.
#[derive(Default)]
pub(super) struct ShownObjects {
    processes: BTreeMap<String, ShownToProcess>,
    /// Groups that discovery does not list now. A process may stop their watches and drop their objects.
    hidden: BTreeSet<&'static str>,
    /// The time of the last fault of discovery.
    discovery_fault: Option<Instant>,
}

#[derive(Default)]
struct ShownToProcess {
    started_at: Option<Instant>,
    /// By uid: the versions that the process was shown.
    versions: BTreeMap<String, Vec<(Instant, u64)>>,
    /// Resources of which the process was shown a complete list.
    complete_lists: BTreeSet<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Line {
    r#type: String,
    object: Item,
    /// The items of a list.
    items: Vec<Item>,
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
    r#continue: String,
    annotations: BTreeMap<String, String>,
}

impl ShownObjects {
    /// Records a line that a process was just shown.
    pub(super) fn record(&mut self, delivery: &Delivery, now: Instant) {
        let process = self.processes.entry(delivery.by.to_owned()).or_default();
        process.started_at.get_or_insert(now);
        let Ok(Line { r#type, object, items, metadata }) = serde_json::from_slice(delivery.text) else { return };
        let is_complete = match &*r#type {
            "" => metadata.r#continue.is_empty(),
            "BOOKMARK" => object.metadata.annotations.contains_key("k8s.io/initial-events-end"),
            _ => false,
        };
        if is_complete {
            process.complete_lists.insert(delivery.resource.to_owned());
        }
        for Item { metadata } in items.into_iter().chain([object]).filter(|it| !it.metadata.uid.is_empty()) {
            let version = metadata.resource_version.parse().unwrap_or(0);
            let versions = process.versions.entry(metadata.uid).or_default();
            if versions.last().is_none_or(|it| it.1 < version) {
                versions.push((now, version));
            }
        }
    }

    /// Records that a process runs, because it has written.
    pub(super) fn record_start(&mut self, by: &str, now: Instant) {
        self.processes.entry(by.to_owned()).or_default().started_at.get_or_insert(now);
    }

    pub(super) fn started_at(&self, by: &str) -> Option<Instant> {
        self.processes.get(by)?.started_at
    }

    /// True when a process must have observed an object of this group in the state of this version.
    pub(super) fn has_observed(
        &self,
        by: &str,
        group: &str,
        uid: &str,
        since: u64,
        now: Instant,
        hidden: HiddenGroups,
    ) -> bool {
        let versions = self.processes.get(by).and_then(|it| it.versions.get(uid));
        let first = versions.and_then(|it| it.iter().find(|it| it.1 >= since));
        (hidden == HiddenGroups::Counted || !self.hidden.contains(group)) && first.is_some_and(|it| it.0 + KNOWN <= now)
    }

    /// True when a process was ever shown an object in the state of this version or later.
    pub(super) fn was_shown(&self, by: &str, uid: &str, since: u64) -> bool {
        let versions = self.processes.get(by).and_then(|it| it.versions.get(uid));
        versions.and_then(|it| it.last()).is_some_and(|it| it.1 >= since)
    }

    /// True when a process was shown a complete list of a resource.
    pub(super) fn has_complete_list(&self, by: &str, resource: &str) -> bool {
        self.processes.get(by).is_some_and(|it| it.complete_lists.contains(resource))
    }

    /// Discovery is incomplete from now on. The group, if given, counts as removed.
    pub(super) fn hide(&mut self, group: Option<&'static str>, now: Instant) {
        self.discovery_fault = Some(now + FOR_EVER);
        self.hidden.extend(group);
    }

    /// Discovery is complete again. Objects of the hidden groups count only when they are shown again. `of` returns the
    /// group of an object.
    pub(super) fn unhide(&mut self, of: impl Fn(&str) -> Option<String>, now: Instant) {
        let hidden = std::mem::take(&mut self.hidden);
        self.discovery_fault = self.discovery_fault.map(|_| now);
        for process in self.processes.values_mut().filter(|_| !hidden.is_empty()) {
            process.versions.retain(|uid, _| of(uid).is_none_or(|it| !hidden.contains(&*it)));
        }
    }

    /// True when discovery was complete since then.
    pub(super) fn is_discovery_complete_since(&self, since: Instant) -> bool {
        self.discovery_fault.is_none_or(|it| it < since)
    }
}
