use std::{collections::BTreeMap, sync::Arc};

use fake_nodes::{Change, follow};
use kube::{Api, core::DynamicObject};
use parking_lot::Mutex;
use serde_json::Value;
use tasks::Spawner;
use tokio::sync::watch;

use super::kinds::Kind;
use crate::Rest;

/// One object, as it was last seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its kind.
    pub kind: &'static Kind,
    /// The object; with its end's version where the server told of that.
    pub last: Value,
    /// It is there no more.
    pub gone: bool,
}

/// All that has been seen of all kinds, by uid; one watch each, however many look.
#[derive(Debug)]
pub struct Board {
    seen: Mutex<BTreeMap<String, Seen>>,
    news: watch::Sender<u64>,
}

impl Board {
    /// Begins to look.
    #[must_use]
    pub fn start(rest: &Rest, spawner: &Spawner) -> Arc<Self> {
        let board = Arc::new(Self { seen: Mutex::default(), news: watch::Sender::new(0) });
        for kind in Kind::ALL {
            let (board, api) = (board.clone(), Api::<DynamicObject>::all_with(rest.client().clone(), &kind.resource()));
            spawner.spawn("board", async move {
                follow(api, move |change| match change {
                    Change::All(objects) => board.all(kind, &objects),
                    Change::Put(object) => board.put(kind, &object, false),
                    Change::Gone(object) => board.put(kind, &object, true),
                })
                .await;
            });
        }
        board
    }

    /// Hears of everything that happens from now on.
    #[must_use]
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The object of this uid, if it was ever seen.
    #[must_use]
    pub fn find(&self, uid: &str) -> Option<Seen> {
        self.seen.lock().get(uid).cloned()
    }

    /// The events that are there.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let seen = self.seen.lock();
        let events = seen.values().filter(|it| it.kind.kind == Kind::EVENT && !it.gone);
        events.map(|it| it.last.clone()).collect()
    }

    fn put(&self, kind: &'static Kind, object: &DynamicObject, gone: bool) {
        let (Some(uid), Ok(last)) = (object.metadata.uid.clone(), serde_json::to_value(object)) else { return };
        self.seen.lock().insert(uid, Seen { kind, last, gone });
        self.news.send_modify(|it| *it = it.wrapping_add(1));
    }

    /// Whatever is not among these is gone.
    fn all(&self, kind: &'static Kind, objects: &[DynamicObject]) {
        for object in objects {
            self.put(kind, object, false);
        }
        let there = |uid: &str| objects.iter().any(|it| it.metadata.uid.as_deref() == Some(uid));
        for (uid, seen) in self.seen.lock().iter_mut().filter(|(_, it)| it.kind == kind) {
            seen.gone |= !there(uid);
        }
        self.news.send_modify(|it| *it = it.wrapping_add(1));
    }
}
