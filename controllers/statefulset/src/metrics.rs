//! The metrics of this controller. Series of a set are removed with it.

use api::{StatefulSet, Uid};
use metrics::Metrics;
use workload::OwnerGauge;

const SET_LABELS: [&str; 3] = ["statefulset_namespace", "statefulset_name", "pod_management_policy"];

/// The gauges of rollouts.
pub(crate) struct Meters {
    max_unavailable: OwnerGauge,
    unavailable: OwnerGauge,
    blocked_since: OwnerGauge,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let gauge = |name, help| OwnerGauge::new(metrics.gauges(name, help, &SET_LABELS));
        Self {
            max_unavailable: gauge(
                "statefulset_controller_statefulset_max_unavailable",
                "[ALPHA] Maximum number of unavailable pods allowed during StatefulSet rolling updates",
            ),
            unavailable: gauge(
                "statefulset_controller_statefulset_unavailable_replicas",
                "[ALPHA] Current number of unavailable pods in StatefulSet",
            ),
            blocked_since: gauge(
                "mini_kcm_statefulset_blocked_since_timestamp_seconds",
                "Since when a StatefulSet has waited for one pod, if that is longer than ten minutes, or for a quota.",
            ),
        }
    }

    /// Sets how many pods may be unavailable.
    pub(crate) fn set_max_unavailable(&self, set: &StatefulSet, count: usize) {
        set_gauge(&self.max_unavailable, set, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets how many pods are unavailable.
    pub(crate) fn set_unavailable(&self, set: &StatefulSet, count: usize) {
        set_gauge(&self.unavailable, set, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets since when a set is blocked, or that it is not.
    pub(crate) fn set_blocked_since(&self, set: &StatefulSet, since: Option<i64>) {
        match since {
            Some(since) => set_gauge(&self.blocked_since, set, since),
            None => self.blocked_since.remove(&set.meta.uid),
        }
    }

    /// Removes the series of a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        for gauge in [&self.max_unavailable, &self.unavailable, &self.blocked_since] {
            gauge.remove(set);
        }
    }
}

fn set_gauge(gauge: &OwnerGauge, set: &StatefulSet, value: i64) {
    gauge.set(&set.meta.uid, &[&set.meta.namespace, &set.meta.name, set.spec.pod_management.as_str()], value);
}
