use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use client::{Api, ApiError, Term};
use clock::Clock;
use metrics::{IntCounter, IntGauge};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    config::leases,
    health::LeaseState,
    machine::{ElectionAction, LeaseEvent, LeaseRequest, Machine, RequestOutcome},
    record::Lease,
    signal::Signal,
};

/// The interval at which a leader checks the clock. Timers do not run while the host is suspended, but the lease
/// expires.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Executes the actions of the machine. Ends when the Lease is lost, or on `stop`.
pub(crate) struct Driver {
    pub(crate) config: Arc<Config>,
    pub(crate) machine: Machine,
    pub(crate) api: Api,
    pub(crate) clock: Clock,
    pub(crate) term: Term,
    pub(crate) lease_events: UnboundedReceiver<LeaseEvent>,
    /// Unbounded, because renewing must not wait for the manager. There are only a few signals per term.
    pub(crate) signals: UnboundedSender<Signal>,
    pub(crate) lease_state: Arc<Mutex<LeaseState>>,
    pub(crate) master: IntGauge,
    pub(crate) slow_path: IntCounter,
    pub(crate) stop: CancellationToken,
}

type InFlight = Option<Pin<Box<dyn Future<Output = RequestOutcome> + Send>>>;

impl Driver {
    pub(crate) async fn run(mut self) {
        tracing::info!(lock = %self.config.lock(), "Attempting to acquire leader lease...");
        let mut in_flight: InFlight = None;
        loop {
            self.run_actions(&mut in_flight);
            if self.machine.is_over() {
                return;
            }
            let wait_time = self.wait_time();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    // The server may store a write in flight after a later request. So its response is awaited.
                    // Otherwise the release could read a Lease without a holder, and our name would be stored after
                    // that.
                    if in_flight.is_some() {
                        next_outcome(&mut in_flight).await;
                    }
                    return;
                }
                outcome = next_outcome(&mut in_flight) => {
                    in_flight = None;
                    self.machine.on_response(outcome, self.clock.boot());
                }
                Some(event) = self.lease_events.recv() => self.machine.on_lease_event(event, self.clock.boot()),
                () = tokio::time::sleep(wait_time) => {}
            }
        }
    }

    fn run_actions(&mut self, in_flight: &mut InFlight) {
        while let Some(action) = self.machine.next_action(self.clock.boot(), self.clock.wall()) {
            match action {
                ElectionAction::Send(request) => {
                    self.lease_state.lock().has_written |= !matches!(request, LeaseRequest::Get);
                    *in_flight = Some(Box::pin(send(self.api.clone(), self.config.clone(), request)));
                }
                ElectionAction::Renewed(sent) => {
                    if !self.term.extend(sent, self.config.limits()) {
                        self.machine.on_term_ended();
                    }
                }
                ElectionAction::SlowPath => self.slow_path.inc(),
                ElectionAction::Failed(why) => {
                    tracing::warn!(err = why, lock = %self.config.lock(), "Failed to update lease")
                }
                ElectionAction::Signal(signal) => self.send_signal(signal),
            }
        }
        let mut lease_state = self.lease_state.lock();
        lease_state.held_since = self.machine.held_since();
        if let Some(uid) = self.machine.uid() {
            lease_state.uid = uid.clone();
        }
    }

    fn send_signal(&self, signal: Signal) {
        match &signal {
            Signal::Acquired(_) => {
                tracing::info!(lock = %self.config.lock(), "Successfully acquired lease");
                self.master.set(1);
            }
            Signal::Lost(_) => {
                self.term.end();
                self.master.set(0);
            }
            Signal::ProveAhead { .. } | Signal::NewLeader(_) => {}
        }
        // Sending fails only if the elector was dropped; then this task ends soon too.
        let _ = self.signals.send(signal);
    }

    fn wait_time(&self) -> Duration {
        let deadline = self.machine.next_deadline();
        deadline.map_or(CLOCK_CHECK_INTERVAL, |at| at.saturating_since(self.clock.boot()).min(CLOCK_CHECK_INTERVAL))
    }
}

async fn next_outcome(in_flight: &mut InFlight) -> RequestOutcome {
    match in_flight {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

/// Sends one request. The client limits its time.
async fn send(api: Api, config: Arc<Config>, request: LeaseRequest) -> RequestOutcome {
    let outcome = match request {
        LeaseRequest::Get => read(&api, &config)
            .await
            .map(|it| it.map_or(RequestOutcome::Absent, |it| RequestOutcome::Read(Box::new(it)))),
        LeaseRequest::Create(lease) => {
            api.create(&leases(), &config.namespace, &*lease).await.map(RequestOutcome::Stored)
        }
        LeaseRequest::Update(lease) => replace(&api, &config, &lease).await.map(RequestOutcome::Stored),
    };
    outcome.unwrap_or_else(|err| RequestOutcome::Failed(err.to_string()))
}

/// Reads the Lease; `None` if it does not exist.
pub(crate) async fn read(api: &Api, config: &Config) -> Result<Option<Lease>, ApiError> {
    let path = leases().object(&config.namespace, &config.name);
    match api.read(&path, "application/json").await {
        Ok(bytes) => {
            let lease = Lease::decode(&bytes);
            lease.map(Some).map_err(|err| ApiError::unknown(format!("the lease does not decode: {err}")))
        }
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Replaces the Lease at the resourceVersion at which it was read.
pub(crate) async fn replace(api: &Api, config: &Config, lease: &Lease) -> Result<client::Written, ApiError> {
    api.replace(&leases(), &config.namespace, &config.name, lease).await
}
