//! The state of a pod. Pure.

use std::time::Duration;

use api::{ConditionStatus, Pod, PodPhase};
use clock::Timestamp;

/// It has succeeded or failed.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// It has not ended and is not being deleted.
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

/// When it became ready, in seconds since the epoch; `None` if it is not ready or the time is unknown.
#[must_use]
pub fn ready_since(pod: &Pod) -> Option<i64> {
    pod.condition("Ready").filter(|it| it.status == ConditionStatus::True)?.last_transition
}

/// It has been ready for `min_ready_seconds` (`podutil.IsPodAvailable`). A pod whose time of readiness is unknown is
/// available only if that is zero.
#[must_use]
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod) && (min_ready_seconds == 0 || ready_since(pod).is_some_and(|it| due(it, min_ready_seconds) <= now))
}

/// When the next of these pods becomes available, counted from `now` (`controller.FindMinNextPodAvailabilityCheck`).
/// `evaluated` is when the status was computed. A pod that became available since then needs a check at once, or the
/// status would never count it (k/k#135428). No check is later than `min_ready_seconds`: if our clock was late when the
/// pod became ready, the time of its readiness is in the future.
#[must_use]
pub fn next_availability_check<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    evaluated: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let due_times = pods.into_iter().filter_map(ready_since).map(|it| due(it, min_ready_seconds));
    let next = due_times.filter(|it| *it > evaluated).min()?;
    let latest = Duration::from_secs(min_ready_seconds.unsigned_abs().into());
    // Negative when it is due already.
    Some(Duration::try_from(next.duration_since(now)).unwrap_or_default().min(latest))
}

/// The time at which a pod that is ready since `since` becomes available.
fn due(since: i64, min_ready_seconds: i32) -> Timestamp {
    Timestamp::from_second(since.saturating_add(min_ready_seconds.into())).unwrap_or(Timestamp::MAX)
}

/// It has this finalizer.
#[must_use]
pub fn has_finalizer(pod: &Pod, finalizer: &str) -> bool {
    pod.meta.finalizers.iter().any(|it| &**it == finalizer)
}

/// When the deletion of a pod was requested, in seconds since the epoch. Its `deletionTimestamp` is the end of the grace
/// period.
#[must_use]
pub fn deletion_requested(pod: &Pod) -> Option<i64> {
    Some(pod.meta.deletion?.saturating_sub(i64::from(pod.deletion_grace?)))
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

    const READY_AT: i64 = 1_800_000_000;

    fn ready_pod(seconds: Option<i64>) -> Pod {
        let since = seconds.map(|it| Timestamp::from_second(READY_AT + it).unwrap().to_string());
        let object = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1" },
            "status": { "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": since }] },
        });
        Pod::decode_object(&serde_json::to_vec(&object).unwrap()).unwrap()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(READY_AT * 1_000 + millis).unwrap()
    }

    #[test]
    fn acceptance_common_038_a_pod_is_available_when_it_was_ready_long_enough() {
        let ready = ready_pod(Some(0));
        assert!(is_available(&ready, 10, at(10_000)), "exactly at the time");
        assert!(!is_available(&ready, 10, at(9_999)));
        assert!(!is_available(&ready, 11, at(10_000)));
        assert!(!is_available(&ready_pod(None), 10, at(10_000)), "ready since an unknown time");
        assert!(is_available(&ready_pod(None), 0, at(0)));
        assert!(!is_available(&pod("Running", false, "False"), 0, at(0)));
    }

    #[test]
    fn acceptance_common_039_the_next_check_is_when_the_first_pod_becomes_available() {
        let pods = [-2, 0, -4].map(|it| ready_pod(Some(it)));
        let check = |evaluated, now| next_availability_check(&pods, 10, at(evaluated), at(now));
        assert_eq!(check(-2_000, 0), Some(Duration::from_secs(6)));
        assert_eq!(check(0, 2_000), Some(Duration::from_secs(4)));
    }

    #[test]
    fn no_check_is_later_than_the_required_time() {
        let of_a_clock_ahead = [ready_pod(Some(3_600))];
        assert_eq!(next_availability_check(&of_a_clock_ahead, 10, at(0), at(0)), Some(Duration::from_secs(10)));
    }

    #[test]
    fn acceptance_common_040_a_pod_that_became_available_meanwhile_is_checked_at_once() {
        let pods = [-2, 0, -4].map(|it| ready_pod(Some(it)));
        let check = |evaluated, now| next_availability_check(&pods, 10, at(evaluated), at(now));
        assert_eq!(check(0, 7_000), Some(Duration::ZERO));
        assert_eq!(check(10_000, 10_000), None, "all are available");
        assert_eq!(next_availability_check(&pods, 0, at(0), at(0)), None);
        assert_eq!(next_availability_check(&[ready_pod(None)], 10, at(0), at(0)), None);
    }
}
