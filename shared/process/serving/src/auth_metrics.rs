use std::time::Duration;

use metrics::{Histogram, HistogramVec, IntCounterVec, IntGaugeVec, Metrics};

/// Upstream's metrics for authentication and authorization.
pub(crate) struct AuthMetrics {
    authenticated_users: IntCounterVec,
    authentication_attempts: IntCounterVec,
    authentication_duration: HistogramVec,
    authorization_attempts: IntCounterVec,
    authorization_duration: HistogramVec,
    certificate_expiration: Histogram,
    pub(crate) cache: TokenCacheMetrics,
}

/// The metrics of the token cache.
pub(crate) struct TokenCacheMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    fetches: IntCounterVec,
    pub(crate) active: IntGaugeVec,
}

/// Buckets of 1 ms × 2ⁿ.
const DURATIONS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const CACHE_DURATIONS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// 0, half an hour, 1, 2, 6 and 12 hours, 1, 2, 4 and 7 days, 1, 3, 6 and 12 months.
const EXPIRATIONS: &[f64] = &[
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

impl AuthMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            authenticated_users: metrics.counters(
                "authenticated_user_requests",
                "[ALPHA] Counter of authenticated requests broken out by username.",
                &["username"],
            ),
            authentication_attempts: metrics.counters(
                "authentication_attempts",
                "[ALPHA] Counter of authenticated attempts.",
                &["result"],
            ),
            authentication_duration: metrics.histograms(
                "authentication_duration_seconds",
                "[ALPHA] Authentication duration in seconds broken out by result.",
                &["result"],
                DURATIONS,
            ),
            authorization_attempts: metrics.counters(
                "authorization_attempts_total",
                "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', \
                 'no-opinion' or 'error'.",
                &["result"],
            ),
            authorization_duration: metrics.histograms(
                "authorization_duration_seconds",
                "[ALPHA] Authorization duration in seconds broken out by result.",
                &["result"],
                DURATIONS,
            ),
            certificate_expiration: metrics
                .histograms(
                    "apiserver_client_certificate_expiration_seconds",
                    "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
                    &[],
                    EXPIRATIONS,
                )
                .with_label_values::<&str>(&[]),
            cache: TokenCacheMetrics::new(metrics),
        }
    }

    /// Records an authentication: the name of the user, or `None` if a credential was invalid.
    pub(crate) fn record_authentication(&self, user: Option<&str>, took: Duration) {
        let result = if user.is_some() { "success" } else { "error" };
        if let Some(user) = user {
            self.authenticated_users.with_label_values(&[user_label(user)]).inc();
        }
        self.authentication_attempts.with_label_values(&[result]).inc();
        self.authentication_duration.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// `result` is allowed, denied, no-opinion or error.
    pub(crate) fn record_authorization(&self, result: &str, took: Duration) {
        self.authorization_attempts.with_label_values(&[result]).inc();
        self.authorization_duration.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Records for how long a client certificate is still valid; negative if it has expired.
    pub(crate) fn observe_certificate_expiration(&self, seconds: f64) {
        self.certificate_expiration.observe(seconds);
    }
}

impl TokenCacheMetrics {
    fn new(metrics: &Metrics) -> Self {
        let label = &["status"];
        Self {
            requests: metrics.counters("authentication_token_cache_request_total", "[ALPHA] ", label),
            duration: metrics.histograms(
                "authentication_token_cache_request_duration_seconds",
                "[ALPHA] ",
                label,
                CACHE_DURATIONS,
            ),
            fetches: metrics.counters("authentication_token_cache_fetch_total", "[ALPHA] ", label),
            active: metrics.gauges("authentication_token_cache_active_fetch_count", "[ALPHA] ", label),
        }
    }

    /// Records a lookup of a token in the cache.
    pub(crate) fn record_lookup(&self, hit: bool, took: Duration) {
        let status = if hit { "hit" } else { "miss" };
        self.requests.with_label_values(&[status]).inc();
        self.duration.with_label_values(&[status]).observe(took.as_secs_f64());
    }

    /// Records a TokenReview.
    pub(crate) fn record_fetch(&self, ok: bool) {
        self.fetches.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
    }
}

/// Maps user names to a few label values, as upstream (`compressUsername`).
fn user_label(user: &str) -> &str {
    match user {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => user,
        email if email.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_map_to_few_label_values() {
        for (user, want) in [("admin", "admin"), ("jane@example.com", "email_id"), ("system:anonymous", "other")] {
            assert_eq!(user_label(user), want);
        }
    }

    #[test]
    fn families_match_upstream() {
        let metrics = Metrics::new();
        let auth_metrics = AuthMetrics::new(&metrics);
        auth_metrics.record_authentication(Some("admin"), Duration::ZERO);
        auth_metrics.record_authentication(None, Duration::ZERO);
        auth_metrics.record_authorization("no-opinion", Duration::ZERO);
        auth_metrics.cache.record_lookup(true, Duration::ZERO);
        auth_metrics.cache.record_fetch(true);
        auth_metrics.cache.active.with_label_values(&["blocked"]).set(0);
        let text = metrics.encode();
        // Lines from kube-controller-manager 1.36.
        for line in [
            "# TYPE authenticated_user_requests counter",
            "authenticated_user_requests{username=\"admin\"} 1",
            "authentication_attempts{result=\"error\"} 1",
            "authentication_duration_seconds_bucket{result=\"success\",le=\"16.384\"} 1",
            "authorization_attempts_total{result=\"no-opinion\"} 1",
            "authorization_duration_seconds_bucket{result=\"no-opinion\",le=\"0.001\"} 1",
            "# HELP authentication_token_cache_fetch_total [ALPHA] ",
            "authentication_token_cache_active_fetch_count{status=\"blocked\"} 0",
            "authentication_token_cache_request_duration_seconds_bucket{status=\"hit\",le=\"10\"} 1",
            "apiserver_client_certificate_expiration_seconds_count 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
