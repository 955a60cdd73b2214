//! The metrics.
//!
//! | family | content |
//! |---|---|
//! | `garbagecollector_controller_resources_sync_error_total` | as upstream: discovery passes that failed, monitors that could not start or did not sync in time |
//! | `mini_kcm_garbage_collector_deletes_total{reason,policy}` | deleted objects: their owners are gone, or an owner waits for them |
//! | `mini_kcm_garbage_collector_references_removed_total{reason}` | objects that lost references and stay: another owner exists, or they were orphaned |
//! | `mini_kcm_garbage_collector_owner_reads_total{result}` | live reads of owners, by what they proved |
//! | `mini_kcm_garbage_collector_unresolvable_objects{why}` | objects that stay because an owner cannot be looked up |
//! | `mini_kcm_garbage_collector_held_deletes` | objects that `--gc-max-deletes-per-minute` delays |

use std::collections::HashMap;

use api::Uid;
use client::Propagation;
use metrics::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Metrics};
use parking_lot::Mutex;

use crate::{
    graph::TypeName,
    owners::owner_reads::Unlocatable,
    rules::{
        evidence::{OwnerState, Unproved},
        verdict::DeleteReason,
    },
};

/// The metrics of this controller.
pub(crate) struct Meters {
    /// The only metric that upstream has too. Discovery and monitors count it.
    pub(crate) sync_errors: IntCounter,
    /// The number of deletes that the delete limiter delays.
    pub(crate) held: IntGauge,
    deletes: IntCounterVec,
    detached: IntCounterVec,
    reads: IntCounterVec,
    unresolved: IntGaugeVec,
    unresolved_objects: Mutex<UnresolvedObjects>,
}

/// Why an object lost references and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetachReason {
    /// Another owner exists.
    OwnerLives,
    /// Its owner was deleted with the orphan policy.
    Orphaned,
}

/// Why an owner cannot be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum UnresolvedReason {
    /// No resource is known for its apiVersion and kind.
    UnknownKind,
    /// The server does not serve the resource any more, or not yet.
    NotServed,
    /// Its type is namespaced, and its dependent is cluster-scoped.
    Misplaced,
    /// No object can have this name.
    Misnamed,
    /// The read failed.
    Failed,
}

/// Objects whose owners cannot be looked up, as long as they are in the graph and name those owners.
#[derive(Default)]
struct UnresolvedObjects {
    of: HashMap<Uid, (TypeName, UnresolvedReason)>,
    /// The number of objects with the same type and reason.
    alike: HashMap<(TypeName, UnresolvedReason), usize>,
}

impl UnresolvedReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::UnknownKind => "unknown_kind",
            Self::NotServed => "not_served",
            Self::Misplaced => "misplaced",
            Self::Misnamed => "misnamed",
            Self::Failed => "failed",
        }
    }
}

impl From<&Unproved> for UnresolvedReason {
    fn from(unproved: &Unproved) -> Self {
        match unproved {
            Unproved::NotServed(_) => Self::NotServed,
            Unproved::Failed(_) | Unproved::Unrelated => Self::Failed,
        }
    }
}

