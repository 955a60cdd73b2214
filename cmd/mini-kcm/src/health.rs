//! The health checks of `/healthz`, `/livez` and `/readyz`.

mod probe_query;
mod probe_report;
mod slis;

use std::{collections::BTreeSet, sync::Arc};

use controller::{Controller, Page, WorkerHealth};
use informer::Informers;
use metrics::Metrics;
use parking_lot::Mutex;

pub use probe_query::ProbeQuery;
pub use probe_report::ProbeReport;
use probe_report::{Check, record_result, report};
use slis::Slis;

/// The checks of one manager, shared with its server.
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// Checks that failed at their last request.
    failing: Mutex<BTreeSet<String>>,
    slis: Slis,
}

#[derive(Clone, Default)]
struct State {
    elects: bool,
    /// Set when the election begins.
    election: Option<leader_election::Health>,
    /// Empty on a standby.
    controllers: Vec<RunningController>,
    /// The controllers of a leader that do not run because another manager runs them, and why.
    held_back: Vec<(&'static str, String)>,
    informers: Option<Informers>,
}

/// A running controller.
#[derive(Clone)]
pub struct RunningController {
    /// Its canonical name.
    pub name: &'static str,
    /// The state of its workers, one per queue.
    pub worker_health: Vec<WorkerHealth>,
    /// Its debug pages.
    pub pages: Vec<Page>,
}

impl RunningController {
    /// The data of a controller that is about to run.
    #[must_use]
    pub fn of(controller: &Controller) -> Self {
        Self {
            name: controller.name(),
            worker_health: controller.worker_health().to_vec(),
            pages: controller.pages().to_vec(),
        }
    }
}

/// The requested probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`, with upstream's checks.
    Healthz,
    /// `/livez`, the same checks.
    Livez,
    /// `/readyz`, which also checks that the caches are synced.
    Readyz,
}

impl Probe {
    /// Its name in the path.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

impl HealthChecks {
    /// Adds the check of the Lease. It passes until [`HealthChecks::set_election`], as upstream's
    /// `LeaderHealthzAdaptor` without an elector.
    pub fn declare_election(&self) {
        self.0.state.lock().elects = true;
    }

    /// Lets the check of the Lease read the state of this election.
    pub fn set_election(&self, election: leader_election::Health) {
        self.0.state.lock().election = Some(election);
    }

    /// Adds a check for each running controller, which fails when its workers are stuck. Called after all controllers
    /// are built, so that no probe fails in between.
    pub fn set_controllers(&self, controllers: Vec<RunningController>) {
        self.0.state.lock().controllers = controllers;
    }

    /// Shows these controllers in `/readyz?verbose`. They are no failure: this manager does what it should.
    pub fn set_held_back(&self, held_back: Vec<(&'static str, String)>) {
        self.0.state.lock().held_back = held_back;
    }

    /// The running controllers; none on a standby.
    #[must_use]
    pub fn controllers(&self) -> Vec<RunningController> {
        self.0.state.lock().controllers.clone()
    }

    /// Makes readiness depend on the caches.
    pub fn set_informers(&self, informers: Informers) {
        self.0.state.lock().informers = Some(informers);
    }

    /// Runs the checks of a probe and returns its report.
    #[must_use]
    pub fn run_checks(&self, probe: Probe, query: &ProbeQuery) -> ProbeReport {
        report(probe.name(), self.checks(probe), query, |check| self.observe(probe, check))
    }

    /// Runs one check. `None` when there is no such check at present.
    #[must_use]
    pub fn run_check(&self, probe: Probe, name: &str) -> Option<ProbeReport> {
        let check = self.checks(probe).into_iter().find(|it| it.name == name)?;
        self.observe(probe, &check);
        Some(ProbeReport::of(check))
    }

    /// The results of all requested checks, as metrics.
    #[must_use]
    pub fn slis(&self) -> &Metrics {
        self.0.slis.metrics()
    }

    /// Resets these metrics.
    pub fn reset_slis(&self) {
        self.0.slis.reset();
    }

    fn observe(&self, probe: Probe, check: &Check) {
        self.0.slis.observe(probe.name(), &check.name, check.failure.is_none());
        let changed = record_result(&mut self.0.failing.lock(), check);
        match &check.failure {
            Some(failure) if changed => tracing::warn!(check = %check.name, %failure, "Health check fails"),
            None if changed => tracing::info!(check = %check.name, "Health check passes again"),
            _ => {}
        }
    }

    fn checks(&self, probe: Probe) -> Vec<Check> {
        // The lock is released first, because the checks take other locks.
        let State { elects, election, controllers, held_back, informers } = self.0.state.lock().clone();
        let held = election.map_or(Ok(()), |it| it.check().map_err(|err| err.to_string()));
        let election = elects.then(|| Check::new("leaderElection", held));
        let controllers = controllers.iter().map(|RunningController { name, worker_health, .. }| {
            let stuck = worker_health.iter().find_map(|it| it.read().check().err());
            Check::new(name, stuck.map_or(Ok(()), |it| Err(it.to_string())))
        });
        let mut checks: Vec<Check> = election.into_iter().chain(controllers).collect();
        if probe == Probe::Readyz {
            checks.extend(held_back.into_iter().map(|(name, why)| held_back_check(name, &why)));
            checks.extend(informers.iter().flat_map(Informers::all).map(|it| sync_check(&*it)));
        }
        checks
    }
}

/// Passes always. The note says why the controller does not run.
fn held_back_check(controller: &str, why: &str) -> Check {
    Check { note: format!("held back: {why}"), ..Check::new(&format!("held-back/{controller}"), Ok(())) }
}

/// Passes when the informer has synced. The note contains the age of its last response.
fn sync_check(watched: &dyn informer::Watched) -> Check {
    let name = format!("informer-sync/{}", watched.resource());
    let check = Check::new(&name, watched.has_synced().then_some(()).ok_or_else(|| "not synced".to_owned()));
    let note = watched
        .silent_for()
        .map_or_else(|| "no response yet".to_owned(), |age| format!("last response {} s ago", age.as_secs()));
    Check { note, ..check }
}

#[cfg(test)]
mod tests;
