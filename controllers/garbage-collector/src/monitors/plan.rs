//! Which types are to be watched: what an answer of discovery means for the monitors that run.
//!
//! An answer adds types at once, and takes them away only where it is plainly the server's word. What did not answer is
//! left as it is; and a single answer that lacks most of what was served a moment ago is doubted, as API servers that start
//! know their custom resources late.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use api::Resource;
use clock::Instant;
use discovery::{Discovery, Served};

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
    /// First of all: a type that changes its version is not to be watched twice.
    pub(crate) stop: Vec<Resource>,
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

/// What was said and is not believed yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubts(Option<(Instant, BTreeSet<Resource>)>);

/// What `answer` means for the monitors that run; each with whether it has synced.
pub(crate) fn plan(answer: &Discovery, running: &BTreeMap<Resource, bool>, doubts: &mut Doubts, now: Instant) -> Plan {
    if answer.served.is_empty() {
        *doubts = Doubts::default();
        let why = answer.failure().unwrap_or_default();
        return Plan { fault: Some(Fault::Unanswered(why)), ..Plan::default() };
    }
    let wanted: BTreeSet<&Resource> =
        answer.served.iter().filter(|it| is_monitored(it)).map(|it| &it.resource).collect();
    let goes = |(of, synced): (&Resource, &bool)| !wanted.contains(of) && may_go(answer, of, *synced);
    let gone: BTreeSet<Resource> = running.iter().filter(|it| goes(*it)).map(|(of, _)| of.clone()).collect();
    let (stop, fault) = if answer.broken.is_empty() {
        believe(gone, running.len(), doubts, now)
    } else {
        *doubts = Doubts::default();
        // The other root's own word is taken, as far as that is no reason for doubts.
        let stop = if is_doubtful(gone.len(), running.len()) { BTreeSet::new() } else { gone };
        (stop, Some(Fault::Unanswered(answer.failure().unwrap_or_default())))
    };
    // A type whose preferred version did not answer shows in another one: it is watched already.
    let stays: BTreeSet<_> = running.keys().filter(|it| !stop.contains(*it)).map(type_of).collect();
    let start = wanted.into_iter().filter(|it| !stays.contains(&type_of(it))).cloned();
    Plan { start: start.collect(), stop: stop.into_iter().collect(), fault }
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

/// What is to be stopped of what is gone by this answer.
fn believe(
    gone: BTreeSet<Resource>,
    of: usize,
    doubts: &mut Doubts,
    now: Instant,
) -> (BTreeSet<Resource>, Option<Fault>) {
    let lacks = gone.len();
    if !is_doubtful(lacks, of) {
        *doubts = Doubts::default();
        return (gone, None);
    }
    let since = match &doubts.0 {
        Some((since, same)) if *same == gone => *since,
        _ => now,
    };
    if now.saturating_duration_since(since) >= BELIEVED_AFTER {
        *doubts = Doubts::default();
        return (gone, None);
    }
    *doubts = Doubts(Some((since, gone)));
    (BTreeSet::new(), Some(Fault::Doubtful { lacks, of }))
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
