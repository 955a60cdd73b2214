//! Exec plugins of a kubeconfig (client.authentication.k8s.io).
//!
//! The implementation of kube is not used: it runs the plugin again for each pool, repeats its output in errors, and
//! does not run it again when a certificate has expired.
//!
//! Reading order: `invocation` is the input, `output` parses the output (`validity` of its certificate), `run` is the
//! process, and this file keeps the credential until it expires or is refused. A plugin may be slow: it runs before the
//! credential expires, so that the Lease can still be renewed.

mod invocation;
mod output;
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

use self::{invocation::Invocation, output::Credential, validity::Validity};
use crate::{
    ApiError, ConfigError, NotSent,
    layers::{RequestCredential, TokenSource},
};

/// A plugin that failed, or that returned an expired credential, is not run again within this time.
const RERUN_PAUSE: Duration = Duration::from_secs(1);
/// A new credential is not requested if the present one is younger than this: not when it is refused, and not near its
/// end, because the plugin may return the same one until then. A plugin that failed less than this ago is not run ahead
/// of time.
const MIN_AGE: Duration = Duration::from_secs(10);
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
    plugins: Arc<Mutex<Vec<Plugin>>>,
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
    current: Option<Arc<PluginCredential>>,
    /// The current run, which all callers wait for.
    run: Option<PluginRun>,
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

type PluginRun = Shared<BoxFuture<'static, Result<Arc<PluginCredential>, Arc<str>>>>;

/// A credential that the plugin returned.
pub(crate) struct PluginCredential {
    token: Option<HeaderValue>,
    expires: Option<Timestamp>,
    /// When a new credential is requested. This one is used in the meantime.
    renew: Option<Timestamp>,
    /// Distinguishes it from its predecessor.
    serial: u64,
    since: Instant,
    certificate: Option<ClientCertificate>,
    /// Distinguishes its certificate from the previous one; 0 if there was never a certificate.
    pub(crate) certificate_serial: u64,
}

#[derive(Clone)]
struct ClientCertificate {
    resolver: Arc<SingleCertAndKey>,
    leaf: Vec<u8>,
    validity: Validity,
}

