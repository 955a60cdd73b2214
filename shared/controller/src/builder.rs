use std::{fmt::Display, future::Future, hash::Hash, sync::Arc, time::Duration};

use api::{ObjectKey, Typed};
use client::{Account, Api, Clients, Limits};
use clock::Clock;
use events::Recorder;
use futures::future::BoxFuture;
use informer::{Cause, Change, Informer, Informers};
use metrics::Metrics;
use runner::{Environment, Outcome, Pulse, Workers};
use tasks::Spawner;
use tokio_util::sync::CancellationToken;
use workqueue::{Backoff, Lane, Queue};

use crate::{
    Page, Query, Shown,
    running::{Cache, Controller, Part},
};

/// What all controllers of one manager share.
#[derive(Clone)]
pub struct Deps {
    /// One informer per type.
    pub informers: Informers,
    /// Clients with a budget of their own.
    pub clients: Clients,
    /// Time.
    pub clock: Clock,
    /// The manager's registry.
    pub metrics: Metrics,
    /// Where tasks start.
    pub spawner: Spawner,
    /// `--kube-api-qps`, `--kube-api-burst`.
    pub limits: Limits,
    /// Every random choice of a controller begins here.
    pub seed: u64,
    /// How often a handler without a period of its own sees everything again; zero: never.
    pub resync: Duration,
    /// Named as the source of events.
    pub host: String,
    /// Fires when the manager stops in order: a long sync ends between two calls, so that the Lease is soon released.
    pub stopping: CancellationToken,
}

/// Whether an informer's cache alone justifies writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Yes: a new leader waits until the cache has shown everything that was written before its term.
    Needed,
    /// No: each write rests on a live read.
    LiveReads,
}

/// Collects what one controller declares.
pub struct Builder {
    name: &'static str,
    /// The name of its clients.
    client: &'static str,
    /// Who it is to the server; `None`: the manager itself.
    account: Option<Account>,
    deps: Deps,
    controller: Controller,
}

impl Builder {
    /// For the controller of this canonical name.
    #[must_use]
    pub fn new(name: &'static str, deps: Deps) -> Self {
        let controller = Controller::new(name);
        Self { name, client: name, account: None, deps, controller }
    }

    /// Names its clients, and says who they are: the manager itself where there is no account.
    #[must_use]
    pub fn speaks_as(self, client: &'static str, account: Option<Account>) -> Self {
        Self { client, account, ..self }
    }

    /// Everything that was declared.
    #[must_use]
    pub fn build(self) -> Controller {
        self.controller
    }

    /// What all controllers share.
    #[must_use]
    pub fn deps(&self) -> &Deps {
        &self.deps
    }

    /// The one informer of a type, running from now on.
    pub fn informer<T: Typed>(&mut self, proof: Proof) -> Informer<T> {
        let informer = self.deps.informers.typed::<T>();
        let store = informer.store().clone();
        let shows_gone = Arc::new(move |key: &ObjectKey| match store.get(&key.namespace, &key.name) {
            Ok(found) => found.is_none_or(|it| it.meta().deletion.is_some()),
            Err(_) => false,
        });
        self.controller.reads(Cache { watched: informer.watched(), proof, shows_gone });
        informer
    }

    /// A client with `factor` times the common limits (upstream gives some controllers more), fenced by the term.
    #[must_use]
    pub fn api(&self, factor: Factor) -> Api {
        let Limits { qps, burst } = self.deps.limits;
        self.api_within(Limits { qps: qps * factor.qps, burst: burst.saturating_mul(factor.burst) })
    }

    /// A client without limits, fenced by the term, for the writes that end a term: a wait for a limit would end with the
    /// stop, and nothing be sent.
    #[must_use]
    pub fn unlimited_api(&self) -> Api {
        self.api_within(Limits::NONE)
    }

    fn api_within(&self, limits: Limits) -> Api {
        match &self.account {
            Some(account) => self.deps.clients.controller_as(account, self.client, limits),
            None => self.deps.clients.controller(self.client, limits),
        }
    }

