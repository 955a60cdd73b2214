//! The manager as a value: start order, leadership and shutdown, in this order from top to bottom.
//!
//! It owns all its state: no statics except the interner and the log subscriber, no detached task, no exit below main.
//! Two managers in one process share nothing, so that a simulation can run them side by side.

use std::{sync::Arc, time::Duration};

use client::{Accounts, ApiError, Clients, Connection, Environment, Term, Transport};
use clock::{Clock, Timestamp};
use controller::{Builder, Deps as ControllerDeps, Registration};
use events::{EventType, ObjectReference, Recorder};
use futures::future::join_all;
use informer::Informers;
use leader_election::{Elector, ReleaseError, Signal};
use metrics::Metrics;
use tasks::{Scope, Task};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    cache_freshness::CacheFreshness,
    config::{Config, Election, Standby},
    health::HealthChecks,
    interlock::{HeldBack, Interlock, InterlockDecision},
    pages::{self, PageData},
    preflight::{Preflight, PreflightReport, Severity},
    serve::{self, ReviewConnections},
    term_controllers::{self, Declared, InterlockEvent, Switch, TermControllers},
    watch_health::all_watches_stalled,
};

/// The maximum time to write pending events at shutdown.
const FLUSH: Duration = Duration::from_millis(500);
/// How long the API server may be unhealthy when a term begins.
const SERVER_HEALTHY: Duration = Duration::from_secs(10);

/// The dependencies of a manager.
pub struct Deps {
    /// The connection to the API server.
    pub connection: Connection,
    /// The connections for TokenReviews and SubjectAccessReviews of the serving port's clients.
    pub review_connections: ReviewConnections,
    /// Controllers may write only during this term. The write pool of the connection checks the same term.
    pub term: Term,
    /// The clock.
    pub clock: Clock,
    /// The seed of all random choices.
    pub seed: u64,
    /// The metrics registry of the manager.
    pub metrics: Metrics,
    /// The log handle. The log level can be changed at run time.
    pub log: klog::Handle,
    /// Owns every task. Dropping it simulates a crash.
    pub scope: Scope,
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
    /// The identity of this process in the Lease and in events.
    pub hostname: String,
}

impl Deps {
    /// Dependencies for a manager in the same process as its server. Its registry, term and scope are its own, and its
    /// seed is derived from `hostname`.
    #[must_use]
    pub fn in_memory(config: &Config, server: Transport, clock: Clock, hostname: &str) -> Self {
        Self {
            connection: Connection::in_memory(server),
            review_connections: ReviewConnections::default(),
            term: if config.election.is_some() { Term::new(clock.clone()) } else { Term::endless(clock.clone()) },
            clock,
            seed: hostname.bytes().map(u64::from).sum(),
            metrics: Metrics::new(),
            log: klog::Handle::detached(),
            scope: Scope::new(),
            stop: CancellationToken::new(),
            hostname: hostname.to_owned(),
        }
    }
}

/// How a manager ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// A stop was requested, and the shutdown completed in order: exit code 0.
    Clean,
    /// Exit code 1 with this cause.
    Failed(String),
}

/// Runs until it is asked to stop, loses its Lease or fails.
pub async fn run(config: Config, deps: Deps) -> Exit {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let mut manager = Manager::new(config, deps);
    match manager.run().await {
        Ok(()) => Exit::Clean,
        Err(cause) => Exit::Failed(cause),
    }
}

/// Runs the preflight checks of a manager and nothing else.
pub async fn preflight(config: Config, deps: Deps) -> PreflightReport {
    let manager = Manager::new(config, deps);
    let mut report = manager.preflight.run().await;
    add_interlock_findings(&mut report, manager.interlock.poll_once().await);
    report
}

/// Adds what the interlock would do now.
fn add_interlock_findings(report: &mut PreflightReport, poll: Result<InterlockDecision, ApiError>) {
    const CHECK: &str = "interlock";
    let InterlockDecision { held_back, refusal } = match poll {
        Ok(decision) => decision,
        Err(err) => {
            let text = format!("cannot read the pods and Leases of other controller managers: {err}");
            return report.add_finding(Severity::Error, CHECK, text);
        }
    };
    for (controller, HeldBack { why, .. }) in held_back {
        report.add_finding(Severity::Warning, CHECK, format!("{controller} would be held back: {why}"));
    }
    if let Some(refusal) = refusal {
        report.add_finding(Severity::Error, CHECK, refusal);
    }
    report.completed.insert(CHECK);
}

