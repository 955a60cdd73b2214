//! The status of a set.

use api::{Pod, StatefulSetStatus, UpdateStrategyType};
use workload::is_available;

use crate::rules::{
    identity::revision,
    snapshot::{Snapshot, is_running_and_ready},
};

/// The next status. `deleted_for_update` is the number of outdated pods that this sync deleted: they still run, but do
/// not count as current any more.
pub(crate) fn next_status(snapshot: &Snapshot<'_>, collision_count: i32, deleted_for_update: i32) -> StatefulSetStatus {
    let mut status = snapshot.set.status.clone();
    status.observed_generation = snapshot.set.generation;
    status.current_revision = snapshot.revisions.current.into();
    status.update_revision = snapshot.revisions.update.into();
    status.collision_count = Some(collision_count);
    (status.replicas, status.ready, status.available, status.current, status.updated) = (0, 0, 0, 0, 0);
    if snapshot.is_deleting() {
        snapshot.members.iter().for_each(|it| count(&mut status, snapshot, it));
    } else {
        let slots = snapshot.slots.iter().filter_map(|it| it.pod);
        slots.chain(snapshot.condemned.iter().map(|it| it.pod)).for_each(|it| count(&mut status, snapshot, it));
    }
    status.current = status.current.saturating_sub(deleted_for_update).max(0);
    complete_update(snapshot, &mut status);
    status
}

/// The number of pods that count as current, unless this sync deletes them for an update.
pub(crate) fn count_current(snapshot: &Snapshot<'_>) -> i32 {
    let pods = snapshot.slots.iter().filter_map(|it| it.pod).chain(snapshot.condemned.iter().map(|it| it.pod));
    let is_current = |it: &&Pod| it.meta.deletion.is_none() && revision(it) == snapshot.revisions.current;
    i32::try_from(pods.filter(is_current).count()).unwrap_or(i32::MAX)
}

fn count(status: &mut StatefulSetStatus, snapshot: &Snapshot<'_>, pod: &Pod) {
    status.replicas += 1;
    if is_running_and_ready(pod) {
        status.ready += 1;
        status.available += i32::from(is_available(pod, snapshot.set.spec.min_ready_seconds, snapshot.now));
    }
    if pod.meta.deletion.is_none() {
        status.current += i32::from(revision(pod) == snapshot.revisions.current);
        status.updated += i32::from(revision(pod) == snapshot.revisions.update);
    }
}

/// When all pods are updated and ready, the update revision becomes the current one (`completeRollingUpdate`; also with
/// OnDelete, k/k#73492).
fn complete_update(snapshot: &Snapshot<'_>, status: &mut StatefulSetStatus) {
    let replicas = snapshot.set.spec.replicas;
    let is_known = !matches!(snapshot.set.spec.update_strategy, UpdateStrategyType::Other(_));
    // A surplus pod must not count for a missing one.
    let is_exact = snapshot.condemned.is_empty();
    if is_known && is_exact && [status.updated, status.ready, status.replicas].iter().all(|it| *it == replicas) {
        status.current = status.updated;
        status.current_revision = status.update_revision.clone();
    }
}

/// Whether the new status must be stored (`inconsistentStatus`).
pub(crate) fn is_changed(stored: &StatefulSetStatus, next: &StatefulSetStatus) -> bool {
    let counters = |it: &StatefulSetStatus| [it.replicas, it.ready, it.current, it.updated, it.available];
    next.observed_generation > stored.observed_generation
        || counters(next) != counters(stored)
        || next.current_revision != stored.current_revision
        || next.update_revision != stored.update_revision
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        rules::snapshot::Gates,
        testing::{pods, set, set_with, snapshot_of},
    };

    fn counters(status: &StatefulSetStatus) -> [i32; 5] {
        [status.replicas, status.ready, status.available, status.current, status.updated]
    }

    fn status_of(set: &api::StatefulSet, list: &[&str], deleted: i32) -> StatefulSetStatus {
        let pods = pods(list);
        next_status(&snapshot_of(set, &pods, Gates::default()), 0, deleted)
    }

    #[test]
    fn acceptance_sts_055_pods_are_counted_by_state() {
        let set = set(json!({ "replicas": 4, "minReadySeconds": 10 }));
        let four = ["0 new ready", "1 new ready", "2 new ready:5", "3 new running"];
        assert_eq!(counters(&status_of(&set, &four, 0)), [4, 3, 2, 0, 4]);
    }

    #[test]
    fn a_terminating_pod_is_neither_current_nor_updated() {
        let set = set(json!({}));
        let three = ["0 old ready", "1 new ready", "2 new ready deleting"];
        assert_eq!(counters(&status_of(&set, &three, 0)), [3, 3, 3, 1, 1]);
        assert_eq!(
            counters(&status_of(&set, &["0 old ready", "4 old ready"], 0)),
            [2, 2, 2, 2, 0],
            "also surplus pods"
        );
    }

    #[test]
    fn acceptance_sts_039_a_pod_deleted_for_an_update_is_not_current_any_more() {
        let all = ["0 old ready", "1 old ready", "2 old ready"];
        assert_eq!(status_of(&set(json!({})), &all, 0).current, 3);
        assert_eq!(status_of(&set(json!({})), &all, 1).current, 2);
    }

    #[test]
    fn acceptance_sts_035_all_updated_and_ready_pods_complete_an_update() {
        for strategy in [json!({ "type": "RollingUpdate" }), json!({ "type": "OnDelete" })] {
            let set = set(json!({ "replicas": 2, "updateStrategy": strategy }));
            let status = |list: &[&str]| {
                let status = status_of(&set, list, 0);
                (status.current, status.current_revision.to_string())
            };
            assert_eq!(status(&["0 new ready", "1 new ready"]), (2, "new".to_owned()), "{strategy}");
            assert_eq!(status(&["0 new ready", "1 new running"]), (0, "old".to_owned()));
            assert_eq!(status(&["0 old ready", "1 new ready"]), (1, "old".to_owned()));
            assert_eq!(status(&["0 new ready", "1 new ready", "2 new ready"]), (0, "old".to_owned()), "a surplus pod");
        }
    }

    #[test]
    fn a_surplus_pod_does_not_complete_an_update() {
        let set = set(json!({ "replicas": 2 }));
        let status = status_of(&set, &["0 new ready", "2 new ready"], 0);
        assert_eq!((counters(&status), &*status.current_revision), ([2, 2, 2, 0, 2], "old"));
    }

    #[test]
    fn a_status_is_written_only_if_a_counter_a_revision_or_the_generation_changed() {
        let set = set_with(json!({}), json!({}), json!({ "conditions": [{ "type": "Kept" }] }));
        let status = status_of(&set, &["0 old ready"], 0);
        assert!(serde_json::to_string(&status).unwrap().contains("Kept"), "other fields are kept");
        let change = |change: fn(&mut StatefulSetStatus)| {
            let mut next = status.clone();
            change(&mut next);
            is_changed(&status, &next)
        };
        assert!(!change(|_| ()) && !change(|it| it.collision_count = Some(9)));
        assert!(!change(|it| it.observed_generation = 0), "an older generation");
        for changed in [
            change(|it| it.observed_generation = 2),
            change(|it| it.replicas = 7),
            change(|it| it.available = 7),
            change(|it| it.update_revision = "x".into()),
        ] {
            assert!(changed);
        }
    }
}
