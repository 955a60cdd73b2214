//! The status of a set.

use api::DaemonSetStatus;
use workload::is_ready;

use crate::rules::{placement::NodeFit, snapshot::Snapshot};

/// The next status. `is_observed`: this sync did what the present spec wants. Otherwise only the counters change.
pub(crate) fn next_status(snapshot: &Snapshot<'_>, collision_count: Option<i32>, is_observed: bool) -> DaemonSetStatus {
    let mut status = snapshot.set.status.clone();
    if is_observed {
        status.observed_generation = snapshot.set.generation;
    }
    status.collision_count = collision_count;
    let mut counters = Counters::default();
    for node in &snapshot.nodes {
        // On a node with two pods the older one counts, so a surge counts as updated when that is gone.
        let first = node.pods().next();
        match (node.fit, first) {
            (NodeFit::ShouldRun, None) => counters.desired += 1,
            (NodeFit::ShouldRun, Some(pod)) => {
                let ready = is_ready(pod);
                counters.desired += 1;
                counters.current += 1;
                counters.ready += i32::from(ready);
                counters.available += i32::from(ready && snapshot.is_available(pod));
                counters.updated += i32::from(snapshot.is_updated(pod));
            }
            (NodeFit::ShouldContinueRunning | NodeFit::MustNotRun, Some(_)) => counters.misscheduled += 1,
            (NodeFit::ShouldContinueRunning | NodeFit::MustNotRun, None) => {}
        }
    }
    counters.write_to(&mut status);
    status
}

/// The numbers of a status.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    desired: i32,
    current: i32,
    misscheduled: i32,
    ready: i32,
    updated: i32,
    available: i32,
}

impl Counters {
    fn of(status: &DaemonSetStatus) -> Self {
        let DaemonSetStatus { desired, current, misscheduled, ready, updated, available, .. } = *status;
        Self { desired, current, misscheduled, ready, updated, available }
    }

    fn write_to(self, status: &mut DaemonSetStatus) {
        let Self { desired, current, misscheduled, ready, updated, available } = self;
        (status.desired, status.current, status.misscheduled) = (desired, current, misscheduled);
        (status.ready, status.updated, status.available) = (ready, updated, available);
        status.unavailable = desired.saturating_sub(available);
    }
}

/// The same status for a newer state of the set, which keeps its other fields.
pub(crate) fn transfer(next: &DaemonSetStatus, mut newer: DaemonSetStatus) -> DaemonSetStatus {
    newer.observed_generation = next.observed_generation.max(newer.observed_generation);
    newer.collision_count = next.collision_count.max(newer.collision_count);
    Counters::of(next).write_to(&mut newer);
    newer
}

/// Whether the new status must be stored.
pub(crate) fn is_changed(stored: &DaemonSetStatus, next: &DaemonSetStatus) -> bool {
    next.observed_generation > stored.observed_generation
        || next.collision_count != stored.collision_count
        || next.unavailable != stored.unavailable
        || Counters::of(next) != Counters::of(stored)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Rows, set, set_with};

    /// desired, current, misscheduled, ready, updated, available, unavailable
    fn numbers(status: &DaemonSetStatus) -> [i32; 7] {
        let DaemonSetStatus { desired, current, misscheduled, ready, updated, available, unavailable, .. } = *status;
        [desired, current, misscheduled, ready, updated, available, unavailable]
    }

    fn status(spec: serde_json::Value, rows: &[&str]) -> [i32; 7] {
        let set = set(spec);
        numbers(&next_status(&Rows::new(rows).snapshot(&set), None, true))
    }

    #[test]
    fn acceptance_ds_057_pods_are_counted_by_state() {
        let rows = ["n1: new ready", "n2: new ready", "n3: new ready:5", "n4: new running", "n5:"];
        assert_eq!(status(json!({ "minReadySeconds": 10 }), &rows), [5, 4, 0, 3, 4, 2, 3]);
    }

    #[test]
    fn pods_on_nodes_that_should_not_run_them_are_misscheduled() {
        let rows = ["n1 keep: old ready", "n2 no: new deleting", "n3: old deleting", "n4 keep:"];
        assert_eq!(status(json!({}), &rows), [1, 1, 2, 0, 0, 0, 1]);
        assert_eq!(status(json!({}), &[]), [0; 7]);
    }

    #[test]
    fn of_two_pods_the_bound_and_older_one_counts() {
        assert_eq!(status(json!({}), &["n1: new ready / old ready age:3000"]), [1, 1, 0, 1, 0, 1, 0]);
        assert_eq!(status(json!({}), &["n1: new ready age:1 / old pending unbound age:9"]), [1, 1, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn a_pod_that_has_ended_and_is_held_does_not_count() {
        assert_eq!(status(json!({}), &["n1: new failed deleting"]), [1, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn acceptance_ds_031_072_the_generation_waits_and_other_fields_are_kept() {
        let set = set_with(
            json!({}),
            json!({ "generation": 4 }),
            json!({ "observedGeneration": 3, "conditions": [{ "type": "Kept" }] }),
        );
        let rows = Rows::new(&["n1: new ready"]);
        let observed = |is_observed: bool| next_status(&rows.snapshot(&set), None, is_observed);
        assert_eq!((observed(false).observed_generation, observed(true).observed_generation), (3, 4));
        let text = serde_json::to_string(&observed(true)).unwrap();
        assert!(text.contains("Kept"), "{text}");
        assert!(is_changed(&set.status, &observed(false)) && !is_changed(&observed(true), &observed(false)));
        let kept = serde_json::to_string(&transfer(&observed(true), set.status.clone())).unwrap();
        assert_eq!(kept, text);
    }
}
