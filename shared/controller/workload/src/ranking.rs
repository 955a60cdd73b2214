//! The order in which surplus active pods are deleted. Pure.
//!
//! Both orders compare keys, so they are total. Upstream's order with ranks is not: within one age bucket it compares
//! equal times by restarts and unequal ones by uid.

use std::cmp::Reverse;

use api::{ContainerRole, Pod, PodPhase, Uid};
use clock::Timestamp;

use crate::{is_available, is_ready, ready_since};

/// The annotation of a pod by which pods of lower cost are deleted first (KEP-2255).
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The place of a pod in the order of deletion: the smallest key is deleted first. Like upstream's `ActivePods`, which
/// Jobs use.
#[must_use]
pub fn deletion_key(pod: &Pod) -> impl Ord + use<> {
    let ready = is_ready(pod).then(|| newest_first(ready_since(pod)));
    (progress(pod), ready, most_restarts_first(pod), newest_first(pod.creation))
}

/// The same as upstream's `ActivePodsWithRanks`, which ReplicaSets use, in two parts: what is compared before the rank of
/// the pod, and what is compared after it. The rank is the number of related pods on the pod's node; of two pods the one
/// with the higher rank is deleted first. Ages are compared by their order of magnitude, so that the oldest pods are not
/// always spared (KEP-2185).
#[must_use]
pub fn deletion_keys_around_rank(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
    compares_cost: bool,
) -> (impl Ord + Clone + use<>, impl Ord + Clone + use<>) {
    let age = |since: Option<i64>| magnitude(since.map(|it| now.as_second().saturating_sub(it)));
    let ready = is_ready(pod).then(|| age(ready_since(pod)));
    let uid: Uid = pod.meta.uid.clone();
    let cost = if compares_cost { deletion_cost(pod) } else { 0 };
    // Upstream does not compare it (k/k#22065).
    let available = is_available(pod, min_ready_seconds, now);
    ((progress(pod), available, cost), (ready, most_restarts_first(pod), age(pod.creation), uid))
}

/// How far the pod has progressed: unassigned before assigned, then by phase, then not ready before ready.
fn progress(pod: &Pod) -> (bool, u8, bool) {
    // An unknown phase counts like `Unknown`.
    let phase = match pod.phase {
        PodPhase::Pending => 0,
        PodPhase::Running => 2,
        _ => 1,
    };
    (!pod.node.is_empty(), phase, is_ready(pod))
}

/// An unknown time counts as the most recent.
fn newest_first(time: Option<i64>) -> Reverse<i64> {
    Reverse(time.unwrap_or(i64::MAX))
}

/// The most restarts of a container, then those of a sidecar.
fn most_restarts_first(pod: &Pod) -> Reverse<(i32, i32)> {
    let most = |role: ContainerRole| {
        pod.containers.iter().filter(|it| it.role == role).map(|it| it.restarts).max().unwrap_or(0)
    };
    Reverse((most(ContainerRole::Regular), most(ContainerRole::Sidecar)))
}

/// The binary logarithm of an age, rounded down, as upstream's `logarithmicRankDiff`. Unknown times come first, then those
/// in the future.
fn magnitude(seconds: Option<i64>) -> i64 {
    let Some(seconds) = seconds else { return -2 };
    match u128::try_from(seconds) {
        // Upstream takes the logarithm of nanoseconds.
        Ok(seconds) if seconds > 0 => i64::from((seconds * 1_000_000_000).ilog2()),
        _ => -1,
    }
}

