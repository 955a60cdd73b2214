//! Exec plugins of a kubeconfig (client.authentication.k8s.io).
//!
//! The implementation of kube is not used: it runs the plugin again for each pool, repeats its output in errors, and
//! does not run it again when a certificate has expired.
//!
//! Reading order: `invocation` is the input, `answer` parses the output (`validity` of its certificate), `run` is the
//! process, and this file keeps the credential until it expires or is refused. A plugin may be slow: it runs before the
//! credential expires, so that the Lease can still be renewed.

mod answer;
mod invocation;
mod run;
mod validity;

use std::{fmt, sync::Arc, time::Duration};

use clock::{Clock, Instant, Timestamp};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::HeaderValue;
use kube::config::ExecConfig;
use metrics::{HistogramVec, IntCounterVec, Metrics};
use parking_lot::Mutex;
use rustls::{client::ResolvesClientCert, sign::SingleCertAndKey};
use tasks::Spawner;

use self::{answer::Credential, invocation::Invocation, validity::Validity};
use crate::{
    ApiError, ConfigError, NotSent,
    layers::{Shown, Tokens},
};

/// A plugin that failed, or that returned an expired credential, is not run again within this time.
const AGAIN: Duration = Duration::from_secs(1);
/// A new credential is not requested if the present one is younger than this: not when it is refused, and not near its
/// end, because the plugin may return the same one until then. A plugin that failed less than this ago is not run ahead
/// of time.
const FRESH: Duration = Duration::from_secs(10);
/// The percentage of a credential's lifetime that is left when a new one is requested.
const LEEWAY: u32 = 20;
/// The buckets of upstream in seconds, from ten minutes to four years.
const AGES: &[f64] = &[
    600.0,
    1_800.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// The plugins of one process; cheap to clone. Kubeconfigs with the same plugin share it, as in client-go.
#[derive(Clone)]
pub struct Plugins {
    metrics: Metrics,
    known: Arc<Mutex<Vec<Plugin>>>,
}

/// The plugin of a kubeconfig; cheap to clone. Only one process of it runs at a time, and all connections share its
/// credential.
#[derive(Clone)]
pub(crate) struct Plugin(Arc<Inner>);

struct Inner {
    invocation: Invocation,
    clock: Clock,
    spawner: Spawner,
    calls: IntCounterVec,
    ages: HistogramVec,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Arc<Held>>,
    /// The current run, which all callers wait for.
    asking: Option<Asking>,
    /// The last failure and its time.
    failed: Option<(Instant, Arc<str>)>,
}

impl State {
    /// The error of the plugin, if it failed within this time.
    fn failure(&self, now: Instant, within: Duration) -> Option<Arc<str>> {
        let (at, why) = self.failed.as_ref()?;
        (now.saturating_duration_since(*at) < within).then(|| why.clone())
    }
}

type Asking = Shared<BoxFuture<'static, Result<Arc<Held>, Arc<str>>>>;

/// A credential that the plugin returned.
pub(crate) struct Held {
    token: Option<HeaderValue>,
    ends: Option<Timestamp>,
    /// When a new credential is requested. This one is used in the meantime.
    renew: Option<Timestamp>,
    /// Distinguishes it from its predecessor.
    serial: u64,
    since: Instant,
    certificate: Option<Certified>,
    /// Distinguishes its certificate from the previous one; 0 if there was never a certificate.
    pub(crate) certificate_serial: u64,
}

#[derive(Clone)]
struct Certified {
    resolver: Arc<SingleCertAndKey>,
    leaf: Vec<u8>,
    validity: Validity,
}

impl Held {
    /// The client certificate for a TLS connection.
    pub(crate) fn certificate(&self) -> Option<Arc<dyn ResolvesClientCert>> {
        self.certificate.as_ref().map(|it| it.resolver.clone() as Arc<dyn ResolvesClientCert>)
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Plugins").finish_non_exhaustive()
    }
}

impl Plugins {
    /// No plugins yet. Their metrics are registered in `metrics`.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), known: Arc::default() }
    }

    /// The plugin of a kubeconfig. It is not run before the first request.
    ///
    /// # Errors
    /// The error names the field.
    pub(crate) fn plugin(&self, exec: &ExecConfig, clock: &Clock, spawner: &Spawner) -> Result<Plugin, ConfigError> {
        let invocation = Invocation::of(exec)?;
        let mut known = self.known.lock();
        if let Some(plugin) = known.iter().find(|it| it.0.invocation == invocation) {
            return Ok(plugin.clone());
        }
        if known.is_empty() {
            self.show_life();
        }
        let plugin = Plugin::new(invocation, clock.clone(), spawner.clone(), &self.metrics);
        known.push(plugin.clone());
        Ok(plugin)
    }

    fn show_life(&self) {
        let life = self.metrics.float_gauges(
            "rest_client_exec_plugin_ttl_seconds",
            "[ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec \
             plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec \
             plugins are unused or manage no TLS certificates, the value will be +INF.",
            &[],
        );
        let known = self.known.clone();
        self.metrics.before_encode(move || {
            let shortest = known.lock().iter().filter_map(Plugin::life).fold(f64::INFINITY, f64::min);
            life.with_label_values::<&str>(&[]).set(shortest);
        });
    }
}

