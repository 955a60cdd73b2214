//! The metrics, with the names, labels, buckets and label values of upstream.

use std::{collections::HashSet, time::Duration};

use api::{Job, Pod, Uid};
use metrics::{HistogramVec, IntCounterVec, Metrics};
use parking_lot::Mutex;
use workload::{has_finalizer, is_terminal};

use crate::rules::{plan::Action, snapshot::FINALIZER};

/// The metric families of this controller.
pub(crate) struct Meters {
    duration: HistogramVec,
    syncs: IntCounterVec,
    jobs: IntCounterVec,
    pods: IntCounterVec,
    failures: IntCounterVec,
    with_finalizer: IntCounterVec,
    /// The ended pods that were added to `with_finalizer` and have the finalizer.
    uncounted_pods: Mutex<HashSet<Uid>>,
    indexes: IntCounterVec,
    creations: IntCounterVec,
    external: IntCounterVec,
    creation_limited: IntCounterVec,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counters =
            |name: &str, help: &str, labels: &[&str]| metrics.counters(&format!("job_controller_{name}"), help, labels);
        let mut buckets = vec![0.004];
        buckets.extend((1..15).scan(0.004, |bound, _| {
            *bound *= 2.0;
            Some(*bound)
        }));
        let sync = ["completion_mode", "result", "action"];
        let duration = "[STABLE] The time it took to sync a job";
        Self {
            duration: metrics.histograms("job_controller_job_sync_duration_seconds", duration, &sync, &buckets),
            syncs: counters("job_syncs_total", "[STABLE] The number of job syncs", &sync),
            jobs: counters(
                "jobs_finished_total",
                "[STABLE] The number of finished jobs",
                &["completion_mode", "result", "reason"],
            ),
            pods: counters(
                "job_pods_finished_total",
                "[STABLE] The number of finished Pods that are fully tracked",
                &["completion_mode", "result"],
            ),
            failures: counters("pod_failures_handled_by_failure_policy_total", FAILURES_HELP, &["action"]),
            with_finalizer: counters("terminated_pods_tracking_finalizer_total", WITH_FINALIZER, &["event"]),
            uncounted_pods: Mutex::default(),
            indexes: counters("job_finished_indexes_total", INDEXES, &["status", "backoffLimit"]),
            creations: counters("job_pods_creation_total", CREATIONS, &["reason", "status"]),
            external: counters(
                "jobs_by_external_controller_total",
                "The number of Jobs managed by an external controller",
                &["controller_name"],
            ),
            creation_limited: metrics.counters(
                "mini_kcm_job_creations_limited_total",
                CREATION_LIMITED,
                &["namespace"],
            ),
        }
    }

    /// A sync of this Job ended.
    pub(crate) fn record_sync(&self, job: &Job, action: Action, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        let labels = [mode(job), result, action.as_str()];
        self.syncs.with_label_values(&labels).inc();
        self.duration.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// The final status of this Job is stored.
    pub(crate) fn record_finished_job(&self, job: &Job, succeeded: bool, reason: &str) {
        let result = if succeeded { "succeeded" } else { "failed" };
        self.jobs.with_label_values(&[mode(job), result, reason]).inc();
    }

    /// A status is stored whose counters have grown by these numbers of pods.
    pub(crate) fn record_finished_pods(&self, job: &Job, succeeded: u64, failed: u64) {
        for (result, count) in [("succeeded", succeeded), ("failed", failed)] {
            if count > 0 {
                self.pods.with_label_values(&[mode(job), result]).inc_by(count);
            }
        }
    }

    /// A status is stored whose index sets have grown by these numbers.
    pub(crate) fn record_finished_indexes(&self, job: &Job, succeeded: u64, failed: u64) {
        let limit = if job.spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
        for (status, count) in [("succeeded", succeeded), ("failed", failed)] {
            if count > 0 {
                self.indexes.with_label_values(&[status, limit]).inc_by(count);
            }
        }
    }

    /// The failure policy applied this action to a pod, and the status with that pod is stored.
    pub(crate) fn record_policy_action(&self, action: &str) {
        self.failures.with_label_values(&[action]).inc();
    }

    /// A pod was created for this reason, or its creation failed.
    pub(crate) fn record_creation(&self, reason: &str, succeeded: bool) {
        let status = if succeeded { "succeeded" } else { "failed" };
        self.creations.with_label_values(&[reason, status]).inc();
    }

    /// A Job was added that another controller manages (`spec.managedBy`).
    pub(crate) fn record_external_job(&self, controller: &str) {
        self.external.with_label_values(&[controller]).inc();
    }

    /// The creation limit of a Job begins to apply.
    pub(crate) fn record_creation_limited(&self, job: &Job) {
        self.creation_limited.with_label_values(&[&*job.meta.namespace]).inc();
    }

    /// A pod changed. Counts ended pods of ours that get or lose our finalizer.
    pub(crate) fn on_pod_changed(&self, old: Option<&Pod>, new: Option<&Pod>, is_ours: impl FnOnce(&Pod) -> bool) {
        let uncounted = |pod: &&Pod| is_terminal(pod) && has_finalizer(pod, FINALIZER);
        let (old, new) = (old.filter(uncounted), new.filter(uncounted));
        let mut counted = self.uncounted_pods.lock();
        // The Job of a pod may be gone when the pod loses its finalizer, so the pods that were added are remembered.
        if let Some(old) = old.filter(|it| new.is_none_or(|new| new.meta.uid != it.meta.uid))
            && counted.remove(&old.meta.uid)
        {
            self.with_finalizer.with_label_values(&["delete"]).inc();
        }
        if let Some(new) = new
            && !counted.contains(&new.meta.uid)
            && is_ours(new)
        {
            counted.insert(new.meta.uid.clone());
            self.with_finalizer.with_label_values(&["add"]).inc();
        }
    }
}

