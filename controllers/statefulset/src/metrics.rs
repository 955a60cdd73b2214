//! The metrics of this controller. Series of a set are removed with it.

use std::collections::HashMap;

use api::{StatefulSet, Uid};
use metrics::{IntGaugeVec, Metrics};
use parking_lot::Mutex;

const SET_LABELS: [&str; 3] = ["statefulset_namespace", "statefulset_name", "pod_management_policy"];

/// The gauges of rollouts.
pub(crate) struct Meters {
    max_unavailable: IntGaugeVec,
    unavailable: IntGaugeVec,
    blocked_since: IntGaugeVec,
    /// The labels of the series of each set.
    series: Mutex<HashMap<Uid, [String; 3]>>,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            max_unavailable: metrics.gauges(
                "statefulset_controller_statefulset_max_unavailable",
                "[ALPHA] Maximum number of unavailable pods allowed during StatefulSet rolling updates",
                &SET_LABELS,
            ),
            unavailable: metrics.gauges(
                "statefulset_controller_statefulset_unavailable_replicas",
                "[ALPHA] Current number of unavailable pods in StatefulSet",
                &SET_LABELS,
            ),
            blocked_since: metrics.gauges(
                "mini_kcm_statefulset_blocked_since_timestamp_seconds",
                "Since when a StatefulSet has waited for one pod, if that is longer than ten minutes, or for a quota.",
                &SET_LABELS,
            ),
            series: Mutex::default(),
        }
    }

    /// Sets how many pods may be unavailable.
    pub(crate) fn set_max_unavailable(&self, set: &StatefulSet, count: usize) {
        self.set(&self.max_unavailable, set, count);
    }

    /// Sets how many pods are unavailable.
    pub(crate) fn set_unavailable(&self, set: &StatefulSet, count: usize) {
        self.set(&self.unavailable, set, count);
    }

    /// Sets since when a set is blocked, or that it is not.
    pub(crate) fn set_blocked_since(&self, set: &StatefulSet, since: Option<i64>) {
        match since {
            Some(since) => {
                let labels = self.labels(set);
                self.blocked_since.with_label_values(&labels.each_ref().map(String::as_str)).set(since);
            }
            None => {
                let series = self.series.lock();
                if let Some(labels) = series.get(&set.meta.uid) {
                    let _ = self.blocked_since.remove_label_values(&labels.each_ref().map(String::as_str));
                }
            }
        }
    }

    /// Removes the series of a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        let Some(labels) = self.series.lock().remove(set) else { return };
        let labels = labels.each_ref().map(String::as_str);
        for gauge in [&self.max_unavailable, &self.unavailable, &self.blocked_since] {
            // A series that does not exist is no error.
            let _ = gauge.remove_label_values(&labels);
        }
    }

    fn set(&self, gauge: &IntGaugeVec, set: &StatefulSet, count: usize) {
        let labels = self.labels(set);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        gauge.with_label_values(&labels.each_ref().map(String::as_str)).set(count);
    }

    /// The labels of a set, which are recorded for their removal.
    fn labels(&self, set: &StatefulSet) -> [String; 3] {
        let labels = [&*set.meta.namespace, &*set.meta.name, set.spec.pod_management.as_str()].map(str::to_owned);
        self.series.lock().insert(set.meta.uid.clone(), labels.clone());
        labels
    }
}
