//! The metrics of this controller. The series of a set are removed with it.

use api::{DaemonSet, Uid};
use metrics::Metrics;
use workload::OwnerGauge;

/// The gauges of rollouts.
pub(crate) struct Meters {
    blocked_since: OwnerGauge,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            blocked_since: OwnerGauge::new(metrics.gauges(
                "mini_kcm_daemonset_blocked_since_timestamp_seconds",
                "Since when the rollout of a DaemonSet has waited for a node, if that is longer than ten minutes.",
                &["daemonset_namespace", "daemonset_name"],
            )),
        }
    }

    /// Sets since when the rollout of a set is blocked, or that it is not.
    pub(crate) fn set_blocked_since(&self, set: &DaemonSet, since: Option<i64>) {
        match since {
            Some(since) => self.blocked_since.set(&set.meta.uid, &[&set.meta.namespace, &set.meta.name], since),
            None => self.blocked_since.remove(&set.meta.uid),
        }
    }

    /// Removes the series of a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.blocked_since.remove(set);
    }
}
