//! The metrics of this controller.

use metrics::Metrics;

/// The metric families that only this controller has.
pub(crate) struct CronJobMetrics {
    skew: metrics::HistogramVec,
}

impl CronJobMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let skew = metrics.histograms(
            "cronjob_controller_job_creation_skew_duration_seconds",
            "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
            &[],
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0],
        );
        // The series exists from the start, like upstream's.
        let _ = skew.with_label_values::<&str>(&[]);
        Self { skew }
    }

    /// A Job for the time `at` was created at `created`.
    pub(crate) fn record_created(&self, created: i64, at: i64) {
        // The conversion is exact below 2^53 seconds.
        #[expect(clippy::cast_precision_loss, reason = "a difference of times is far below 2^53 seconds")]
        self.skew.with_label_values::<&str>(&[]).observe((created - at) as f64);
    }
}
