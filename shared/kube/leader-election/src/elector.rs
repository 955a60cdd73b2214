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
    Config, Health, InvalidConfig, Notes, ReleaseError, Signal, driver::Driver, health::Seen, machine::Machine,
    release::release, watch::LeaseWatch,
};

/// The reason of the events about leadership, which the manager records on the Lease.
pub const EVENT_REASON: &str = "LeaderElection";

/// The message of the event at the beginning of a term.
#[must_use]
pub fn became_leader(identity: &str) -> String {
    format!("{identity} became leader")
}

/// The message of the event at its end.
#[must_use]
pub fn stopped_leading(identity: &str) -> String {
    format!("{identity} stopped leading")
}

/// What the elector works with.
pub struct Deps {
    /// The Lease's own client: no retry layer, not fenced, and no request longer than [`Config::attempt`].
    pub api: Api,
    /// For the watch on the Lease.
    pub watcher: Watcher,
    /// Time.
    pub clock: Clock,
    /// Where `leader_election_*` go.
    pub metrics: Metrics,
    /// What controllers carry; begun, prolonged and ended here.
    pub term: Term,
    /// For waits.
    pub rng: Rng,
    /// Where its tasks run.
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
    seen: Arc<Mutex<Seen>>,
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
    /// Starts trying at once, in tasks of its own.
    ///
    /// # Errors
    /// If the configuration cannot work.
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
        let (tell, signals) = mpsc::unbounded_channel();
        let (notify, notices) = mpsc::unbounded_channel();
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), CancellationToken::new());
        let watch = LeaseWatch::new(&config, watcher, clock.clone(), rng.fork(), notify);
        let driver = Driver {
            machine: Machine::new((*config).clone(), rng, clock.boot()),
            config: config.clone(),
            api: api.clone(),
            clock: clock.clone(),
            term: term.clone(),
            notices,
            signals: tell,
            seen: seen.clone(),
            master: master.clone(),
            slow_path: slow_path.with_label_values(&[config.name.as_str()]),
            stop: stop.clone(),
        };
        let driver = Some(spawner.spawn("leader election", driver.run()));
        let tasks = Tasks { stop, driver, watch: spawner.spawn("watch of the lease", watch.run()) };
        Ok(Self { config, api, clock, term, master, signals, over: false, seen, tasks })
    }

    /// Waits for the next thing that the manager must know. After [`Signal::Lost`] nothing comes any more and this waits
    /// for ever. Safe to drop while waiting: nothing is lost, and renewing does not depend on being asked.
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

    /// Gives leadership back, so that a standby takes over at once: only after the last write of the term has been
    /// answered. The term ends here if it has not yet. Nothing is written unless the Lease names us; conflicts are
    /// retried. Takes at most the renew deadline, beside the rest of a request that is under way.
    ///
    /// # Errors
    /// If the Lease still names us, as far as we know, or somebody else has taken it.
    pub async fn release(mut self, notes: Option<Notes>) -> Result<(), ReleaseError> {
        self.term.end();
        self.master.set(0);
        self.tasks.stop.cancel();
        self.tasks.watch.stop();
        if let Some(driver) = self.tasks.driver.take() {
            driver.ended().await;
        }
        if !std::mem::take(&mut self.seen.lock().wrote) {
            return Ok(());
        }
        let released = release(&self.api, &self.config, &self.clock, notes).await;
        self.seen.lock().held_since = None;
        released
    }

    /// The check `leaderElection`.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            clock: self.clock.clone(),
            name: self.config.name.clone(),
            lease_duration: self.config.lease_duration,
            seen: self.seen.clone(),
        }
    }

    /// The Lease's uid, for events about it; empty as long as it was not seen.
    #[must_use]
    pub fn lease_uid(&self) -> Uid {
        self.seen.lock().uid.clone()
    }
}
