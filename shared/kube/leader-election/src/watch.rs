use std::time::Duration;

use client::{ApiError, Watcher};
use clock::Clock;
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedSender;

use crate::{Config, config::leases, machine::Notice, record::Lease};

/// The minimum `timeoutSeconds` of a watch, and the maximum that is added at random.
const LIFE: (u64, u64) = (60, 15);

/// A watch that is still open this long after its timeout is considered broken.
const FROZEN: Duration = Duration::from_secs(10);

/// A watch that ends sooner than this counts as a failure, even if the server ended it without an error.
const SHORT: Duration = Duration::from_secs(1);

/// The first and the maximum pause before the next watch. Each failure doubles the pause.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The pause after a 403: the permission may be granted meanwhile.
const REFUSED: Duration = Duration::from_secs(60);

/// The maximum number of watch events in one read.
const BATCH: usize = 16;

/// Watches the Lease in addition to the polling, so that a release is observed at once. This is only a hint: leader
/// election also works without it.
pub(crate) struct LeaseWatch {
    pub(crate) watcher: Watcher,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) notices: UnboundedSender<Notice>,
    /// The path of the collection, with the field selector.
    path: String,
    pace: Pace,
}

/// When to start the next watch.
#[derive(Default)]
struct Pace {
    failures: u32,
    /// True after a refusal was logged. It is logged again only after a watch has succeeded.
    warned: bool,
}

enum End {
    /// The server ended the watch without an error.
    Clean,
    /// The server refused the watch.
    Refused(ApiError),
    Broken(String),
}

#[derive(Deserialize)]
struct Frame {
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
        notices: UnboundedSender<Notice>,
    ) -> Self {
        // Without a resourceVersion the watch begins with the current state. So no change between two watches is
        // missed, and no resourceVersion can be too old.
        let collection = leases().collection(Some(&config.namespace));
        let path = format!("{collection}?watch=true&fieldSelector=metadata.name%3D{}", config.name);
        Self { watcher, clock, rng, notices, path, pace: Pace::default() }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let opened = self.clock.now();
            let life = Duration::from_secs(LIFE.0 + self.rng.u64(..=LIFE.1));
            let end = match tokio::time::timeout(life + FROZEN, self.stream(life)).await {
                Ok(end) => end,
                Err(_) => End::Broken(format!("silent for {FROZEN:?} beyond its time")),
            };
            let short = self.clock.now().saturating_duration_since(opened) < SHORT;
            tokio::time::sleep(self.pace.pause(end, short, &mut self.rng)).await;
        }
    }

    /// Runs one watch until it ends.
    async fn stream(&mut self, life: Duration) -> End {
        let path = format!("{}&timeoutSeconds={}", self.path, life.as_secs());
        let mut lines = match self.watcher.watch(&path, "application/json").await {
            Ok(lines) => lines,
            Err(err @ (ApiError::Refused(_) | ApiError::NotFound(_) | ApiError::Invalid(_))) => {
                return End::Refused(err);
            }
            Err(err) => return End::Broken(err.to_string()),
        };
        while let Some(batch) = lines.next_batch(BATCH).await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(err) => return End::Broken(err.to_string()),
            };
            for line in batch {
                match notice(&line) {
                    // Sending fails only if the driver has ended; then this task ends soon too.
                    Ok(notice) => drop(notice.map(|it| self.notices.send(it))),
                    Err(why) => return End::Broken(why),
                }
            }
            self.pace = Pace::default();
        }
        End::Clean
    }
}

impl Pace {
    /// The pause before the next watch.
    fn pause(&mut self, end: End, short: bool, rng: &mut Rng) -> Duration {
        match end {
            End::Clean if !short => return Duration::ZERO,
            End::Clean => {}
            End::Refused(err) => {
                if !self.warned {
                    self.warned = true;
                    tracing::warn!(%err, "Cannot watch the lease: a release is noticed by polling only");
                }
                return REFUSED;
            }
            End::Broken(why) => tracing::debug!(err = why, "The watch of the lease broke"),
        }
        let doubled = PAUSES.0.saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = (self.failures + 1).min(16);
        doubled.min(PAUSES.1).mul_f64(1.0 + rng.f64())
    }
}

/// The notice in a watch event; `None` if the event has no Lease.
fn notice(line: &[u8]) -> Result<Option<Notice>, String> {
    let frame: Frame = serde_json::from_slice(line).map_err(|err| format!("a frame does not decode: {err}"))?;
    let lease =
        |object| Lease::from_object(object).map(Box::new).map_err(|err| format!("the lease does not decode: {err}"));
    match frame.event.as_str() {
        "ADDED" | "MODIFIED" => lease(frame.object).map(|it| Some(Notice::Seen(it))),
        "DELETED" => lease(frame.object).map(|it| Some(Notice::Deleted(it))),
        "ERROR" => Err(Value::Object(frame.object).to_string()),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_double_the_pause_and_a_refusal_is_asked_again_each_minute() {
        let mut rng = Rng::with_seed(1);
        let mut pace = Pace::default();
        let mut pause = |end, short| pace.pause(end, short, &mut rng).as_secs_f64();
        let broken = || End::Broken("cut".to_owned());
        assert_eq!(pause(End::Clean, false), 0.0);
        for least in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let got = pause(broken(), false);
            assert!((least..=2.0 * least).contains(&got), "{least}: {got}");
        }
        assert!(pause(End::Clean, true) >= 30.0, "one that ends at once is a failure");
        let forbidden = ApiError::from_status(api::Status { code: 403, ..api::Status::default() }, None);
        assert_eq!(pause(End::Refused(forbidden), true), 60.0);
    }

    #[test]
    fn a_frame_says_what_became_of_the_lease_or_ends_the_watch() {
        let of = |event: &str| {
            let frame =
                format!(r#"{{"type":"{event}","object":{{"metadata":{{"resourceVersion":"7"}},"spec":{{}}}}}}"#);
            notice(frame.as_bytes())
        };
        assert!(matches!(of("ADDED"), Ok(Some(Notice::Seen(it))) if it.version == 7.into()));
        assert!(matches!(of("MODIFIED"), Ok(Some(Notice::Seen(_)))));
        assert!(matches!(of("DELETED"), Ok(Some(Notice::Deleted(_)))));
        assert!(matches!(of("BOOKMARK"), Ok(None)));
        assert!(of("ERROR").is_err() && notice(b"{").is_err());
        assert!(notice(br#"{"type":"ADDED","object":{"spec":{"holderIdentity":1}}}"#).is_err());
    }
}