    /// A queue of this name, which its metrics carry.
    #[must_use]
    pub fn queue<K>(&self, name: &'static str, backoff: Backoff) -> Queue<K>
    where
        K: Clone + Eq + Hash + std::fmt::Debug + Send + Sync + 'static,
    {
        Queue::new(name, backoff, self.deps.clock.clone(), &self.deps.metrics)
    }

    /// Events of this controller, written through its own client.
    #[must_use]
    pub fn recorder(&mut self, api: Api) -> Recorder {
        let recorder = Recorder::new(events::Deps {
            api,
            clock: self.deps.clock.clone(),
            rng: self.rng("events"),
            spawner: self.deps.spawner.clone(),
            metrics: self.deps.metrics.clone(),
            component: self.name.to_owned(),
            host: self.deps.host.clone(),
        });
        self.controller.records(recorder.clone());
        recorder
    }

    /// A random generator of its own for `purpose`, equal for equal seeds.
    #[must_use]
    pub fn rng(&self, purpose: &str) -> fastrand::Rng {
        let mixed = self.name.bytes().chain(purpose.bytes()).fold(self.deps.seed, |hash, byte| {
            // FNV-1a's step: any cheap mixing will do.
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        fastrand::Rng::with_seed(mixed)
    }

    /// Has `handler` called for every change from now on, also while another manager leads: for what must be known when
    /// the term begins. It wakes nobody.
    pub fn feed<T: Typed>(&mut self, informer: &Informer<T>, handler: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        self.controller.is_fed(informer.add_handler(self.name, None, move |change| handler(&change)));
    }

    /// Has `handler` called for every change from the beginning of the term on; it learns in which lane its keys belong.
    /// Without a resync period of its own it has the manager's.
    pub fn on_change<T: Typed>(
        &mut self,
        informer: &Informer<T>,
        resync: Option<Duration>,
        handler: impl Fn(&Change<'_, T>, Lane) + Send + Sync + 'static,
    ) {
        let informer = informer.clone();
        let name = self.name;
        let resync = resync.or(Some(self.deps.resync)).filter(|it| !it.is_zero());
        self.controller.has(Part::Handler(Box::new(move || {
            informer.add_handler(name, resync, move |change| handler(&change, lane(change.cause)))
        })));
    }

    /// Runs `task` from the time when all controllers of the manager are declared, also while another manager leads, until
    /// the term is over: it is cancelled after the last worker ended, and awaited.
    pub fn background<Fut>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let spawner = self.deps.spawner.clone();
        self.controller.does(Box::new(move |end| spawner.spawn(name, task(end))));
    }

    /// Calls `act` when the term begins, before any worker starts: what a machine learned on a standby becomes due.
    pub fn with_the_term(&mut self, act: impl FnOnce() + Send + 'static) {
        self.controller.has(Part::Beginning(Box::new(act)));
    }

    /// Has the workers wait for this too. It is begun with the term.
    pub fn workers_wait<Fut>(&mut self, wait: impl FnOnce() -> Fut + Send + 'static)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.controller.has(Part::Wait(Box::new(move || Box::pin(wait()))));
    }

    /// Serves a page at `/debug/controllers/<controller>/<name>` while the controller runs. It is shown at once: no waits.
    pub fn page(&mut self, name: &'static str, show: impl Fn(&Query) -> Result<Shown, String> + Send + Sync + 'static) {
        self.controller.tells(Page::new(name, show));
    }

    /// Has `count` workers take keys from `queue` during the term.
    pub fn workers<K, F, Fut, E>(&mut self, queue: &Queue<K>, count: usize, sync: F)
    where
        K: Clone + Eq + Hash + Display + std::fmt::Debug + Send + Sync + 'static,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (name, queue) = (self.name, queue.clone());
        let Deps { clock, metrics, spawner, .. } = self.deps.clone();
        let pulse = Pulse::new(&queue, count, clock.clone());
        self.controller.shows(pulse.clone());
        self.controller.has(Part::Workers(Box::new(move |stop| {
            let env = Environment { spawner, clock, metrics, stop };
            let workers = Workers::start(&env, name, &pulse, queue, sync);
            Box::pin(workers.ended()) as BoxFuture<'static, ()>
        })));
    }
}

/// How many times the common limits a client gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// Of `--kube-api-qps`.
    pub qps: f64,
    /// Of `--kube-api-burst`.
    pub burst: u32,
}

impl Factor {
    /// The common limits.
    pub const ONE: Self = Self { qps: 1.0, burst: 1 };
}

/// What changed now goes before the initial list and resyncs.
fn lane(cause: Cause) -> Lane {
    match cause {
        Cause::Watch | Cause::Relist => Lane::Now,
        Cause::Initial | Cause::Resync => Lane::Slow,
    }
}
