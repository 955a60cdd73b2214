//! The metrics of both controllers.

use metrics::{HistogramVec, IntGaugeVec, Metrics};

/// The families; each controller has its own series of the gauge.
pub(crate) struct Meters {
    controller: &'static str,
    deletion_age_ratio: HistogramVec,
    waiting: IntGaugeVec,
}

impl Meters {
    pub(crate) fn new(controller: &'static str, metrics: &Metrics) -> Self {
        let meters = Self {
            controller,
            deletion_age_ratio: metrics.histograms(
                "replicaset_controller_sorting_deletion_age_ratio",
                "[ALPHA] The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. \
                 The intent of this metric is to measure the rough efficacy of the LogarithmicScaleDown feature gate's effect on \
                 the sorting (and deletion) of pods when a replicaset scales down. This only considers Ready pods when \
                 calculating and reporting.",
                &[],
                &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
            ),
            waiting: metrics.gauges(
                "mini_kcm_replicaset_waiting_for_expectations",
                "The ReplicaSets or ReplicationControllers whose pods are not changed, because the cache does not show \
                 all earlier creations and deletions.",
                &["controller"],
            ),
        };
        // The series exist from the start.
        meters.deletion_age_ratio.with_label_values::<&str>(&[]);
        meters.set_waiting(0);
        meters
    }

    /// Observes the age of a ready pod that is deleted, in relation to the youngest one.
    pub(crate) fn observe_age_ratio(&self, ratio: f64) {
        self.deletion_age_ratio.with_label_values::<&str>(&[]).observe(ratio);
    }

    /// Sets how many sets wait for expectations.
    pub(crate) fn set_waiting(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.waiting.with_label_values(&[self.controller]).set(count);
    }
}
