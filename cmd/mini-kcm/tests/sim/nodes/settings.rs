//! The flags of the managers, and how late their decisions may be.

use std::time::Duration;

use fastrand::Rng;

const SEC: Duration = Duration::from_secs(1);
const CONTROLLERS: &str = "--controllers=node-lifecycle-controller,taint-eviction-controller,\
                           pod-garbage-collector-controller,ttl-controller";

/// No zone has more dead nodes.
const MOST_DEAD_NODES: f64 = 10.0;

/// The values of the flags, and the allowances of the checks.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) grace: Duration,
    pub(super) startup_grace: Duration,
    /// Nodes a second.
    pub(super) rate: f64,
    pub(super) secondary_rate: f64,
    pub(super) large_zone: usize,
    pub(super) unhealthy_share: f32,
    pub(super) terminated_pods: usize,
    /// The longest time from a decision to the write that executes it.
    pub(super) in_flight: Duration,
    /// The longest time from the arrival of an event to its processing.
    pub(super) processing: Duration,
}

impl Settings {
    /// `has_faults` is false in a run without any fault, where every decision is made and executed in time.
    pub(super) fn random(rng: &mut Rng, has_faults: bool) -> Self {
        let mut of = |choices: &[f64]| choices[rng.usize(..choices.len())];
        let (rate, secondary_rate) = (of(&[0.1, 0.1, 0.02, 0.01, 0.005]), of(&[0.01, 0.01, 0.05, 0.0]));
        Self {
            rate,
            secondary_rate,
            large_zone: [3, 5, 50][rng.usize(..3)],
            unhealthy_share: [0.55, 0.55, 0.34, 0.8][rng.usize(..4)],
            terminated_pods: rng.usize(1..4),
            ..Self::with_allowances(has_faults)
        }
    }

    /// Short times, for many runs.
    pub(super) fn swept() -> Self {
        Self { grace: SEC * 20, startup_grace: SEC * 25, ..Self::with_allowances(true) }
    }

    /// The default flags. With faults a decision may wait for a call that hangs, for its retry, and for a process that
    /// is paused. Without them, only for the next pass over all nodes.
    fn with_allowances(has_faults: bool) -> Self {
        let (in_flight, processing) = if has_faults { (SEC * 90, SEC * 40) } else { (SEC * 6, SEC) };
        Self {
            grace: SEC * 50,
            startup_grace: SEC * 60,
            rate: 0.1,
            secondary_rate: 0.01,
            large_zone: 50,
            unhealthy_share: 0.55,
            terminated_pods: 2,
            in_flight,
            processing,
        }
    }

    /// As arguments of the manager.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            CONTROLLERS.to_owned(),
            format!("--node-monitor-grace-period={}s", self.grace.as_secs()),
            format!("--node-startup-grace-period={}s", self.startup_grace.as_secs()),
            format!("--node-eviction-rate={}", self.rate),
            format!("--secondary-node-eviction-rate={}", self.secondary_rate),
            format!("--large-cluster-size-threshold={}", self.large_zone),
            format!("--unhealthy-zone-threshold={}", self.unhealthy_share),
            format!("--terminated-pod-gc-threshold={}", self.terminated_pods),
        ]
    }

    /// The time in which every node that stays dead is tainted, and every other goal is reached too: a hung call, a
    /// frozen watch, an expiring Lease, all graces and tolerations, and the pace of the evictions.
    pub(super) fn time_limit(&self) -> Duration {
        let rates = [self.rate, self.secondary_rate].into_iter().filter(|it| *it > 0.0);
        let slowest = rates.fold(self.rate, f64::min);
        SEC * 700 + Duration::from_secs_f64(MOST_DEAD_NODES / slowest)
    }
}
