//! Decides which types to watch, from a discovery answer and the running monitors.
//!
//! A new type is watched at once. A type is removed only if the server clearly does not serve it: two answers, half a
//! minute apart. What did not answer stays as it is. An answer that lacks most types of a moment ago is not trusted for
//! longer, because starting API servers serve their custom resources late.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use api::Resource;
use client::discovery::{Discovery, ServedResource};
use clock::Instant;

/// A type is removed after answers have lacked it for this long. Otherwise its objects could be missed as dependents.
const STOP_AFTER: Duration = Duration::from_secs(30);
/// An answer that removes most monitors is trusted after it was repeated for this long.
const TRUSTED_AFTER: Duration = Duration::from_secs(300);
/// With fewer monitors than this, most may be removed at once.
const FEW: usize = 10;
/// Upstream's `DefaultIgnoredResources`: events have no owners to collect, and are too many.
const IGNORED: &[(&str, &str)] = &[("", "events"), ("events.k8s.io", "events")];
/// The verbs that a type must have to be collected.
const VERBS: &[&str] = &["delete", "list", "watch"];

/// The changes to make.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) start: Vec<Resource>,
    /// Applied together with `start`, so that a type that changes its version is neither watched twice nor missing.
    pub(crate) stop: Vec<Resource>,
    /// Types that stay watched though the answer lacks them. A read can show if the server still serves them.
    pub(crate) doubted: Vec<Resource>,
    /// Types that are no longer served in this version.
    pub(crate) unserved: BTreeSet<Resource>,
    pub(crate) fault: Option<Fault>,
}

/// Why an answer is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There is no answer, or only one root of discovery answered.
    Unanswered(String),
    /// The answer lacks `lacks` of `of` watched types.
    Doubtful { lacks: usize, of: usize },
}

/// The state between answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveryHistory {
    /// Watched or known types, and since when every answer has lacked them. An answer that shows nothing about a type
    /// resets this: the type stays watched, and a group can be stale for days.
    lacked: BTreeMap<Resource, Instant>,
    /// The set of missing types, if it is most of all types, and since when.
    mass_removal: Option<(Instant, BTreeSet<Resource>)>,
    /// Group versions whose types are known.
    known_groups: BTreeSet<String>,
    /// Group versions that fail and whose types are unknown, and since when.
    unknown_groups: BTreeMap<String, Instant>,
}

/// Computes the changes from `answer`, the running monitors (each with whether it has synced) and the known types.
pub(crate) fn plan(
    answer: &Discovery,
    running: &BTreeMap<Resource, bool>,
    known: &BTreeSet<Resource>,
    history: &mut DiscoveryHistory,
    now: Instant,
) -> Plan {
    let wanted: BTreeSet<&Resource> =
        answer.served.iter().filter(|it| is_monitored(it)).map(|it| &it.resource).collect();
    let is_removable = |(of, synced): (&Resource, &bool)| !wanted.contains(of) && may_stop(answer, of, *synced);
    let mut gone: BTreeSet<Resource> =
        running.iter().filter(|it| is_removable(*it)).map(|(of, _)| of.clone()).collect();
    if answer.served.is_empty() {
        gone.clear();
    }
    let readable: BTreeSet<&Resource> =
        answer.served.iter().filter(|it| it.has_verb("get")).map(|it| &it.resource).collect();
    let unreadable: Vec<&Resource> = known.iter().filter(|of| !readable.contains(of)).collect();
    let lacked = gone.iter().chain(unreadable.iter().copied()).filter(|of| answer.has_read(of)).cloned().collect();
    history.update_lacked(lacked, now);
    if answer.served.is_empty() {
        history.mass_removal = None;
        let why = answer.failure().unwrap_or_default();
        return Plan { fault: Some(Fault::Unanswered(why)), ..Plan::default() };
    }
    let types = running.keys().chain(known).map(Resource::api_version).collect();
    history.update_groups(answer, &gone, &types, now);
    let (is_trusted, fault) = if answer.broken.is_empty() {
        let doubtful = history.check_mass_removal(&gone, running.len(), now);
        (doubtful.is_none(), doubtful)
    } else {
        history.mass_removal = None;
        // The other root did answer. Its removals are applied, unless there are too many.
        let fault = Fault::Unanswered(answer.failure().unwrap_or_default());
        (!is_doubtful(gone.len(), running.len()), Some(fault))
    };
    let trusted = if is_trusted { gone } else { BTreeSet::new() };
    let types: BTreeSet<_> = wanted.iter().map(|it| type_of(it)).collect();
    // A type that is watched in another version from now on is not lost. A monitor that never synced had no objects to
    // lose, and its failing group counts as missing from now on.
    let (stop, doubted): (BTreeSet<Resource>, BTreeSet<Resource>) = trusted
        .into_iter()
        .partition(|of| types.contains(&type_of(of)) || !answer.has_read(of) || history.has_lacked(of, now));
    // If the preferred version of a type did not answer, discovery shows another version. The type is watched already.
    let stays: BTreeSet<_> = running.keys().filter(|it| !stop.contains(*it)).map(type_of).collect();
    let start = wanted.into_iter().filter(|it| !stays.contains(&type_of(it))).cloned().collect();
    let unserved = unreadable.into_iter().filter(|of| is_trusted && history.has_lacked(of, now)).cloned().collect();
    Plan { start, stop: stop.into_iter().collect(), doubted: doubted.into_iter().collect(), unserved, fault }
}

