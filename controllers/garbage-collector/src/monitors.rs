//! What is watched: a monitor for every type whose objects can be deleted, listed and watched.
//!
//! A task looks at discovery every 30 s, and soon after a CustomResourceDefinition or APIService has changed. It runs on a
//! standby too, and only reads. A monitor is a handler at the typed informer that another controller has, or an informer of
//! its own that keeps nothing and feeds the graph; one of a type that is gone is really stopped. A type that cannot be listed
//! keeps nobody waiting: it is named, and takes part when it can.
//!
//! Reading order: `plan` (what an answer of discovery means, pure), this file, `feed` (what a monitor tells the graph),
//! `numbers`.

mod feed;
mod numbers;
mod plan;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::Resource;
use client::Api;
use clock::{Clock, Instant};
use controller::Builder;
use discovery::Discovery;
use futures::future::join_all;
use informer::{Dynamic, Informers, Registration, Scope, Watched};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::{
    feed::Feed,
    plan::{Doubts, Fault, Plan},
};
use crate::{due::Known, kinds::Kinds, metrics::Meters};

/// As upstream.
const PERIOD: Duration = Duration::from_secs(30);
/// After a change that may bring types: one of them is seldom alone, and discovery shows it a moment later.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// A monitor that has not synced after this long is named, and workers start without it, as upstream.
const PATIENCE: Duration = Duration::from_secs(30);
/// Types whose objects bring types.
const BRING_TYPES: &[(&str, &str)] =
    &[("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];

/// The monitors of this process.
pub(crate) struct Monitors {
    known: Arc<Known>,
    kinds: Arc<Kinds>,
    meters: Arc<Meters>,
    informers: Informers,
    clock: Clock,
    began: Instant,
    running: Mutex<BTreeMap<Resource, Monitor>>,
    /// Both roots of discovery have answered at one time. Whoever watches is woken too when monitors begin or end.
    answered: watch::Sender<bool>,
    types_change: Arc<Notify>,
}

/// A monitor that runs.
struct Monitor {
    id: crate::graph::MonitorId,
    since: Instant,
    source: Source,
    /// It was named as one that does not sync.
    named: bool,
}

#[derive(Clone)]
enum Source {
    /// A handler at somebody else's informer.
    Shared(Arc<Registration>),
    Own(Arc<Owned>),
}

/// An informer of our own.
struct Owned {
    watched: Arc<dyn Watched>,
    informer: Mutex<Option<Dynamic<Arc<Feed>>>>,
}

/// A type whose objects are not all known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsynced {
    /// The type, for people.
    pub(crate) what: String,
    /// When its monitor began.
    pub(crate) since: Instant,
}

/// Declares the task that looks, and that workers wait for what it finds.
pub(crate) fn declare(
    builder: &mut Builder,
    api: &Api,
    known: &Arc<Known>,
    meters: &Arc<Meters>,
) -> (Arc<Kinds>, Arc<Monitors>) {
    let deps = builder.deps();
    let kinds = Arc::<Kinds>::default();
    let monitors = Arc::new(Monitors {
        known: known.clone(),
        kinds: kinds.clone(),
        meters: meters.clone(),
        informers: deps.informers.clone(),
        clock: deps.clock.clone(),
        began: deps.clock.now(),
        running: Mutex::default(),
        answered: watch::Sender::new(false),
        types_change: Arc::default(),
    });
    numbers::show(&deps.metrics, Arc::downgrade(&monitors));
    let (looks, api) = (monitors.clone(), api.clone());
    builder.background("monitors", move |end| async move { looks.look(&api, end).await });
    let waited = monitors.clone();
    builder.workers_wait(move || async move {
        if tokio::time::timeout(PATIENCE, waited.synced()).await.is_err() {
            tracing::warn!(types = waited.names(), "Not all types are synced: collecting garbage without them");
        }
    });
    (kinds, monitors)
}

impl Monitors {
    /// Types whose objects are not all known yet, and whatever discovery has not told yet.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        let unknown = || Unsynced { what: "whatever discovery has not told yet".to_owned(), since: self.began };
        let unknown = (!*self.answered.borrow()).then(unknown);
        let running = self.running.lock();
        let unsynced = running.iter().filter(|(_, it)| !it.has_synced());
        let unsynced = unsynced.map(|(of, it)| Unsynced { what: of.to_string(), since: it.since });
        unknown.into_iter().chain(unsynced).collect()
    }

    /// Waits until discovery has answered and every monitor has synced.
    async fn synced(&self) {
        let mut looks = self.answered.subscribe();
        loop {
            let answered = *looks.borrow_and_update();
            let sources: Vec<Source> = self.running.lock().values().map(|it| it.source.clone()).collect();
            let all = async {
                join_all(sources.iter().map(Source::synced)).await;
                if !answered {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                // One that was stopped meanwhile never syncs, and new ones may have begun.
                _ = looks.changed() => {}
                () = all => return,
            }
        }
    }

    fn names(&self) -> String {
        self.unsynced().into_iter().map(|it| it.what).collect::<Vec<_>>().join(", ")
    }

    /// Looks at discovery until `end`, and has monitors for what it shows.
    async fn look(&self, api: &Api, end: CancellationToken) {
        let looking = async {
            let mut pass = Pass::default();
            let mut patience = DEBOUNCE;
            loop {
                let answer = Discovery::read(api).await;
                let changed = self.pass(&answer, &mut pass).await;
                let early = async {
                    self.types_change.notified().await;
                    tokio::time::sleep(patience).await;
                };
                patience = match tokio::time::timeout(PERIOD, early).await {
                    // Whoever changes all the time and brings nothing is not followed each time.
                    Ok(()) if !changed => PERIOD.min(patience * 2),
                    Ok(()) | Err(_) => DEBOUNCE,
                };
            }
        };
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = looking => {}
        }
        let running = std::mem::take(&mut *self.running.lock());
        join_all(running.into_values().map(|it| it.source.stop())).await;
    }

    /// Acts on one answer. True if monitors began or ended.
    async fn pass(&self, answer: &Discovery, pass: &mut Pass) -> bool {
        self.name_unsynced();
        let states: BTreeMap<Resource, bool> =
            self.running.lock().iter().map(|(of, it)| (of.clone(), it.has_synced())).collect();
        let Plan { start, stop, fault } = plan::plan(answer, &states, &mut pass.doubts, self.clock.now());
        self.kinds.learn(answer, !matches!(fault, Some(Fault::Doubtful { .. })), self.clock.now());
        let answered = !matches!(fault, Some(Fault::Unanswered(_)));
        pass.tell(answer, fault.as_ref());
        if fault.is_some() {
            self.meters.sync_errors.inc();
        }
        let changed = !(start.is_empty() && stop.is_empty());
        for of in stop {
            self.stop(&of).await;
        }
        for of in start {
            self.start(of);
        }
        self.answered.send_if_modified(|known| {
            let first = answered && !*known;
            *known |= answered;
            first || changed
        });
        changed
    }

    fn start(&self, of: Resource) {
        let id = self.known.tell(|graph| graph.monitor(&of));
        let tells = BRING_TYPES.contains(&(&*of.group, &*of.plural)).then(|| self.types_change.clone());
        let feed = Arc::new(Feed::new(self.known.clone(), id, tells));
        let heard = feed.clone();
        let source = match self.informers.existing_metadata(&of, crate::NAME, move |change| heard.hear(&change)) {
            Some(registration) => Source::Shared(Arc::new(registration)),
            None => {
                let informer = self.informers.dynamic_into(of.clone(), Scope::Cluster, feed);
                Source::Own(Arc::new(Owned { watched: informer.watched(), informer: Mutex::new(Some(informer)) }))
            }
        };
        tracing::debug!(target: "v2", resource = %of, version = &*of.version, "Monitor begins");
        let monitor = Monitor { id, since: self.clock.now(), source, named: false };
        self.running.lock().insert(of, monitor);
    }

    async fn stop(&self, of: &Resource) {
        let Some(Monitor { id, source, .. }) = self.running.lock().remove(of) else { return };
        // First of all it falls silent: the graph knows it no more afterwards.
        source.stop().await;
        self.known.tell(|graph| graph.stop_monitor(id));
        tracing::debug!(target: "v2", resource = %of, version = &*of.version, "Monitor ended");
    }

    /// Names each type that does not sync, once, and once more when it does.
    fn name_unsynced(&self) {
        let now = self.clock.now();
        for (of, monitor) in &mut *self.running.lock() {
            let waits = !monitor.has_synced();
            let is_late = waits && now.saturating_duration_since(monitor.since) >= PATIENCE;
            if is_late && !monitor.named {
                self.meters.sync_errors.inc();
                tracing::warn!(
                    resource = %of, version = &*of.version,
                    "A type does not sync, so its objects are not collected and may be overlooked as dependents"
                );
            } else if !waits && monitor.named {
                tracing::info!(resource = %of, version = &*of.version, "A type has synced at last");
            }
            monitor.named = is_late;
        }
    }
}

