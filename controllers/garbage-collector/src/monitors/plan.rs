//! Which types are to be watched: what an answer of discovery means for the monitors that run.
//!
//! An answer adds types at once, and takes them away only where it is plainly the server's word: twice, half a minute
//! apart. What did not answer is left as it is; an answer that lacks most of what was served a moment ago is doubted for
//! longer, as API servers that start know their custom resources late.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use api::Resource;
use clock::Instant;
use discovery::{Discovery, Served};

/// A type that answers lack is left and forgotten after they did so for this long: its objects could be overlooked as
/// dependents.
const LACKED: Duration = Duration::from_secs(30);
/// An answer that takes most monitors away is believed after it said so for this long.
const BELIEVED_AFTER: Duration = Duration::from_secs(300);
/// Of fewer monitors most may go at once.
const FEW: usize = 10;
/// As upstream: what happened is nobody's, and too much.
const IGNORED: &[(&str, &str)] = &[("", "events"), ("events.k8s.io", "events")];
/// What a type must offer to be collected.
const VERBS: &[&str] = &["delete", "list", "watch"];

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) start: Vec<Resource>,
    /// In the same moment: a type that changes its version is to be neither watched twice nor forgotten.
    pub(crate) stop: Vec<Resource>,
    /// Stays watched though the answer lacks it: whether the server still serves it can be asked for.
    pub(crate) doubted: Vec<Resource>,
    /// Served no more, in this very version.
    pub(crate) unserved: BTreeSet<Resource>,
    pub(crate) fault: Option<Fault>,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is none, or half of one.
    Unanswered(String),
    /// It lacks so many of so many types that are watched.
    Doubtful { lacks: usize, of: usize },
}

/// What is remembered from answer to answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Types that are watched or known, and since when each answer has lacked them. An answer that does not tell of a type
    /// ends the doubt: the type stays watched, and a group can be stale for days.
    lacked: BTreeMap<Resource, Instant>,
    /// Most types, lacked at once.
    most: Option<(Instant, BTreeSet<Resource>)>,
    /// Group versions whose types are known.
    told: BTreeSet<String>,
    /// Group versions that fail and whose types are not known, and since when.
    silent: BTreeMap<String, Instant>,
}

/// What `answer` means for the monitors that run, each with whether it has synced, and for the types that are known.
pub(crate) fn plan(
    answer: &Discovery,
    running: &BTreeMap<Resource, bool>,
    known: &BTreeSet<Resource>,
    memory: &mut Memory,
    now: Instant,
) -> Plan {
    let wanted: BTreeSet<&Resource> =
        answer.served.iter().filter(|it| is_monitored(it)).map(|it| &it.resource).collect();
    let goes = |(of, synced): (&Resource, &bool)| !wanted.contains(of) && may_go(answer, of, *synced);
    let mut gone: BTreeSet<Resource> = running.iter().filter(|it| goes(*it)).map(|(of, _)| of.clone()).collect();
    if answer.served.is_empty() {
        gone.clear();
    }
    let readable: BTreeSet<&Resource> =
        answer.served.iter().filter(|it| it.offers("get")).map(|it| &it.resource).collect();
    let unreadable: Vec<&Resource> = known.iter().filter(|of| !readable.contains(of)).collect();
    let lacked = gone.iter().chain(unreadable.iter().copied()).filter(|of| answer.tells_of(of)).cloned().collect();
    memory.update_lacked(lacked, now);
    if answer.served.is_empty() {
        memory.most = None;
        let why = answer.failure().unwrap_or_default();
        return Plan { fault: Some(Fault::Unanswered(why)), ..Plan::default() };
    }
    let types = running.keys().chain(known).map(Resource::api_version).collect();
    memory.listen(answer, &gone, &types, now);
    let (is_believed, fault) = if answer.broken.is_empty() {
        let doubtful = memory.doubt_most(&gone, running.len(), now);
        (doubtful.is_none(), doubtful)
    } else {
        memory.most = None;
        // The other root's own word is taken, as far as that is no reason for doubts.
        let fault = Fault::Unanswered(answer.failure().unwrap_or_default());
        (!is_doubtful(gone.len(), running.len()), Some(fault))
    };
    let believed = if is_believed { gone } else { BTreeSet::new() };
    let types: BTreeSet<_> = wanted.iter().map(|it| type_of(it)).collect();
    // One that is watched in another version from now on is not lost. Of one that never synced nothing was known, and
    // its group, which fails, is waited for from now on.
    let (stop, doubted): (BTreeSet<Resource>, BTreeSet<Resource>) = believed
        .into_iter()
        .partition(|of| types.contains(&type_of(of)) || !answer.tells_of(of) || memory.has_lacked(of, now));
    // A type whose preferred version did not answer shows in another one: it is watched already.
    let stays: BTreeSet<_> = running.keys().filter(|it| !stop.contains(*it)).map(type_of).collect();
    let start = wanted.into_iter().filter(|it| !stays.contains(&type_of(it))).cloned().collect();
    let unserved = unreadable.into_iter().filter(|of| is_believed && memory.has_lacked(of, now)).cloned().collect();
    Plan { start, stop: stop.into_iter().collect(), doubted: doubted.into_iter().collect(), unserved, fault }
}