struct Manager {
    config: Config,
    deps: Deps,
    health: HealthChecks,
    environment: Environment,
    clients: Clients,
    /// Set with `--use-service-account-credentials`.
    accounts: Option<Accounts>,
    preflight: Arc<Preflight>,
    interlock: Arc<Interlock>,
    informers: Informers,
    /// Cancelled at shutdown: it ends waits for the rate limiter in the controllers' clients, where no request was sent
    /// yet, and ends long syncs between two calls.
    stopping: CancellationToken,
    started: Timestamp,
    /// The serving port, while it is open.
    serving_port: Option<serve::ServingPort>,
}

/// The reason why a term ends.
enum TermEnd {
    /// A stop was requested by a signal.
    StopRequested,
    /// The API server is not healthy, or this process gets no watch events. Another manager should lead.
    StepDown(String),
    /// The Lease is lost, so another manager may write at any moment; or an invariant is broken.
    Aborted(String),
}

impl Manager {
    fn new(config: Config, deps: Deps) -> Self {
        let stopping = CancellationToken::new();
        config.gates.declare(&deps.metrics);
        let environment = Environment {
            clock: deps.clock.clone(),
            metrics: deps.metrics.clone(),
            term: deps.term.clone(),
            stop: stopping.clone(),
            user_agent: format!(
                "mini-kcm/v{} ({}/{})",
                env!("CARGO_PKG_VERSION"),
                std::env::consts::OS,
                std::env::consts::ARCH
            ),
        };
        let clients = Clients::new(deps.connection.clone(), environment.clone());
        let informers = Informers::new(informer::Environment {
            watcher: clients.watcher(config.limits),
            clock: deps.clock.clone(),
            metrics: deps.metrics.clone(),
            spawner: deps.scope.spawner(),
            rng_seed: deps.seed,
        });
        let started = deps.clock.wall();
        config.gates.version().declare(&deps.metrics);
        let accounts = config.identity.own_accounts.then(|| clients.accounts(config.limits, deps.scope.spawner()));
        let preflight = Arc::new(Preflight::new(&config, &clients, &deps.review_connections, &environment));
        let interlock = Arc::new(Interlock::new(&config, &clients, deps.clock.clone(), preflight.clone()));
        Self {
            config,
            deps,
            health: HealthChecks::default(),
            environment,
            clients,
            accounts,
            preflight,
            interlock,
            informers,
            stopping,
            started,
            serving_port: None,
        }
    }

    async fn run(&mut self) -> Result<(), String> {
        if self.config.election.is_some() {
            // Before the port is open, so that each probe contains the check.
            self.health.declare_election();
        }
        if let Some(serving) = &self.config.serving {
            let runtime_deps = (self.deps.seed, self.deps.scope.spawner());
            let (pages, review_connections) = (pages::router(self.page_data()), self.deps.review_connections.clone());
            let serving_port = serve::serve(serving, pages, review_connections, &self.environment, runtime_deps);
            self.serving_port = tokio::select! {
                biased;
                // Reading the client CA from the cluster may take long. Nothing else has started yet, so a stop ends it
                // at once.
                () = self.deps.stop.cancelled() => return Ok(()),
                serving_port = serving_port => Some(serving_port?),
            };
        }
        self.health.set_informers(self.informers.clone());
        let preflight = self.preflight.clone();
        self.deps.scope.spawner().spawn("preflight", async move { preflight.run_periodically().await });
        match self.config.election.clone() {
            Some(election) => self.run_elected(election).await,
            None => {
                self.poll_periodically();
                let controllers = self.declare();
                let freshness = self.freshness(&controllers);
                self.run_term(controllers, freshness, None, None).await
            }
        }
    }

    fn page_data(&self) -> PageData {
        let observability = self.config.observability.clone();
        PageData {
            health: self.health.clone(),
            metrics: self.deps.metrics.clone(),
            configuration: observability.configuration,
            flags: observability.flags,
            disabled: self.config.gates.disabled_pages(),
            version: self.config.gates.version(),
            absent: self.config.controllers.absent().map(|it| it.name).collect(),
            log: self.deps.log.clone(),
            profiling: observability.profiling,
            clock: self.deps.clock.clone(),
            started: self.started,
        }
    }

    fn poll_periodically(&self) {
        let interlock = self.interlock.clone();
        self.deps.scope.spawner().spawn("interlock", async move { interlock.poll_periodically().await });
    }