/// What is remembered from pass to pass.
#[derive(Default)]
struct Pass {
    doubts: Doubts,
    /// What was told last of groups that fail.
    failure: Option<String>,
    fault: Option<Fault>,
}

impl Pass {
    /// What is wrong is said once.
    fn tell(&mut self, answer: &Discovery, fault: Option<&Fault>) {
        let (failure, unparsable) = (answer.failure(), answer.parse_failure());
        let parts = [failure.as_deref(), unparsable.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        let failure = (!parts.is_empty()).then(|| parts.join("; "));
        if failure != self.failure {
            match &failure {
                Some(why) => {
                    tracing::warn!(err = why, "Discovery has holes: what does not answer stays watched as it is")
                }
                None => tracing::info!("Discovery is whole again"),
            }
            self.failure = failure;
        }
        if fault != self.fault.as_ref() {
            if let Some(doubtful @ Fault::Doubtful { .. }) = fault {
                tracing::warn!(err = %doubtful, "Discovery is doubted: what it lacks stays watched");
            }
            self.fault = fault.cloned();
        }
    }
}

impl Monitor {
    fn has_synced(&self) -> bool {
        match &self.source {
            Source::Shared(handler) => handler.has_synced(),
            Source::Own(own) => own.watched.has_synced(),
        }
    }
}

impl Source {
    async fn synced(&self) {
        match self {
            Self::Shared(handler) => handler.synced().await,
            Self::Own(own) => own.watched.synced().await,
        }
    }

    /// Nothing is told any more when this returns.
    async fn stop(self) {
        match self {
            Self::Shared(handler) => handler.remove(),
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
