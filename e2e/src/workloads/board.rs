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
}

impl Kind {
    const ALL: [Self; 4] = [Self::Pod, Self::Job, Self::CronJob, Self::Event];

    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::Pod => ("", "Pod"),
            Self::Job => ("batch", "Job"),
            Self::CronJob => ("batch", "CronJob"),
            Self::Event => ("", "Event"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
    }
}

/// One object, in its first and in its last observed state.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) kind: Kind,
    uid: String,
    pub(super) first: Value,
    pub(super) last: Value,
    pub(super) gone: bool,
}

/// All observed pods, Jobs, CronJobs and events, by namespace. There is one watch for each kind, shared by all plays.
#[derive(Debug, Default)]
pub struct Board {
    folders: Mutex<BTreeMap<String, Arc<Folder>>>,
}

/// The observed objects of one namespace, in the order of their appearance.
#[derive(Debug)]
pub struct Folder {
    seen: Mutex<Vec<Seen>>,
    news: watch::Sender<u64>,
}

impl Board {
    /// Starts the watches.
    #[must_use]
    pub fn start(rest: &Rest, spawner: &Spawner) -> Arc<Self> {
        let board = Arc::new(Self::default());
        for kind in Kind::ALL {
            let (board, api) = (board.clone(), Api::<DynamicObject>::all_with(rest.client().clone(), &kind.resource()));
            spawner.spawn("board", look(api, kind, board));
        }
        board
    }

    /// The observed objects of a namespace.
    #[must_use]
    pub fn folder(&self, namespace: &str) -> Arc<Folder> {
        let mut folders = self.folders.lock();
        folders.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Folder::new())).clone()
    }

    fn put(&self, kind: Kind, object: &DynamicObject, gone: bool) {
        let Ok(value) = serde_json::to_value(object) else { return };
        self.folder(object.metadata.namespace.as_deref().unwrap_or_default()).put(kind, value, gone);
    }

    /// Marks all objects that are not in this list as deleted.
    fn all(&self, kind: Kind, objects: &[DynamicObject]) {
        for object in objects {
            self.put(kind, object, false);
        }
        let there: Vec<&str> = objects.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
        let folders: Vec<Arc<Folder>> = self.folders.lock().values().cloned().collect();
        for folder in folders {
            folder.retain(kind, &there);
        }
    }
}

async fn look(api: Api<DynamicObject>, kind: Kind, board: Arc<Board>) {
    list_and_watch(api, move |change| match change {
        Change::All(objects) => board.all(kind, &objects),
        Change::Put(object) => board.put(kind, &object, false),
        Change::Gone(object) => board.put(kind, &object, true),
    })
    .await;
}

impl Folder {
    fn new() -> Self {
        Self { seen: Mutex::default(), news: watch::Sender::new(0) }
    }

    fn put(&self, kind: Kind, object: Value, gone: bool) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut seen = self.seen.lock();
        match seen.iter_mut().find(|it| it.uid == uid && it.kind == kind) {
            Some(known) => {
                known.last = object;
                known.gone = gone;
            }
            None => seen.push(Seen { kind, uid, first: object.clone(), last: object, gone }),
        }
        drop(seen);
        self.news.send_modify(|it| *it = it.wrapping_add(1));
    }

    fn retain(&self, kind: Kind, there: &[&str]) {
        for seen in self.seen.lock().iter_mut().filter(|it| it.kind == kind) {
            seen.gone |= !there.contains(&seen.uid.as_str());
        }
        self.news.send_modify(|it| *it = it.wrapping_add(1));
    }

    /// Notifications about every change from now on.
    #[must_use]
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// All objects observed so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The existing objects of a kind, in their last observed state.
    #[must_use]
    pub fn there(&self, kind: Kind) -> Vec<Value> {
        let seen = self.seen.lock();
        seen.iter().filter(|it| it.kind == kind && !it.gone).map(|it| it.last.clone()).collect()
    }

    /// One object, if it exists.
    #[must_use]
    pub fn find(&self, kind: Kind, name: &str) -> Option<Value> {
        self.there(kind).into_iter().find(|it| it["metadata"]["name"] == name)
    }

    /// How many objects of a kind were observed so far.
    #[must_use]
    pub fn ever(&self, kind: Kind) -> usize {
        self.seen.lock().iter().filter(|it| it.kind == kind).count()
    }
}
