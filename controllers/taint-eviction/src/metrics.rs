//! The metrics of this controller.

use std::time::Duration;

use metrics::{Histogram, IntCounter, Metrics};

/// The metrics of deletions.
pub(crate) struct Meters {
    deletions: IntCounter,
    duration: Histogram,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let deletions = metrics.counters(
            "taint_eviction_controller_pod_deletions_total",
            "Total number of Pods deleted by TaintEvictionController since its start.",
            &[],
        );
        let duration = metrics.histograms(
            "taint_eviction_controller_pod_deletion_duration_seconds",
            "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion \
             via TaintEvictionController.",
            &[],
            &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0],
        );
        Self { deletions: deletions.with_label_values::<&str>(&[]), duration: duration.with_label_values::<&str>(&[]) }
    }

    /// Records that a pod was deleted this long after it was due, in seconds. Upstream's values are wrong (k/k#141311).
    pub(crate) fn record_deletion(&self, late: Duration) {
        self.deletions.inc();
        self.duration.observe(late.as_secs_f64());
    }
}