fn mode(job: &Job) -> &'static str {
    if job.is_indexed() { "Indexed" } else { "NonIndexed" }
}

const FAILURES_HELP: &str = "[BETA] The number of failed Pods handled by failure policy with
\t\t\trespect to the failure policy action applied based on the matched
\t\t\trule. Possible values of the action label correspond to the
\t\t\tpossible values for the failure policy rule action, which are:
\t\t\t\"FailJob\", \"Ignore\" and \"Count\".";

const WITH_FINALIZER: &str = "[BETA] The number of terminated pods (phase=Failed|Succeeded)
that have the finalizer batch.kubernetes.io/job-tracking
The event label can be \"add\" or \"delete\".";

const INDEXES: &str = "The number of finished indexes. Possible values for the
\t\t\tstatus label are: \"succeeded\", \"failed\". Possible values for the
\t\t\tbackoffLimit label are: \"perIndex\" and \"global\"";

const CREATIONS: &str = "The number of Pods created by the Job controller labelled with a reason for the Pod creation.
This metric also distinguishes between Pods created using different PodReplacementPolicy settings.
Possible values of the \"reason\" label are:
\"new\", \"recreate_terminating_or_failed\", \"recreate_failed\".
Possible values of the \"status\" label are:
\"succeeded\", \"failed\".";

const CREATION_LIMITED: &str = "How often the creation limit of a Job began to apply: twice its parallelism were \
     created and not observed to end.";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{job, pod};

    #[test]
    fn metric_families_have_the_names_labels_and_help_of_upstream() {
        let metrics = Metrics::new();
        let meters = Meters::new(&metrics);
        let indexed = job(json!({ "completionMode": "Indexed", "backoffLimitPerIndex": 1 }), json!({}));
        meters.record_sync(&indexed, Action::Created, true, Duration::from_millis(5));
        meters.record_finished_job(&indexed, false, "FailedIndexes");
        meters.record_finished_pods(&indexed, 2, 1);
        meters.record_finished_indexes(&indexed, 2, 0);
        meters.record_policy_action("FailIndex");
        meters.record_creation("new", false);
        meters.record_external_job("example.com/x");
        meters.record_creation_limited(&indexed);
        let (runs, ended) = (pod("a").running().build(), pod("a").succeeded(0).build());
        meters.on_pod_changed(Some(&runs), Some(&ended), |_| true);
        meters.on_pod_changed(Some(&ended), None, |_| true);
        let text = metrics.encode();
        for line in [
            "# HELP job_controller_job_sync_duration_seconds [STABLE] The time it took to sync a job",
            "job_controller_job_sync_duration_seconds_bucket{action=\"pods_created\",completion_mode=\"Indexed\",result=\"success\",le=\"0.004\"} 0",
            "job_controller_job_sync_duration_seconds_bucket{action=\"pods_created\",completion_mode=\"Indexed\",result=\"success\",le=\"0.008\"} 1",
            "job_controller_job_sync_duration_seconds_bucket{action=\"pods_created\",completion_mode=\"Indexed\",result=\"success\",le=\"65.536\"} 1",
            "job_controller_job_syncs_total{action=\"pods_created\",completion_mode=\"Indexed\",result=\"success\"} 1",
            "job_controller_jobs_finished_total{completion_mode=\"Indexed\",reason=\"FailedIndexes\",result=\"failed\"} 1",
            "job_controller_job_pods_finished_total{completion_mode=\"Indexed\",result=\"succeeded\"} 2",
            "job_controller_job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 1",
            "# HELP job_controller_pod_failures_handled_by_failure_policy_total [BETA] The number of failed Pods handled by failure policy with\\n\t\t\trespect to",
            "job_controller_pod_failures_handled_by_failure_policy_total{action=\"FailIndex\"} 1",
            "job_controller_terminated_pods_tracking_finalizer_total{event=\"add\"} 1",
            "job_controller_terminated_pods_tracking_finalizer_total{event=\"delete\"} 1",
            "# HELP job_controller_job_finished_indexes_total [ALPHA] The number of finished indexes. Possible values for the\\n",
            "job_controller_job_finished_indexes_total{backoffLimit=\"perIndex\",status=\"succeeded\"} 2",
            "job_controller_job_pods_creation_total{reason=\"new\",status=\"failed\"} 1",
            "job_controller_jobs_by_external_controller_total{controller_name=\"example.com/x\"} 1",
            "mini_kcm_job_creations_limited_total{namespace=\"ns\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(
            !text.contains("status=\"failed\",backoffLimit")
                && !text.contains("backoffLimit=\"perIndex\",status=\"failed\"")
        );
    }
}