    /// Runs as a standby until the Lease is acquired, and as the leader from then on.
    async fn run_elected(&mut self, election: Election) -> Result<(), String> {
        // Without an answer the election begins all the same, and the term begins with another poll.
        let first_poll = tokio::select! {
            biased;
            () = self.deps.stop.cancelled() => return Ok(()),
            panic = self.deps.scope.panicked() => return Err(panic),
            poll = self.interlock.poll_once() => poll,
        };
        if let Ok(InterlockDecision { refusal: Some(refusal), .. }) = first_poll {
            return Err(refusal);
        }
        let mut decisions = self.interlock.decisions();
        self.poll_periodically();
        let mut rng = fastrand::Rng::with_seed(self.deps.seed);
        let identity = leader_election::identity(&self.deps.hostname, &mut rng);
        let mut elector = self.elector(&election, &identity, rng)?;
        self.health.set_election(elector.health());
        let mut controllers = (self.config.standby == Standby::Warm).then(|| self.declare());
        let mut freshness = self.freshness(controllers.as_deref().unwrap_or_default());
        let takeover = loop {
            let signal = tokio::select! {
                biased;
                () = self.deps.stop.cancelled() => {
                    // The Lease may have been acquired just now. It is released, so that the next leader does not wait
                    // for its expiry.
                    let released = elector.release(None).await;
                    self.informers.shut_down().await;
                    return match released {
                        // A Lease of another holder is not released. Our own attempt to acquire it came too late.
                        Ok(()) | Err(ReleaseError::TakenBy(_)) => Ok(()),
                        Err(err) => Err(err.to_string()),
                    };
                }
                panic = self.deps.scope.panicked() => return Err(panic),
                refusal = refused(&mut decisions) => {
                    // The Lease may have been acquired just now.
                    if let Err(err) = elector.release(None).await {
                        tracing::warn!(%err, "The Lease was not released: other managers must wait until it expires");
                    }
                    return Err(refusal);
                }
                signal = elector.next() => signal,
            };
            match signal {
                Signal::NewLeader(identity) => tracing::info!(%identity, "New leader elected"),
                Signal::ProveAhead { last_write } => freshness.prove_ahead(last_write),
                Signal::Acquired(takeover) => break takeover,
                Signal::Lost(reason) => return Err(format!("leader election ended: {reason}")),
            }
        };
        let controllers = controllers.take().unwrap_or_else(|| {
            let cold = self.declare();
            freshness = self.freshness(&cold);
            cold
        });
        freshness.take_over(takeover);
        let recorder = self.leadership_events(&election, &elector, identity);
        recorder.record_start();
        let ended = self.run_term(controllers, freshness, Some(elector), Some(&recorder)).await;
        recorder.record_stop().await;
        ended
    }

    fn elector(&self, election: &Election, identity: &str, rng: fastrand::Rng) -> Result<Elector, String> {
        let config = election.with_identity(identity.to_owned());
        let deps = leader_election::Deps {
            api: self.clients.lease(config.request_timeout()),
            watcher: self.clients.watcher(client::Limits::NONE),
            clock: self.deps.clock.clone(),
            metrics: self.deps.metrics.clone(),
            term: self.deps.term.clone(),
            rng,
            spawner: self.deps.scope.spawner(),
        };
        Elector::new(config, deps).map_err(|err| err.to_string())
    }

