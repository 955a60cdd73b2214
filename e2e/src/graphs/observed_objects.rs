use std::{collections::BTreeMap, sync::Arc};

use fake_nodes::{Change, list_and_watch};
use kube::{Api, core::DynamicObject};
use parking_lot::Mutex;
use serde_json::Value;
use tasks::Spawner;
use tokio::sync::watch;

use super::kinds::Kind;
use crate::Rest;

/// One object in its last observed state.
#[derive(Debug, Clone)]
pub struct ObservedObject {
    /// Its kind.
    pub kind: &'static Kind,
    /// The object. After a deletion that the watch showed, with the version of the deletion.
    pub last: Value,
    /// It was deleted.
    pub gone: bool,
}

/// All objects of all kinds observed so far, by uid. There is one watch for each kind, shared by all runs.
#[derive(Debug)]
pub struct ObservedObjects {
    seen: Mutex<BTreeMap<String, ObservedObject>>,
    changes: watch::Sender<u64>,
}

impl ObservedObjects {
    /// Starts the watches.
    #[must_use]
    pub fn start(rest: &Rest, spawner: &Spawner) -> Arc<Self> {
        let observed = Arc::new(Self { seen: Mutex::default(), changes: watch::Sender::new(0) });
        for kind in Kind::ALL {
            let (observed, api) =
                (observed.clone(), Api::<DynamicObject>::all_with(rest.client().clone(), &kind.resource()));
            spawner.spawn("board", async move {
                list_and_watch(api, move |change| match change {
                    Change::All(objects) => observed.on_list(kind, &objects),
                    Change::Put(object) => observed.put(kind, &object, false),
                    Change::Gone(object) => observed.put(kind, &object, true),
                })
                .await;
            });
        }
        observed
    }

    /// Notifications about every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The object with this uid, if it was ever observed.
    #[must_use]
    pub fn find(&self, uid: &str) -> Option<ObservedObject> {
        self.seen.lock().get(uid).cloned()
    }

    /// The existing events.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let seen = self.seen.lock();
        let events = seen.values().filter(|it| it.kind.kind == Kind::EVENT && !it.gone);
        events.map(|it| it.last.clone()).collect()
    }

    fn put(&self, kind: &'static Kind, object: &DynamicObject, gone: bool) {
        let (Some(uid), Ok(last)) = (object.metadata.uid.clone(), serde_json::to_value(object)) else { return };
        self.seen.lock().insert(uid, ObservedObject { kind, last, gone });
        self.changes.send_modify(|it| *it = it.wrapping_add(1));
    }

    /// Marks all objects that are not in this list as deleted.
    fn on_list(&self, kind: &'static Kind, objects: &[DynamicObject]) {
        for object in objects {
            self.put(kind, object, false);
        }
        let there = |uid: &str| objects.iter().any(|it| it.metadata.uid.as_deref() == Some(uid));
        for (uid, seen) in self.seen.lock().iter_mut().filter(|(_, it)| it.kind == kind) {
            seen.gone |= !there(uid);
        }
        self.changes.send_modify(|it| *it = it.wrapping_add(1));
    }
}