impl PluginCredential {
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
        Self { metrics: metrics.clone(), plugins: Arc::default() }
    }

    /// The plugin of a kubeconfig. It is not run before the first request.
    ///
    /// # Errors
    /// The error names the field.
    pub(crate) fn plugin(&self, exec: &ExecConfig, clock: &Clock, spawner: &Spawner) -> Result<Plugin, ConfigError> {
        let invocation = Invocation::of(exec)?;
        let mut plugins = self.plugins.lock();
        if let Some(plugin) = plugins.iter().find(|it| it.0.invocation == invocation) {
            return Ok(plugin.clone());
        }
        if plugins.is_empty() {
            self.export_expiry();
        }
        let plugin = Plugin::new(invocation, clock.clone(), spawner.clone(), &self.metrics);
        plugins.push(plugin.clone());
        Ok(plugin)
    }

    fn export_expiry(&self) {
        let gauge = self.metrics.float_gauges(
            "rest_client_exec_plugin_ttl_seconds",
            "[ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec \
             plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec \
             plugins are unused or manage no TLS certificates, the value will be +INF.",
            &[],
        );
        let plugins = self.plugins.clone();
        self.metrics.before_encode(move || {
            let shortest = plugins.lock().iter().filter_map(Plugin::seconds_to_expiry).fold(f64::INFINITY, f64::min);
            gauge.with_label_values::<&str>(&[]).set(shortest);
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
    fn seconds_to_expiry(&self) -> Option<f64> {
        let expires = self.0.state.lock().current.as_ref()?.certificate.as_ref()?.validity.expires;
        Some(expires.duration_since(self.0.clock.wall()).as_secs_f64())
    }

    /// The credential that is valid now. Near its end a new one is requested, and this one is still returned.
    ///
    /// # Errors
    /// The error names the command.
    pub(crate) async fn credential(&self) -> Result<Arc<PluginCredential>, Arc<str>> {
        let run = {
            let mut state = self.0.state.lock();
            let (wall, now) = (self.0.clock.wall(), self.0.clock.now());
            let age = |current: &PluginCredential| now.saturating_duration_since(current.since);
            if let Some(current) = state.current.clone() {
                let has_expired = current.expires.is_some_and(|it| it <= wall);
                let is_due = current.renew.is_some_and(|it| it <= wall) && age(&current) >= MIN_AGE;
                if !has_expired && is_due && state.failure(now, MIN_AGE).is_none() {
                    // The run continues in its own task.
                    drop(self.join_or_start_run(&mut state));
                }
                if !has_expired || age(&current) < RERUN_PAUSE {
                    return Ok(current);
                }
            }
            if let Some(why) = state.failure(now, RERUN_PAUSE) {
                return Err(why);
            }
            self.join_or_start_run(&mut state)
        };
        run.await
    }

    /// The serial of the certificate that new connections use.
    pub(crate) fn certificate_serial(&self) -> u64 {
        self.0.state.lock().current.as_ref().map_or(0, |it| it.certificate_serial)
    }

    /// Joins the current run or starts one. It continues when a caller stops waiting.
    fn join_or_start_run(&self, state: &mut State) -> PluginRun {
        if let Some(run) = &state.run {
            return run.clone();
        }
        let plugin = self.clone();
        let run = async move { plugin.run().await }.boxed().shared();
        state.run = Some(run.clone());
        self.0.spawner.spawn("exec plugin", run.clone().map(drop));
        run
    }

    async fn run(&self) -> Result<Arc<PluginCredential>, Arc<str>> {
        let Inner { invocation, clock, calls, .. } = &*self.0;
        let credential = match run::run(invocation).await {
            Ok(written) => {
                calls.with_label_values(&["0", "no_error"]).inc();
                output::parse(invocation.version, &written).map_err(|why| format!("its output {why}"))
            }
            Err(failure) => {
                calls.with_label_values(&[&*failure.code.to_string(), failure.status]).inc();
                Err(failure.why)
            }
        };
        let mut state = self.0.state.lock();
        state.run = None;
        match credential {
            Ok(credential) => {
                state.failed = None;
                Ok(self.store_credential(&mut state, credential))
            }
            Err(why) => {
                let why: Arc<str> = format!("exec plugin {:?}: {why}", invocation.command).into();
                tracing::warn!(%why, "no credential");
                state.failed = Some((clock.now(), why.clone()));
                Err(why)
            }
        }
    }

    fn store_credential(&self, state: &mut State, credential: Credential) -> Arc<PluginCredential> {
        let Credential { token, certificate, expires } = credential;
        let certificate = certificate.map(|it| ClientCertificate {
            leaf: it.key.cert.first().map(|it| it.to_vec()).unwrap_or_default(),
            validity: it.validity,
            resolver: Arc::new(SingleCertAndKey::from(it.key)),
        });
        let before = state.current.take();
        let old = before.as_ref().and_then(|it| it.certificate.as_ref());
        let same = old.map(|it| &it.leaf) == certificate.as_ref().map(|it| &it.leaf);
        if let Some(old) = old.filter(|_| !same) {
            let age = self.0.clock.wall().duration_since(old.validity.begins).as_secs_f64();
            self.0.ages.with_label_values::<&str>(&[]).observe(age);
            tracing::info!("the plugin returned another certificate: new connections use it");
        }
        let number = before.as_ref().map_or(0, |it| it.certificate_serial);
        let now = self.0.clock.wall();
        let current = Arc::new(PluginCredential {
            token,
            expires,
            renew: expires.map(|it| renewal_time(now, it)),
            serial: before.as_ref().map_or(0, |it| it.serial) + 1,
            since: self.0.clock.now(),
            certificate,
            certificate_serial: if same { number } else { number + 1 },
        });
        state.current = Some(current.clone());
        current
    }
}

impl TokenSource for Plugin {
    fn token(&self) -> BoxFuture<'_, Result<RequestCredential, ApiError>> {
        Box::pin(async move {
            let current = self.credential().await;
            let current = current.map_err(|why| ApiError::NotSent(NotSent::Unidentified(why.to_string())))?;
            Ok(RequestCredential { value: current.token.clone(), serial: current.serial })
        })
    }

    fn on_refused(&self, serial: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let run = {
                let mut state = self.0.state.lock();
                let (now, current) = (self.0.clock.now(), state.current.clone());
                if current.as_ref().is_some_and(|it| it.serial != serial) {
                    return true;
                }
                let is_young = current.is_some_and(|it| now.saturating_duration_since(it.since) < MIN_AGE);
                if is_young || state.failure(now, MIN_AGE).is_some() {
                    return false;
                }
                self.join_or_start_run(&mut state)
            };
            run.await.is_ok()
        })
    }
}

/// When a credential that was received at `now` is renewed.
fn renewal_time(now: Timestamp, expires: Timestamp) -> Timestamp {
    let lifetime = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
    now.checked_add(lifetime * (100 - LEEWAY) / 100).unwrap_or(expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_is_renewed_when_a_fifth_of_its_lifetime_is_left() {
        let at = |time: &str| format!("2026-01-01T{time}Z").parse::<Timestamp>().unwrap();
        for (name, now, expires, want) in [
            ("an hour", "00:00:00", "01:00:00", "00:48:00"),
            ("none", "01:00:00", "01:00:00", "01:00:00"),
            ("expired before it was received", "02:00:00", "01:00:00", "02:00:00"),
        ] {
            assert_eq!(renewal_time(at(now), at(expires)), at(want), "{name}");
        }
    }

    #[tokio::test]
    async fn kubeconfigs_with_one_plugin_share_it() {
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
