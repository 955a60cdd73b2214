use std::sync::Arc;

use api::Uid;
use client::{Api, Term, Watcher};
use clock::Clock;
use fastrand::Rng;
use metrics::{IntGauge, Metrics};
use parking_lot::Mutex;
use tasks::{Spawner, Task};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Health, InvalidConfig, Notes, ReleaseError, Signal, driver::Driver, health::LeaseState, machine::Machine,
    release::release, watch::LeaseWatch,
};

/// The reason of the events about leadership, which the manager records on the Lease.
pub const EVENT_REASON: &str = "LeaderElection";

/// The message of the event at the beginning of a term.
#[must_use]
pub fn became_leader(identity: &str) -> String {
    format!("{identity} became leader")
}

/// The message of the event at the end of a term.
#[must_use]
pub fn stopped_leading(identity: &str) -> String {
    format!("{identity} stopped leading")
}

/// The dependencies of the elector.
pub struct Deps {
    /// A client only for the Lease: without the retry layer, not fenced, and with [`Config::request_timeout`] as the
    /// timeout of a request.
    pub api: Api,
    /// The client for the watch on the Lease.
    pub watcher: Watcher,
    /// The clock.
    pub clock: Clock,
    /// The registry for the `leader_election_*` metrics.
    pub metrics: Metrics,
    /// The term that controllers attach to their writes. The elector begins, extends and ends it.
    pub term: Term,
    /// For the jitter of waits.
    pub rng: Rng,
    /// Starts the tasks.
    pub spawner: Spawner,
}

/// Acquires the Lease and renews it. It leads for at most one term: a process that lost the Lease must be restarted.
pub struct Elector {
    config: Arc<Config>,
    api: Api,
    clock: Clock,
    term: Term,
    master: IntGauge,
    signals: mpsc::UnboundedReceiver<Signal>,
    over: bool,
    lease_state: Arc<Mutex<LeaseState>>,
    tasks: Tasks,
}

struct Tasks {
    stop: CancellationToken,
    driver: Option<Task>,
    watch: Task,
}

/// Stops renewing when the elector is dropped.
impl Drop for Tasks {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.stop();
        }
        self.watch.stop();
    }
}

impl Elector {
    /// Starts to acquire the Lease at once, in its own tasks.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: Config, deps: Deps) -> Result<Self, InvalidConfig> {
        config.validate()?;
        let Deps { api, watcher, clock, metrics, term, mut rng, spawner } = deps;
        let config = Arc::new(config);
        let master = metrics.gauges(
            "leader_election_master_status",
            "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
             master. 'name' is the string used to identify the lease. Please make sure to group by name.",
            &["name"],
        );
        let master = master.with_label_values(&[config.name.as_str()]);
        master.set(0);
        let slow_path = metrics.counters(
            "leader_election_slowpath_total",
            "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to \
             identify the lease. Please make sure to group by name.",
            &["name"],
        );
        let (signal_sender, signals) = mpsc::unbounded_channel();
        let (event_sender, lease_events) = mpsc::unbounded_channel();
        let (lease_state, stop) = (Arc::<Mutex<LeaseState>>::default(), CancellationToken::new());
        let watch = LeaseWatch::new(&config, watcher, clock.clone(), rng.fork(), event_sender);
        let driver = Driver {
            machine: Machine::new((*config).clone(), rng, clock.boot()),
            config: config.clone(),
            api: api.clone(),
            clock: clock.clone(),
            term: term.clone(),
            lease_events,
            signals: signal_sender,
            lease_state: lease_state.clone(),
            master: master.clone(),
            slow_path: slow_path.with_label_values(&[config.name.as_str()]),
            stop: stop.clone(),
        };
        let driver = Some(spawner.spawn("leader election", driver.run()));
        let tasks = Tasks { stop, driver, watch: spawner.spawn("watch of the lease", watch.run()) };
        Ok(Self { config, api, clock, term, master, signals, over: false, lease_state, tasks })
    }

    /// Waits for the next signal. After [`Signal::Lost`] there are no more signals, and this waits forever. Dropping
    /// the future loses no signal. Renewing does not depend on calls of this function.
    pub async fn next(&mut self) -> Signal {
        if self.over {
            return std::future::pending().await;
        }
        let signal = match self.signals.recv().await {
            Some(signal) => signal,
            None => {
                self.term.end();
                Signal::Lost("leader election has stopped".to_owned())
            }
        };
        self.over = matches!(signal, Signal::Lost(_));
        signal
    }

    /// Releases the Lease, so that a standby takes over at once. Call it only after the last write of the term was
    /// answered. It also ends the term. It writes only if the Lease names this process, and retries conflicts. It takes
    /// at most the renew deadline, plus the rest of a request in flight.
    ///
    /// # Errors
    /// If the Lease may still name this process, or if another process has taken it.
    pub async fn release(mut self, notes: Option<Notes>) -> Result<(), ReleaseError> {
        self.term.end();
        self.master.set(0);
        self.tasks.stop.cancel();
        self.tasks.watch.stop();
        if let Some(driver) = self.tasks.driver.take() {
            driver.wait_until_ended().await;
        }
        if !std::mem::take(&mut self.lease_state.lock().has_written) {
            return Ok(());
        }
        let released = release(&self.api, &self.config, &self.clock, notes).await;
        self.lease_state.lock().held_since = None;
        released
    }

    /// The health check `leaderElection`.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            clock: self.clock.clone(),
            name: self.config.name.clone(),
            lease_duration: self.config.lease_duration,
            lease_state: self.lease_state.clone(),
        }
    }

    /// The uid of the Lease, for events about it; empty until the Lease was observed.
    #[must_use]
    pub fn lease_uid(&self) -> Uid {
        self.lease_state.lock().uid.clone()
    }
}
