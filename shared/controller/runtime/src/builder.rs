use std::{fmt::Display, future::Future, hash::Hash, sync::Arc, time::Duration};

use api::{Typed, Uid};
use client::{Account, Api, Clients, DeletedObject, Limits};
use clock::Clock;
use events::Recorder;
use futures::future::BoxFuture;
use informer::{Cause, Change, Informer, Informers};
use metrics::Metrics;
use tasks::Spawner;
use tokio_util::sync::CancellationToken;

use crate::{
    Backoff, Environment, Lane, Outcome, Page, PageContent, Query, Queue, WorkerHealth, Workers,
    running::{Cache, Controller, Part},
};

/// The dependencies that all controllers of one manager share.
#[derive(Clone)]
pub struct Deps {
    /// One informer per type.
    pub informers: Informers,
    /// Clients, each with its own rate limit.
    pub clients: Clients,
    /// The clock.
    pub clock: Clock,
    /// The metrics registry of the manager.
    pub metrics: Metrics,
    /// Starts the tasks.
    pub spawner: Spawner,
    /// `--kube-api-qps`, `--kube-api-burst`.
    pub limits: Limits,
    /// The seed of all random choices of a controller.
    pub seed: u64,
    /// The resync period of handlers without their own; zero means no resync.
    pub resync: Duration,
    /// The host name in the source of events.
    pub host: String,
    /// Cancelled when the manager stops. A long sync then ends between two calls, so that the Lease is released soon.
    pub stopping: CancellationToken,
}

/// Whether writes may depend on an informer's cache alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Yes. A new leader waits until the cache shows all writes from before its term.
    Needed,
    /// No. Each write follows a live read.
    LiveReads,
}

/// Collects the declarations of one controller.
pub struct Builder {
    name: &'static str,
    /// The name of its clients.
    client: &'static str,
    /// Its identity on the server; `None` means the manager's own.
    account: Option<Account>,
    deps: Deps,
    controller: Controller,
}

impl Builder {
    /// A builder for the controller with this canonical name.
    #[must_use]
    pub fn new(name: &'static str, deps: Deps) -> Self {
        let controller = Controller::new(name);
        Self { name, client: name, account: None, deps, controller }
    }

    /// Sets the name and the account of its clients. Without an account they use the manager's identity.
    #[must_use]
    pub fn with_identity(self, client: &'static str, account: Option<Account>) -> Self {
        Self { client, account, ..self }
    }

    /// Returns the declared controller.
    #[must_use]
    pub fn build(self) -> Controller {
        self.controller
    }

    /// The shared dependencies.
    #[must_use]
    pub fn deps(&self) -> &Deps {
        &self.deps
    }

    /// The shared informer of a type. It runs from now on.
    pub fn informer<T: Typed>(&mut self, proof: Proof) -> Informer<T> {
        let informer = self.deps.informers.typed::<T>();
        let store = informer.store().clone();
        let is_gone_or_deleting = Arc::new(move |deleted: &DeletedObject| {
            let is_other = |uid: &Uid| deleted.uid.as_ref().is_some_and(|it| it != uid);
            match store.get(&deleted.key.namespace, &deleted.key.name) {
                Ok(found) => found.is_none_or(|it| it.meta().deletion.is_some() || is_other(it.meta().uid)),
                Err(_) => false,
            }
        });
        self.controller.add_cache(Cache { watched: informer.watched(), proof, is_gone_or_deleting });
        informer
    }

    /// A client with `factor` times the common rate limit, because upstream gives some controllers more. It is fenced
    /// by the term.
    #[must_use]
    pub fn api(&self, factor: Factor) -> Api {
        let Limits { qps, burst } = self.deps.limits;
        self.api_within(Limits { qps: qps * factor.qps, burst: burst.saturating_mul(factor.burst) })
    }

    /// A client without a rate limit, fenced by the term, for the writes at the end of a term. A wait for the rate
    /// limiter would be cancelled by the stop, and the request would not be sent.
    #[must_use]
    pub fn unlimited_api(&self) -> Api {
        self.api_within(Limits::NONE)
    }

    /// A client with the identity of the manager, with a rate limit of its own. For reads that upstream's role of the
    /// controller does not allow.
    #[must_use]
    pub fn manager_api(&self) -> Api {
        self.deps.clients.controller(self.client, self.deps.limits)
    }

    fn api_within(&self, limits: Limits) -> Api {
        match &self.account {
            Some(account) => self.deps.clients.controller_as(account, self.client, limits),
            None => self.deps.clients.controller(self.client, limits),
        }
    }

