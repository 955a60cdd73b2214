//! The monitors: one for every type whose objects can be deleted, listed and watched.
//!
//! A task reads discovery every 30 s, and soon after a CustomResourceDefinition or APIService has changed. It also runs
//! on a standby, and only reads. A monitor is a handler at the typed informer of another controller, or an informer of
//! its own that has no store and feeds the graph. The monitor of a type that is gone is stopped completely. A type that
//! cannot be listed blocks nothing: it is logged, and its objects are used when they can be listed.
//!
//! Before an owner's finalizer is removed, the worker checks here which types may be missing. At every moment each type
//! is either known or listed as missing: a new monitor replaces the old one under one lock.
//!
//! Reading order: `plan` (what a discovery answer means, pure), `unsynced` (which types may be missing), this file,
//! `feed` (what a monitor reports to the graph), `gauges`.

mod feed;
mod gauges;
mod plan;
mod unsynced;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::Resource;
use client::discovery::Discovery;
use client::{Api, ApiError, Limits, ListOptions};
use clock::{BootInstant, Clock, Instant};
use controller::Builder;
use futures::{StreamExt, future::join_all, stream};
use informer::{Dynamic, HandlerRegistration, Informers, Scope, Watched};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::unsynced::Unsynced;
use self::{
    feed::Feed,
    plan::{DiscoveryHistory, Fault, Plan},
    unsynced::UnsyncedReason,
};
use crate::{graph::MonitorId, metrics::Meters, owners::kinds::Kinds, shared_graph::SharedGraph};

