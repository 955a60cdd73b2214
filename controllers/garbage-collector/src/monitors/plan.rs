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

/// A type that answers lack is left after they did so for this long: its objects could be overlooked as dependents.
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
    /// Types that are watched and were lacked, and since when each answer that tells of them has lacked them.
    lacked: BTreeMap<Resource, Instant>,
    /// Most types, lacked at once.
    most: Option<(Instant, BTreeSet<Resource>)>,
    /// Group versions whose types are known.
    told: BTreeSet<String>,
    /// Group versions that fail and whose types are not known, and since when.
    silent: BTreeMap<String, Instant>,
}

/// What `answer` means for the monitors that run; each with whether it has synced.
pub(crate) fn plan(answer: &Discovery, running: &BTreeMap<Resource, bool>, memory: &mut Memory, now: Instant) -> Plan {
    let wanted: BTreeSet<&Resource> =
        answer.served.iter().filter(|it| is_monitored(it)).map(|it| &it.resource).collect();
    let goes = |(of, synced): (&Resource, &bool)| !wanted.contains(of) && may_go(answer, of, *synced);
    let mut gone: BTreeSet<Resource> = running.iter().filter(|it| goes(*it)).map(|(of, _)| of.clone()).collect();
    if answer.served.is_empty() {
        gone.clear();
    }
    memory.look(answer, running, &gone, now);
    if answer.served.is_empty() {
        let why = answer.failure().unwrap_or_default();
        return Plan { fault: Some(Fault::Unanswered(why)), ..Plan::default() };
    }
    memory.listen(answer, &gone, now);
    let (believed, fault) = if answer.broken.is_empty() {
        memory.believe(gone, running.len(), now)
    } else {
        memory.most = None;
        // The other root's own word is taken, as far as that is no reason for doubts.
        let believed = if is_doubtful(gone.len(), running.len()) { BTreeSet::new() } else { gone };
        (believed, Some(Fault::Unanswered(answer.failure().unwrap_or_default())))
    };
    let types: BTreeSet<_> = wanted.iter().map(|it| type_of(it)).collect();
    // One that is watched in another version from now on is not lost. Of one that never synced nothing was known, and
    // its group, which fails, is waited for from now on.
    let (stop, doubted): (BTreeSet<Resource>, BTreeSet<Resource>) = believed
        .into_iter()
        .partition(|of| types.contains(&type_of(of)) || !answer.tells_of(of) || memory.has_lacked(of, now));
    // A type whose preferred version did not answer shows in another one: it is watched already.
    let stays: BTreeSet<_> = running.keys().filter(|it| !stop.contains(*it)).map(type_of).collect();
    let start = wanted.into_iter().filter(|it| !stays.contains(&type_of(it))).cloned().collect();
    Plan { start, stop: stop.into_iter().collect(), doubted: doubted.into_iter().collect(), fault }
}

impl Memory {
    /// True for a type that the last answer which told of it lacked.
    pub(crate) fn doubts(&self, of: &Resource) -> bool {
        self.lacked.contains_key(of)
    }

    /// Group versions that have not told which types they have, and since when.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.silent.iter().map(|(of, since)| (of.as_str(), *since))
    }

    /// What is lacked, and since when without a break.
    fn look(
        &mut self,
        answer: &Discovery,
        running: &BTreeMap<Resource, bool>,
        gone: &BTreeSet<Resource>,
        now: Instant,
    ) {
        self.lacked.retain(|of, since| {
            let is_told = answer.tells_of(of);
            if !is_told {
                // Neither lacked nor shown: the doubt stays, and begins anew.
                *since = now;
            }
            running.contains_key(of) && (gone.contains(of) || !is_told)
        });
        for of in gone.iter().filter(|of| answer.tells_of(of)) {
            self.lacked.entry(of.clone()).or_insert(now);
        }
        if answer.served.is_empty() {
            self.most = None;
        }
    }

    /// Who told of its types, and who has not.
    fn listen(&mut self, answer: &Discovery, gone: &BTreeSet<Resource>, now: Instant) {
        let telling: BTreeSet<String> = answer.served.iter().map(|it| it.resource.api_version()).collect();
        // While a root is silent nobody knows which groups there are.
        let stays = |of: &String| !answer.broken.is_empty() || answer.failed.contains_key(of);
        self.silent.retain(|of, _| stays(of) && !telling.contains(of));
        self.told.retain(stays);
        self.told.extend(telling);
        for of in gone.iter().filter(|of| !answer.tells_of(of)) {
            // It was known, and is not watched any more.
            self.told.remove(&of.api_version());
        }
        for of in answer.failed.keys().filter(|of| !self.told.contains(*of)) {
            self.silent.entry(of.clone()).or_insert(now);
        }
    }

    /// What is to be taken at its word of what is gone by this answer.
    fn believe(&mut self, gone: BTreeSet<Resource>, of: usize, now: Instant) -> (BTreeSet<Resource>, Option<Fault>) {
        let lacks = gone.len();
        if !is_doubtful(lacks, of) {
            self.most = None;
            return (gone, None);
        }
        let since = match &self.most {
            Some((since, same)) if *same == gone => *since,
            _ => now,
        };
        if now.saturating_duration_since(since) >= BELIEVED_AFTER {
            self.most = None;
            return (gone, None);
        }
        self.most = Some((since, gone));
        (BTreeSet::new(), Some(Fault::Doubtful { lacks, of }))
    }

    fn has_lacked(&self, of: &Resource, now: Instant) -> bool {
        self.lacked.get(of).is_some_and(|since| now.saturating_duration_since(*since) >= LACKED)
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
