use std::{future::Future, sync::Arc};

use api::ObjectKey;
use events::Recorder;
use futures::future::{BoxFuture, join_all};
use informer::{Registration, Watched};
use runner::Pulse;
use tokio_util::sync::CancellationToken;

use crate::Proof;

/// A controller as declared: nothing of it acts before [`Controller::run`].
pub struct Controller {
    name: &'static str,
    caches: Vec<Cache>,
    recorders: Vec<Recorder>,
    pulses: Vec<Pulse>,
    feeds: Vec<Registration>,
    parts: Vec<Part>,
}

/// A cache that a controller reads.
#[derive(Clone)]
pub struct Cache {
    /// Its informer.
    pub watched: Arc<dyn Watched>,
    /// Whether a new leader must prove it.
    pub proof: Proof,
    /// True when it shows that the object of this key is gone or going.
    pub shows_gone: Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>,
}

pub(crate) enum Part {
    Handler(Box<dyn FnOnce() -> Registration + Send>),
    Workers(Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>),
}

impl Controller {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            caches: Vec::new(),
            recorders: Vec::new(),
            pulses: Vec::new(),
            feeds: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(crate) fn reads(&mut self, cache: Cache) {
        self.caches.push(cache);
    }

    pub(crate) fn records(&mut self, recorder: Recorder) {
        self.recorders.push(recorder);
    }

    pub(crate) fn shows(&mut self, pulse: Pulse) {
        self.pulses.push(pulse);
    }

    pub(crate) fn is_fed(&mut self, feed: Registration) {
        self.feeds.push(feed);
    }

    pub(crate) fn has(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// The canonical name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The caches that it reads.
    #[must_use]
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// Where its events wait to be written: flushed when the manager stops.
    #[must_use]
    pub fn recorders(&self) -> &[Recorder] {
        &self.recorders
    }

    /// How its workers are, for each of its queues.
    #[must_use]
    pub fn pulses(&self) -> &[Pulse] {
        &self.pulses
    }

    /// Works from the beginning of a term until `stop`: adds the handlers, waits until each has had its whole first set
    /// and until `proved` says that the caches are new enough, then starts the workers. After `stop` no further key is
    /// taken; returns when the calls in flight have ended.
    pub async fn run(self, stop: CancellationToken, proved: impl Future<Output = ()>) {
        let mut handlers = self.feeds;
        let mut workers = Vec::new();
        for part in self.parts {
            match part {
                Part::Handler(add) => handlers.push(add()),
                Part::Workers(start) => workers.push(start),
            }
        }
        let ready = async {
            proved.await;
            join_all(handlers.iter().map(Registration::synced)).await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = ready => {
                tracing::info!(controller = self.name, "Caches are synced, workers start");
                join_all(workers.into_iter().map(|start| start(stop.clone()))).await;
            }
        }
        for handler in handlers {
            handler.remove();
        }
    }
}