impl From<Unlocatable> for UnresolvedReason {
    fn from(unlocatable: Unlocatable) -> Self {
        match unlocatable {
            Unlocatable::Misplaced => Self::Misplaced,
            Unlocatable::Misnamed => Self::Misnamed,
        }
    }
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let name = |name: &str| format!("mini_kcm_garbage_collector_{name}");
        let sync_errors = metrics.counters(
            "garbagecollector_controller_resources_sync_error_total",
            "Number of garbage collector resources sync errors",
            &[],
        );
        let held = metrics.gauges(
            &name("held_deletes"),
            "Objects whose deletion is delayed by --gc-max-deletes-per-minute.",
            &[],
        );
        let unresolved = metrics.gauges(
            &name("unresolvable_objects"),
            "Objects that stay because one of their owners cannot be looked up.",
            &["why"],
        );
        // An earlier run of the controller in this process has counted them too.
        unresolved.reset();
        Self {
            sync_errors: sync_errors.with_label_values::<&str>(&[]),
            held: held.with_label_values::<&str>(&[]),
            deletes: metrics.counters(&name("deletes_total"), "Objects deleted.", &["reason", "policy"]),
            detached: metrics.counters(
                &name("references_removed_total"),
                "Objects that lost references to owners and stay.",
                &["reason"],
            ),
            reads: metrics.counters(&name("owner_reads_total"), "Live reads of owners.", &["result"]),
            unresolved,
            unresolved_objects: Mutex::default(),
        }
    }

    pub(crate) fn record_delete(&self, reason: DeleteReason, policy: Propagation) {
        self.deletes.with_label_values(&[reason.as_str(), policy_name(policy)]).inc();
    }

    pub(crate) fn record_detached(&self, why: DetachReason) {
        let why = match why {
            DetachReason::OwnerLives => "owner_lives",
            DetachReason::Orphaned => "orphaned",
        };
        self.detached.with_label_values(&[why]).inc();
    }

    /// Counts a live read of an owner.
    pub(crate) fn record_owner_read(&self, owner_state: &Result<OwnerState, Unproved>) {
        let result = match owner_state {
            Ok(OwnerState::Gone(_) | OwnerState::Orphaned(_)) => "gone",
            Ok(OwnerState::Waiting(_)) => "waits",
            Ok(OwnerState::Live(_)) => "lives",
            Err(unproved) => UnresolvedReason::from(unproved).as_str(),
        };
        self.reads.with_label_values(&[result]).inc();
    }

    /// Records that an owner of this object, or the object itself if no monitor shows it, cannot be looked up. True if
    /// no other object has the same type and reason.
    pub(crate) fn record_unresolved(&self, object: &Uid, of: TypeName, why: UnresolvedReason) -> bool {
        let mut unresolved_objects = self.unresolved_objects.lock();
        if unresolved_objects.of.get(object).is_some_and(|it| it.0 == of && it.1 == why) {
            return false;
        }
        self.remove_unresolved(&mut unresolved_objects, object);
        unresolved_objects.of.insert(object.clone(), (of.clone(), why));
        let alike = unresolved_objects.alike.entry((of, why)).or_default();
        *alike += 1;
        self.unresolved.with_label_values(&[why.as_str()]).inc();
        *alike == 1
    }

    /// Records that the owners of this object can be looked up.
    pub(crate) fn clear_unresolved(&self, object: &Uid) {
        self.remove_unresolved(&mut self.unresolved_objects.lock(), object);
    }

    /// Removes objects that are gone or do not name that owner any more. It must be called periodically, because some
    /// objects are deleted without another pass.
    pub(crate) fn prune(&self, is_still: impl Fn(&Uid, &TypeName) -> bool) {
        let mut unresolved_objects = self.unresolved_objects.lock();
        let outdated: Vec<Uid> = unresolved_objects
            .of
            .iter()
            .filter(|(object, it)| !is_still(object, &it.0))
            .map(|(it, _)| it.clone())
            .collect();
        outdated.iter().for_each(|it| self.remove_unresolved(&mut unresolved_objects, it));
    }

    /// The type of the owner of this object that cannot be looked up, and why.
    pub(crate) fn unresolved_owner(&self, object: &Uid) -> Option<(TypeName, UnresolvedReason)> {
        self.unresolved_objects.lock().of.get(object).cloned()
    }

    fn remove_unresolved(&self, unresolved_objects: &mut UnresolvedObjects, object: &Uid) {
        let Some(entry) = unresolved_objects.of.remove(object) else { return };
        self.unresolved.with_label_values(&[entry.1.as_str()]).dec();
        if let Some(alike) = unresolved_objects.alike.get_mut(&entry) {
            *alike -= 1;
            if *alike == 0 {
                unresolved_objects.alike.remove(&entry);
            }
        }
    }
}

/// The values in upstream's spelling.
pub(crate) fn policy_name(policy: Propagation) -> &'static str {
    match policy {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unresolved_object_counts_once_and_only_the_first_of_a_type_is_new() {
        let metrics = Metrics::new();
        let meters = Meters::new(&metrics);
        let uid = |it: &str| Uid::new(it);
        let of = |kind: &str| TypeName { api_version: "x/v1".into(), kind: kind.into() };
        let shown = |why: &str| {
            let line = format!("mini_kcm_garbage_collector_unresolvable_objects{{why=\"{why}\"}} ");
            metrics.encode().lines().find_map(|it| it.strip_prefix(&line)?.parse::<i64>().ok())
        };
        assert!(meters.record_unresolved(&uid("a"), of("A"), UnresolvedReason::UnknownKind));
        assert!(!meters.record_unresolved(&uid("a"), of("A"), UnresolvedReason::UnknownKind), "again");
        assert!(
            !meters.record_unresolved(&uid("b"), of("A"), UnresolvedReason::UnknownKind),
            "another object of the type"
        );
        assert!(meters.record_unresolved(&uid("c"), of("B"), UnresolvedReason::UnknownKind), "another type");
        assert_eq!(shown("unknown_kind"), Some(3));
        assert!(meters.record_unresolved(&uid("a"), of("A"), UnresolvedReason::NotServed), "another reason");
        assert_eq!((shown("unknown_kind"), shown("not_served")), (Some(2), Some(1)));
        assert_eq!(meters.unresolved_owner(&uid("a")), Some((of("A"), UnresolvedReason::NotServed)));
        meters.clear_unresolved(&uid("a"));
        meters.clear_unresolved(&uid("unknown"));
        meters.prune(|object, of| *object == uid("c") && &*of.kind == "B");
        assert_eq!(shown("unknown_kind"), Some(1));
        meters.prune(|_, _| false);
        assert_eq!((shown("unknown_kind"), shown("not_served")), (Some(0), Some(0)));
        assert!(
            meters.record_unresolved(&uid("b"), of("A"), UnresolvedReason::UnknownKind),
            "a new failure after the end of the last one"
        );
    }
}
