//! The order in which surplus active pods are deleted. Pure.

use std::cmp::Ordering;

use api::{ContainerRole, Pod, PodPhase};

use crate::{is_ready, ready_since};

/// Orders pods by deletion: the first one is deleted first. Like upstream's `ActivePods`, which Jobs use; there is no
/// rank by node.
#[must_use]
pub fn deletion_order(a: &Pod, b: &Pod) -> Ordering {
    // False sorts before true: unassigned before assigned, not ready before ready.
    (!a.node.is_empty())
        .cmp(&!b.node.is_empty())
        .then_with(|| phase_rank(&a.phase).cmp(&phase_rank(&b.phase)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| if is_ready(a) { newer_first(ready_since(a), ready_since(b)) } else { Ordering::Equal })
        .then_with(|| restarts(b, ContainerRole::Regular).cmp(&restarts(a, ContainerRole::Regular)))
        .then_with(|| restarts(b, ContainerRole::Sidecar).cmp(&restarts(a, ContainerRole::Sidecar)))
        .then_with(|| newer_first(a.creation, b.creation))
}

/// The order of the phases. An unknown phase counts like `Unknown`.
fn phase_rank(phase: &PodPhase) -> u8 {
    match phase {
        PodPhase::Pending => 0,
        PodPhase::Running => 2,
        _ => 1,
    }
}

/// An unknown time counts as the most recent.
fn newer_first(a: Option<i64>, b: Option<i64>) -> Ordering {
    b.unwrap_or(i64::MAX).cmp(&a.unwrap_or(i64::MAX))
}

fn restarts(pod: &Pod, role: ContainerRole) -> i32 {
    pod.containers.iter().filter(|it| it.role == role).map(|it| it.restarts).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use api::Cached;
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut object = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
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

    #[test]
    fn pods_are_deleted_in_the_order_of_active_pods() {
        let first: [(&str, Change); 9] = [
            ("unassigned", |it| it["spec"]["nodeName"] = json!("")),
            ("pending", |it| it["status"]["phase"] = json!("Pending")),
            ("unknown", |it| it["status"]["phase"] = json!("Unknown")),
            ("not ready", |it| it["status"]["conditions"][0]["status"] = json!("False")),
            ("ready later", |it| it["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:21Z")),
            ("ready since an unknown time", |it| it["status"]["conditions"][0]["lastTransitionTime"] = Value::Null),
            ("more restarts", |it| it["status"]["containerStatuses"][0]["restartCount"] = json!(4)),
            ("more restarts of a sidecar", |it| it["status"]["initContainerStatuses"][0]["restartCount"] = json!(2)),
            ("newer", |it| it["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:11Z")),
        ];
        let base = pod(|_| {});
        for (name, change) in first {
            assert_eq!(deletion_order(&pod(change), &base), Ordering::Less, "{name}");
            assert_eq!(deletion_order(&base, &pod(change)), Ordering::Greater, "{name}, in reverse order");
        }
        assert_eq!(deletion_order(&base, &base), Ordering::Equal);
    }

    #[test]
    fn earlier_criteria_take_precedence_over_later_ones() {
        let unassigned_but_ready = pod(|it| it["spec"]["nodeName"] = json!(""));
        let pending_and_new = pod(|it| {
            it["status"]["phase"] = json!("Pending");
            it["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:59Z");
        });
        assert_eq!(deletion_order(&unassigned_but_ready, &pending_and_new), Ordering::Less);
        let unknown = pod(|it| it["status"]["phase"] = json!("Unknown"));
        assert_eq!(deletion_order(&pending_and_new, &unknown), Ordering::Less);
    }
}
