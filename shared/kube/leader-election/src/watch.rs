use std::time::Duration;

use client::{ApiError, Watcher};
use clock::Clock;
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedSender;

use crate::{Config, config::leases, machine::LeaseEvent, record::Lease};

/// The minimum `timeoutSeconds` of a watch, and the maximum that is added at random.
const TIMEOUT_SECONDS: (u64, u64) = (60, 15);

/// A watch that is still open this long after its timeout is considered broken.
const FROZEN: Duration = Duration::from_secs(10);

/// A watch that ends sooner than this counts as a failure, even if the server ended it without an error.
const MIN_DURATION: Duration = Duration::from_secs(1);

/// The first and the maximum pause before the next watch. Each failure doubles the pause.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The pause after a 403: the permission may be granted meanwhile.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// The maximum number of watch events in one read.
const BATCH: usize = 16;

/// Watches the Lease in addition to the polling, so that a release is observed at once. This is only a hint: leader
/// election also works without it.
pub(crate) struct LeaseWatch {
    pub(crate) watcher: Watcher,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) lease_events: UnboundedSender<LeaseEvent>,
    /// The path of the collection, with the field selector.
    path: String,
    backoff: WatchBackoff,
}

/// When to start the next watch.
#[derive(Default)]
struct WatchBackoff {
    failures: u32,
    /// True after a refusal was logged. It is logged again only after a watch has succeeded.
    warned: bool,
}

enum WatchEnd {
    /// The server ended the watch without an error.
    Clean,
    /// The server refused the watch.
    Refused(ApiError),
    Broken(String),
}

#[derive(Deserialize)]
struct LeaseFrame {
    #[serde(rename = "type")]
    event: String,
    object: Map<String, Value>,
}

impl LeaseWatch {
    pub(crate) fn new(
        config: &Config,
        watcher: Watcher,
        clock: Clock,
        rng: Rng,
        lease_events: UnboundedSender<LeaseEvent>,
    ) -> Self {
        // Without a resourceVersion the watch begins with the current state. So no change between two watches is
        // missed, and no resourceVersion can be too old.
        let collection = leases().collection(Some(&config.namespace));
        let path = format!("{collection}?watch=true&fieldSelector=metadata.name%3D{}", config.name);
        Self { watcher, clock, rng, lease_events, path, backoff: WatchBackoff::default() }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let opened = self.clock.now();
            let timeout = Duration::from_secs(TIMEOUT_SECONDS.0 + self.rng.u64(..=TIMEOUT_SECONDS.1));
            let end = match tokio::time::timeout(timeout + FROZEN, self.stream(timeout)).await {
                Ok(end) => end,
                Err(_) => WatchEnd::Broken(format!("silent for {FROZEN:?} after its timeout")),
            };
            let short = self.clock.now().saturating_duration_since(opened) < MIN_DURATION;
            tokio::time::sleep(self.backoff.pause(end, short, &mut self.rng)).await;
        }
    }

    /// Runs one watch until it ends.
    async fn stream(&mut self, timeout: Duration) -> WatchEnd {
        let path = format!("{}&timeoutSeconds={}", self.path, timeout.as_secs());
        let mut lines = match self.watcher.watch(&path, "application/json").await {
            Ok(lines) => lines,
            Err(err @ (ApiError::Refused(_) | ApiError::NotFound(_) | ApiError::Invalid(_))) => {
                return WatchEnd::Refused(err);
            }
            Err(err) => return WatchEnd::Broken(err.to_string()),
        };
        while let Some(batch) = lines.next_batch(BATCH).await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(err) => return WatchEnd::Broken(err.to_string()),
            };
            for line in batch {
                match lease_event(&line) {
                    // Sending fails only if the driver has ended; then this task ends soon too.
                    Ok(event) => drop(event.map(|it| self.lease_events.send(it))),
                    Err(why) => return WatchEnd::Broken(why),
                }
            }
            self.backoff = WatchBackoff::default();
        }
        WatchEnd::Clean
    }
}

impl WatchBackoff {
    /// The pause before the next watch.
    fn pause(&mut self, end: WatchEnd, short: bool, rng: &mut Rng) -> Duration {
        match end {
            WatchEnd::Clean if !short => return Duration::ZERO,
            WatchEnd::Clean => {}
            WatchEnd::Refused(err) => {
                if !self.warned {
                    self.warned = true;
                    tracing::warn!(%err, "Cannot watch the lease: a release is detected only by polling");
                }
                return REFUSED_PAUSE;
            }
            WatchEnd::Broken(why) => tracing::debug!(err = why, "The watch of the lease broke"),
        }
        let doubled = PAUSES.0.saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = (self.failures + 1).min(16);
        doubled.min(PAUSES.1).mul_f64(1.0 + rng.f64())
    }
}

/// The event in a watch frame; `None` if the frame has no Lease.
fn lease_event(line: &[u8]) -> Result<Option<LeaseEvent>, String> {
    let frame: LeaseFrame = serde_json::from_slice(line).map_err(|err| format!("a frame does not decode: {err}"))?;
    let lease =
        |object| Lease::from_object(object).map(Box::new).map_err(|err| format!("the lease does not decode: {err}"));
    match frame.event.as_str() {
        "ADDED" | "MODIFIED" => lease(frame.object).map(|it| Some(LeaseEvent::Current(it))),
        "DELETED" => lease(frame.object).map(|it| Some(LeaseEvent::Deleted(it))),
        "ERROR" => Err(Value::Object(frame.object).to_string()),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_double_the_pause_and_a_refused_watch_is_retried_each_minute() {
        let mut rng = Rng::with_seed(1);
        let mut backoff = WatchBackoff::default();
        let mut pause = |end, short| backoff.pause(end, short, &mut rng).as_secs_f64();
        let broken = || WatchEnd::Broken("cut".to_owned());
        assert_eq!(pause(WatchEnd::Clean, false), 0.0);
        for least in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let got = pause(broken(), false);
            assert!((least..=2.0 * least).contains(&got), "{least}: {got}");
        }
        assert!(pause(WatchEnd::Clean, true) >= 30.0, "one that ends at once is a failure");
        let forbidden = ApiError::from_status(api::Status { code: 403, ..api::Status::default() }, None);
        assert_eq!(pause(WatchEnd::Refused(forbidden), true), 60.0);
    }

    #[test]
    fn frame_is_a_lease_event_or_ends_the_watch() {
        let of = |event: &str| {
            let frame =
                format!(r#"{{"type":"{event}","object":{{"metadata":{{"resourceVersion":"7"}},"spec":{{}}}}}}"#);
            lease_event(frame.as_bytes())
        };
        assert!(matches!(of("ADDED"), Ok(Some(LeaseEvent::Current(it))) if it.version == 7.into()));
        assert!(matches!(of("MODIFIED"), Ok(Some(LeaseEvent::Current(_)))));
        assert!(matches!(of("DELETED"), Ok(Some(LeaseEvent::Deleted(_)))));
        assert!(matches!(of("BOOKMARK"), Ok(None)));
        assert!(of("ERROR").is_err() && lease_event(b"{").is_err());
        assert!(lease_event(br#"{"type":"ADDED","object":{"spec":{"holderIdentity":1}}}"#).is_err());
    }
}
