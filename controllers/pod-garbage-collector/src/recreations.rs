//! The back-off of pods that are created again on a missing node under the same name, such as the mirror pods of a
//! kubelet that still runs (k/k#48213). A state machine without I/O, which gets the time as an argument.

use std::{collections::HashMap, time::Duration};

use api::{Atom, ObjectKey, Pod, Uid};
use clock::Instant;

use crate::QUARANTINE;

/// The longest wait before such a pod is deleted again.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// The entry of a pod that is not created again within this multiple of its delay is removed.
const FORGET_AFTER: u32 = 4;

/// The deleted pods of missing nodes.
#[derive(Default)]
pub(crate) struct Recreations(HashMap<Atom, HashMap<ObjectKey, Deletion>>);

/// The last deletion under one name.
struct Deletion {
    uid: Uid,
    at: Instant,
    /// How many pods of this name were deleted.
    count: u32,
}

impl Recreations {
    /// Records that a pod of a missing node was deleted.
    pub(crate) fn on_deleted(&mut self, pod: &Pod, now: Instant) {
        let names = self.0.entry(pod.node.clone()).or_default();
        let new = || Deletion { uid: pod.meta.uid.clone(), at: now, count: 0 };
        let deletion = names.entry(pod.meta.as_ref().key()).or_insert_with(new);
        let is_repeated = deletion.count > 0 && deletion.uid == pod.meta.uid;
        if !is_repeated {
            *deletion = Deletion { count: deletion.count.saturating_add(1), ..new() };
        }
    }

    /// Removes the pods of a node that exists again.
    pub(crate) fn on_node_added(&mut self, node: &Atom) {
        self.0.remove(node);
    }

    /// How long the pod must still wait for its deletion; `None` if it need not wait.
    pub(crate) fn wait(&self, pod: &Pod, now: Instant) -> Option<Duration> {
        let deletion = self.0.get(&pod.node)?.get(&pod.meta.as_ref().key())?;
        let is_recreated = deletion.uid != pod.meta.uid;
        let due = deletion.at + deletion.delay();
        (is_recreated && now < due).then(|| due - now)
    }

    /// Removes the pods that were not created again.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, names| {
            names.retain(|_, it| now < it.at + it.delay() * FORGET_AFTER);
            !names.is_empty()
        });
    }
}

impl Deletion {
    /// The time from this deletion to the next one. The first equals the quarantine, so it has no effect.
    fn delay(&self) -> Duration {
        let doublings = self.count.saturating_sub(1).min(16);
        (QUARANTINE * (1 << doublings)).min(MAX_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clock::Clock;

    use super::*;
    use crate::testing::pod;

    const SEC: Duration = Duration::from_secs(1);

    fn mirror(uid: u32) -> Arc<Pod> {
        Arc::new(Pod {
            meta: api::Meta { uid: Uid::new(&uid.to_string()), ..pod("mirror on n1").meta },
            ..pod("mirror on n1")
        })
    }

    /// The waits of a pod that is deleted as soon as it may be, and returns at once.
    fn delays(recreations: &mut Recreations, count: u32) -> Vec<u64> {
        let mut now = Clock::system().now();
        let mut waits = Vec::new();
        for uid in 0..count {
            let wait = recreations.wait(&mirror(uid), now).unwrap_or_default();
            now += wait;
            recreations.on_deleted(&mirror(uid), now);
            recreations.forget_old(now);
            waits.push(wait.as_secs());
        }
        waits
    }

    #[test]
    fn the_delay_doubles_with_each_recreation_up_to_an_hour() {
        let mut recreations = Recreations::default();
        assert_eq!(delays(&mut recreations, 11), [0, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]);
    }

    #[test]
    fn only_a_new_pod_of_the_same_name_and_node_waits() {
        let (mut recreations, now) = (Recreations::default(), Clock::system().now());
        recreations.on_deleted(&mirror(1), now);
        // Its deletion is repeated while a finalizer keeps it.
        recreations.on_deleted(&mirror(1), now + 10 * SEC);
        assert_eq!(recreations.wait(&mirror(1), now + 10 * SEC), None);
        assert_eq!(recreations.wait(&mirror(2), now + 10 * SEC), Some(30 * SEC));
        assert_eq!(recreations.wait(&mirror(2), now + 40 * SEC), None);
        assert_eq!(recreations.wait(&pod("mirror on n2"), now), None, "a StatefulSet replaces it on another node");
        assert_eq!(recreations.wait(&pod("other on n1"), now), None);
    }

    #[test]
    fn a_pod_that_does_not_return_and_a_node_that_does_are_forgotten() {
        let (mut recreations, now) = (Recreations::default(), Clock::system().now());
        recreations.on_deleted(&mirror(1), now);
        recreations.forget_old(now + 159 * SEC);
        assert_eq!(recreations.0.len(), 1);
        recreations.forget_old(now + 160 * SEC);
        assert!(recreations.0.is_empty());
        recreations.on_deleted(&mirror(1), now);
        recreations.on_node_added(&"n1".into());
        assert!(recreations.0.is_empty());
    }
}
