//! What each process was shown, and since when: line by line, as it reached it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use serde::Deserialize;
use testing::sim::Seen;

/// Longer than a process may stand still between being shown something and noting it.
const KNOWN: Duration = Duration::from_secs(45);

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// What becomes of what a process knows of a group that discovery does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// It may be forgotten.
    Forgotten,
    /// It counts.
    Kept,
}

/// What all processes were shown.
#[derive(Default)]
pub(super) struct Shown {
    processes: BTreeMap<String, Process>,
    /// Groups that discovery does not show now: what is not watched any more may be forgotten.
    hidden: BTreeSet<&'static str>,
    /// When anything was wrong with discovery last.
    unsure: Option<Instant>,
}

#[derive(Default)]
struct Process {
    began: Option<Instant>,
    /// By uid: the versions that it was shown.
    versions: BTreeMap<String, Vec<(Instant, u64)>>,
    /// Resources of which it was shown everything that there was.
    whole: BTreeSet<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Text {
    r#type: String,
    object: Part,
    /// Of a list.
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
    /// Takes in what a process was just shown.
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

    /// A process is there: it has written something.
    pub(super) fn begins(&mut self, by: &str, now: Instant) {
        self.processes.entry(by.to_owned()).or_default().began.get_or_insert(now);
    }

    pub(super) fn began(&self, by: &str) -> Option<Instant> {
        self.processes.get(by)?.began
    }

    /// Whether a process must know an object of this group as it is since a version.
    pub(super) fn knows(&self, by: &str, group: &str, uid: &str, since: u64, now: Instant, hidden: Hidden) -> bool {
        let versions = self.processes.get(by).and_then(|it| it.versions.get(uid));
        let first = versions.and_then(|it| it.iter().find(|it| it.1 >= since));
        (hidden == Hidden::Kept || !self.hidden.contains(group)) && first.is_some_and(|it| it.0 + KNOWN <= now)
    }

    /// Whether a process was ever shown an object as it is since a version.
    pub(super) fn was_shown(&self, by: &str, uid: &str, since: u64) -> bool {
        let versions = self.processes.get(by).and_then(|it| it.versions.get(uid));
        versions.and_then(|it| it.last()).is_some_and(|it| it.1 >= since)
    }

    /// Whether a process was shown everything that there was of a resource.
    pub(super) fn is_whole(&self, by: &str, resource: &str) -> bool {
        self.processes.get(by).is_some_and(|it| it.whole.contains(resource))
    }

    /// Discovery does not show all from now on; this group, where one is named, is believed to be gone.
    pub(super) fn hide(&mut self, group: Option<&'static str>, now: Instant) {
        self.unsure = Some(now + FOR_EVER);
        self.hidden.extend(group);
    }

    /// Discovery shows everything again. What was hidden is known when it was shown anew: `of` tells the group of an object.
    pub(super) fn unhide(&mut self, of: impl Fn(&str) -> Option<String>, now: Instant) {
        let hidden = std::mem::take(&mut self.hidden);
        self.unsure = self.unsure.map(|_| now);
        for process in self.processes.values_mut().filter(|_| !hidden.is_empty()) {
            process.versions.retain(|uid, _| of(uid).is_none_or(|it| !hidden.contains(&*it)));
        }
    }

    /// Whether discovery showed everything since then.
    pub(super) fn discovery_was_sure(&self, since: Instant) -> bool {
        self.unsure.is_none_or(|it| it < since)
    }
}