impl DiscoveryHistory {
    /// Since when all answers have lacked this type; `None` if the last one had it.
    pub(crate) fn lacked_since(&self, of: &Resource) -> Option<Instant> {
        self.lacked.get(of).copied()
    }

    /// Group versions whose types are unknown, and since when.
    pub(crate) fn unknown_groups(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.unknown_groups.iter().map(|(of, since)| (of.as_str(), *since))
    }

    fn update_lacked(&mut self, lacked: BTreeSet<Resource>, now: Instant) {
        self.lacked.retain(|of, _| lacked.contains(of));
        for of in lacked {
            self.lacked.entry(of).or_insert(now);
        }
    }

    /// Updates which group versions have known types. `known`: the group versions of known types.
    fn update_groups(&mut self, answer: &Discovery, gone: &BTreeSet<Resource>, known: &BTreeSet<String>, now: Instant) {
        let answering: BTreeSet<String> = answer.served.iter().map(|it| it.resource.api_version()).collect();
        // While a root fails, it is unknown which groups exist.
        let stays = |of: &String| !answer.broken.is_empty() || answer.failed.contains_key(of);
        self.unknown_groups.retain(|of, _| stays(of) && !answering.contains(of));
        self.known_groups.retain(|of| stays(of) || known.contains(of));
        self.known_groups.extend(answering);
        for of in gone.iter().filter(|of| !answer.has_read(of)) {
            // The type was known, and is not watched any more.
            self.known_groups.remove(&of.api_version());
        }
        for of in answer.failed.keys().filter(|of| !self.known_groups.contains(*of)) {
            self.unknown_groups.entry(of.clone()).or_insert(now);
        }
    }

    /// The fault of an answer that lacks most watched types and was not repeated for long enough.
    fn check_mass_removal(&mut self, gone: &BTreeSet<Resource>, of: usize, now: Instant) -> Option<Fault> {
        let lacks = gone.len();
        let since = match self.mass_removal.take() {
            Some((since, same)) if same == *gone => since,
            _ => now,
        };
        if !is_doubtful(lacks, of) || now.saturating_duration_since(since) >= TRUSTED_AFTER {
            return None;
        }
        self.mass_removal = Some((since, gone.clone()));
        Some(Fault::Doubtful { lacks, of })
    }

    fn has_lacked(&self, of: &Resource, now: Instant) -> bool {
        self.lacked_since(of).is_some_and(|since| now.saturating_duration_since(since) >= STOP_AFTER)
    }
}

/// True if objects of a type are collected, in this version.
fn is_monitored(served: &ServedResource) -> bool {
    let Resource { group, plural, kind, .. } = &served.resource;
    let ignored = IGNORED.contains(&(&**group, &**plural));
    served.preferred && !ignored && !kind.is_empty() && VERBS.iter().all(|it| served.has_verb(it))
}

/// True if the monitor of a type that the answer lacks may be removed. A monitor that never synced has no objects to
/// lose.
fn may_stop(answer: &Discovery, of: &Resource, synced: bool) -> bool {
    let failed = answer.failed.contains_key(&of.api_version());
    answer.has_read(of) || (failed && !synced)
}

fn is_doubtful(lacks: usize, of: usize) -> bool {
    of >= FEW && lacks * 2 > of
}

/// The identity of a type in any version.
fn type_of(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.plural)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(why) => f.write_str(why),
            Self::Doubtful { lacks, of } => write!(
                f,
                "the answer lacks {lacks} of {of} watched types, and is not trusted before it is the same for {} s",
                TRUSTED_AFTER.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests;
