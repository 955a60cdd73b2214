use std::{future::Future, sync::Arc};

use client::DeletedObject;
use events::Recorder;
use futures::future::{BoxFuture, join_all};
use informer::{HandlerRegistration, Watched};
use tasks::Task;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Page, Proof, WorkerHealth};

/// A declared controller. It does nothing before [`Controller::run`].
pub struct Controller {
    name: &'static str,
    caches: Vec<Cache>,
    recorders: Vec<Recorder>,
    worker_health: Vec<WorkerHealth>,
    pages: Vec<Page>,
    standby_handlers: Vec<HandlerRegistration>,
    parts: Vec<Part>,
    background: Background,
}

/// The tasks that also run on a standby.
struct Background {
    declared: Vec<Box<dyn FnOnce(CancellationToken) -> Task + Send>>,
    running: Vec<Task>,
    end: CancellationToken,
    /// Ends the tasks also when a standby stops and drops its controllers.
    _dropped: DropGuard,
}

impl Background {
    fn new() -> Self {
        let end = CancellationToken::new();
        Self { declared: Vec::new(), running: Vec::new(), _dropped: end.clone().drop_guard(), end }
    }

    fn begin(&mut self) {
        let Self { declared, running, end, .. } = self;
        running.extend(declared.drain(..).map(|start| start(end.clone())));
    }

    async fn wait_until_ended(self) {
        self.end.cancel();
        join_all(self.running.into_iter().map(Task::wait_until_ended)).await;
    }
}

/// A cache that a controller reads.
#[derive(Clone)]
pub struct Cache {
    /// Its informer.
    pub watched: Arc<dyn Watched>,
    /// Whether a new leader must prove that the cache is fresh.
    pub proof: Proof,
    /// Returns true when the cache shows that this object is gone or being deleted.
    pub is_gone_or_deleting: Arc<dyn Fn(&DeletedObject) -> bool + Send + Sync>,
}

pub(crate) enum Part {
    Handler(Box<dyn FnOnce() -> HandlerRegistration + Send>),
    Workers(Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>),
    TermStart(Box<dyn FnOnce() + Send>),
    Wait(Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>),
}

impl Controller {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            caches: Vec::new(),
            recorders: Vec::new(),
            worker_health: Vec::new(),
            pages: Vec::new(),
            standby_handlers: Vec::new(),
            parts: Vec::new(),
            background: Background::new(),
        }
    }

    pub(crate) fn add_cache(&mut self, cache: Cache) {
        self.caches.push(cache);
    }

    pub(crate) fn add_recorder(&mut self, recorder: Recorder) {
        self.recorders.push(recorder);
    }

    pub(crate) fn add_worker_health(&mut self, worker_health: WorkerHealth) {
        self.worker_health.push(worker_health);
    }

    pub(crate) fn add_page(&mut self, page: Page) {
        self.pages.push(page);
    }

    pub(crate) fn add_background(&mut self, start: Box<dyn FnOnce(CancellationToken) -> Task + Send>) {
        self.background.declared.push(start);
    }

    pub(crate) fn add_standby_handler(&mut self, handler: HandlerRegistration) {
        self.standby_handlers.push(handler);
    }

    pub(crate) fn add_part(&mut self, part: Part) {
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

    /// The recorders of its events; flushed when the manager stops.
    #[must_use]
    pub fn recorders(&self) -> &[Recorder] {
        &self.recorders
    }

    /// The state of its workers, one per queue.
    #[must_use]
    pub fn worker_health(&self) -> &[WorkerHealth] {
        &self.worker_health
    }

    /// Its debug pages.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Starts the tasks that also run on a standby. All controllers of the manager are declared by then, so every
    /// informer can be found. A second call has no effect.
    pub fn begin(&mut self) {
        self.background.begin();
    }

    /// Runs one term until `stop`: adds the handlers, waits until each has handled its initial list and `proved` has
    /// completed, then starts the workers. After `stop` no further key is taken. Returns when all running syncs are
    /// completed.
    pub async fn run(mut self, stop: CancellationToken, proved: impl Future<Output = ()>) {
        self.begin();
        let mut handlers = self.standby_handlers;
        let (mut workers, mut waits) = (Vec::new(), Vec::new());
        for part in self.parts {
            match part {
                Part::Handler(add) => handlers.push(add()),
                Part::Workers(start) => workers.push(start),
                Part::TermStart(act) => act(),
                Part::Wait(wait) => waits.push(wait()),
            }
        }
        let ready = async {
            let synced = join_all(handlers.iter().map(HandlerRegistration::wait_for_sync));
            // All futures are polled from now on, so that their timeouts count from the beginning of the term.
            tokio::join!(proved, synced, join_all(waits));
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
        self.background.wait_until_ended().await;
    }
}
