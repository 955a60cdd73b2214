//! What a list of one kind in one namespace shows, and what follows from it.

use std::collections::BTreeMap;

use api::{Atom, Meta, Resource, Uid};

use crate::rules::grace;

/// The remaining objects of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// The number of objects.
    pub(crate) count: u64,
    /// The number of objects with each finalizer. An object with two finalizers counts for both.
    pub(crate) finalizers: BTreeMap<Atom, u64>,
    /// The objects for which a DELETE has an effect.
    pub(crate) to_delete: Vec<Target>,
    /// The latest deletionTimestamp. For pods it is the end of the longest grace period.
    pub(crate) latest_deletion: Option<i64>,
}

/// An object with its uid, so that a later object of the same name is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: Box<str>,
    pub(crate) uid: Uid,
}

/// What the remaining objects mean for this pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemainsState {
    /// No object remains.
    Gone,
    /// They should be gone in about this many seconds without another request.
    Pending(u64),
    /// They should be gone already.
    Stuck(String),
}

impl Remains {
    /// Counts one object at the wall time `now`.
    pub(crate) fn add(&mut self, meta: &Meta, now: i64) {
        self.count += 1;
        for finalizer in &*meta.finalizers {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        // A DELETE with background propagation removes these two finalizers, and what they wait for may never happen.
        let waits = meta.finalizers.iter().any(|it| matches!(&**it, "orphan" | "foregroundDeletion"));
        // The server marks an object first and removes it in a second step. Another DELETE causes that step
        // (`rest.BeforeDelete`).
        let overdue = meta.finalizers.is_empty() && meta.deletion.is_some_and(|it| it <= now);
        if meta.deletion.is_none() || waits || overdue {
            self.to_delete.push(Target { name: meta.name.clone(), uid: meta.uid.clone() });
        }
        self.latest_deletion = self.latest_deletion.max(meta.deletion);
    }

    /// The state of the remaining objects of `kind` in `namespace`, with `grace` more seconds allowed.
    pub(crate) fn state(&self, kind: &Resource, namespace: &str, grace: u64) -> RemainsState {
        if self.count == 0 {
            RemainsState::Gone
        } else if grace > 0 {
            RemainsState::Pending(grace)
        } else if !self.finalizers.is_empty() {
            RemainsState::Pending(grace::FINALIZER_ESTIMATE)
        } else {
            let Resource { group, version, plural, .. } = kind;
            let gvr = format!("{group}/{version}, Resource={plural}");
            RemainsState::Stuck(format!("unexpected items still remain in namespace: {namespace} for gvr: {gvr}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 5;

    fn object(finalizers: &[&str], deletion: Option<i64>) -> Meta {
        let finalizers = finalizers.iter().map(|it| Atom::from(*it)).collect();
        Meta { name: "a".into(), uid: Uid::new("uid-a"), finalizers, deletion, ..Meta::default() }
    }

    fn of(objects: &[Meta]) -> Remains {
        let mut remains = Remains::default();
        objects.iter().for_each(|it| remains.add(it, NOW));
        remains
    }

    #[test]
    fn an_object_counts_under_each_of_its_finalizers() {
        let remains = of(&[object(&["a", "b"], Some(7)), object(&["b"], None), object(&[], Some(6))]);
        let finalizers = BTreeMap::from([("a".into(), 1), ("b".into(), 2)]);
        let to_delete = vec![Target { name: "a".into(), uid: Uid::new("uid-a") }];
        let want = Remains { count: 3, finalizers, to_delete, latest_deletion: Some(7) };
        assert_eq!(remains, want);
    }

    #[test]
    fn a_terminating_object_is_deleted_again_while_it_waits_for_the_garbage_collector_or_is_overdue() {
        for (finalizers, deletion, want) in [
            (&[][..], None, true),
            (&["x"], None, true),
            (&[], Some(NOW + 1), false),
            (&[], Some(NOW), true),
            (&["x"], Some(NOW), false),
            (&["x"], Some(7), false),
            (&["x", "foregroundDeletion"], Some(7), true),
            (&["orphan"], Some(7), true),
        ] {
            let remains = of(&[object(finalizers, deletion)]);
            assert_eq!(!remains.to_delete.is_empty(), want, "{finalizers:?} {deletion:?}");
        }
    }

    #[test]
    fn overdue_objects_are_stuck_and_others_pending() {
        let stuck = "unexpected items still remain in namespace: ns for gvr: /v1, Resource=pods";
        let cases = [
            ("nothing remains", of(&[]), 0, RemainsState::Gone),
            ("nothing remains after a grace period", of(&[]), 30, RemainsState::Gone),
            ("in its grace period", of(&[object(&[], Some(30))]), 30, RemainsState::Pending(30)),
            ("in its grace period, with a finalizer", of(&[object(&["a"], Some(30))]), 30, RemainsState::Pending(30)),
            ("after its grace period, with a finalizer", of(&[object(&["a"], Some(3))]), 0, RemainsState::Pending(15)),
            (
                "after its grace period, without a finalizer",
                of(&[object(&[], Some(3))]),
                0,
                RemainsState::Stuck(stuck.to_owned()),
            ),
            ("created after the deletion request", of(&[object(&[], None)]), 0, RemainsState::Stuck(stuck.to_owned())),
        ];
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        for (name, remains, grace, want) in cases {
            assert_eq!(remains.state(&pods, "ns", grace), want, "{name}");
        }
    }
}
