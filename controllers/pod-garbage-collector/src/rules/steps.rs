//! What one pod still needs. Pure.

use std::sync::Arc;

use api::Pod;
use workload::is_terminal;

/// Why a pod is deleted; the label `reason` of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There are more terminated pods than the threshold.
    Terminated,
    /// It is terminating, and its node is out of service.
    OutOfService,
    /// Its node does not exist.
    Orphaned,
    /// It is terminating without a node.
    Unscheduled,
}

impl Reason {
    /// The value of the label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }
}

/// The requests that the deletion of a pod still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    /// A patch of the phase, before the deletion.
    pub(crate) mark_failed: bool,
    /// A DELETE without grace.
    pub(crate) delete: bool,
}

impl Steps {
    pub(crate) fn of(pod: &Pod) -> Self {
        // Only its finalizers keep it, and another DELETE would change nothing (k/k#141190).
        let is_held = pod.meta.deletion.is_some() && pod.deletion_grace == Some(0) && !pod.meta.finalizers.is_empty();
        Self { mark_failed: !is_terminal(pod), delete: !is_held }
    }

    /// Nothing remains to be done.
    pub(crate) fn are_done(self) -> bool {
        !self.mark_failed && !self.delete
    }
}

/// Sorts pods with a controller first, because only these are replaced; then by namespace and name.
pub(crate) fn sort_by_priority(pods: &mut [Arc<Pod>]) {
    pods.sort_by(|a, b| {
        let key = |it: &Pod| it.meta.as_ref().controller().is_none();
        let names = || (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name));
        key(a).cmp(&key(b)).then_with(names)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pod, pod_names, pods};

    fn check(words: &str, mark_failed: bool, delete: bool) {
        assert_eq!(Steps::of(&pod(words)), Steps { mark_failed, delete }, "{words}");
    }

    #[test]
    fn a_pod_that_has_not_ended_is_marked_before_it_is_deleted() {
        for phase in ["Pending", "Running", "Unknown", "NoPhase"] {
            check(&format!("a {phase}"), true, true);
        }
        check("a Failed", false, true);
        check("a Succeeded", false, true);
    }

    #[test]
    fn a_pod_that_only_its_finalizers_keep_is_not_deleted_again() {
        check("a Failed deleting grace=0 held", false, false);
        check("a Running deleting grace=0 held", true, false);
        check("a Failed deleting grace=30 held", false, true);
        check("a Failed deleting grace=0", false, true);
        check("a Failed deleting held", false, true);
        check("a Failed held", false, true);
        assert!(Steps::of(&pod("a Succeeded deleting grace=0 held")).are_done());
        assert!(!Steps::of(&pod("a Running deleting grace=0 held")).are_done());
    }

    #[test]
    fn pods_with_a_controller_go_first() {
        let mut all = pods(&["d", "b owned", "c", "a owned in y", "e owned"]);
        sort_by_priority(&mut all);
        assert_eq!(pod_names(&all), ["b", "e", "a", "c", "d"]);
    }
}