impl Plugin {
    fn new(invocation: Invocation, clock: Clock, spawner: Spawner, metrics: &Metrics) -> Self {
        let calls = metrics.counters(
            "rest_client_exec_plugin_call_total",
            "[ALPHA] Number of calls to an exec plugin, partitioned by the type of event encountered (no_error, \
             plugin_execution_error, plugin_not_found_error, client_internal_error) and an optional exit code. The \
             exit code will be set to 0 if and only if the plugin call was successful.",
            &["code", "call_status"],
        );
        let ages = metrics.histograms(
            "rest_client_exec_plugin_certificate_rotation_age",
            "[ALPHA] Histogram of the number of seconds the last auth exec plugin client certificate lived before \
             being rotated. If auth exec plugin client certificates are unused, histogram will contain no data.",
            &[],
            AGES,
        );
        Self(Arc::new(Inner { invocation, clock, spawner, calls, ages, state: Mutex::default() }))
    }

    /// Seconds until its certificate expires, if it has one.
    fn life(&self) -> Option<f64> {
        let ends = self.0.state.lock().held.as_ref()?.certificate.as_ref()?.validity.ends;
        Some(ends.duration_since(self.0.clock.wall()).as_secs_f64())
    }

    /// The credential that is valid now. Near its end a new one is requested, and this one is still returned.
    ///
    /// # Errors
    /// The error names the command.
    pub(crate) async fn credential(&self) -> Result<Arc<Held>, Arc<str>> {
        let asking = {
            let mut state = self.0.state.lock();
            let (wall, now) = (self.0.clock.wall(), self.0.clock.now());
            let age = |held: &Held| now.saturating_duration_since(held.since);
            if let Some(held) = state.held.clone() {
                let ended = held.ends.is_some_and(|it| it <= wall);
                let due = held.renew.is_some_and(|it| it <= wall) && age(&held) >= FRESH;
                if !ended && due && state.failure(now, FRESH).is_none() {
                    // The run continues in its own task.
                    drop(self.asking(&mut state));
                }
                if !ended || age(&held) < AGAIN {
                    return Ok(held);
                }
            }
            if let Some(why) = state.failure(now, AGAIN) {
                return Err(why);
            }
            self.asking(&mut state)
        };
        asking.await
    }

    /// The serial of the certificate that new connections use.
    pub(crate) fn certificate_serial(&self) -> u64 {
        self.0.state.lock().held.as_ref().map_or(0, |it| it.certificate_serial)
    }

    /// Joins the current run or starts one. It continues when a caller stops waiting.
    fn asking(&self, state: &mut State) -> Asking {
        if let Some(asking) = &state.asking {
            return asking.clone();
        }
        let plugin = self.clone();
        let asking = async move { plugin.ask().await }.boxed().shared();
        state.asking = Some(asking.clone());
        self.0.spawner.spawn("exec plugin", asking.clone().map(drop));
        asking
    }