impl Memory {
    /// Since when all answers have lacked this type; `None` where the last one did not.
    pub(crate) fn lacked_since(&self, of: &Resource) -> Option<Instant> {
        self.lacked.get(of).copied()
    }

    /// Group versions that have not told which types they have, and since when.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.silent.iter().map(|(of, since)| (of.as_str(), *since))
    }

    fn update_lacked(&mut self, lacked: BTreeSet<Resource>, now: Instant) {
        self.lacked.retain(|of, _| lacked.contains(of));
        for of in lacked {
            self.lacked.entry(of).or_insert(now);
        }
    }

    /// Which group versions told of their types, and which have not. `known`: those of which types are known.
    fn listen(&mut self, answer: &Discovery, gone: &BTreeSet<Resource>, known: &BTreeSet<String>, now: Instant) {
        let telling: BTreeSet<String> = answer.served.iter().map(|it| it.resource.api_version()).collect();
        // While a root is silent nobody knows which groups there are.
        let stays = |of: &String| !answer.broken.is_empty() || answer.failed.contains_key(of);
        self.silent.retain(|of, _| stays(of) && !telling.contains(of));
        self.told.retain(|of| stays(of) || known.contains(of));
        self.told.extend(telling);
        for of in gone.iter().filter(|of| !answer.tells_of(of)) {
            // It was known, and is not watched any more.
            self.told.remove(&of.api_version());
        }
        for of in answer.failed.keys().filter(|of| !self.told.contains(*of)) {
            self.silent.entry(of.clone()).or_insert(now);
        }
    }

    /// What is wrong with an answer that lacks most of what is watched and has not said so for long.
    fn doubt_most(&mut self, gone: &BTreeSet<Resource>, of: usize, now: Instant) -> Option<Fault> {
        let lacks = gone.len();
        let since = match self.most.take() {
            Some((since, same)) if same == *gone => since,
            _ => now,
        };
        if !is_doubtful(lacks, of) || now.saturating_duration_since(since) >= BELIEVED_AFTER {
            return None;
        }
        self.most = Some((since, gone.clone()));
        Some(Fault::Doubtful { lacks, of })
    }

    fn has_lacked(&self, of: &Resource, now: Instant) -> bool {
        self.lacked_since(of).is_some_and(|since| now.saturating_duration_since(since) >= LACKED)
    }
}

/// Whether objects of a type are collected, in this very version.
fn is_monitored(served: &Served) -> bool {
    let Resource { group, plural, kind, .. } = &served.resource;
    let ignored = IGNORED.contains(&(&**group, &**plural));
    served.preferred && !ignored && !kind.is_empty() && VERBS.iter().all(|it| served.offers(it))
}

/// Whether a monitor of what is not told of may go. One that never synced shows nothing that could be lost.
fn may_go(answer: &Discovery, of: &Resource, synced: bool) -> bool {
    let failed = answer.failed.contains_key(&of.api_version());
    answer.tells_of(of) || (failed && !synced)
}

fn is_doubtful(lacks: usize, of: usize) -> bool {
    of >= FEW && lacks * 2 > of
}

/// Whatever its version.
fn type_of(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.plural)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(why) => f.write_str(why),
            Self::Doubtful { lacks, of } => write!(
                f,
                "the answer lacks {lacks} of {of} types that are watched, and is not believed before it said so for {} s",
                BELIEVED_AFTER.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests;
