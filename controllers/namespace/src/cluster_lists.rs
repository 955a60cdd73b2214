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
use controller::Backoff;
use parking_lot::Mutex;

/// The timeout of a list. It is half of the time limit of a kind, so that the namespace itself can be listed too.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// After a timeout the list is not repeated for this long, because it delays every namespace that waits for it. Each
/// further timeout in a row doubles the time, up to the maximum: hundreds of kinds may have lists that hang. The cause may
/// also be an overloaded server (429); it then gets one list for each namespace instead of one for all.
const RETRY_AFTER_TIMEOUT: Backoff = Backoff::per_key(Duration::from_secs(60), Duration::from_secs(600));
/// Objects to read at most for each terminating namespace. This is less than the cost of its own lists.
const OBJECTS_PER_NAMESPACE: usize = 50;
/// Objects to read at most in one list.
const MAX_OBJECTS: usize = 500;

/// The last list of every kind. At most one list of each kind is in flight.
pub(crate) struct ClusterLists {
    clock: Clock,
    kinds: Mutex<BTreeMap<Resource, SharedList>>,
}

type SharedList = Arc<tokio::sync::Mutex<Option<ListResult>>>;

struct ListResult {
    /// When the list was requested.
    requested_at: Instant,
    /// Set after a timeout: the list is not repeated before this time.
    retry: Option<Instant>,
    /// The timeouts in a row.
    timeouts: u32,
    /// All namespaces that contain objects; `None` if the list failed or was too long.
    non_empty: Option<BTreeSet<Atom>>,
}

impl ListResult {
    fn is_valid(&self, since: Instant, now: Instant) -> bool {
        self.requested_at >= since || self.retry.is_some_and(|it| now < it)
    }

    fn is_proof_of_absence(&self, namespace: &Atom) -> bool {
        self.non_empty.as_ref().is_some_and(|it| !it.contains(namespace))
    }
}

impl ClusterLists {
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
        let shared_list = self.kinds.lock().entry(kind.clone()).or_default().clone();
        let mut last = shared_list.lock().await;
        if let Some(result) = &*last
            && result.is_valid(since, self.clock.now())
        {
            return result.is_proof_of_absence(namespace);
        }
        let timeouts = last.as_ref().map_or(0, |it| it.timeouts);
        let result = self.list_cluster(api, kind, page_size(namespaces), timeouts).await;
        last.insert(result).is_proof_of_absence(namespace)
    }

    async fn list_cluster(&self, api: &Api, kind: &Resource, limit: u32, timeouts: u32) -> ListResult {
        let requested_at = self.clock.now();
        let options = ListOptions { limit, ..ListOptions::default() };
        let answer = tokio::time::timeout(LIST_TIMEOUT, api.list_metadata(kind, None, &options)).await;
        let retry = answer.is_err().then(|| self.clock.now() + RETRY_AFTER_TIMEOUT.delay(timeouts));
        let timeouts = if answer.is_err() { timeouts.saturating_add(1) } else { 0 };
        let non_empty = match answer {
            Ok(Ok(page)) => non_empty_namespaces(&page),
            Ok(Err(err)) => {
                tracing::debug!(%err, %kind, "The cluster-wide list failed: listing each namespace");
                None
            }
            Err(_) => {
                tracing::debug!(%kind, "The cluster-wide list has no response: listing each namespace");
                None
            }
        };
        ListResult { requested_at, retry, timeouts, non_empty }
    }

    /// Removes kinds that are not `served` any more. Otherwise short-lived custom resources would fill the memory.
    pub(crate) fn retain_kinds(&self, served: &BTreeSet<&Resource>) {
        self.kinds.lock().retain(|kind, _| served.contains(kind));
    }

    /// Frees the memory when no namespace terminates.
    pub(crate) fn clear(&self) {
        self.kinds.lock().clear();
    }
}

/// The namespaces on a first page; `None` if it is not the whole list, because it then proves nothing.
fn non_empty_namespaces(page: &Page<api::Meta>) -> Option<BTreeSet<Atom>> {
    let meta = page.items.iter().map(|it| match it {
        Ok(meta) => meta,
        Err((meta, _)) => meta,
    });
    page.next.is_empty().then(|| meta.map(|it| it.namespace.clone()).collect())
}

fn page_size(namespaces: usize) -> u32 {
    u32::try_from(namespaces.saturating_mul(OBJECTS_PER_NAMESPACE).clamp(OBJECTS_PER_NAMESPACE, MAX_OBJECTS))
        .unwrap_or(u32::MAX)
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
    fn only_a_complete_list_is_a_proof() {
        let now = Clock::system().now();
        let absent = |page: &Page<Meta>, namespace: &str| {
            ListResult { requested_at: now, retry: None, timeouts: 0, non_empty: non_empty_namespaces(page) }
                .is_proof_of_absence(&namespace.into())
        };
        let whole = page(&["a", "b", "a"], "");
        assert!(!absent(&whole, "a") && absent(&whole, "c"));
        assert!(absent(&page(&[], ""), "a"));
        let part = page(&["a", "b"], "token");
        assert!(!absent(&part, "a") && !absent(&part, "c"));
    }

    #[test]
    fn a_list_is_valid_while_it_is_new_enough_and_a_timeout_for_a_minute() {
        let at = Clock::system().now() + Duration::from_secs(1000);
        let sec = Duration::from_secs(1);
        let hung = Some(at + 60 * sec);
        let cases = [
            ("requested in time", None, at, at, true),
            ("requested too early", None, at + sec, at + sec, false),
            ("requested just in time", None, at - sec, at + 1000 * sec, true),
            ("a list that timed out is not repeated soon", hung, at + sec, at + 59 * sec, true),
            ("it is repeated after a minute", hung, at + sec, at + 60 * sec, false),
        ];
        for (name, retry, since, now, want) in cases {
            assert_eq!(
                ListResult { requested_at: at, retry, timeouts: 1, non_empty: None }.is_valid(since, now),
                want,
                "{name}"
            );
        }
    }

    #[test]
    fn each_further_timeout_in_a_row_doubles_the_pause() {
        let pauses = [0, 1, 2, 3, 4, 40].map(|it| RETRY_AFTER_TIMEOUT.delay(it).as_secs());
        assert_eq!(pauses, [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn unserved_kinds_are_removed() {
        let cluster_lists = ClusterLists::new(Clock::system());
        let [pods, widgets] = ["pods", "widgets"].map(|it| Resource::namespaced("", "v1", it, "Any"));
        for kind in [&pods, &widgets] {
            cluster_lists.kinds.lock().entry(kind.clone()).or_default();
        }
        cluster_lists.retain_kinds(&BTreeSet::from([&pods]));
        assert_eq!(cluster_lists.kinds.lock().keys().collect::<Vec<_>>(), [&pods]);
    }

    #[test]
    fn the_page_size_grows_with_the_number_of_namespaces() {
        for (namespaces, want) in [(0, 50), (1, 50), (4, 200), (10, 500), (100_000, 500)] {
            assert_eq!(page_size(namespaces), want, "{namespaces}");
        }
    }
}
