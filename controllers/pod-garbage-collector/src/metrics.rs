//! The metrics of this controller. The label `namespace` is unbounded, as upstream.

use api::Pod;
use metrics::{IntCounterVec, Metrics};

use crate::rules::steps::Reason;

/// The deleted pods.
pub(crate) struct Meters {
    attempts: IntCounterVec,
    errors: IntCounterVec,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let labels = &["namespace", "reason"];
        Self {
            attempts: metrics.counters(
                "pod_gc_collector_force_delete_pods_total",
                "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
                labels,
            ),
            errors: metrics.counters(
                "pod_gc_collector_force_delete_pod_errors_total",
                "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
                labels,
            ),
        }
    }

    /// The deletion of a pod was attempted, with or without success.
    pub(crate) fn record_attempt(&self, pod: &Pod, reason: Reason) {
        self.attempts.with_label_values(&[&*pod.meta.namespace, reason.as_str()]).inc();
    }

    /// An attempt has failed.
    pub(crate) fn record_error(&self, pod: &Pod, reason: Reason) {
        self.errors.with_label_values(&[&*pod.meta.namespace, reason.as_str()]).inc();
    }
}
