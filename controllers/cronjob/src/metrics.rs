//! What dashboards chart.

use metrics::Metrics;

/// The numbers that only this controller has.
pub(crate) struct Numbers {
    skew: metrics::HistogramVec,
}

impl Numbers {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let skew = metrics.histograms(
            "cronjob_controller_job_creation_skew_duration_seconds",
            "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
            &[],
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0],
        );
        // There from the start, as upstream.
        let _ = skew.with_label_values::<&str>(&[]);
        Self { skew }
    }

    /// A Job was made at this second for that time.
    pub(crate) fn made(&self, created: i64, at: i64) {
        // Seconds in a float are exact for longer than there are times.
        #[expect(clippy::cast_precision_loss, reason = "a difference of times is far below 2^53 seconds")]
        self.skew.with_label_values::<&str>(&[]).observe((created - at) as f64);
    }
}
