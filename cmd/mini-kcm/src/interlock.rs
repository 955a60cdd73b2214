//! Keeps a controller from running in two managers: ours and the built-in one, which has a Lease of its own.
//!
//! The pods and Leases are read before controllers start, and then again after pauses of three seconds: the pods of the
//! built-in manager, whose command lines contain its `--controllers`, its Lease and our own. A controller that the
//! other manager would run is held back, and starts when the other manager does not run it any more. With a Lease that
//! both share only one of them writes; then this manager must not lead while it lacks controllers that the other one
//! runs.
//!
//! Reading order: `decision` decides and is pure; `built_in` parses the pods; `observed_managers` keeps a manager for a
//! time after it disappears; this file sends the requests. `term_controllers` starts and stops the controllers.
//!
//! The built-in manager's `/configz` and `/flagz` are not read: its port listens on the loopback address of its host by
//! default, and through the API server's proxy a request comes without an identity.

mod built_in;
mod decision;
mod observed_managers;

use std::{sync::Arc, time::Duration};

use client::{Api, ApiError, Clients, Limits};
use clock::{BootInstant, Clock, Instant};
use serde_json::Value;
use tokio::sync::{Mutex, watch};

pub use self::decision::{HeldBack, InterlockDecision};
use self::{
    built_in::{LeaseKey, PROGRAM, built_in_pods},
    decision::{OwnSettings, decide},
    observed_managers::{
        LeaseRead, LeaseRecord, Managers, ObservedManagers, PollResult, PollTime, is_written_by_other_manager,
    },
};
use crate::{config::Config, preflight::Preflight};

/// The pause between two polls. With [`TIMEOUT`] and the time to stop a controller it must stay below ten seconds.
const INTERVAL: Duration = Duration::from_secs(3);
/// The pause while no poll has succeeded yet and controllers wait for it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A new leader does not poll again if a poll began this recently, as on a standby. The list of pods of a poll would
/// delay the first list of each controller by up to 100 ms (KEP-2340).
const RECENT: Duration = Duration::from_secs(4);
/// How long a new leader tries to poll before it steps down. Longer than an API server that has just started refuses reads.
const FIRST_POLL_TIMEOUT: Duration = Duration::from_secs(60);
/// A leader steps down if no poll has succeeded for this time. An overloaded API server should not stop it.
const STEP_DOWN_AFTER: Duration = Duration::from_secs(300);
/// The timeout of one poll.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The timeout of one read. It must end before the poll, because only then the next one uses another connection.
const READ_TIMEOUT: Duration = Duration::from_millis(3_900);
const _: () = assert!(READ_TIMEOUT.as_millis() < TIMEOUT.as_millis());
/// The labels of the pods, as kubeadm and RKE2, and as kops write them. A list of the whole namespace would contain a
/// pod of each DaemonSet for each node.
const LABELS: [&str; 2] = ["component", "k8s-app"];

/// Polls the built-in manager, and decides which of our controllers may run.
pub struct Interlock {
    api: Api,
    clock: Clock,
    own_settings: OwnSettings,
    preflight: Arc<Preflight>,
    /// Held during a poll, so that polls do not overtake each other.
    observed_managers: Mutex<ObservedManagers>,
    /// When the last successful poll began. The time in which the machine sleeps counts.
    last_poll: parking_lot::Mutex<Option<BootInstant>>,
    /// When the first of the failed polls since the last successful one began.
    failing_since: parking_lot::Mutex<Option<Instant>>,
    /// `None` before the first poll.
    decision: watch::Sender<Option<InterlockDecision>>,
}

