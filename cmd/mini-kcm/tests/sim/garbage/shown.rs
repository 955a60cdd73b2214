//! Records what each process was shown by lists and watches, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use serde::Deserialize;
use testing::sim::Seen;

/// More than the maximum time between the arrival of an event and its processing. A process may be frozen in between.
const KNOWN: Duration = Duration::from_secs(45);

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Whether the observed objects of a group count while discovery does not list the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// They do not count: the process may have dropped them.
    Forgotten,
    /// They count.
    Kept,
}

/// What all processes were shown.
#[derive(Default)]
pub(super) struct Shown {
    processes: BTreeMap<String, Process>,
    /// Groups that discovery does not list now. A process may stop their watches and drop their objects.
    hidden: BTreeSet<&'static str>,
    /// The time of the last fault of discovery.
    unsure: Option<Instant>,
}

#[derive(Default)]
struct Process {
    began: Option<Instant>,
    /// By uid: the versions that the process was shown.
    versions: BTreeMap<String, Vec<(Instant, u64)>>,
    /// Resources of which the process was shown a complete list.
    whole: BTreeSet<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Text {
    r#type: String,
    object: Part,
    /// The items of a list.
    items: Vec<Part>,
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Part {
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

impl Shown {
    /// Records a line that a process was just shown.
    pub(super) fn take(&mut self, seen: &Seen, now: Instant) {
        let process = self.processes.entry(seen.by.to_owned()).or_default();
        process.began.get_or_insert(now);
        let Ok(Text { r#type, object, items, metadata }) = serde_json::from_slice(seen.text) else { return };
        let whole = match &*r#type {
            "" => metadata.r#continue.is_empty(),
            "BOOKMARK" => object.metadata.annotations.contains_key("k8s.io/initial-events-end"),
            _ => false,
        };
        if whole {
            process.whole.insert(seen.resource.to_owned());
        }
        for Part { metadata } in items.into_iter().chain([object]).filter(|it| !it.metadata.uid.is_empty()) {
            let version = metadata.resource_version.parse().unwrap_or(0);
            let versions = process.versions.entry(metadata.uid).or_default();
            if versions.last().is_none_or(|it| it.1 < version) {
                versions.push((now, version));
            }
        }
    }

    /// Records that a process runs, because it has written.
    pub(super) fn begins(&mut self, by: &str, now: Instant) {
        self.processes.entry(by.to_owned()).or_default().began.get_or_insert(now);
    }

    pub(super) fn began(&self, by: &str) -> Option<Instant> {
        self.processes.get(by)?.began
    }

    /// True when a process must have observed an object of this group in the state of this version.
    pub(super) fn knows(&self, by: &str, group: &str, uid: &str, since: u64, now: Instant, hidden: Hidden) -> bool {
        let versions = self.processes.get(by).and_then(|it| it.versions.get(uid));
        let first = versions.and_then(|it| it.iter().find(|it| it.1 >= since));
        (hidden == Hidden::Kept || !self.hidden.contains(group)) && first.is_some_and(|it| it.0 + KNOWN <= now)
    }

    /// True when a process was ever shown an object in the state of this version or later.
    pub(super) fn was_shown(&self, by: &str, uid: &str, since: u64) -> bool {
        let versions = self.processes.get(by).and_then(|it| it.versions.get(uid));
        versions.and_then(|it| it.last()).is_some_and(|it| it.1 >= since)
    }

    /// True when a process was shown a complete list of a resource.
    pub(super) fn is_whole(&self, by: &str, resource: &str) -> bool {
        self.processes.get(by).is_some_and(|it| it.whole.contains(resource))
    }

    /// Discovery is incomplete from now on. The group, if given, counts as removed.
    pub(super) fn hide(&mut self, group: Option<&'static str>, now: Instant) {
        self.unsure = Some(now + FOR_EVER);
        self.hidden.extend(group);
    }

    /// Discovery is complete again. Objects of the hidden groups count only when they are shown again. `of` returns the
    /// group of an object.
    pub(super) fn unhide(&mut self, of: impl Fn(&str) -> Option<String>, now: Instant) {
        let hidden = std::mem::take(&mut self.hidden);
        self.unsure = self.unsure.map(|_| now);
        for process in self.processes.values_mut().filter(|_| !hidden.is_empty()) {
            process.versions.retain(|uid, _| of(uid).is_none_or(|it| !hidden.contains(&*it)));
        }
    }

    /// True when discovery was complete since then.
    pub(super) fn discovery_was_sure(&self, since: Instant) -> bool {
        self.unsure.is_none_or(|it| it < since)
    }
}