    /// A work queue with this name, which is also the label of its metrics.
    #[must_use]
    pub fn queue<K>(&self, name: &'static str, backoff: Backoff) -> Queue<K>
    where
        K: Clone + Eq + Hash + std::fmt::Debug + Send + Sync + 'static,
    {
        Queue::new(name, backoff, self.deps.clock.clone(), &self.deps.metrics)
    }

    /// The event recorder of this controller, which uses the controller's client.
    #[must_use]
    pub fn recorder(&mut self, api: Api) -> Recorder {
        self.recorder_as(self.name, api)
    }

    /// The same with another component in the source of its events.
    #[must_use]
    pub fn recorder_as(&mut self, component: &str, api: Api) -> Recorder {
        let recorder = Recorder::new(events::Deps {
            api,
            clock: self.deps.clock.clone(),
            rng: self.rng("events"),
            spawner: self.deps.spawner.clone(),
            metrics: self.deps.metrics.clone(),
            component: component.to_owned(),
            host: self.deps.host.clone(),
        });
        self.controller.add_recorder(recorder.clone());
        recorder
    }

    /// A separate random generator for `purpose`; equal seeds give equal sequences.
    #[must_use]
    pub fn rng(&self, purpose: &str) -> fastrand::Rng {
        let mixed = self.name.bytes().chain(purpose.bytes()).fold(self.deps.seed, |hash, byte| {
            // A step of FNV-1a; the quality of the hash does not matter.
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        fastrand::Rng::with_seed(mixed)
    }

    /// Adds a handler that is called for every change from now on, also on a standby. For state that must be complete
    /// when the term begins. Such a handler must not enqueue keys.
    pub fn on_every_change<T: Typed>(
        &mut self,
        informer: &Informer<T>,
        handler: impl Fn(&Change<'_, T>) + Send + Sync + 'static,
    ) {
        self.controller.add_standby_handler(informer.add_handler(self.name, None, move |change| handler(&change)));
    }

    /// Adds a handler that is called for every change from the beginning of the term. Its second argument is the lane
    /// for its keys. `None` means the manager's resync period.
    pub fn on_change<T: Typed>(
        &mut self,
        informer: &Informer<T>,
        resync: Option<Duration>,
        handler: impl Fn(&Change<'_, T>, Lane) + Send + Sync + 'static,
    ) {
        let informer = informer.clone();
        let name = self.name;
        let resync = resync.or(Some(self.deps.resync)).filter(|it| !it.is_zero());
        self.controller.add_part(Part::Handler(Box::new(move || {
            informer.add_handler(name, resync, move |change| handler(&change, lane(change.cause)))
        })));
    }

    /// Runs `task` on leader and standby, from the time when all controllers are declared until the end of the term. It
    /// is cancelled after the last worker has ended, and awaited.
    pub fn background<Fut>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let spawner = self.deps.spawner.clone();
        self.controller.add_background(Box::new(move |end| spawner.spawn(name, task(end))));
    }

    /// Calls `act` when the term begins, before any worker starts, for work that a standby has collected.
    pub fn on_term_start(&mut self, act: impl FnOnce() + Send + 'static) {
        self.controller.add_part(Part::TermStart(Box::new(act)));
    }

    /// Makes the workers wait for this future too. It is created when the term begins.
    pub fn wait_before_workers<Fut>(&mut self, wait: impl FnOnce() -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.controller.add_part(Part::Wait(Box::new(move || Box::pin(wait()))));
    }

    /// Serves a page at `/debug/controllers/<controller>/<name>` while the controller runs. `render` must not block.
    pub fn page(
        &mut self,
        name: &'static str,
        render: impl Fn(&Query) -> Result<PageContent, String> + Send + Sync + 'static,
    ) {
        self.controller.add_page(Page::new(name, render));
    }

    /// Starts `count` workers for `queue` during the term.
    pub fn workers<K, F, Fut, E>(&mut self, queue: &Queue<K>, count: usize, sync: F)
    where
        K: Clone + Eq + Hash + Display + std::fmt::Debug + Send + Sync + 'static,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (name, queue) = (self.name, queue.clone());
        let Deps { clock, metrics, spawner, .. } = self.deps.clone();
        let worker_health = WorkerHealth::new(&queue, count, clock.clone());
        self.controller.add_worker_health(worker_health.clone());
        self.controller.add_part(Part::Workers(Box::new(move |stop| {
            let env = Environment { spawner, clock, metrics, stop };
            let workers = Workers::start(&env, name, &worker_health, queue, sync);
            Box::pin(workers.wait_until_ended()) as BoxFuture<'static, ()>
        })));
    }
}

/// The multiple of the common rate limit for a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// Multiplies `--kube-api-qps`.
    pub qps: f64,
    /// Multiplies `--kube-api-burst`.
    pub burst: u32,
}

impl Factor {
    /// The common limits.
    pub const ONE: Self = Self { qps: 1.0, burst: 1 };
}

/// New changes go before the initial list and resyncs.
fn lane(cause: Cause) -> Lane {
    match cause {
        Cause::Watch | Cause::Relist => Lane::Now,
        Cause::Initial | Cause::Resync => Lane::Slow,
    }
}
