use std::{fmt, sync::Arc, time::Duration};

use client::Api;
use clock::{Clock, Instant, Timestamp};
use fastrand::Rng;
use k8s_openapi::api::core::v1::ObjectReference;
use metrics::{IntCounter, Metrics};
use tasks::Spawner;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    correlator::{Correlator, Source},
    outbox::Outbox,
    worker::Worker,
};

/// As many reports wait for the worker at most.
const WAITING: usize = 1000;

/// What a recorder needs from the manager.
pub struct Deps {
    /// Writes the Events: fenced, with the controller's budget.
    pub api: Api,
    /// Time.
    pub clock: Clock,
    /// For the first wait of a retry, and names that must be made up.
    pub rng: Rng,
    /// Where the worker runs.
    pub spawner: Spawner,
    /// Where dropped events are counted.
    pub metrics: Metrics,
    /// The reporting component, such as `job-controller`.
    pub component: String,
    /// The host of the component; may be empty.
    pub host: String,
}

/// Whether an event is news or trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// News.
    Normal,
    /// Trouble.
    Warning,
}

impl Type {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One report, as it was made.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) object: ObjectReference,
    pub(crate) type_: Type,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) wall: Timestamp,
    pub(crate) at: Instant,
}

/// Reports events for one controller, cheap to clone. Callers never wait for the write.
///
/// Each recorder has its own aggregation and spam filter; their state ends with the process.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    clock: Clock,
    reports: mpsc::Sender<Report>,
    full: IntCounter,
    /// Stops accepting reports; queued Events are still written.
    stop: CancellationToken,
    /// Stops the worker at once.
    abandon: CancellationToken,
    /// The worker has stopped.
    ended: CancellationToken,
}

impl Recorder {
    /// Starts the worker of a new recorder.
    #[must_use]
    pub fn new(deps: Deps) -> Self {
        let Deps { api, clock, mut rng, spawner, metrics, component, host } = deps;
        let dropped = metrics.counters(
            "mini_kcm_events_dropped_total",
            "Events that were not written: the channel was full, the spam filter had enough, the write failed, or the \
             recorder was stopped.",
            &["component", "cause"],
        );
        let dropped = |cause| dropped.with_label_values(&[component.as_str(), cause]);
        let (full, spam) = (dropped("full"), dropped("spam"));
        let (failed, stopped) = (dropped("failed"), dropped("stopped"));
        let (reports, inbox) = mpsc::channel(WAITING);
        let (stop, abandon, ended) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let span = tracing::info_span!("events", controller = component);
        let worker = Worker {
            correlator: Correlator::new(Source { component, host }, rng.fork()),
            outbox: Outbox::new(rng),
            inbox,
            api,
            clock: clock.clone(),
            stop: stop.clone(),
            abandon: abandon.clone(),
            spam,
            failed,
            stopped,
        };
        let ends = ended.clone().drop_guard();
        // If the scope is gone, the future and its guard are dropped at once, so that `flush` does not wait for ever.
        let work = async move {
            let _ends = ends;
            worker.run().await;
        };
        spawner.spawn("event recorder", work.instrument(span));
        Self(Arc::new(Inner { clock, reports, full, stop, abandon, ended }))
    }

    /// Reports something about `object`. Dropped, and counted, when too much is waiting.
    pub fn event(&self, object: &ObjectReference, type_: Type, reason: &str, message: String) {
        let Inner { clock, reports, full, .. } = &*self.0;
        let (wall, at) = (clock.wall(), clock.now());
        let ObjectReference { api_version, kind, namespace, name, .. } = object;
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        tracing::debug!(
            target: "v3",
            object = namespace.iter().chain(name).cloned().collect::<Vec<_>>().join("/"),
            kind = text(kind),
            apiVersion = text(api_version),
            r#type = type_.as_str(),
            reason,
            note = message.as_str(),
            "Event occurred",
        );
        let report = Report { object: object.clone(), type_, reason: reason.to_owned(), message, wall, at };
        if reports.try_send(report).is_err() {
            full.inc();
        }
    }

    /// Takes no more events, writes what is due and ends the worker; after `limit` at the latest. Waiting retries are
    /// given up, and counted like everything that `limit` cuts off.
    pub async fn flush(&self, limit: Duration) {
        self.0.stop.cancel();
        if tokio::time::timeout(limit, self.0.ended.cancelled()).await.is_err() {
            self.0.abandon.cancel();
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}
