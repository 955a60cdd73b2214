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
    health::Seen,
    machine::{Action, Answer, Machine, Notice, Request},
    record::Lease,
    signal::Signal,
};

/// The interval at which a leader checks the clock. Timers do not run while the host is suspended, but the lease
/// expires.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(1);

/// Executes the actions of the machine. Ends when the Lease is lost, or on `stop`.
pub(crate) struct Driver {
    pub(crate) config: Arc<Config>,
    pub(crate) machine: Machine,
    pub(crate) api: Api,
    pub(crate) clock: Clock,
    pub(crate) term: Term,
    pub(crate) notices: UnboundedReceiver<Notice>,
    /// Unbounded, because renewing must not wait for the manager. There are only a few signals per term.
    pub(crate) signals: UnboundedSender<Signal>,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) master: IntGauge,
    pub(crate) slow_path: IntCounter,
    pub(crate) stop: CancellationToken,
}

type InFlight = Option<Pin<Box<dyn Future<Output = Answer> + Send>>>;

impl Driver {
    pub(crate) async fn run(mut self) {
        tracing::info!(lock = %self.config.lock(), "Attempting to acquire leader lease...");
        let mut in_flight: InFlight = None;
        loop {
            self.carry_out(&mut in_flight);
            if self.machine.is_over() {
                return;
            }
            let rest = self.rest();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    // The server may store a write in flight after a later request. So its response is awaited.
                    // Otherwise the release could read a Lease without a holder, and our name would be stored after
                    // that.
                    if in_flight.is_some() {
                        answer(&mut in_flight).await;
                    }
                    return;
                }
                answer = answer(&mut in_flight) => {
                    in_flight = None;
                    self.machine.answered(answer, self.clock.boot());
                }
                Some(notice) = self.notices.recv() => self.machine.noticed(notice, self.clock.boot()),
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    fn carry_out(&mut self, in_flight: &mut InFlight) {
        while let Some(action) = self.machine.due(self.clock.boot(), self.clock.wall()) {
            match action {
                Action::Send(request) => {
                    self.seen.lock().wrote |= !matches!(request, Request::Get);
                    *in_flight = Some(Box::pin(send(self.api.clone(), self.config.clone(), request)));
                }
                Action::Renewed(sent) => {
                    if !self.term.extend(sent, self.config.limits()) {
                        self.machine.term_ended();
                    }
                }
                Action::SlowPath => self.slow_path.inc(),
                Action::Failed(why) => tracing::warn!(err = why, lock = %self.config.lock(), "Failed to update lease"),
                Action::Tell(signal) => self.tell(signal),
            }
        }
        let mut seen = self.seen.lock();
        seen.held_since = self.machine.held_since();
        if let Some(uid) = self.machine.uid() {
            seen.uid = uid.clone();
        }
    }

    fn tell(&self, signal: Signal) {
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

    fn rest(&self) -> Duration {
        let deadline = self.machine.next_deadline();
        deadline.map_or(LOOK_AT_CLOCK, |at| at.saturating_since(self.clock.boot()).min(LOOK_AT_CLOCK))
    }
}

async fn answer(in_flight: &mut InFlight) -> Answer {
    match in_flight {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

/// Sends one request. The client limits its time.
async fn send(api: Api, config: Arc<Config>, request: Request) -> Answer {
    let answer = match request {
        Request::Get => read(&api, &config).await.map(|it| it.map_or(Answer::Absent, |it| Answer::Read(Box::new(it)))),
        Request::Create(lease) => api.create(&leases(), &config.namespace, &*lease).await.map(Answer::Stored),
        Request::Update(lease) => replace(&api, &config, &lease).await.map(Answer::Stored),
    };
    answer.unwrap_or_else(|err| Answer::Failed(err.to_string()))
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
