use std::{fmt, sync::Arc, time::Duration};

use client::Api;
use clock::Clock;
use fastrand::Rng;
use k8s_openapi::api::core::v1::ObjectReference;
use metrics::{IntCounter, Metrics};
use tasks::Spawner;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    correlator::{Correlator, ReportingComponent},
    report::{EventType, Report},
    worker::Worker,
    write_queue::WriteQueue,
};

/// The maximum number of reports that wait for the worker.
const CHANNEL_CAPACITY: usize = 1000;

/// The dependencies of a recorder.
pub struct Deps {
    /// Writes the Events. It is fenced and has the rate limit of the controller.
    pub api: Api,
    /// The clock.
    pub clock: Clock,
    /// For the first pause of a retry, and for random names.
    pub rng: Rng,
    /// Starts the worker.
    pub spawner: Spawner,
    /// The registry of the counter of dropped events.
    pub metrics: Metrics,
    /// The reporting component, for example `job-controller`.
    pub component: String,
    /// The host of the component; may be empty.
    pub host: String,
}

/// Reports the events of one controller; cheap to clone. Callers never wait for the write.
///
/// Each recorder has its own aggregation and spam filter, which are kept only in memory.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    clock: Clock,
    reports: mpsc::Sender<Report>,
    full: IntCounter,
    /// Stops the acceptance of reports. Events in the queue are still written.
    stop: CancellationToken,
    /// Stops the worker at once.
    abort: CancellationToken,
    /// Cancelled when the worker has stopped.
    ended: CancellationToken,
}

impl Recorder {
    /// Starts the worker of a new recorder.
    #[must_use]
    pub fn new(deps: Deps) -> Self {
        let Deps { api, clock, mut rng, spawner, metrics, component, host } = deps;
        let dropped = metrics.counters(
            "mini_kcm_events_dropped_total",
            "Events that were not written: the channel was full, the spam filter limit was reached, the write failed, \
             or the recorder was stopped.",
            &["component", "cause"],
        );
        let dropped = |cause| dropped.with_label_values(&[component.as_str(), cause]);
        let (full, spam) = (dropped("full"), dropped("spam"));
        let (failed, stopped) = (dropped("failed"), dropped("stopped"));
        let (report_sender, reports) = mpsc::channel(CHANNEL_CAPACITY);
        let (stop, abort, ended) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let span = tracing::info_span!("events", controller = component);
        let worker = Worker {
            correlator: Correlator::new(ReportingComponent { component, host }, rng.fork()),
            write_queue: WriteQueue::new(rng),
            reports,
            api,
            clock: clock.clone(),
            stop: stop.clone(),
            abort: abort.clone(),
            spam,
            failed,
            stopped,
        };
        let ended_guard = ended.clone().drop_guard();
        // If the scope has ended, the future and its guard are dropped at once, so that `flush` does not wait for ever.
        let work = async move {
            let _ended_guard = ended_guard;
            worker.run().await;
        };
        spawner.spawn("event recorder", work.instrument(span));
        Self(Arc::new(Inner { clock, reports: report_sender, full, stop, abort, ended }))
    }

    /// Reports an event of `object`. If too many reports are waiting, it is dropped and counted.
    pub fn event(&self, object: &ObjectReference, type_: EventType, reason: &str, message: String) {
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

    /// Accepts no more events, writes those that are due and stops the worker, at the latest after `limit`. Waiting
    /// retries are dropped. They are counted, as is everything that `limit` cuts off.
    pub async fn flush(&self, limit: Duration) {
        self.0.stop.cancel();
        if tokio::time::timeout(limit, self.0.ended.cancelled()).await.is_err() {
            self.0.abort.cancel();
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}
