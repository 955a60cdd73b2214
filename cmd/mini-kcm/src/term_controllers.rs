//! Starts and stops single controllers while the manager leads, by the decisions of the interlock.
//!
//! A controller is declared, then it runs, and it may be stopped in the middle of a term. A stopped one is declared
//! anew before it runs again, like in a new process: its memory may not fit to what the other manager did meanwhile.

use std::{collections::BTreeMap, time::Duration};

use client::Term;
use clock::BootInstant;
use controller::{Controller, Registration};
use events::Recorder;
use metrics::{IntGaugeVec, Metrics};
use tasks::{Spawner, Task};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    cache_freshness::CacheFreshness,
    health::{HealthChecks, RunningController},
    interlock::{HeldBack, InterlockDecision},
};

/// How often a stopped controller that may run again is checked for its last syncs.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A controller that does not run yet.
pub(crate) struct Declared {
    pub(crate) controller: Controller,
    pub(crate) switch: Switch,
}

/// Stops one controller.
#[derive(Clone)]
pub(crate) struct Switch {
    /// Its part of the term. When it ends, the controller sends no further write.
    pub(crate) fence: Term,
    /// Ends its waits for the rate limiter, and long syncs between two calls.
    pub(crate) stopping: CancellationToken,
}

/// The dependencies for starting controllers.
pub(crate) struct Deps<'a> {
    /// Declares a controller anew.
    pub(crate) declare: &'a (dyn Fn(&'static Registration) -> Declared + Send + Sync),
    pub(crate) freshness: &'a mut CacheFreshness,
    pub(crate) spawner: Spawner,
    pub(crate) health: &'a HealthChecks,
    /// `--controller-start-interval`
    pub(crate) start_interval: Duration,
    /// Records an event about the Lease, when there is one.
    pub(crate) record: &'a (dyn Fn(InterlockEvent) + Send + Sync),
}

/// What the interlock changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InterlockEvent {
    /// These controllers are held back.
    HeldBack { controllers: String, why: String },
    /// These controllers are not held back any more.
    Resumed { controllers: String },
}

/// The controllers of a term.
pub(crate) struct TermControllers {
    entries: Vec<ControllerEntry>,
    /// What the last decision held back.
    held_back: BTreeMap<&'static str, HeldBack>,
    /// Cancelled when the term ends in order.
    stop: CancellationToken,
    rng: fastrand::Rng,
    running_gauge: IntGaugeVec,
    held_back_gauge: IntGaugeVec,
}

struct ControllerEntry {
    registration: &'static Registration,
    /// Set before it runs for the first time.
    declared: Option<Declared>,
    /// Set while it runs, and after it was stopped until it runs again.
    running: Option<Running>,
    /// It was held back, so its caches must be proved again before it runs.
    was_held_back: bool,
    /// Until when the server may store creates that it sent before it was stopped.
    last_write: Option<BootInstant>,
}

struct Running {
    task: Task,
    /// Cancelled to stop it: no further key is taken.
    stop: CancellationToken,
    switch: Switch,
    /// Cancelled when its last sync has ended.
    ended: CancellationToken,
    health: RunningController,
    recorders: Vec<Recorder>,
}

impl ControllerEntry {
    /// Stops a running controller whose work another manager does. Unlike at the end of a term, its running syncs must
    /// not write any more. Requests in flight are completed.
    fn stop(&mut self) {
        if let Some(Running { stop, switch, .. }) = &self.running {
            self.last_write = switch.fence.last_write().or(self.last_write);
            switch.fence.end();
            stop.cancel();
            switch.stopping.cancel();
        }
    }

    /// True after [`ControllerEntry::stop`] until it runs again.
    fn is_stopped(&self) -> bool {
        self.running.as_ref().is_some_and(|it| it.stop.is_cancelled())
    }

