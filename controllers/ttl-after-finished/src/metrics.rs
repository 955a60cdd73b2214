//! The metrics and the event of this controller.

use std::time::Duration;

use api::{Entry, Job, Typed};
use events::{EventType, Recorder};
use informer::Change;
use metrics::{Histogram, IntGauge, Metrics};

use crate::rules::expiry;

/// The metrics of this controller.
#[derive(Clone)]
pub(crate) struct Meters {
    late: Histogram,
    lingering: IntGauge,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        // From 0.1 s, doubling to 819.2 s.
        let buckets: Vec<f64> = (0..14).map(|power| 0.1 * f64::from(1u32 << power)).collect();
        let late = metrics.histograms(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            &[],
            &buckets,
        );
        let lingering = metrics.gauges(
            "mini_kcm_ttl_after_finished_lingering_jobs",
            "Jobs that were deleted after their time to live and still exist: they have finalizers, or no garbage \
             collector runs.",
            &[],
        );
        let meters =
            Self { late: late.with_label_values::<&str>(&[]), lingering: lingering.with_label_values::<&str>(&[]) };
        // An earlier run of the controller in this process has counted them too.
        meters.lingering.set(0);
        meters
    }

    /// A DELETE succeeded this long after the Job was due.
    pub(crate) fn record_deletion(&self, late: Duration) {
        self.late.observe(late.as_secs_f64());
    }

    /// Counts the Jobs that were deleted and still exist.
    pub(crate) fn on_job_changed(&self, change: &Change<'_, Job>) {
        let is_lingering =
            |entry: Option<&Entry<Job>>| entry.and_then(Entry::readable).is_some_and(|it| expiry::is_lingering(it));
        match (is_lingering(change.old), is_lingering(change.new)) {
            (false, true) => self.lingering.inc(),
            (true, false) => self.lingering.dec(),
            (false, false) | (true, true) => {}
        }
    }
}

/// Logs and sends an event that a finished Job has no finish time, so it is not deleted.
pub(crate) fn report_unknown_finish_time(recorder: &Recorder, job: &Job) {
    let message = format!("unable to find the time when the Job {} finished", job.meta.as_ref().key());
    tracing::error!("{message}");
    let job = events::reference(&Job::resource(), &job.meta.as_ref());
    recorder.event(&job, EventType::Warning, "FinishTimeUnknown", message);
}
