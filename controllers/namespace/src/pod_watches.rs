//! Enqueues a namespace when its last pod is deleted.
//!
//! It uses the pod informer of another controller if there is one. Otherwise it opens a metadata watch of the pods in
//! that namespace, keeps only their names, and closes the watch when the namespace no longer waits. Both only save
//! time: the namespace is synced again by timer anyway.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{Atom, Event, Meta, Pod, PodIndex, Typed};
use controller::Queue;
use informer::{Dynamic, Informer, Informers, Scope, Sink};
use parking_lot::Mutex;

/// The most namespaces with a watch of their own.
const MAX_WATCHES: usize = 100;
/// The retry delay if the cache shows no pod though a list showed one: one of the two is stale.
const STALE_RETRY: Duration = Duration::from_secs(1);

/// The namespaces that wait for their last pod.
pub(crate) struct PodWatches {
    informers: Informers,
    queue: Queue<Atom>,
    waiting: Arc<Mutex<BTreeMap<Atom, PodSource>>>,
    /// True if our handler is registered with the pod informer.
    is_registered: Mutex<bool>,
}

/// Where the deletions of pods are observed.
enum PodSource {
    Cache,
    Watch {
        /// The watch closes when this is dropped.
        _watch: Dynamic<Arc<PodNames>>,
    },
}

impl PodWatches {
    pub(crate) fn new(informers: Informers, queue: Queue<Atom>) -> Self {
        Self { informers, queue, waiting: Arc::default(), is_registered: Mutex::new(false) }
    }

    /// Enqueues `namespace`, which has pods, when the last of them is deleted. `exists` is checked after the
    /// namespace was added: a deletion handler that ran before had no entry to remove.
    pub(crate) fn enqueue_on_last_pod(&self, namespace: &Atom, exists: impl FnOnce() -> bool) {
        if self.waiting.lock().contains_key(namespace) {
            return;
        }
        match self.informers.existing::<Pod>() {
            Some(pods) => self.use_cache(&pods, namespace),
            None => self.open_watch(namespace),
        }
        if !exists() {
            self.remove(namespace);
        }
    }

    /// Removes a namespace from the waiting list.
    pub(crate) fn remove(&self, namespace: &Atom) {
        // The watch must not be dropped under the lock.
        let source = self.waiting.lock().remove(namespace);
        drop(source);
    }

    fn use_cache(&self, pods: &Informer<Pod>, namespace: &Atom) {
        self.waiting.lock().insert(namespace.clone(), PodSource::Cache);
        self.register_handler(pods);
        // The last pod may have been deleted before the handler was registered.
        if has_no_pods(pods, namespace) {
            self.queue.add_after(namespace.clone(), STALE_RETRY);
        }
    }

    /// Registers one handler for pod deletions in all namespaces.
    fn register_handler(&self, pods: &Informer<Pod>) {
        if std::mem::replace(&mut *self.is_registered.lock(), true) {
            return;
        }
        let (waiting, queue, store) = (self.waiting.clone(), self.queue.clone(), pods.store().clone());
        let handler = move |change: informer::Change<'_, Pod>| {
            let (Some(old), None) = (change.old, change.new) else { return };
            let namespace = old.meta().namespace;
            let waits = waiting.lock().contains_key(namespace);
            let none_left = || store.by_index(&PodIndex::Namespace(namespace.clone())).is_ok_and(|it| it.is_empty());
            if waits && none_left() {
                queue.add(namespace.clone());
            }
        };
        // The handler stays for the whole term.
        let _ = pods.add_handler(crate::NAME, None, handler);
    }

    fn open_watch(&self, namespace: &Atom) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MAX_WATCHES {
            return;
        }
        let names = PodNames { namespace: namespace.clone(), queue: self.queue.clone(), remaining: Mutex::default() };
        let scope = Scope::Namespace(namespace.clone());
        let watch = self.informers.dynamic_into(Pod::resource(), scope, Arc::new(names));
        waiting.insert(namespace.clone(), PodSource::Watch { _watch: watch });
    }
}

fn has_no_pods(pods: &Informer<Pod>, namespace: &Atom) -> bool {
    pods.store().by_index(&PodIndex::Namespace(namespace.clone())).is_ok_and(|it| it.is_empty())
}

/// The names of the remaining pods of one namespace.
struct PodNames {
    namespace: Atom,
    queue: Queue<Atom>,
    remaining: Mutex<BTreeSet<Box<str>>>,
}

impl Sink for PodNames {
    type List = BTreeSet<Box<str>>;

    fn collect(&self, list: &mut Self::List, pod: Meta) {
        list.insert(pod.name);
    }

    fn discard(&self, list: &mut Self::List, pod: Meta) {
        list.remove(&pod.name);
    }

    fn replace(&self, list: Self::List) {
        let is_empty = list.is_empty();
        *self.remaining.lock() = list;
        if is_empty {
            self.queue.add(self.namespace.clone());
        }
    }

    fn apply(&self, batch: Vec<(Event, Meta)>) {
        let mut remaining = self.remaining.lock();
        for (event, pod) in batch {
            match event {
                Event::Deleted => remaining.remove(&pod.name),
                Event::Added | Event::Modified => remaining.insert(pod.name),
            };
        }
        let is_empty = remaining.is_empty();
        drop(remaining);
        if is_empty {
            self.queue.add(self.namespace.clone());
        }
    }

    fn object_count(&self) -> usize {
        self.remaining.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use client::{Clients, Connection, Limits, Term};
    use clock::{Clock, Timestamp};
    use metrics::Metrics;
    use test_cluster::TestCluster;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_deleted_while_it_begins_to_wait_is_not_watched() {
        let (scope, metrics) = (tasks::Scope::new(), Metrics::new());
        let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let cluster = TestCluster::new(clock.clone());
        let env = client::Environment {
            clock: clock.clone(),
            metrics: metrics.clone(),
            term: Term::endless(clock.clone()),
            stop: CancellationToken::new(),
            user_agent: "test".to_owned(),
        };
        let clients = Clients::new(Connection::in_memory(cluster.service()), env);
        let informers = Informers::new(informer::Environment {
            watcher: clients.watcher(Limits { qps: 20.0, burst: 30 }),
            clock: clock.clone(),
            metrics: metrics.clone(),
            spawner: scope.spawner(),
            rng_seed: 7,
        });
        let watches = PodWatches::new(informers, Queue::new("namespace", crate::BACKOFF, clock, &metrics));
        watches.enqueue_on_last_pod(&Atom::from("waits"), || true);
        watches.enqueue_on_last_pod(&Atom::from("gone"), || false);
        assert_eq!(watches.waiting.lock().keys().map(|it| &**it).collect::<Vec<_>>(), ["waits"]);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let requests = cluster.requests();
        let watched: BTreeSet<_> = requests.iter().filter(|it| it.verb == "watch").map(|it| &*it.namespace).collect();
        assert_eq!(watched, BTreeSet::from(["waits"]));
    }
}