    async fn ask(&self) -> Result<Arc<Held>, Arc<str>> {
        let Inner { invocation, clock, calls, .. } = &*self.0;
        let answer = match run::run(invocation).await {
            Ok(written) => {
                calls.with_label_values(&["0", "no_error"]).inc();
                answer::read(invocation.version, &written).map_err(|why| format!("its answer {why}"))
            }
            Err(failed) => {
                calls.with_label_values(&[&*failed.code.to_string(), failed.status]).inc();
                Err(failed.why)
            }
        };
        let mut state = self.0.state.lock();
        state.asking = None;
        match answer {
            Ok(credential) => {
                state.failed = None;
                Ok(self.hold(&mut state, credential))
            }
            Err(why) => {
                let why: Arc<str> = format!("exec plugin {:?}: {why}", invocation.command).into();
                tracing::warn!(%why, "no credential");
                state.failed = Some((clock.now(), why.clone()));
                Err(why)
            }
        }
    }

    fn hold(&self, state: &mut State, credential: Credential) -> Arc<Held> {
        let Credential { token, certificate, ends } = credential;
        let certificate = certificate.map(|it| Certified {
            leaf: it.key.cert.first().map(|it| it.to_vec()).unwrap_or_default(),
            validity: it.validity,
            resolver: Arc::new(SingleCertAndKey::from(it.key)),
        });
        let before = state.held.take();
        let old = before.as_ref().and_then(|it| it.certificate.as_ref());
        let same = old.map(|it| &it.leaf) == certificate.as_ref().map(|it| &it.leaf);
        if let Some(old) = old.filter(|_| !same) {
            let age = self.0.clock.wall().duration_since(old.validity.begins).as_secs_f64();
            self.0.ages.with_label_values::<&str>(&[]).observe(age);
            tracing::info!("the plugin gave another certificate: new connections use it");
        }
        let number = before.as_ref().map_or(0, |it| it.certificate_serial);
        let now = self.0.clock.wall();
        let held = Arc::new(Held {
            token,
            ends,
            renew: ends.map(|it| renewal(now, it)),
            serial: before.as_ref().map_or(0, |it| it.serial) + 1,
            since: self.0.clock.now(),
            certificate,
            certificate_serial: if same { number } else { number + 1 },
        });
        state.held = Some(held.clone());
        held
    }
}

impl Tokens for Plugin {
    fn token(&self) -> BoxFuture<'_, Result<Shown, ApiError>> {
        Box::pin(async move {
            let held = self.credential().await;
            let held = held.map_err(|why| ApiError::NotSent(NotSent::Unidentified(why.to_string())))?;
            Ok(Shown { value: held.token.clone(), serial: held.serial })
        })
    }

    fn refused(&self, serial: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let asking = {
                let mut state = self.0.state.lock();
                let (now, held) = (self.0.clock.now(), state.held.clone());
                if held.as_ref().is_some_and(|it| it.serial != serial) {
                    return true;
                }
                let young = held.is_some_and(|it| now.saturating_duration_since(it.since) < FRESH);
                if young || state.failure(now, FRESH).is_some() {
                    return false;
                }
                self.asking(&mut state)
            };
            asking.await.is_ok()
        })
    }
}

/// When a credential that was received at `now` is renewed.
fn renewal(now: Timestamp, ends: Timestamp) -> Timestamp {
    let life = Duration::try_from(ends.duration_since(now)).unwrap_or_default();
    now.checked_add(life * (100 - LEEWAY) / 100).unwrap_or(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_a_life_is_left_when_it_is_renewed() {
        let at = |time: &str| format!("2026-01-01T{time}Z").parse::<Timestamp>().unwrap();
        for (name, now, ends, want) in [
            ("an hour", "00:00:00", "01:00:00", "00:48:00"),
            ("none", "01:00:00", "01:00:00", "01:00:00"),
            ("ended before it came", "02:00:00", "01:00:00", "02:00:00"),
        ] {
            assert_eq!(renewal(at(now), at(ends)), at(want), "{name}");
        }
    }

    #[tokio::test]
    async fn kubeconfigs_that_name_one_plugin_share_it() {
        let (scope, clock) = (tasks::Scope::new(), Clock::system());
        let plugins = Plugins::new(&Metrics::new());
        let of = |argument: &str| {
            let exec = serde_json::json!({
                "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [argument],
                "interactiveMode": "Never",
            });
            plugins.plugin(&serde_json::from_value(exec).unwrap(), &clock, &scope.spawner()).unwrap()
        };
        let (one, same, other) = (of("a"), of("a"), of("b"));
        assert!(Arc::ptr_eq(&one.0, &same.0));
        assert!(!Arc::ptr_eq(&one.0, &other.0));
    }
}