impl Interlock {
    /// For a manager with this configuration.
    #[must_use]
    pub fn new(config: &Config, clients: &Clients, clock: Clock, preflight: Arc<Preflight>) -> Self {
        let own_settings = OwnSettings {
            controllers: config.controllers.clone(),
            unaffected: config.interlock.manages_own_jobs.then_some(job_controller::NAME),
            lease: config
                .election
                .as_ref()
                .map(|it| LeaseKey { namespace: it.namespace.clone(), name: it.name.clone() }),
            assume_exclusive: config.interlock.assume_exclusive,
            partial_takeover: config.interlock.partial_takeover,
        };
        // Without a rate limit, because the start of the term waits for it.
        let api = clients.unfenced_within("preflight", Limits::NONE, READ_TIMEOUT);
        let (last_poll, failing_since) = (parking_lot::Mutex::default(), parking_lot::Mutex::default());
        let (observed_managers, decision) = (Mutex::default(), watch::Sender::new(None));
        Self { api, clock, own_settings, preflight, observed_managers, last_poll, failing_since, decision }
    }

    /// The decisions from now on. `None` before the first poll.
    #[must_use]
    pub fn decisions(&self) -> watch::Receiver<Option<InterlockDecision>> {
        self.decision.subscribe()
    }

    /// Polls until it succeeds, unless the last poll is recent.
    ///
    /// # Errors
    /// When it has not succeeded within a minute: the reason why this manager should not lead.
    pub async fn poll_until_success(&self) -> Result<(), String> {
        if self.last_poll.lock().is_some_and(|it| self.clock.boot().saturating_since(it) < RECENT) {
            return Ok(());
        }
        let deadline = self.clock.now() + FIRST_POLL_TIMEOUT;
        loop {
            match self.poll_once().await {
                Ok(_) => return Ok(()),
                Err(err) if self.clock.now() >= deadline => {
                    return Err(format!("cannot read the pods and Leases of other controller managers: {err}"));
                }
                Err(err) => {
                    tracing::warn!(
                        %err,
                        "Cannot read the pods and Leases of other controller managers: \
                         controllers start after the first successful read"
                    );
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Polls every few seconds. After a failed poll the last decision stays, unless it needs a Lease that may have expired.
    pub async fn poll_periodically(&self) {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let result = self.poll_once().await;
            if let Err(err) = &result
                && !is_failing
            {
                tracing::warn!(
                    %err,
                    "Cannot read the pods and Leases of other controller managers: the last decision stays"
                );
            }
            is_failing = result.is_err();
        }
    }

    /// Waits until no poll has succeeded for five minutes. Returns the reason why this manager should not lead.
    pub async fn wait_until_polls_failed_too_long(&self) -> String {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let since = *self.failing_since.lock();
            if since.is_some_and(|it| self.clock.now().saturating_duration_since(it) >= STEP_DOWN_AFTER) {
                return format!(
                    "cannot read the pods and Leases of other controller managers for {} s",
                    STEP_DOWN_AFTER.as_secs()
                );
            }
        }
    }

    /// Polls once and publishes the decision.
    ///
    /// # Errors
    /// When a request failed in another way than by a missing right or object.
    pub async fn poll_once(&self) -> Result<InterlockDecision, ApiError> {
        let mut observed_managers = self.observed_managers.lock().await;
        let (begun, begun_boot) = (self.clock.now(), self.clock.boot());
        let decision = self.poll_with(&mut observed_managers, begun).await;
        let mut failing_since = self.failing_since.lock();
        match &decision {
            Ok(_) => {
                *failing_since = None;
                *self.last_poll.lock() = Some(begun_boot);
            }
            Err(_) => {
                failing_since.get_or_insert(begun);
            }
        }
        decision
    }

    async fn poll_with(
        &self,
        observed_managers: &mut ObservedManagers,
        begun: Instant,
    ) -> Result<InterlockDecision, ApiError> {
        let poll = client::within(TIMEOUT, self.read()).await;
        let ended = self.clock.now();
        let time = PollTime { begun, ended, next_end: ended + INTERVAL + TIMEOUT };
        let poll = match poll {
            Ok(poll) => poll,
            Err(err) => {
                if let Some(managers) = observed_managers.on_failed_poll(time) {
                    self.publish(&managers);
                }
                return Err(err);
            }
        };
        if let Some(managers) = observed_managers.observe(poll, time) {
            return Ok(self.publish(&managers));
        }
        if let Some(managers) = observed_managers.check_freshness(time) {
            self.publish(&managers);
        }
        Err(ApiError::unknown("a read that was allowed before is refused"))
    }

    fn publish(&self, managers: &Managers) -> InterlockDecision {
        let decision = decide(&self.own_settings, managers, &self.preflight.foreign_writers());
        self.preflight.set_held_back(decision.held_back.keys().copied().collect());
        self.decision.send_if_modified(|last| {
            let is_new = last.as_ref() != Some(&decision);
            if is_new {
                *last = Some(decision.clone());
            }
            is_new
        });
        decision
    }

    async fn read(&self) -> Result<PollResult, ApiError> {
        let built_in = LeaseKey::of_built_in();
        let ours = self.own_settings.lease.as_ref();
        let is_shared = ours == Some(&built_in);
        let ours = async {
            match ours {
                Some(key) => self.get(&format!("{}/{}", leases(key), key.name)).await.map(Some),
                None => Ok(None),
            }
        };
        let theirs = async { if is_shared { Ok(None) } else { self.find_lease(&built_in).await.map(Some) } };
        let [first, second] = LABELS.map(|it| self.pods(it));
        let (ours, theirs, first, second) = tokio::try_join!(ours, theirs, first, second)?;
        let built_in_lease = match &theirs {
            None | Some(ReadResult::Absent) => LeaseRead::Absent,
            Some(ReadResult::Refused) => LeaseRead::Refused,
            Some(ReadResult::Found(lease)) => LeaseRead::Present(LeaseRecord::of(lease)),
        };
        let our_lease_is_foreign = match &ours {
            None | Some(ReadResult::Absent) => false,
            Some(ReadResult::Found(lease)) => is_written_by_other_manager(lease),
            // An API server that has just started refuses everything.
            Some(ReadResult::Refused) => return Err(ApiError::unknown("the read of our own Lease is refused")),
        };
        let pods = first.zip(second).map(|(first, second)| [built_in_pods(&first), built_in_pods(&second)].concat());
        Ok(PollResult { pods, built_in_lease, our_lease_is_foreign })
    }

    /// The pods with this label; `None` without the right to list them.
    async fn pods(&self, label: &str) -> Result<Option<Value>, ApiError> {
        let path = format!("/api/v1/namespaces/kube-system/pods?labelSelector={label}%3D{PROGRAM}&limit=500");
        Ok(match self.get(&path).await? {
            ReadResult::Found(pods) => Some(pods),
            ReadResult::Absent => Some(Value::Null),
            ReadResult::Refused => None,
        })
    }

    /// Reads a Lease that is not our own. A list waits until the watch cache of the server is up to date, which takes up to
    /// 100 ms (KEP-2340), so it is used only where a role does not allow the get.
    async fn find_lease(&self, key: &LeaseKey) -> Result<ReadResult, ApiError> {
        let (leases, name) = (leases(key), &key.name);
        match self.get(&format!("{leases}/{name}")).await? {
            ReadResult::Refused => {}
            read => return Ok(read),
        }
        let list = self.get(&format!("{leases}?fieldSelector=metadata.name%3D{name}&limit=500")).await?;
        Ok(match list {
            ReadResult::Found(mut list) => match list["items"].get_mut(0) {
                Some(lease) => ReadResult::Found(lease.take()),
                None => ReadResult::Absent,
            },
            other => other,
        })
    }

    async fn get(&self, path: &str) -> Result<ReadResult, ApiError> {
        match self.api.read(path, "application/json").await {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(value) => Ok(ReadResult::Found(value)),
                Err(err) => Err(ApiError::unknown(format!("{path}: {err}"))),
            },
            Err(ApiError::NotFound(_)) => Ok(ReadResult::Absent),
            Err(ApiError::Refused(_)) => Ok(ReadResult::Refused),
            Err(err) => Err(err),
        }
    }
}

/// The path of all Leases of a namespace.
fn leases(key: &LeaseKey) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", key.namespace)
}

/// The result of a read that needs a right.
enum ReadResult {
    Found(Value),
    Absent,
    /// It is not allowed.
    Refused,
}
