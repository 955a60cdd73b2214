//! The input of a decision.

use std::sync::Arc;

use api::{Deployment, ReplicaSet};
use clock::Timestamp;

use crate::rules::{
    annotations::{self, Annotations},
    limits::Limits,
};

/// What is known of a Deployment at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The Deployment in the cache.
    pub(crate) deployment: &'a Deployment,
    /// All annotations of the Deployment.
    pub(crate) annotations: Annotations,
    /// Its ReplicaSets, see [`sort`].
    pub(crate) sets: &'a [Arc<ReplicaSet>],
    /// The position of the new ReplicaSet, see [`new_set`].
    pub(crate) new: Option<usize>,
    /// All annotations of the new ReplicaSet.
    pub(crate) new_annotations: Annotations,
    /// The name that a new ReplicaSet would get. Valid only if there is none. A ReplicaSet with another template may have it.
    pub(crate) name_of_new: String,
    /// A pod of an old ReplicaSet has not ended. Known only for the strategy Recreate.
    pub(crate) has_old_pods: bool,
    /// The feature gate DeploymentReplicaSetTerminatingReplicas.
    pub(crate) reports_terminating: bool,
    /// The time of the decision.
    pub(crate) now: Timestamp,
}

/// Sorts ReplicaSets by creation, oldest first, then by name.
pub(crate) fn sort(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by(|a, b| (a.creation, &a.meta.name).cmp(&(b.creation, &b.meta.name)));
}

/// The position of the new ReplicaSet: the oldest one with the template of the Deployment (k/k#40415). All others are
/// old.
pub(crate) fn new_set<E>(
    sorted: &[Arc<ReplicaSet>],
    mut has_template: impl FnMut(&ReplicaSet) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    for (at, set) in sorted.iter().enumerate() {
        if has_template(set)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

impl<'a> Snapshot<'a> {
    /// The resolved limits of a rollout.
    pub(crate) fn limits(&self) -> Limits {
        Limits::of(&self.deployment.spec)
    }

    /// The new ReplicaSet.
    pub(crate) fn new_set(&self) -> Option<&'a ReplicaSet> {
        self.sets.get(self.new?).map(|it| &**it)
    }

    /// All ReplicaSets with their positions, oldest first.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = (usize, &'a ReplicaSet)> + use<'a> {
        self.sets.iter().map(|it| &**it).enumerate()
    }

    /// The old ReplicaSets with their positions, oldest first.
    pub(crate) fn old(&self) -> impl DoubleEndedIterator<Item = (usize, &'a ReplicaSet)> + use<'a> {
        let new = self.new;
        self.all().filter(move |(at, _)| Some(*at) != new)
    }

    /// The ReplicaSets whose size is not zero, with their positions, oldest first.
    pub(crate) fn active(&self) -> impl DoubleEndedIterator<Item = (usize, &'a ReplicaSet)> + use<'a> {
        self.all().filter(|(_, set)| set.spec.replicas > 0)
    }

    /// The old ones among them.
    pub(crate) fn active_old(&self) -> impl DoubleEndedIterator<Item = (usize, &'a ReplicaSet)> + use<'a> {
        self.old().filter(|(_, set)| set.spec.replicas > 0)
    }

    /// The sum of all sizes.
    pub(crate) fn total(&self) -> i64 {
        self.all().map(|(_, set)| size(set)).sum()
    }

    /// The number of a ReplicaSet that is new now: one more than the highest of the old ones. A revision that is no
    /// number does not count.
    pub(crate) fn next_revision(&self) -> i64 {
        let highest = self.old().filter_map(|(_, set)| annotations::revision(&set.annotations)).max();
        highest.unwrap_or_default().max(0).saturating_add(1)
    }
}

/// The size of a ReplicaSet.
pub(crate) fn size(set: &ReplicaSet) -> i64 {
    i64::from(set.spec.replicas)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{World, deployment};

    #[test]
    fn acceptance_deploy_010_of_two_equal_sets_the_older_one_is_new() {
        let world = World::new(deployment(json!({})), &["b new 3 age:10", "c new 3 age:20", "a new 3 age:20"]);
        let snapshot = world.snapshot();
        assert_eq!(snapshot.new_set().map(|it| &*it.meta.name), Some("a"));
        assert_eq!(snapshot.old().map(|(_, it)| &*it.meta.name).collect::<Vec<_>>(), ["c", "b"]);
    }

    #[test]
    fn acceptance_deploy_008_the_next_revision_is_above_those_of_the_old_sets() {
        let next = |sets: &[&str]| World::new(deployment(json!({})), sets).snapshot().next_revision();
        assert_eq!(next(&[]), 1);
        assert_eq!(next(&["a old 0 revision:3", "b old 0", "c old 0 revision:x", "d new 0 revision:9"]), 4);
        assert_eq!(next(&["a old 0 revision:3546343826724305832"]), 3_546_343_826_724_305_833);
    }
}
