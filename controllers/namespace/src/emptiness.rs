//! Which namespaces hold objects of a kind, asked once for all namespaces.
//!
//! One page of a consistent list over the whole cluster proves, where it is the only page, every namespace empty that is
//! not on it, as of the instant at which it was asked for. So a hundred custom resources cost a hundred lists for any
//! number of namespaces that are deleted together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{Atom, Page, Resource};
use client::{Api, ListOptions};
use clock::{Clock, Instant};
use parking_lot::Mutex;

/// A list that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// A list that failed is asked for again after this many times as long as it took: it holds up all that wait for it.
const PAUSE: u32 = 30;
/// Objects that we are ready to read for each terminating namespace, which is less than its own calls would cost.
const PER_NAMESPACE: usize = 50;
/// Objects that we are ready to read at all.
const MOST: usize = 500;

/// What is known of one kind in one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// There is nothing.
    Absent,
    /// There may be something: ask the namespace itself.
    Possible,
    /// The list of the cluster failed: ask the namespace itself, which may not answer either.
    Unknown,
}

/// The last count of every kind. At most one is under way for each.
pub(crate) struct Emptiness {
    clock: Clock,
    kinds: Mutex<BTreeMap<Resource, Seat>>,
}

type Seat = Arc<tokio::sync::Mutex<Option<Count>>>;

struct Count {
    /// When it was asked for.
    asked: Instant,
    answered: Instant,
    holders: Holders,
}

enum Holders {
    /// All namespaces that hold objects.
    Only(BTreeSet<Atom>),
    /// There are too many objects to tell.
    Many,
    /// The list failed, or did not come in time.
    Unknown,
}

impl Count {
    fn serves(&self, since: Instant, came: Instant) -> bool {
        let age = came.saturating_duration_since(self.answered);
        match self.holders {
            // How long a proof lasts is for him to say who needs it.
            Holders::Only(_) | Holders::Many => self.asked >= since,
            Holders::Unknown => age <= self.answered.saturating_duration_since(self.asked) * PAUSE,
        }
    }

    fn presence(&self, namespace: &Atom) -> Presence {
        match &self.holders {
            Holders::Only(holders) if !holders.contains(namespace) => Presence::Absent,
            Holders::Only(_) | Holders::Many => Presence::Possible,
            Holders::Unknown => Presence::Unknown,
        }
    }
}

impl Emptiness {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, kinds: Mutex::default() }
    }

    /// Whether `namespace` holds objects of `kind`, by a list that was asked for at `since` or later. `namespaces` is how
    /// many may want to know.
    pub(crate) async fn of(
        &self,
        api: &Api,
        kind: &Resource,
        namespace: &Atom,
        since: Instant,
        namespaces: usize,
    ) -> Presence {
        let came = self.clock.now();
        let seat = self.kinds.lock().entry(kind.clone()).or_default().clone();
        let mut last = seat.lock().await;
        if let Some(count) = &*last
            && count.serves(since, came)
        {
            return count.presence(namespace);
        }
        let asked = self.clock.now();
        let holders = ask(api, kind, page_size(namespaces)).await;
        let count = Count { asked, answered: self.clock.now(), holders };
        let presence = count.presence(namespace);
        *last = Some(count);
        presence
    }

    /// Gives the memory back while nobody needs it.
    pub(crate) fn forget(&self) {
        self.kinds.lock().clear();
    }
}

async fn ask(api: &Api, kind: &Resource, limit: u32) -> Holders {
    let options = ListOptions { limit, ..ListOptions::default() };
    let why = match tokio::time::timeout(PATIENCE, api.list_metadata(kind, None, &options)).await {
        Ok(Ok(page)) => return holders(&page),
        Ok(Err(err)) => err.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    tracing::debug!(%why, %kind, "Cannot list the whole cluster: asking each namespace");
    Holders::Unknown
}

/// What a page asked for without a start says. Only the one that is all of the list proves anything.
fn holders(page: &Page<api::Meta>) -> Holders {
    if !page.next.is_empty() {
        return Holders::Many;
    }
    let meta = page.items.iter().map(|it| match it {
        Ok(meta) => meta,
        Err((meta, _)) => meta,
    });
    Holders::Only(meta.map(|it| it.namespace.clone()).collect())
}

fn page_size(namespaces: usize) -> u32 {
    u32::try_from(namespaces.saturating_mul(PER_NAMESPACE).clamp(PER_NAMESPACE, MOST)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use api::{Meta, Version};

    use super::*;

    fn page(namespaces: &[&str], next: &str) -> Page<Meta> {
        let objects = namespaces.iter().map(|it| Meta { namespace: Atom::from(*it), ..Meta::default() });
        let items = objects.map(Ok).collect();
        Page { items, version: Version::from(7), next: next.to_owned(), remaining: None }
    }

    fn count(holders: Holders, at: Instant) -> Count {
        Count { asked: at, answered: at, holders }
    }

    #[test]
    fn only_a_page_that_is_the_whole_list_proves_anything() {
        let now = Clock::system().now();
        let of = |page: &Page<Meta>, namespace: &str| count(holders(page), now).presence(&namespace.into());
        let whole = page(&["a", "b", "a"], "");
        assert_eq!((of(&whole, "a"), of(&whole, "c")), (Presence::Possible, Presence::Absent));
        assert_eq!(of(&page(&[], ""), "a"), Presence::Absent);
        let part = page(&["a", "b"], "token");
        assert_eq!((of(&part, "a"), of(&part, "c")), (Presence::Possible, Presence::Possible));
    }

    #[test]
    fn an_answer_serves_whoever_it_is_new_enough_for() {
        let at = Clock::system().now() + Duration::from_secs(1000);
        let sec = Duration::from_secs(1);
        let only = || Holders::Only(BTreeSet::new());
        let cases = [
            ("asked for in time", only(), 0, at, at, true),
            ("asked for too early", only(), 0, at + sec, at + sec, false),
            ("a proof, as old as may be", only(), 0, at - sec, at + 1000 * sec, true),
            ("a failure, for those in line", Holders::Unknown, 0, at - sec, at - sec, true),
            ("a failure that cost nothing is asked again", Holders::Unknown, 0, at - sec, at + sec, false),
            ("one that cost ten seconds serves for minutes", Holders::Unknown, 10, at + sec, at + 310 * sec, true),
            ("and is asked again", Holders::Unknown, 10, at - sec, at + 311 * sec, false),
        ];
        for (name, holders, took, since, came, want) in cases {
            let count = Count { asked: at, answered: at + took * sec, holders };
            assert_eq!(count.serves(since, came), want, "{name}");
        }
    }

    #[test]
    fn the_page_grows_with_those_who_want_to_know() {
        for (namespaces, want) in [(0, 50), (1, 50), (4, 200), (10, 500), (100_000, 500)] {
            assert_eq!(page_size(namespaces), want, "{namespaces}");
        }
    }
}