/// The cost in the annotation; 0 if there is none or it is not valid (`GetDeletionCostFromPodAnnotations`).
fn deletion_cost(pod: &Pod) -> i32 {
    let Some(text) = pod.annotations.get(DELETION_COST) else { return 0 };
    let is_canonical = text == "0" || !matches!(text.as_bytes().first(), Some(b'0' | b'+') | None);
    if is_canonical { text.parse().unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use api::Cached;
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    const FIRST: [(&str, Change); 9] = [
        ("unassigned", |it| it["spec"]["nodeName"] = json!("")),
        ("pending", |it| it["status"]["phase"] = json!("Pending")),
        ("unknown", |it| it["status"]["phase"] = json!("Unknown")),
        ("not ready", |it| it["status"]["conditions"][0]["status"] = json!("False")),
        ("ready later", |it| it["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T01:00:00Z")),
        ("ready since an unknown time", |it| it["status"]["conditions"][0]["lastTransitionTime"] = Value::Null),
        ("more restarts", |it| it["status"]["containerStatuses"][0]["restartCount"] = json!(4)),
        ("more restarts of a sidecar", |it| it["status"]["initContainerStatuses"][0]["restartCount"] = json!(2)),
        ("newer", |it| it["metadata"]["creationTimestamp"] = json!("2026-01-01T01:00:00Z")),
    ];

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut object = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1", "annotations": {},
                "creationTimestamp": "2026-01-01T00:00:10Z" },
            "spec": { "nodeName": "node", "initContainers": [{ "name": "side", "restartPolicy": "Always" }] },
            "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:20Z" }],
                "containerStatuses": [{ "name": "a", "restartCount": 1 }, { "name": "b", "restartCount": 3 }],
                "initContainerStatuses": [{ "name": "side", "restartCount": 1 }],
            },
        });
        change(&mut object);
        Pod::decode_object(&serde_json::to_vec(&object).unwrap()).unwrap()
    }

    fn with_cost(cost: &str) -> Pod {
        pod(|it| it["metadata"]["annotations"][DELETION_COST] = json!(cost))
    }

    /// The whole key with this rank.
    fn ranked_key(pod: &Pod, rank: usize, now: Timestamp) -> impl Ord + use<> {
        let (before, after) = deletion_keys_around_rank(pod, 0, now, true);
        (before, Reverse(rank), after)
    }

    /// Two hours after the pod was created.
    fn now() -> Timestamp {
        "2026-01-01T02:00:10Z".parse().unwrap()
    }

    #[test]
    fn pods_are_deleted_in_the_order_of_active_pods() {
        let base = pod(|_| {});
        for (name, change) in FIRST {
            assert!(deletion_key(&pod(change)) < deletion_key(&base), "{name}");
            let ranked = |pod: &Pod| ranked_key(pod, 1, now());
            assert!(ranked(&pod(change)) < ranked(&base), "{name}, with ranks");
        }
        let by_a_second: [(&str, Change); 2] = [
            ("ready later", |it| it["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:21Z")),
            ("newer", |it| it["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:11Z")),
        ];
        for (name, change) in by_a_second {
            assert!(deletion_key(&pod(change)) < deletion_key(&base), "{name} by a second");
        }
        assert!(deletion_key(&base) == deletion_key(&base));
    }

    #[test]
    fn earlier_criteria_take_precedence_over_later_ones() {
        let unassigned_but_ready = pod(|it| it["spec"]["nodeName"] = json!(""));
        let pending_and_new = pod(|it| {
            it["status"]["phase"] = json!("Pending");
            it["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:59Z");
        });
        assert!(deletion_key(&unassigned_but_ready) < deletion_key(&pending_and_new));
        let unknown = pod(|it| it["status"]["phase"] = json!("Unknown"));
        assert!(deletion_key(&pending_and_new) < deletion_key(&unknown));
    }

    /// The worked example of the ReplicaSet spec, in the order of deletion.
    #[test]
    fn cost_comes_after_readiness_and_before_rank() {
        let pods = [
            ("unassigned", pod(|it| it["spec"]["nodeName"] = json!("")), 0),
            ("pending", pod(|it| it["status"]["phase"] = json!("Pending")), 0),
            ("not ready", pod(|it| it["status"]["conditions"][0]["status"] = json!("False")), 0),
            ("cheap", with_cost("-5"), 0),
            ("on a node with many", pod(|_| {}), 3),
            ("on a node with one", pod(|_| {}), 1),
            ("expensive", with_cost("5"), 9),
        ];
        let keys: Vec<_> = pods.iter().map(|(_, pod, rank)| ranked_key(pod, *rank, now())).collect();
        for (pair, names) in keys.windows(2).zip(pods.windows(2)) {
            assert!(pair[0] < pair[1], "{} before {}", names[0].0, names[1].0);
        }
    }

    #[test]
    fn the_cost_is_ignored_if_its_gate_is_off() {
        let key = |pod: &Pod, compares_cost: bool| deletion_keys_around_rank(pod, 0, now(), compares_cost).0;
        assert!(key(&with_cost("-5"), true) < key(&with_cost("5"), true));
        assert!(key(&with_cost("-5"), false) == key(&with_cost("5"), false));
    }

    #[test]
    fn cost_that_is_not_valid_is_zero() {
        let rows = [("7", 7), ("-7", -7), ("0", 0), ("+10", 0), ("010", 0), ("abc", 0), ("", 0), ("3000000000", 0)];
        for (text, want) in rows {
            assert_eq!(deletion_cost(&with_cost(text)), want, "{text}");
        }
        assert_eq!(deletion_cost(&pod(|_| {})), 0);
    }

    #[test]
    fn ages_of_one_magnitude_are_equal_and_the_uid_decides() {
        let created = |uid: &str, time: &str| {
            pod(|it| {
                it["metadata"]["uid"] = json!(uid);
                it["metadata"]["creationTimestamp"] = json!(time);
            })
        };
        let now = "2026-01-01T00:30:00Z".parse().unwrap();
        let key = |pod: &Pod| ranked_key(pod, 0, now);
        let [ten, twelve, twenty] = ["00:20:00", "00:18:00", "00:10:00"].map(|it| format!("2026-01-01T{it}Z"));
        assert!(key(&created("a", &twelve)) < key(&created("b", &ten)), "10 and 12 minutes are one magnitude");
        assert!(key(&created("b", &ten)) < key(&created("a", &twenty)), "10 minutes are younger than 20");
        assert_eq!([None, Some(-3), Some(0), Some(1)].map(magnitude), [-2, -1, -1, 29]);
    }
}
