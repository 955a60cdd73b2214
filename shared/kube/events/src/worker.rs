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
    outbox::{Letter, Outbox, Settled, Verb},
    recorder::Report,
};

/// Writes the reports of the channel to the server, one write at a time.
pub(crate) struct Worker {
    pub(crate) correlator: Correlator,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: mpsc::Receiver<Report>,
    pub(crate) api: Api,
    pub(crate) clock: Clock,
    /// Stops the acceptance of reports. Events that are due are still written.
    pub(crate) stop: CancellationToken,
    /// Stops the worker at once.
    pub(crate) abandon: CancellationToken,
    pub(crate) spam: IntCounter,
    pub(crate) failed: IntCounter,
    pub(crate) stopped: IntCounter,
}

impl Worker {
    /// Runs until it is stopped or all recorders are dropped. Then it writes what is due, unless it was abandoned, and
    /// ends. Unwritten events are counted.
    pub(crate) async fn run(mut self) {
        let resource = Resource::namespaced("", "v1", "events", "Event");
        let mut stopping = false;
        loop {
            stopping |= self.stop.is_cancelled();
            if stopping {
                self.inbox.close();
            }
            // All waiting reports are taken before each write, so that repeated events are merged into one request.
            while self.outbox.has_room()
                && let Ok(report) = self.inbox.try_recv()
            {
                self.take(report);
            }
            if let Some(letter) = self.outbox.due(self.clock.now()) {
                let result = tokio::select! {
                    biased;
                    // The write may or may not be stored. Its response is no longer awaited.
                    () = self.abandon.cancelled() => return self.leave(1),
                    result = write(&self.api, &resource, &letter) => result,
                };
                self.settle(letter, &result);
                continue;
            }
            if stopping {
                return self.leave(0);
            }
            stopping = self.wait().await;
        }
    }

    /// Waits for something to do; returns true if the worker must stop.
    async fn wait(&mut self) -> bool {
        let deadline = self.outbox.next_deadline();
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
            report = self.inbox.recv(), if self.outbox.has_room() => report,
        };
        let Some(report) = report else { return true };
        self.take(report);
        false
    }

    /// Counts what is lost with the worker, in addition to `sent` writes without a response: waiting retries, and
    /// reports in the channel behind them.
    fn leave(&mut self, sent: usize) {
        let mut left = sent + self.outbox.len();
        self.inbox.close();
        while self.inbox.try_recv().is_ok() {
            left += 1;
        }
        if left > 0 {
            self.stopped.inc_by(left as u64);
            debug!(left, "Events were not written before the end");
        }
    }

    fn take(&mut self, report: Report) {
        match self.correlator.observe(report) {
            Some(event) => self.outbox.observe(event, self.clock.now()),
            None => self.spam.inc(),
        }
    }

    fn settle(&mut self, letter: Letter, result: &Result<(), ApiError>) {
        let event = letter.event.metadata.name.clone().unwrap_or_default();
        let settled = self.outbox.settle(letter, result, self.clock.now());
        let Err(err) = result else { return };
        match settled {
            Settled::Written | Settled::Again => {
                debug!(%err, event, ?settled, "A try to write an event failed")
            }
            Settled::Dropped => {
                self.failed.inc();
                debug!(%err, event, "An event was dropped");
            }
            Settled::Failed => {
                self.failed.inc();
                error!(%err, event, "Unable to write event: it is given up");
            }
        }
    }
}

async fn write(api: &Api, resource: &Resource, letter: &Letter) -> Result<(), ApiError> {
    let Event { metadata, count, last_timestamp, message, .. } = &letter.event;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let written = match letter.verb {
        Verb::Create => api.create(resource, namespace, &letter.event).await,
        Verb::Patch => {
            let change = json!({ "count": count, "lastTimestamp": last_timestamp, "message": message });
            api.patch(resource, namespace, name, None, &Patch::Strategic(change)).await
        }
    };
    written.map(drop)
}
