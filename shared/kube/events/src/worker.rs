use api::Resource;
use client::{Api, ApiError, Patch};
use clock::Clock;
use k8s_openapi::api::core::v1::Event;
use metrics::IntCounter;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    correlator::Correlator,
    report::Report,
    write_queue::{AttemptOutcome, QueuedEvent, Verb, WriteQueue},
};

/// Writes the reports of the channel to the server, one write at a time.
pub(crate) struct Worker {
    pub(crate) correlator: Correlator,
    pub(crate) write_queue: WriteQueue,
    pub(crate) reports: mpsc::Receiver<Report>,
    pub(crate) api: Api,
    pub(crate) clock: Clock,
    /// Stops the acceptance of reports. Events that are due are still written.
    pub(crate) stop: CancellationToken,
    /// Stops the worker at once.
    pub(crate) abort: CancellationToken,
    pub(crate) spam: IntCounter,
    pub(crate) failed: IntCounter,
    pub(crate) stopped: IntCounter,
}

impl Worker {
    /// Runs until it is stopped or all recorders are dropped. Then it writes what is due, unless it was aborted, and
    /// ends. Unwritten events are counted.
    pub(crate) async fn run(mut self) {
        let resource = Resource::namespaced("", "v1", "events", "Event");
        let mut stopping = false;
        loop {
            stopping |= self.stop.is_cancelled();
            if stopping {
                self.reports.close();
            }
            // All waiting reports are taken before each write, so that repeated events are merged into one request.
            while self.write_queue.has_capacity()
                && let Ok(report) = self.reports.try_recv()
            {
                self.accept(report);
            }
            if let Some(queued) = self.write_queue.take_due(self.clock.now()) {
                let result = tokio::select! {
                    biased;
                    // The write may or may not be stored. Its response is no longer awaited.
                    () = self.abort.cancelled() => return self.count_unwritten(1),
                    result = write(&self.api, &resource, &queued) => result,
                };
                self.finish_attempt(queued, &result);
                continue;
            }
            if stopping {
                return self.count_unwritten(0);
            }
            stopping = self.wait().await;
        }
    }

    /// Waits for something to do; returns true if the worker must stop.
    async fn wait(&mut self) -> bool {
        let deadline = self.write_queue.next_deadline();
        let retry = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let report = tokio::select! {
            biased;
            () = self.stop.cancelled() => return true,
            () = retry => return false,
            report = self.reports.recv(), if self.write_queue.has_capacity() => report,
        };
        let Some(report) = report else { return true };
        self.accept(report);
        false
    }

    /// Counts what is lost with the worker, in addition to `sent` writes without a response: waiting retries, and
    /// reports in the channel behind them.
    fn count_unwritten(&mut self, sent: usize) {
        let mut unwritten = sent + self.write_queue.len();
        self.reports.close();
        while self.reports.try_recv().is_ok() {
            unwritten += 1;
        }
        if unwritten > 0 {
            self.stopped.inc_by(unwritten as u64);
            debug!(unwritten, "Events were not written before the end");
        }
    }

    fn accept(&mut self, report: Report) {
        match self.correlator.observe(report) {
            Some(event) => self.write_queue.add(event, self.clock.now()),
            None => self.spam.inc(),
        }
    }

    fn finish_attempt(&mut self, queued: QueuedEvent, result: &Result<(), ApiError>) {
        let event = queued.event.metadata.name.clone().unwrap_or_default();
        let outcome = self.write_queue.finish_attempt(queued, result, self.clock.now());
        let Err(err) = result else { return };
        match outcome {
            AttemptOutcome::Written | AttemptOutcome::Retry => {
                debug!(%err, event, ?outcome, "A try to write an event failed")
            }
            AttemptOutcome::Dropped => {
                self.failed.inc();
                debug!(%err, event, "An event was dropped");
            }
            AttemptOutcome::Failed => {
                self.failed.inc();
                error!(%err, event, "Unable to write event: it is given up");
            }
        }
    }
}

async fn write(api: &Api, resource: &Resource, queued: &QueuedEvent) -> Result<(), ApiError> {
    let Event { metadata, count, last_timestamp, message, .. } = &queued.event;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let written = match queued.verb {
        Verb::Create => api.create(resource, namespace, &queued.event).await,
        Verb::Patch => {
            let change = json!({ "count": count, "lastTimestamp": last_timestamp, "message": message });
            api.patch(resource, namespace, name, None, &Patch::Strategic(change)).await
        }
    };
    written.map(drop)
}