    /// Builds every enabled controller. Its informers run from now on; it writes only during the term.
    fn declare(&self) -> Vec<(&'static Registration, Declared)> {
        let mut controllers: Vec<(&'static Registration, Declared)> =
            self.config.controllers.implemented().map(|it| (it, self.declare_one(it))).collect();
        // All informers that controllers share are declared now.
        controllers.iter_mut().for_each(|(_, it)| it.controller.begin());
        controllers
    }

    fn declare_one(&self, registration: &'static Registration) -> Declared {
        let Registration { name, service_account, start, .. } = *registration;
        let switch = Switch { fence: self.deps.term.part(), stopping: self.stopping.child_token() };
        let deps = ControllerDeps {
            informers: self.informers.clone(),
            clients: self.clients.for_part(switch.fence.clone(), switch.stopping.clone()),
            clock: self.deps.clock.clone(),
            metrics: self.deps.metrics.clone(),
            spawner: self.deps.scope.spawner(),
            limits: self.config.limits,
            seed: self.deps.seed,
            host: self.deps.hostname.clone(),
            stopping: switch.stopping.clone(),
            resync: self.config.min_resync_period.mul_f64(1.0 + fastrand::Rng::with_seed(self.deps.seed).f64()),
        };
        // Account tokens are requested from now on, so a warm standby has them long before its term.
        let account = self.accounts.as_ref().map(|accounts| accounts.account(service_account));
        let mut builder = Builder::new(name, deps).with_identity(service_account, account);
        start(&mut builder, &self.config.settings);
        Declared { controller: builder.build(), switch }
    }

    fn freshness(&self, controllers: &[(&'static Registration, Declared)]) -> CacheFreshness {
        let controllers = controllers.iter().map(|(_, it)| &it.controller);
        CacheFreshness::new(&self.clients, controllers, self.deps.clock.clone(), self.deps.scope.spawner())
    }

    /// Runs one term: controllers start, work, and stop in order.
    async fn run_term(
        &mut self,
        controllers: Vec<(&'static Registration, Declared)>,
        mut freshness: CacheFreshness,
        elector: Option<Elector>,
        events: Option<&LeadershipEvents>,
    ) -> Result<(), String> {
        self.preflight.on_term_begun();
        let mut elector = elector;
        let stop = CancellationToken::new();
        let mut controllers = TermControllers::new(controllers, stop.clone(), self.deps.seed, &self.deps.metrics);
        let mut decisions = self.interlock.decisions();
        let end = {
            // No controller acts until the server is healthy and a poll of the built-in manager has succeeded.
            let ready = async { tokio::try_join!(self.wait_for_server(), self.interlock.poll_until_success()) };
            let mut deps = term_controllers::Deps {
                declare: &|registration: &'static Registration| self.declare_one(registration),
                freshness: &mut freshness,
                spawner: self.deps.scope.spawner(),
                health: &self.health,
                start_interval: self.config.start_interval,
                record: &|event: InterlockEvent| {
                    if let Some(events) = events {
                        events.record_interlock(event);
                    }
                },
            };
            let polls_failed_too_long =
                if_elected(elector.is_some(), self.interlock.wait_until_polls_failed_too_long());
            let work = async {
                match ready.await {
                    Ok(_) => tokio::select! {
                        biased;
                        reason = polls_failed_too_long => reason,
                        reason = controllers.follow(&mut decisions, &mut deps) => reason,
                    },
                    Err(unhealthy) => unhealthy,
                }
            };
            tokio::select! {
                biased;
                end = self.wait_for_end(elector.as_mut()) => end,
                reason = work => TermEnd::StepDown(reason),
            }
        };
        let failure = match end {
            TermEnd::Aborted(reason) => return Err(reason),
            TermEnd::StopRequested => None,
            TermEnd::StepDown(reason) => Some(reason),
        };
        stop.cancel();
        self.stopping.cancel();
        let recorders = controllers.recorders();
        tokio::select! {
            biased;
            reason = self.wait_for_abort(elector.as_mut()) => return Err(reason),
            drained = self.drain(controllers.into_tasks()) => drained?,
        }
        // After a failure the caches may be stale, so the next leader gets no notes about them.
        let notes = async { if failure.is_none() { Some(freshness.collect_notes(&self.clients).await) } else { None } };
        let (notes, _) = tokio::join!(notes, join_all(recorders.iter().map(|it| it.flush(FLUSH))));
        // No write of this process is sent after this line, so the Lease may be released.
        self.deps.term.end();
        if let Some(elector) = elector
            && let Err(err) = elector.release(notes).await
        {
            tracing::warn!(%err, "The Lease was not released: other managers must wait until it expires");
        }
        self.informers.shut_down().await;
        failure.map_or(Ok(()), Err)
    }

    async fn wait_for_end(&self, mut elector: Option<&mut Elector>) -> TermEnd {
        let all_watches_stalled = if_elected(elector.is_some(), all_watches_stalled(&self.informers, &self.deps.term));
        tokio::select! {
            biased;
            reason = self.wait_for_abort(elector.take()) => TermEnd::Aborted(reason),
            () = self.deps.stop.cancelled() => TermEnd::StopRequested,
            reason = all_watches_stalled => TermEnd::StepDown(reason),
        }
    }

    /// Returns when the term was lost, or when it must end at once.
    async fn wait_for_abort(&self, elector: Option<&mut Elector>) -> String {
        let lost = async {
            let Some(elector) = elector else { return std::future::pending().await };
            loop {
                match elector.next().await {
                    Signal::Lost(reason) => return format!("leaderelection lost: {reason}"),
                    Signal::NewLeader(_) | Signal::ProveAhead { .. } | Signal::Acquired(_) => {}
                }
            }
        };
        tokio::select! {
            biased;
            panic = self.deps.scope.panicked() => panic,
            reason = lost => reason,
        }
    }

    /// The term begins only when the API server is healthy.
    async fn wait_for_server(&self) -> Result<(), String> {
        let api = self.clients.unfenced("health", self.config.limits);
        let deadline = self.deps.clock.now() + SERVER_HEALTHY;
        loop {
            let response = tokio::time::timeout_at(deadline, api.read("/healthz", "*/*")).await;
            match response {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(err)) if self.deps.clock.now() + Duration::from_secs(1) >= deadline => {
                    return Err(format!("failed to wait for apiserver being healthy: {err}"));
                }
                Ok(Err(err)) => tracing::warn!(%err, "Waiting for the API server to be healthy"),
                Err(_) => return Err("failed to wait for apiserver being healthy: no answer in time".to_owned()),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits for running syncs. After the timeout the Lease is not released, because these syncs may still write.
    async fn drain(&self, running: Vec<(&'static str, Task)>) -> Result<(), String> {
        let names: Vec<&'static str> = running.iter().map(|(name, _)| *name).collect();
        let waiting = parking_lot::Mutex::new(names);
        let ended = join_all(running.into_iter().map(|(name, task)| {
            let waiting = &waiting;
            async move {
                task.wait_until_ended().await;
                waiting.lock().retain(|it| *it != name);
            }
        }));
        let timeout = self.config.shutdown_timeout;
        let log_interval = timeout.map_or(Duration::from_secs(5), |it| it / 3);
        let log_progress = async {
            loop {
                tokio::time::sleep(log_interval).await;
                tracing::info!(
                    runningControllers = waiting.lock().join(", "),
                    "Still waiting for some controllers to terminate..."
                );
            }
        };
        let too_late = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = ended => {
                tracing::info!("All controllers terminated");
                Ok(())
            }
            () = too_late => {
                Err(format!("controller shutdown timeout reached, still running: {}", waiting.lock().join(", ")))
            }
            () = log_progress => Ok(()),
        }
    }

    fn leadership_events(&self, election: &Election, elector: &Elector, identity: String) -> LeadershipEvents {
        let recorder = Recorder::new(events::Deps {
            // Unfenced: the Lease and its events are also written outside the term.
            api: self.clients.unfenced("leader-election", self.config.limits),
            clock: self.deps.clock.clone(),
            rng: fastrand::Rng::with_seed(self.deps.seed),
            spawner: self.deps.scope.spawner(),
            metrics: self.deps.metrics.clone(),
            component: "kube-controller-manager".to_owned(),
            host: self.deps.hostname.clone(),
        });
        let lease = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(election.namespace.clone()),
            name: Some(election.name.clone()),
            uid: Some(elector.lease_uid().to_string()),
            ..ObjectReference::default()
        };
        LeadershipEvents { recorder, lease, identity }
    }
}

/// Waits for a reason to step down. Only a manager with leader election can step down for another one.
async fn if_elected(is_elected: bool, reason: impl Future<Output = String>) -> String {
    if is_elected { reason.await } else { std::future::pending().await }
}

/// Waits until this manager must not lead, and returns the reason.
async fn refused(decisions: &mut watch::Receiver<Option<InterlockDecision>>) -> String {
    loop {
        if let Some(refusal) = decisions.borrow_and_update().as_ref().and_then(|it| it.refusal.clone()) {
            return refusal;
        }
        if decisions.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Records events on the Lease: the start and end of a term, and which controllers are held back.
struct LeadershipEvents {
    recorder: Recorder,
    lease: ObjectReference,
    identity: String,
}

impl LeadershipEvents {
    fn record_start(&self) {
        let message = leader_election::became_leader(&self.identity);
        self.record(EventType::Normal, leader_election::EVENT_REASON, message);
    }

    async fn record_stop(&self) {
        let message = leader_election::stopped_leading(&self.identity);
        self.record(EventType::Normal, leader_election::EVENT_REASON, message);
        self.recorder.flush(FLUSH).await;
    }

    fn record_interlock(&self, event: InterlockEvent) {
        let identity = &self.identity;
        match event {
            InterlockEvent::HeldBack { controllers, why } => {
                let message = format!("{identity} does not run {controllers}: {why}");
                self.record(EventType::Warning, "ControllersHeldBack", message);
            }
            InterlockEvent::Resumed { controllers } => {
                let message = format!("{identity} runs {controllers}: no other manager does");
                self.record(EventType::Normal, "ControllersResumed", message);
            }
        }
    }

    fn record(&self, kind: EventType, reason: &str, message: String) {
        self.recorder.event(&self.lease, kind, reason, message);
    }
}

#[cfg(test)]
mod tests;
