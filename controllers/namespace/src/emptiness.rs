//! Finds which namespaces contain objects of a kind, with one list for all namespaces.
//!
//! If one page of a consistent list over the whole cluster is the only page, every namespace that is not on it was
//! empty when the list was requested. So a hundred custom resources need a hundred lists, for any number of namespaces
//! that are deleted together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{Atom, Page, Resource};
use client::{Api, ListOptions};
use clock::{Clock, Instant};
use parking_lot::Mutex;

/// The timeout of a list. It is half of the time limit of a kind, so that the namespace itself can be listed too.
const ANSWER: Duration = Duration::from_secs(5);
/// After a timeout the list is not repeated for this long, because it delays every namespace that waits for it. The
/// cause may also be an overloaded server (429); it then gets one list for each namespace instead of one for all.
const RETRY: Duration = Duration::from_secs(60);
/// Objects to read at most for each terminating namespace. This is less than the cost of its own lists.
const PER_NAMESPACE: usize = 50;
/// Objects to read at most in one list.
const MOST: usize = 500;

/// The last list of every kind. At most one list of each kind is in flight.
pub(crate) struct Emptiness {
    clock: Clock,
    kinds: Mutex<BTreeMap<Resource, Seat>>,
}

type Seat = Arc<tokio::sync::Mutex<Option<Count>>>;

struct Count {
    /// When the list was requested.
    asked: Instant,
    /// Set after a timeout: the list is not repeated before this time.
    retry: Option<Instant>,
    /// All namespaces that contain objects; `None` if the list failed or was too long.
    holders: Option<BTreeSet<Atom>>,
}

impl Count {
    fn serves(&self, since: Instant, now: Instant) -> bool {
        self.asked >= since || self.retry.is_some_and(|it| now < it)
    }

    fn proves_absent(&self, namespace: &Atom) -> bool {
        self.holders.as_ref().is_some_and(|it| !it.contains(namespace))
    }
}

impl Emptiness {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, kinds: Mutex::default() }
    }

    /// True if a list that was requested at `since` or later proves that `namespace` contains no objects of `kind`.
    /// Otherwise the caller must list the namespace itself. `namespaces` is the number of namespaces that may need the
    /// result.
    pub(crate) async fn is_absent(
        &self,
        api: &Api,
        kind: &Resource,
        namespace: &Atom,
        since: Instant,
        namespaces: usize,
    ) -> bool {
        let seat = self.kinds.lock().entry(kind.clone()).or_default().clone();
        let mut last = seat.lock().await;
        if let Some(count) = &*last
            && count.serves(since, self.clock.now())
        {
            return count.proves_absent(namespace);
        }
        let count = self.count(api, kind, page_size(namespaces)).await;
        last.insert(count).proves_absent(namespace)
    }

    async fn count(&self, api: &Api, kind: &Resource, limit: u32) -> Count {
        let asked = self.clock.now();
        let options = ListOptions { limit, ..ListOptions::default() };
        let answer = tokio::time::timeout(ANSWER, api.list_metadata(kind, None, &options)).await;
        let retry = answer.is_err().then(|| self.clock.now() + RETRY);
        let holders = match answer {
            Ok(Ok(page)) => holders(&page),
            Ok(Err(err)) => {
                tracing::debug!(%err, %kind, "Cannot list the whole cluster: asking each namespace");
                None
            }
            Err(_) => {
                tracing::debug!(%kind, "The list of the whole cluster hangs: asking each namespace");
                None
            }
        };
        Count { asked, retry, holders }
    }

    /// Removes kinds that are not `served` any more. Otherwise custom resources that come and go would fill the memory.
    pub(crate) fn retain_kinds(&self, served: &BTreeSet<&Resource>) {
        self.kinds.lock().retain(|kind, _| served.contains(kind));
    }

    /// Frees the memory when no namespace terminates.
    pub(crate) fn forget(&self) {
        self.kinds.lock().clear();
    }
}

/// The namespaces on a first page; `None` if it is not the whole list, because it then proves nothing.
fn holders(page: &Page<api::Meta>) -> Option<BTreeSet<Atom>> {
    let meta = page.items.iter().map(|it| match it {
        Ok(meta) => meta,
        Err((meta, _)) => meta,
    });
    page.next.is_empty().then(|| meta.map(|it| it.namespace.clone()).collect())
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

    #[test]
    fn only_a_page_that_is_the_whole_list_proves_anything() {
        let now = Clock::system().now();
        let absent = |page: &Page<Meta>, namespace: &str| {
            Count { asked: now, retry: None, holders: holders(page) }.proves_absent(&namespace.into())
        };
        let whole = page(&["a", "b", "a"], "");
        assert!(!absent(&whole, "a") && absent(&whole, "c"));
        assert!(absent(&page(&[], ""), "a"));
        let part = page(&["a", "b"], "token");
        assert!(!absent(&part, "a") && !absent(&part, "c"));
    }

    #[test]
    fn an_answer_serves_as_long_as_it_is_new_enough_and_a_hang_for_a_minute() {
        let at = Clock::system().now() + Duration::from_secs(1000);
        let sec = Duration::from_secs(1);
        let hung = Some(at + 60 * sec);
        let cases = [
            ("asked for in time", None, at, at, true),
            ("asked for too early", None, at + sec, at + sec, false),
            ("as old as may be", None, at - sec, at + 1000 * sec, true),
            ("a list that hung is not asked for again soon", hung, at + sec, at + 59 * sec, true),
            ("and then it is", hung, at + sec, at + 60 * sec, false),
        ];
        for (name, retry, since, now, want) in cases {
            assert_eq!(Count { asked: at, retry, holders: None }.serves(since, now), want, "{name}");
        }
    }

    #[test]
    fn nothing_is_remembered_of_kinds_that_are_served_no_more() {
        let emptiness = Emptiness::new(Clock::system());
        let [pods, widgets] = ["pods", "widgets"].map(|it| Resource::namespaced("", "v1", it, "Any"));
        for kind in [&pods, &widgets] {
            emptiness.kinds.lock().entry(kind.clone()).or_default();
        }
        emptiness.retain_kinds(&BTreeSet::from([&pods]));
        assert_eq!(emptiness.kinds.lock().keys().collect::<Vec<_>>(), [&pods]);
    }

    #[test]
    fn the_page_grows_with_those_who_want_to_know() {
        for (namespaces, want) in [(0, 50), (1, 50), (4, 200), (10, 500), (100_000, 500)] {
            assert_eq!(page_size(namespaces), want, "{namespaces}");
        }
    }
}