    /// The controller to start; `None` while it runs, and while its last syncs end.
    fn take_startable(&mut self, declare: &dyn Fn(&'static Registration) -> Declared) -> Option<Declared> {
        match &self.running {
            None => self.declared.take(),
            Some(it) if it.stop.is_cancelled() && it.ended.is_cancelled() => Some(declare(self.registration)),
            Some(_) => None,
        }
    }
}

impl TermControllers {
    /// No controller runs yet.
    pub(crate) fn new(
        declared: Vec<(&'static Registration, Declared)>,
        stop: CancellationToken,
        seed: u64,
        metrics: &Metrics,
    ) -> Self {
        let entry = |(registration, it)| ControllerEntry {
            registration,
            declared: Some(it),
            running: None,
            was_held_back: false,
            last_write: None,
        };
        Self {
            entries: declared.into_iter().map(entry).collect(),
            held_back: BTreeMap::new(),
            stop,
            rng: fastrand::Rng::with_seed(seed),
            running_gauge: metrics.gauges(
                "running_managed_controllers",
                "[BETA] Indicates where instances of a controller are currently running",
                &["name", "manager"],
            ),
            held_back_gauge: metrics.gauges(
                "mini_kcm_controller_held_back",
                "1 for each controller that does not run here, because another manager runs it or may run it.",
                &["controller", "by"],
            ),
        }
    }

    /// Follows the decisions. Returns the reason when this manager must not lead any more.
    pub(crate) async fn follow(
        &mut self,
        decisions: &mut watch::Receiver<Option<InterlockDecision>>,
        deps: &mut Deps<'_>,
    ) -> String {
        loop {
            // No controller runs before the first decision.
            if let Some(InterlockDecision { held_back, refusal }) = decisions.borrow_and_update().clone() {
                if let Some(refusal) = refusal {
                    return refusal;
                }
                self.apply(held_back, deps);
            }
            let is_restart_pending =
                |it: &ControllerEntry| it.is_stopped() && !self.held_back.contains_key(it.registration.name);
            let has_pending_restart = self.entries.iter().any(is_restart_pending);
            tokio::select! {
                biased;
                changed = decisions.changed() => if changed.is_err() {
                    // The interlock is gone with its manager.
                    std::future::pending::<()>().await;
                },
                () = tokio::time::sleep(CHECK_INTERVAL), if has_pending_restart => {}
            }
        }
    }

    /// The recorders of all controllers.
    pub(crate) fn recorders(&self) -> Vec<Recorder> {
        self.entries.iter().filter_map(|it| it.running.as_ref()).flat_map(|it| it.recorders.clone()).collect()
    }

    /// The tasks to wait for at the end of the term.
    pub(crate) fn into_tasks(self) -> Vec<(&'static str, Task)> {
        self.entries.into_iter().filter_map(|it| Some((it.registration.name, it.running?.task))).collect()
    }

    fn apply(&mut self, held_back: BTreeMap<&'static str, HeldBack>, deps: &mut Deps<'_>) {
        let mut starting = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if held_back.contains_key(entry.registration.name) {
                entry.was_held_back = true;
                entry.stop();
            } else if let Some(declared) = entry.take_startable(deps.declare) {
                starting.push((index, declared, std::mem::take(&mut entry.was_held_back)));
            }
        }
        // The proofs of the new term are older than the last writes of the other manager.
        let stale = || starting.iter().filter(|(_, _, was_held_back)| *was_held_back);
        let last_write = stale().filter_map(|(index, ..)| self.entries.get(*index)?.last_write).max();
        deps.freshness.prove_again(stale().flat_map(|(_, it, _)| it.controller.caches()), last_write);
        for (index, declared, _) in starting {
            let running = self.start(declared, deps);
            if let Some(entry) = self.entries.get_mut(index) {
                entry.running = Some(running);
            }
        }
        let running = self.entries.iter().filter(|it| !it.is_stopped()).filter_map(|it| it.running.as_ref());
        deps.health.set_controllers(running.map(|it| it.health.clone()).collect());
        self.report(held_back, deps);
    }

    fn start(&mut self, Declared { controller, switch }: Declared, deps: &Deps<'_>) -> Running {
        let name = controller.name();
        let proved = deps.freshness.wait_until_proved(controller.caches());
        let health = RunningController::of(&controller);
        let recorders = controller.recorders().to_vec();
        let pause = deps.start_interval.mul_f64(1.0 + self.rng.f64());
        let (stop, ended) = (self.stop.child_token(), CancellationToken::new());
        let running_gauge = self.running_gauge.with_label_values(&[name, "kube-controller-manager"]);
        let (stopped, has_ended) = (stop.clone(), ended.clone());
        let task = deps.spawner.spawn(name, async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = tokio::time::sleep(pause) => {
                    tracing::info!(controller = name, "Controller starting...");
                    running_gauge.set(1);
                }
            }
            // After a stop it removes its handlers and does nothing else.
            controller.run(stopped, proved).await;
            running_gauge.set(0);
            has_ended.cancel();
        });
        Running { task, stop, switch, ended, health, recorders }
    }

    /// Logs, counts and records what changed since the last decision.
    fn report(&mut self, held_back: BTreeMap<&'static str, HeldBack>, deps: &Deps<'_>) {
        let mut new: BTreeMap<&HeldBack, Vec<&str>> = BTreeMap::new();
        for (name, reason) in held_back.iter().filter(|(name, reason)| self.held_back.get(*name) != Some(*reason)) {
            new.entry(reason).or_default().push(name);
        }
        let resumed: Vec<&str> = self.held_back.keys().copied().filter(|it| !held_back.contains_key(it)).collect();
        if new.is_empty() && resumed.is_empty() {
            return;
        }
        self.held_back_gauge.reset();
        for (name, HeldBack { by, .. }) in &held_back {
            self.held_back_gauge.with_label_values(&[*name, by.as_str()]).set(1);
        }
        for (HeldBack { by, why }, names) in new {
            let controllers = names.join(", ");
            tracing::warn!(controllers, by, "Controllers are held back: {why}");
            (deps.record)(InterlockEvent::HeldBack { controllers, why: why.clone() });
        }
        if !resumed.is_empty() {
            let controllers = resumed.join(", ");
            tracing::info!(controllers, "Controllers are not held back any more: no other manager runs them");
            (deps.record)(InterlockEvent::Resumed { controllers });
        }
        deps.health.set_held_back(held_back.iter().map(|(name, it)| (*name, it.why.clone())).collect());
        self.held_back = held_back;
    }
}
