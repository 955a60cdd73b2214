//! `/metrics/slis`: the result of each requested check.

use metrics::{IntCounterVec, IntGaugeVec, Metrics};

const NAME: &str = "kubernetes_healthcheck";
const TOTAL: &str = "kubernetes_healthchecks_total";

/// The families, in a separate registry, as in upstream.
pub(super) struct Slis {
    metrics: Metrics,
    last: IntGaugeVec,
    all: IntCounterVec,
}

impl Default for Slis {
    fn default() -> Self {
        let metrics = Metrics::new();
        let last =
            metrics.gauges(NAME, "[STABLE] This metric records the result of a single healthcheck.", &["name", "type"]);
        let all = metrics.counters(
            TOTAL,
            "[STABLE] This metric records the results of all healthcheck.",
            &["name", "type", "status"],
        );
        let start = metrics.float_gauges(
            "process_start_time_seconds",
            "[ALPHA] Start time of the process since unix epoch in seconds.",
            &[],
        );
        if let Some(seconds) = metrics::process::start_time() {
            start.with_label_values::<&str>(&[]).set(seconds);
        }
        Self { metrics, last, all }
    }
}

impl Slis {
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn observe(&self, probe: &str, check: &str, is_healthy: bool) {
        let status = if is_healthy { "success" } else { "error" };
        self.last.with_label_values(&[check, probe]).set(i64::from(is_healthy));
        self.all.with_label_values(&[check, probe, status]).inc();
    }

    pub(super) fn reset(&self) {
        self.last.reset();
        self.all.reset();
    }
}
