//! Enqueues a namespace when its last pod is deleted, if another controller of this process has a pod informer. This only
//! saves time: the namespace is synced again by timer anyway.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use api::{Atom, Pod, PodIndex};
use controller::Queue;
use informer::{Informer, Informers, Store};
use parking_lot::Mutex;

/// The retry delay if the cache shows no pod though a list showed one: one of the two is stale.
const STALE_RETRY: Duration = Duration::from_secs(1);

/// The namespaces that wait for their last pod.
pub(crate) struct LastPods {
    informers: Informers,
    queue: Queue<Atom>,
    waiting: Arc<Mutex<BTreeSet<Atom>>>,
    /// True if our handler is registered with the pod informer.
    is_registered: Mutex<bool>,
}

impl LastPods {
    pub(crate) fn new(informers: Informers, queue: Queue<Atom>) -> Self {
        Self { informers, queue, waiting: Arc::default(), is_registered: Mutex::new(false) }
    }

    /// Enqueues `namespace`, which has pods, when the last of them is deleted. `exists` is called after the namespace was
    /// added, because its own deletion may have been handled before that, when there was no entry to remove.
    pub(crate) fn enqueue_on_last_pod(&self, namespace: &Atom, exists: impl FnOnce() -> bool) {
        let Some(pods) = self.informers.existing::<Pod>() else { return };
        if !self.waiting.lock().insert(namespace.clone()) {
            return;
        }
        self.register_handler(&pods);
        // The last pod may have been deleted before the handler was registered.
        if has_no_pods(pods.store(), namespace) {
            self.queue.add_after(namespace.clone(), STALE_RETRY);
        }
        if !exists() {
            self.remove(namespace);
        }
    }

    /// Removes a namespace from the waiting list.
    pub(crate) fn remove(&self, namespace: &Atom) {
        self.waiting.lock().remove(namespace);
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
            let is_waiting = waiting.lock().contains(namespace);
            if is_waiting && has_no_pods(&store, namespace) {
                queue.add(namespace.clone());
            }
        };
        // The handler stays for the whole term.
        let _ = pods.add_handler(crate::NAME, None, handler);
    }
}

fn has_no_pods(pods: &Store<Pod>, namespace: &Atom) -> bool {
    pods.by_index(&PodIndex::Namespace(namespace.clone())).is_ok_and(|it| it.is_empty())
}
