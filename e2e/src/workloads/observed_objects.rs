use std::{collections::BTreeMap, sync::Arc};

use fake_nodes::{Change, list_and_watch};
use kube::{
    Api,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use parking_lot::Mutex;
use serde_json::Value;
use tasks::Spawner;
use tokio::sync::watch;

use crate::Rest;

/// The observed kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Of the core group.
    Pod,
    /// Of the batch group.
    Job,
    /// Of the batch group.
    CronJob,
    /// Of the core group.
    Event,
    /// Of the core group; in the namespace without a name.
    Node,
    /// Of the apps group.
    Deployment,
    /// Of the apps group.
    ReplicaSet,
    /// Of the core group.
    ReplicationController,
}

impl Kind {
    /// Those of scripts.
    const USUAL: [Self; 5] = [Self::Pod, Self::Job, Self::CronJob, Self::Event, Self::Node];

    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::Pod => ("", "Pod"),
            Self::Job => ("batch", "Job"),
            Self::CronJob => ("batch", "CronJob"),
            Self::Event => ("", "Event"),
            Self::Node => ("", "Node"),
            Self::Deployment => ("apps", "Deployment"),
            Self::ReplicaSet => ("apps", "ReplicaSet"),
            Self::ReplicationController => ("", "ReplicationController"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }
}

/// One object, in its first and in its last observed state.
#[derive(Debug, Clone)]
pub(super) struct ObservedObject {
    pub(super) kind: Kind,
    uid: String,
    pub(super) first: Value,
    pub(super) last: Value,
    pub(super) gone: bool,
}

/// All observed objects, by namespace. There is one watch for each kind, shared by all runs.
#[derive(Debug, Default)]
pub struct ObservedObjects {
    namespaces: Mutex<BTreeMap<String, Arc<NamespaceObjects>>>,
}

/// The observed objects of one namespace, in the order of their appearance.
#[derive(Debug)]
pub struct NamespaceObjects {
    seen: Mutex<Vec<ObservedObject>>,
    changes: watch::Sender<u64>,
}

impl ObservedObjects {
    /// Starts the watches of pods, Jobs, CronJobs, events and nodes.
    #[must_use]
    pub fn start(rest: &Rest, spawner: &Spawner) -> Arc<Self> {
        Self::start_of(&Kind::USUAL, rest, spawner)
    }

    /// Starts the watches of these kinds.
    #[must_use]
    pub fn start_of(kinds: &[Kind], rest: &Rest, spawner: &Spawner) -> Arc<Self> {
        let observed = Arc::new(Self::default());
        for kind in kinds.iter().copied() {
            let (observed, api) =
                (observed.clone(), Api::<DynamicObject>::all_with(rest.client().clone(), &kind.resource()));
            spawner.spawn("observed-objects", list_and_watch_kind(api, kind, observed));
        }
        observed
    }

    /// The observed objects of a namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Arc<NamespaceObjects> {
        let mut namespaces = self.namespaces.lock();
        namespaces.entry(namespace.to_owned()).or_insert_with(|| Arc::new(NamespaceObjects::new())).clone()
    }

    fn put(&self, kind: Kind, object: &DynamicObject, gone: bool) {
        let Ok(value) = serde_json::to_value(object) else { return };
        self.in_namespace(object.metadata.namespace.as_deref().unwrap_or_default()).put(kind, value, gone);
    }

    /// Marks all objects that are not in this list as deleted.
    fn on_list(&self, kind: Kind, objects: &[DynamicObject]) {
        for object in objects {
            self.put(kind, object, false);
        }
        let existing: Vec<&str> = objects.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
        let namespaces: Vec<Arc<NamespaceObjects>> = self.namespaces.lock().values().cloned().collect();
        for objects in namespaces {
            objects.mark_missing_gone(kind, &existing);
        }
    }
}

async fn list_and_watch_kind(api: Api<DynamicObject>, kind: Kind, observed: Arc<ObservedObjects>) {
    list_and_watch(api, move |change| match change {
        Change::All(objects) => observed.on_list(kind, &objects),
        Change::Put(object) => observed.put(kind, &object, false),
        Change::Gone(object) => observed.put(kind, &object, true),
    })
    .await;
}

impl NamespaceObjects {
    fn new() -> Self {
        Self { seen: Mutex::default(), changes: watch::Sender::new(0) }
    }

    fn put(&self, kind: Kind, object: Value, gone: bool) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut seen = self.seen.lock();
        match seen.iter_mut().find(|it| it.uid == uid && it.kind == kind) {
            Some(known) => {
                known.last = object;
                known.gone = gone;
            }
            None => seen.push(ObservedObject { kind, uid, first: object.clone(), last: object, gone }),
        }
        drop(seen);
        self.changes.send_modify(|it| *it = it.wrapping_add(1));
    }

    fn mark_missing_gone(&self, kind: Kind, existing: &[&str]) {
        for seen in self.seen.lock().iter_mut().filter(|it| it.kind == kind) {
            seen.gone |= !existing.contains(&seen.uid.as_str());
        }
        self.changes.send_modify(|it| *it = it.wrapping_add(1));
    }

    /// Notifications about every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// All objects observed so far.
    pub(super) fn seen(&self) -> Vec<ObservedObject> {
        self.seen.lock().clone()
    }

    /// The existing objects of a kind, in their last observed state.
    #[must_use]
    pub fn existing(&self, kind: Kind) -> Vec<Value> {
        let seen = self.seen.lock();
        seen.iter().filter(|it| it.kind == kind && !it.gone).map(|it| it.last.clone()).collect()
    }

    /// All objects of a kind that were observed so far, in their last observed state.
    #[must_use]
    pub fn observed(&self, kind: Kind) -> Vec<Value> {
        let seen = self.seen.lock();
        seen.iter().filter(|it| it.kind == kind).map(|it| it.last.clone()).collect()
    }

    /// One object, if it exists.
    #[must_use]
    pub fn find(&self, kind: Kind, name: &str) -> Option<Value> {
        let seen = self.seen.lock();
        let mut existing = seen.iter().filter(|it| it.kind == kind && !it.gone);
        existing.find(|it| it.last["metadata"]["name"] == name).map(|it| it.last.clone())
    }

    /// How many objects of a kind exist.
    #[must_use]
    pub fn existing_count(&self, kind: Kind) -> usize {
        self.seen.lock().iter().filter(|it| it.kind == kind && !it.gone).count()
    }

    /// How many objects of a kind were observed so far.
    #[must_use]
    pub fn observed_count(&self, kind: Kind) -> usize {
        self.seen.lock().iter().filter(|it| it.kind == kind).count()
    }
}