/// The period of upstream's `GarbageCollector.Sync`.
const PERIOD: Duration = Duration::from_secs(30);
/// The delay after a change that may add types: such changes come in groups, and discovery shows them a moment later.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// A monitor that has not synced after this time is logged, and workers start without it, as upstream's
/// `initialSyncTimeout`.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// How long unproved monitors count in a new term: while workers wait to start, and half a minute longer. By then,
/// frozen watches have been detected.
const PROVED_WITHIN: Duration = Duration::from_secs(60);
/// The timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of concurrent reads of types.
const CONCURRENT_READS: usize = 8;
/// Types whose objects define other types.
const DEFINE_TYPES: &[(&str, &str)] =
    &[("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];

/// The monitors of this process.
pub(crate) struct Monitors {
    graph: Arc<SharedGraph>,
    kinds: Arc<Kinds>,
    meters: Arc<Meters>,
    informers: Informers,
    clock: Clock,
    began: Instant,
    state: Mutex<State>,
    /// True after both roots of discovery have answered together. Subscribers are also notified when monitors begin or
    /// end.
    answered: watch::Sender<bool>,
    types_changed: Arc<Notify>,
    proof_wanted: Notify,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Resource, Monitor>,
    history: DiscoveryHistory,
}

/// A running monitor.
struct Monitor {
    since: Instant,
    /// `None` until the monitors that it replaces have ended: the graph must not get one object from two monitors of a
    /// type.
    source: Option<(MonitorId, Source)>,
    /// In this term it has shown everything that existed when the term began.
    proved: bool,
}

#[derive(Clone)]
enum Source {
    /// A handler at the informer of another controller.
    Shared(Arc<HandlerRegistration>, Option<Arc<dyn Watched>>),
    Own(Arc<Owned>),
}

/// An informer of our own.
struct Owned {
    watched: Arc<dyn Watched>,
    informer: Mutex<Option<Dynamic<Arc<Feed>>>>,
}

/// Registers the task that reads discovery, and the condition that workers wait for.
pub(crate) fn declare(
    builder: &mut Builder,
    api: &Api,
    graph: &Arc<SharedGraph>,
    meters: &Arc<Meters>,
) -> (Arc<Kinds>, Arc<Monitors>) {
    let deps = builder.deps();
    let kinds = Arc::<Kinds>::default();
    let monitors = Arc::new(Monitors {
        graph: graph.clone(),
        kinds: kinds.clone(),
        meters: meters.clone(),
        informers: deps.informers.clone(),
        clock: deps.clock.clone(),
        began: deps.clock.now(),
        state: Mutex::default(),
        answered: watch::Sender::new(false),
        types_changed: Arc::default(),
        proof_wanted: Notify::new(),
    });
    gauges::register(&deps.metrics, Arc::downgrade(&monitors));
    // The lists of informers use the manager's own identity without a rate limit, and so do these, because owners wait
    // for them.
    let reads = deps.clients.unfenced("proof", Limits::NONE);
    let (runs, api) = (monitors.clone(), api.clone());
    builder.background("monitors", move |end| async move { runs.run(&api, &reads, end).await });
    let waited = monitors.clone();
    builder.wait_before_workers(move || async move {
        if tokio::time::timeout(SYNC_TIMEOUT, waited.synced()).await.is_err() {
            tracing::warn!(
                types = waited.unsynced_names(),
                "Not all types are synced: the workers start without these types"
            );
        }
    });
    (kinds, monitors)
}

impl Monitors {
    /// The types that may be missing in the graph.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        // Read this first: everything that was reported before is then in the state.
        let nothing = !*self.answered.borrow();
        let now = self.clock.now();
        let term = self.proof_window(now).map(|(began, _)| began);
        let state = self.state.lock();
        let reason = |reason: UnsyncedReason, since: Instant| Unsynced { reason, since: Some(since) };
        let nothing = nothing.then(|| reason(UnsyncedReason::Everything, self.began));
        let unknown_groups =
            state.history.unknown_groups().map(|(of, since)| reason(UnsyncedReason::Group(of.to_owned()), since));
        let types = state.running.iter().filter_map(|(of, it)| match term {
            _ if !it.has_synced() => Some(reason(UnsyncedReason::Unsynced(of.clone()), it.since)),
            _ if let Some(behind) = it.behind() => Some(reason(UnsyncedReason::Behind(of.clone()), now - behind)),
            _ if let Some(since) = state.history.lacked_since(of) => {
                Some(reason(UnsyncedReason::MissingInDiscovery(of.clone()), since))
            }
            Some(term) if it.is_unproved(term) => {
                Some(Unsynced { reason: UnsyncedReason::Unproved(of.clone()), since: None })
            }
            Some(_) | None => None,
        });
        nothing.into_iter().chain(unknown_groups).chain(types).collect()
    }

    /// When the term began and how much longer unproved monitors count; `None` if they no longer count.
    fn proof_window(&self, now: Instant) -> Option<(BootInstant, Duration)> {
        let age = now.saturating_duration_since(self.graph.term_start()?);
        let left = PROVED_WITHIN.checked_sub(age).filter(|it| !it.is_zero())?;
        Some((self.clock.boot() - age, left))
    }

    /// True if the monitor of this resource, in any version, has no complete set yet, or has failed to list or watch
    /// since the last one. False without such a monitor.
    pub(crate) fn is_behind(&self, of: &Resource) -> bool {
        let state = self.state.lock();
        let in_another_version = || {
            let mut running = state.running.iter();
            running.find(|(it, _)| it.group == of.group && it.plural == of.plural).map(|(_, monitor)| monitor)
        };
        let monitor = state.running.get(of).or_else(in_another_version);
        monitor.is_some_and(|it| !it.has_synced() || it.behind().is_some())
    }

    /// Requests proofs for these, because an owner waits for them. Most terms need no proofs.
    pub(crate) fn request_proofs(&self, unsynced: &[Unsynced]) {
        if unsynced.iter().any(Unsynced::needs_proof) {
            self.proof_wanted.notify_one();
        }
    }

    /// Waits until discovery has answered and every monitor has synced.
    async fn synced(&self) {
        let mut answers = self.answered.subscribe();
        loop {
            let answered = *answers.borrow_and_update();
            let sources: Vec<Option<Source>> =
                self.state.lock().running.values().map(|it| it.source.as_ref().map(|(_, it)| it.clone())).collect();
            let all = async {
                join_all(sources.iter().flatten().map(Source::synced)).await;
                if !answered || sources.iter().any(Option::is_none) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                // A monitor that was stopped meanwhile never syncs, and new ones may have begun.
                _ = answers.changed() => {}
                () = all => return,
            }
        }
    }

    fn unsynced_names(&self) -> String {
        self.unsynced().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Runs monitors for the types in discovery, until `end`.
    async fn run(&self, api: &Api, reads: &Api, end: CancellationToken) {
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = self.poll_discovery(api, reads) => {}
            () = self.prove_on_request(reads) => {}
        }
        let running = std::mem::take(&mut self.state.lock().running);
        join_all(running.into_values().filter_map(|it| it.source).map(|(_, source)| source.stop())).await;
    }

    /// Reads discovery repeatedly.
    async fn poll_discovery(&self, api: &Api, reads: &Api) {
        let mut logged = LoggedState::default();
        let mut delay = DEBOUNCE;
        loop {
            let answer = Discovery::read(api).await;
            let changed = self.apply_discovery(reads, &answer, &mut logged).await;
            let early = async {
                self.types_changed.notified().await;
                tokio::time::sleep(delay).await;
            };
            delay = match tokio::time::timeout(PERIOD, early).await {
                // Changes that add no types get growing delays.
                Ok(()) if !changed => PERIOD.min(delay * 2),
                Ok(()) | Err(_) => DEBOUNCE,
            };
        }
    }

    /// Proves monitors that were started on a standby, when an owner waits for them.
    async fn prove_on_request(&self, reads: &Api) {
        loop {
            self.proof_wanted.notified().await;
            let Some((term, left)) = self.proof_window(self.clock.now()) else { continue };
            let proofs: Vec<_> = self.state.lock().unproved(term).map(|of| self.prove_one(reads, of)).collect();
            // After this time, owners no longer wait for the rest.
            let _ = tokio::time::timeout(left, join_all(proofs)).await;
        }
    }

    async fn prove_one(&self, reads: &Api, (of, by, watched): (Resource, MonitorId, Arc<dyn Watched>)) {
        // After a failure, the waiting owner requests the proof again.
        if let Err(err) = informer::prove(&*watched, reads, &self.clock, None).await {
            tracing::debug!(target: "v2", %err, resource = %of, "A monitor cannot be proved complete");
            return;
        }
        if let Some(monitor) = self.state.lock().running.get_mut(&of) {
            monitor.proved |= monitor.source.as_ref().is_some_and(|(id, _)| *id == by);
        }
    }

    /// Applies one answer. True if monitors began or ended.
    async fn apply_discovery(&self, reads: &Api, answer: &Discovery, logged: &mut LoggedState) -> bool {
        self.meters.prune(|object, of| self.graph.has_owner_of_type(object, of));
        self.log_unsynced(&mut logged.unsynced);
        let known = self.kinds.resources();
        let (Plan { start, stop, doubted, unserved, fault }, ended) = {
            let mut state = self.state.lock();
            let State { running, history } = &mut *state;
            let states = running.iter().map(|(of, it)| (of.clone(), it.has_synced())).collect();
            let plan = plan::plan(answer, &states, &known, history, self.clock.now());
            let ended = state.replace(&plan.stop, &plan.start, self.clock.now());
            (plan, ended)
        };
        self.kinds.apply_discovery(answer, &unserved, self.clock.now());
        logged.log_faults(answer, fault.as_ref());
        if fault.is_some() {
            self.meters.sync_errors.inc();
        }
        let changed = !(start.is_empty() && stop.is_empty());
        self.stop(ended).await;
        for of in start {
            self.start(of);
        }
        let answered = !matches!(fault, Some(Fault::Unanswered(_)));
        self.answered.send_if_modified(|known| {
            let first = answered && !*known;
            *known |= answered;
            first || changed
        });
        self.stop_unserved(reads, doubted).await || changed
    }

    /// Removes at once the types that the server itself does not know. True if there were any.
    async fn stop_unserved(&self, reads: &Api, doubted: Vec<Resource>) -> bool {
        let asked: Vec<_> = doubted.into_iter().map(|of| is_gone(reads, of)).collect();
        let gone: Vec<Resource> =
            stream::iter(asked).buffered(CONCURRENT_READS).filter_map(std::future::ready).collect().await;
        if gone.is_empty() {
            return false;
        }
        self.kinds.remove(&gone, self.clock.now());
        let ended = self.state.lock().replace(&gone, &[], self.clock.now());
        self.stop(ended).await;
        self.answered.send_modify(|_| {});
        true
    }

    fn start(&self, of: Resource) {
        let id = self.graph.update(|graph| graph.monitor(&of));
        let types_changed = DEFINE_TYPES.contains(&(&*of.group, &*of.plural)).then(|| self.types_changed.clone());
        let feed = Arc::new(Feed::new(self.graph.clone(), id, types_changed));
        let shared = self.informers.all().into_iter().find(|it| *it.resource() == of);
        shared.iter().for_each(|it| feed.set_informer(it.clone()));
        let handler = feed.clone();
        let source = match self.informers.existing_metadata(&of, crate::NAME, move |change| handler.on_change(&change))
        {
            Some(registration) => Source::Shared(Arc::new(registration), shared),
            None => {
                let informer = self.informers.dynamic_into(of.clone(), Scope::Cluster, feed.clone());
                feed.set_informer(informer.watched());
                Source::Own(Arc::new(Owned { watched: informer.watched(), informer: Mutex::new(Some(informer)) }))
            }
        };
        tracing::debug!(target: "v2", resource = %of, version = &*of.version, "Monitor begins");
        if let Some(monitor) = self.state.lock().running.get_mut(&of) {
            monitor.source = Some((id, source));
        }
    }

    async fn stop(&self, ended: Vec<(Resource, Monitor)>) {
        for (of, monitor) in ended {
            let Some((id, source)) = monitor.source else { continue };
            // Stop it before the monitor is removed from the graph, so that no report comes later.
            source.stop().await;
            self.graph.update(|graph| graph.stop_monitor(id));
            tracing::debug!(target: "v2", resource = %of, version = &*of.version, "Monitor ended");
        }
    }

    /// Logs each type that does not sync, once, and logs it again when it does.
    fn log_unsynced(&self, logged: &mut BTreeSet<UnsyncedReason>) {
        let now = self.clock.now();
        let is_named = |it: &Unsynced| {
            matches!(it.reason, UnsyncedReason::Unsynced(_) | UnsyncedReason::Behind(_) | UnsyncedReason::Group(_))
                && !it.is_within_limit(SYNC_TIMEOUT, None, now)
        };
        let late: BTreeSet<UnsyncedReason> = self.unsynced().into_iter().filter(is_named).map(|it| it.reason).collect();
        for reason in late.difference(logged) {
            self.meters.sync_errors.inc();
            match reason {
                UnsyncedReason::Unsynced(of) => tracing::warn!(
                    resource = %of, version = &*of.version,
                    "A type does not sync, so its objects are not collected and may be overlooked as dependents"
                ),
                UnsyncedReason::Behind(of) => tracing::warn!(
                    resource = %of, version = &*of.version,
                    "A type cannot be watched any more, so what has changed since is not collected and may be overlooked"
                ),
                UnsyncedReason::Group(of) => tracing::warn!(
                    group_version = of.as_str(),
                    "A group's types are unknown: their objects are not collected and may be overlooked as dependents"
                ),
                UnsyncedReason::Everything | UnsyncedReason::MissingInDiscovery(_) | UnsyncedReason::Unproved(_) => {}
            }
        }
        for reason in logged.difference(&late) {
            if let UnsyncedReason::Unsynced(of) | UnsyncedReason::Behind(of) = reason
                && self.state.lock().running.get(of).is_some_and(|it| it.has_synced() && it.behind().is_none())
            {
                tracing::info!(resource = %of, version = &*of.version, "A type has synced");
            }
        }
        *logged = late;
    }
}

/// Returns the type, which discovery lacks, if the server answers that there is no such resource.
async fn is_gone(reads: &Api, of: Resource) -> Option<Resource> {
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    let answer = tokio::time::timeout(READ_TIMEOUT, reads.list_metadata(&of, None, &options)).await;
    matches!(answer, Ok(Err(ApiError::NotFound(_)))).then_some(of)
}

/// The state between passes.
#[derive(Default)]
struct LoggedState {
    /// The last logged failure of groups.
    failure: Option<String>,
    fault: Option<Fault>,
    /// The types that were logged as late.
    unsynced: BTreeSet<UnsyncedReason>,
}

impl LoggedState {
    /// Logs each fault once.
    fn log_faults(&mut self, answer: &Discovery, fault: Option<&Fault>) {
        let (failure, unparsable) = (answer.failure(), answer.parse_failure());
        let parts = [failure.as_deref(), unparsable.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        let failure = (!parts.is_empty()).then(|| parts.join("; "));
        if failure != self.failure {
            match &failure {
                Some(why) => {
                    tracing::warn!(err = why, "Discovery failed for some groups: their types stay watched")
                }
                None => tracing::info!("Discovery is complete again"),
            }
            self.failure = failure;
        }
        if fault != self.fault.as_ref() {
            if let Some(doubtful @ Fault::Doubtful { .. }) = fault {
                tracing::warn!(err = %doubtful, "Discovery may be incomplete: types that it lacks stay watched");
            }
            self.fault = fault.cloned();
        }
    }
}

impl State {
    /// Removes monitors and adds others in their place, which begin when the old ones have ended.
    fn replace(&mut self, stop: &[Resource], start: &[Resource], now: Instant) -> Vec<(Resource, Monitor)> {
        let ended = stop.iter().filter_map(|of| self.running.remove_entry(of)).collect();
        let new = start.iter().map(|of| (of.clone(), Monitor { since: now, source: None, proved: false }));
        self.running.extend(new);
        ended
    }

    fn unproved(&self, term: BootInstant) -> impl Iterator<Item = (Resource, MonitorId, Arc<dyn Watched>)> {
        let unproved = self.running.iter().filter(move |(_, it)| it.has_synced() && it.is_unproved(term));
        unproved.filter_map(|(of, it)| {
            let (id, source) = it.source.as_ref()?;
            Some((of.clone(), *id, source.watched()?.clone()))
        })
    }
}

impl Monitor {
    fn has_synced(&self) -> bool {
        match &self.source {
            None => false,
            Some((_, Source::Shared(handler, _))) => handler.has_synced(),
            Some((_, Source::Own(own))) => own.watched.has_synced(),
        }
    }

    /// How long it has shown nothing new because its lists or watches fail.
    fn behind(&self) -> Option<Duration> {
        self.source.as_ref().and_then(|(_, it)| it.watched())?.failing_for()
    }

    /// True if everything it has shown may be older than the term. A monitor that began later may also have begun with
    /// an old set, if sets are not streamed.
    fn is_unproved(&self, term: BootInstant) -> bool {
        let watched = self.source.as_ref().and_then(|(_, it)| it.watched());
        let began_with_all = watched.is_some_and(|it| it.has_consistent_list_since(term));
        !self.proved && !began_with_all
    }
}

impl Source {
    async fn synced(&self) {
        match self {
            Self::Shared(handler, _) => handler.wait_for_sync().await,
            Self::Own(own) => own.watched.wait_for_sync().await,
        }
    }

    fn watched(&self) -> Option<&Arc<dyn Watched>> {
        match self {
            Self::Shared(_, watched) => watched.as_ref(),
            Self::Own(own) => Some(&own.watched),
        }
    }

    /// Stops it. After this returns, nothing is reported.
    async fn stop(self) {
        match self {
            Self::Shared(handler, _) => handler.remove(),
            Self::Own(own) => {
                let informer = own.informer.lock().take();
                if let Some(informer) = informer {
                    informer.stop().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
