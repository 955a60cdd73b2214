//! The state of a pod. Pure.

use api::{ConditionStatus, Pod, PodPhase};

/// It has succeeded or failed.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// It is pending or running and is not being deleted.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.meta.deletion.is_none()
}

/// It is being deleted and has not ended.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.meta.deletion.is_some()
}

/// Its `Ready` condition is true, in any phase.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    pod.condition("Ready").is_some_and(|it| it.status == ConditionStatus::True)
}

/// It has this finalizer.
#[must_use]
pub fn has_finalizer(pod: &Pod, finalizer: &str) -> bool {
    pod.meta.finalizers.iter().any(|it| &**it == finalizer)
}

#[cfg(test)]
mod tests {
    use api::Cached;
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, deleting: bool, ready: &str) -> Pod {
        let deletion = if deleting { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        let object = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1", "deletionTimestamp": deletion,
                "finalizers": ["example.com/ours"] },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] },
        });
        Pod::decode_object(&serde_json::to_vec(&object).unwrap()).unwrap()
    }

    #[test]
    fn acceptance_common_036_terminal_and_deleting_pods_are_not_active() {
        let cases = [
            ("Running", false, true),
            ("Pending", false, true),
            ("Unknown", false, true),
            ("Failed", false, false),
            ("Succeeded", false, false),
            ("Running", true, false),
        ];
        for (phase, deleting, active) in cases {
            assert_eq!(is_active(&pod(phase, deleting, "False")), active, "{phase} {deleting}");
        }
    }

    #[test]
    fn acceptance_common_037_a_terminal_pod_is_not_terminating() {
        assert!(!is_terminating(&pod("Failed", true, "False")));
        assert!(!is_terminating(&pod("Succeeded", true, "False")));
        assert!(!is_terminating(&pod("Running", false, "True")));
        assert!(is_terminating(&pod("Running", true, "True")));
        assert!(is_terminal(&pod("Failed", true, "False")) && !is_terminal(&pod("Pending", true, "False")));
    }

    #[test]
    fn is_ready_reads_the_condition_and_has_finalizer_compares_names() {
        assert!(is_ready(&pod("Pending", false, "True")) && !is_ready(&pod("Running", false, "Unknown")));
        let pod = pod("Running", false, "True");
        assert!(has_finalizer(&pod, "example.com/ours") && !has_finalizer(&pod, "example.com"));
    }
}
