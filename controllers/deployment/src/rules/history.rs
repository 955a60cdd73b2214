//! Which old ReplicaSets are deleted.

use api::ReplicaSet;

use crate::rules::{annotations, snapshot::Snapshot};

/// The old ReplicaSets over the limit, lowest revision first (`cleanupDeployment`). A set that has pods, or whose last
/// change its controller has not observed, stays, and no other is deleted in its place.
pub(crate) fn surplus(snapshot: &Snapshot<'_>) -> Vec<usize> {
    let Some(limit) = snapshot.deployment.spec.history_limit else { return Vec::new() };
    let limit = usize::try_from(limit).unwrap_or_default();
    let mut old: Vec<(usize, &ReplicaSet)> = snapshot.old().filter(|(_, set)| set.meta.deletion.is_none()).collect();
    // The sort is stable, so sets of one revision stay in the order of their creation. A revision that is no number has
    // no place in the order; such a set is kept longest.
    old.sort_by_key(|(_, set)| annotations::revision(&set.annotations).unwrap_or(i64::MAX));
    old.truncate(old.len().saturating_sub(limit));
    old.into_iter().filter(|(_, set)| is_unused(set)).map(|(at, _)| at).collect()
}

fn is_unused(set: &ReplicaSet) -> bool {
    set.status.replicas == 0 && set.spec.replicas == 0 && set.status.observed_generation >= set.generation
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{World, deployment};

    fn surplus_names(limit: Value, sets: &[&str]) -> Vec<String> {
        let world = World::new(deployment(json!({ "revisionHistoryLimit": limit })), sets);
        let snapshot = world.snapshot();
        surplus(&snapshot).into_iter().map(|at| snapshot.sets[at].meta.name.to_string()).collect()
    }

    #[test]
    fn acceptance_deploy_055_the_limit_counts_old_sets() {
        let sets = ["n new 3", "a old 0 revision:1", "b old 0 revision:2"];
        assert_eq!(surplus_names(json!(0), &sets), ["a", "b"]);
        assert_eq!(surplus_names(json!(1), &sets), ["a"]);
        for unlimited in [json!(2_147_483_647), Value::Null] {
            assert_eq!(surplus_names(unlimited, &sets), [""; 0]);
        }
    }

    #[test]
    fn acceptance_deploy_056_the_lowest_revisions_are_deleted() {
        let sets = ["a old 0 revision:10", "b old 0 revision:2", "c old 0 revision:9", "d old 0 revision:1"];
        assert_eq!(surplus_names(json!(2), &sets), ["d", "b"]);
        let ties = ["a old 0 revision:2 age:1", "b old 0 revision:2 age:2", "c old 0 revision:x age:3"];
        assert_eq!(surplus_names(json!(2), &ties), ["b"], "the older one of one revision");
    }

    #[test]
    fn acceptance_deploy_057_a_set_in_use_stays_and_no_other_is_deleted_in_its_place() {
        for first in ["a old 0 pods:1 revision:1", "a old 1 revision:1", "a old 0 unobserved revision:1"] {
            assert_eq!(surplus_names(json!(1), &[first, "b old 0 revision:2"]), [""; 0], "{first}");
            assert_eq!(surplus_names(json!(0), &[first, "b old 0 revision:2"]), ["b"], "{first}");
        }
    }

    #[test]
    fn acceptance_deploy_058_a_set_that_is_being_deleted_does_not_count() {
        let sets = ["a old 0 deleting revision:1", "b old 0 revision:2", "c old 0 revision:3"];
        assert_eq!(surplus_names(json!(2), &sets), [""; 0]);
        assert_eq!(surplus_names(json!(1), &sets), ["b"]);
    }
}
