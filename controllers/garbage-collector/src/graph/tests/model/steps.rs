//! The possible events, and their frequency.

use api::{OwnerRef, Resource, Uid};
use proptest::prelude::*;

use super::super::super::TypeName;

/// Few, so that they interact.
const UIDS: usize = 7;
/// No object has the last name.
pub(super) const NAMES: [&str; UIDS + 1] = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"];
/// The types. The second and the third show the same objects, as when a preferred version changes.
pub(super) const TYPES: usize = 4;

pub(super) fn resource(of: usize) -> Resource {
    match of {
        0 => Resource::namespaced("", "v1", "pods", "Pod"),
        1 => Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"),
        2 => Resource::namespaced("apps", "v1beta1", "replicasets", "ReplicaSet"),
        _ => Resource::cluster("", "v1", "nodes", "Node"),
    }
}

/// The type that shows the object of this uid. If two types do, `other` selects the second.
pub(super) fn shown_by(uid: usize, other: bool) -> usize {
    match uid % 3 {
        0 => 0,
        1 if other => 2,
        1 => 1,
        _ => 3,
    }
}

pub(super) fn namespace(uid: usize) -> &'static str {
    match uid {
        2 | 5 => "",
        0 | 1 | 6 => "ns1",
        _ => "ns2",
    }
}

#[derive(Debug, Clone)]
pub(super) struct Claim {
    uid: usize,
    of: usize,
    misnamed: bool,
    blocks: bool,
}

impl Claim {
    pub(super) fn owner_ref(&self) -> OwnerRef {
        let TypeName { api_version, kind } = TypeName::from(&resource(self.of));
        let name = if self.misnamed { "wrong" } else { NAMES[self.uid] };
        let uid = Uid::new(NAMES[self.uid]);
        OwnerRef { api_version, kind, name: name.into(), uid, controller: false, block_owner_deletion: self.blocks }
    }
}

/// ResourceVersions are given as distances from the known one. `Again` shows the known state, as a relist does, or a
/// state that looks the same.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// `any`: in a complete set, so it counts even if it is older.
    Observe {
        uid: usize,
        other: bool,
        refs: Vec<Claim>,
        deleting: bool,
        finalizers: u8,
        age: u64,
        any: bool,
    },
    Again {
        uid: usize,
        later: i64,
    },
    Deleted {
        uid: usize,
        other: bool,
    },
    Missing {
        uid: usize,
        other: bool,
    },
    Absent {
        claim: Claim,
        namespace: &'static str,
        anywhere: bool,
    },
    Restart {
        of: usize,
    },
    FinalizersRemoved {
        uid: usize,
        at: i64,
    },
    AwaitNewer {
        uid: usize,
        than: i64,
    },
    Detached {
        uid: usize,
        from: i64,
        owners: Vec<usize>,
    },
    LiveOwner {
        claim: Claim,
        namespace: &'static str,
    },
    UnblockOwners {
        uid: usize,
    },
    Take,
}

fn claims() -> impl Strategy<Value = Claim> {
    // Mostly right, because otherwise references never match.
    let of = prop_oneof![4 => Just(None), 1 => (0..TYPES).prop_map(Some)];
    (0..UIDS, of, prop::bool::weighted(0.1), any::<bool>()).prop_map(|(uid, of, misnamed, blocks)| {
        let of = of.unwrap_or_else(|| shown_by(uid, false));
        Claim { uid, of, misnamed, blocks }
    })
}

/// Older, the same or newer; `same` and `newer` are weights against a weight of two for older.
fn versions(same: u32, newer: u32) -> impl Strategy<Value = i64> {
    prop_oneof![2 => -9i64..0, same => Just(0), newer => 1i64..15]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let other = prop::bool::weighted(0.2);
    let age = prop_oneof![4 => Just(0u64), 1 => 1u64..20];
    let (refs, deleting, any) =
        (prop::collection::vec(claims(), 0..4), prop::bool::weighted(0.3), prop::bool::weighted(0.3));
    let observe = (0..UIDS, other, refs, deleting, 0u8..8, age, any);
    let observe = observe.prop_map(|(uid, other, refs, deleting, finalizers, age, any)| Step::Observe {
        uid,
        other,
        refs,
        deleting,
        finalizers,
        age,
        any,
    });
    let spaces = || prop_oneof![Just(""), Just("ns1"), Just("ns2")];
    // Sometimes a uid that no monitor ever shows.
    let uid = || 0..NAMES.len();
    let step = prop_oneof![
        20 => observe,
        6 => (uid(), 0i64..5).prop_map(|(uid, later)| Step::Again { uid, later }),
        4 => (0..UIDS, prop::bool::weighted(0.2)).prop_map(|(uid, other)| Step::Deleted { uid, other }),
        2 => (0..UIDS, prop::bool::weighted(0.2)).prop_map(|(uid, other)| Step::Missing { uid, other }),
        6 => (claims(), spaces(), proptest::bool::weighted(0.2))
            .prop_map(|(claim, namespace, anywhere)| Step::Absent { claim, namespace, anywhere }),
        3 => (0..TYPES).prop_map(|of| Step::Restart { of }),
        8 => (uid(), versions(2, 8)).prop_map(|(uid, at)| Step::FinalizersRemoved { uid, at }),
        4 => (uid(), versions(5, 1)).prop_map(|(uid, than)| Step::AwaitNewer { uid, than }),
        4 => (uid(), versions(5, 1), prop::collection::vec(uid(), 1..4))
            .prop_map(|(uid, from, owners)| Step::Detached { uid, from, owners }),
        4 => (claims(), spaces()).prop_map(|(claim, namespace)| Step::LiveOwner { claim, namespace }),
        6 => uid().prop_map(|uid| Step::UnblockOwners { uid }),
        4 => Just(Step::Take),
    ];
    prop::collection::vec(step, 1..80)
}
