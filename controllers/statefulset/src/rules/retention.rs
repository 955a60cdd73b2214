//! The owner references of claims (KEP-1847): which references a claim must have, and how it gets them.
//!
//! A claim whose pod is scaled down is owned by the pod, so that the garbage collector deletes it after the pod. A
//! claim that must go with the set is owned by the set.

use api::{ClaimRetention, OwnerRef, StatefulSet, Uid};
use serde_json::{Value, json};

/// How a claim refers to a set.
const API_VERSION: &str = "apps/v1";
const KIND: &str = "StatefulSet";

/// The objects that may own a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PossibleOwners<'a> {
    /// The set.
    pub(crate) set: &'a StatefulSet,
    /// The name of the pod.
    pub(crate) pod_name: &'a str,
    /// The uid of the pod; `None` if the pod does not exist yet.
    pub(crate) pod_uid: Option<&'a Uid>,
    /// The pod is not needed any more.
    pub(crate) is_condemned: bool,
}

/// Whether the references of a claim must be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerCheck {
    /// They are right, or they are not ours to change.
    UpToDate,
    /// They must be those of [`PossibleOwners::corrected`].
    Outdated,
}

/// The object that a reference of a claim names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// The set, or an earlier set of the same name.
    Set,
    /// The pod, or an earlier pod of the same name.
    Pod,
    /// Something else.
    Other,
}

impl PossibleOwners<'_> {
    fn named(&self, api_version: &str, kind: &str, name: &str) -> Named {
        match (api_version, kind) {
            (API_VERSION, KIND) if *name == *self.set.meta.name => Named::Set,
            ("v1", "Pod") if name == self.pod_name => Named::Pod,
            _ => Named::Other,
        }
    }

    fn named_by(&self, reference: &OwnerRef) -> Named {
        self.named(&reference.api_version, &reference.kind, &reference.name)
    }

    /// Whether it is the uid of the set or of the pod.
    fn has_uid(&self, uid: &Uid) -> bool {
        *uid == self.set.meta.uid || Some(uid) == self.pod_uid
    }

    /// Whether a reference names an earlier set or pod of the same name.
    fn is_stale(&self, reference: &OwnerRef) -> bool {
        match self.named_by(reference) {
            Named::Set => reference.uid != self.set.meta.uid,
            Named::Pod => Some(&reference.uid) != self.pod_uid,
            Named::Other => false,
        }
    }

    /// Whether the set and the pod must own the claim.
    fn wanted(&self) -> (bool, bool) {
        let deletes = |policy: &ClaimRetention| *policy == ClaimRetention::Delete;
        let (when_deleted, when_scaled) = (deletes(&self.set.spec.when_deleted), deletes(&self.set.spec.when_scaled));
        let pod = when_scaled && self.is_condemned;
        (when_deleted && !pod, pod)
    }

    /// Whether another controller owns the claim, so that the policy is ignored (`hasUnexpectedController`).
    pub(crate) fn has_conflict(&self, references: &[OwnerRef]) -> bool {
        let spec = &self.set.spec;
        let retains = |policy: &ClaimRetention| *policy != ClaimRetention::Delete;
        if retains(&spec.when_deleted) && retains(&spec.when_scaled) {
            return false;
        }
        references.iter().any(|it| match self.named_by(it) {
            Named::Set | Named::Pod => self.is_stale(it),
            Named::Other => it.controller,
        })
    }

    /// Checks the references of a claim (`isClaimOwnerUpToDate`).
    pub(crate) fn check(&self, references: &[OwnerRef]) -> OwnerCheck {
        let owned_by = |uid: Option<&Uid>| references.iter().any(|it| Some(&it.uid) == uid);
        let (by_set, by_pod) = (owned_by(Some(&self.set.meta.uid)), self.pod_uid.is_some() && owned_by(self.pod_uid));
        // The garbage collector will delete the claim with the earlier object, or remove the reference.
        if references.iter().any(|it| self.is_stale(it)) {
            return OwnerCheck::UpToDate;
        }
        let is_outdated = if self.has_conflict(references) {
            by_set || by_pod
        } else {
            let is_plain_owner = |it: &OwnerRef| self.has_uid(&it.uid) && !it.controller;
            references.iter().any(is_plain_owner) || (by_set, by_pod) != self.wanted()
        };
        if is_outdated { OwnerCheck::Outdated } else { OwnerCheck::UpToDate }
    }

    /// Whether the claim still belongs to an earlier pod or set of this name, and will be deleted because of it
    /// (`PodClaimIsStale`), whatever the policy is now.
    pub(crate) fn is_claim_of_earlier_owner(&self, references: &[OwnerRef]) -> bool {
        references.iter().any(|it| self.is_stale(it))
    }

    /// The right references (`updateClaimOwnerRefForSetAndPod`). `references` are those of the claim on the server.
    pub(crate) fn corrected(&self, references: &[Value], has_conflict: bool) -> Vec<Value> {
        let is_other = |it: &&Value| {
            let text = |field: &str| it[field].as_str().unwrap_or_default();
            let is_named = self.named(text("apiVersion"), text("kind"), text("name")) != Named::Other;
            !is_named && !self.has_uid(&Uid::new(text("uid")))
        };
        let mut corrected: Vec<Value> = references.iter().filter(is_other).cloned().collect();
        if !has_conflict {
            corrected.extend(self.references());
        }
        corrected
    }

    /// The references that this controller adds.
    pub(crate) fn references(&self) -> Vec<Value> {
        let (by_set, by_pod) = self.wanted();
        let set = (API_VERSION, KIND, &*self.set.meta.name, Some(&self.set.meta.uid));
        let pod = ("v1", "Pod", self.pod_name, self.pod_uid);
        let wanted = [(by_set, set), (by_pod, pod)].into_iter().filter(|(wanted, _)| *wanted).map(|(_, it)| it);
        wanted
            .filter_map(|(api_version, kind, name, uid)| {
                Some(json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid?,
                    "controller": true, "blockOwnerDeletion": true }))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use api::Cached;

    use super::*;

    const SET: &str = "set-uid";
    const POD: &str = "pod-uid";

    fn set(when_deleted: &str, when_scaled: &str) -> StatefulSet {
        let object = json!({ "metadata": { "name": "web", "namespace": "n", "uid": SET, "resourceVersion": "1" },
            "spec": { "persistentVolumeClaimRetentionPolicy": { "whenDeleted": when_deleted, "whenScaled": when_scaled } } });
        StatefulSet::decode_object(object.to_string().as_bytes()).unwrap()
    }

    fn reference(api_version: &str, kind: &str, name: &str, uid: &str, controller: bool) -> OwnerRef {
        OwnerRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: Uid::new(uid),
            controller,
            block_owner_deletion: true,
        }
    }

    fn of_set() -> OwnerRef {
        reference("apps/v1", "StatefulSet", "web", SET, true)
    }

    fn of_pod() -> OwnerRef {
        reference("v1", "Pod", "web-1", POD, true)
    }

    fn with<R>(set: &StatefulSet, is_condemned: bool, check: impl FnOnce(PossibleOwners<'_>) -> R) -> R {
        let uid = Uid::new(POD);
        check(PossibleOwners { set, pod_name: "web-1", pod_uid: Some(&uid), is_condemned })
    }

    #[test]
    fn acceptance_sts_061_policies_decide_which_references_a_claim_has() {
        for (when_deleted, when_scaled, is_condemned, want) in [
            ("Retain", "Retain", false, vec![]),
            ("Retain", "Retain", true, vec![]),
            ("Delete", "Retain", false, vec![of_set()]),
            ("Delete", "Retain", true, vec![of_set()]),
            ("Retain", "Delete", false, vec![]),
            ("Retain", "Delete", true, vec![of_pod()]),
            ("Delete", "Delete", false, vec![of_set()]),
            ("Delete", "Delete", true, vec![of_pod()]),
            ("Unknown", "Unknown", true, vec![]),
        ] {
            let set = set(when_deleted, when_scaled);
            for has in [vec![], vec![of_set()], vec![of_pod()], vec![of_set(), of_pod()]] {
                let checked = with(&set, is_condemned, |it| it.check(&has));
                let wanted = if has == want { OwnerCheck::UpToDate } else { OwnerCheck::Outdated };
                assert_eq!(checked, wanted, "{when_deleted} {when_scaled} {is_condemned} {has:?}");
            }
            let written = with(&set, is_condemned, |it| it.corrected(&[], false));
            let uids: Vec<&str> = written.iter().map(|it| it["uid"].as_str().unwrap()).collect();
            assert_eq!(uids, want.iter().map(|it| it.uid.to_string()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn references_of_earlier_objects_are_not_changed() {
        let earlier_set = reference("apps/v1", "StatefulSet", "web", "old", true);
        let earlier_pod = reference("v1", "Pod", "web-1", "old", true);
        for (when_deleted, when_scaled) in [("Retain", "Retain"), ("Delete", "Delete")] {
            let set = set(when_deleted, when_scaled);
            for has in [&earlier_set, &earlier_pod] {
                assert_eq!(with(&set, false, |it| it.check(std::slice::from_ref(has))), OwnerCheck::UpToDate);
            }
        }
    }

    #[test]
    fn acceptance_sts_063_a_claim_of_an_earlier_pod_or_set_is_waited_for() {
        let earlier_pod = [reference("v1", "Pod", "web-1", "old", true)];
        let earlier_set = [reference("apps/v1", "StatefulSet", "web", "old", true)];
        let is_stale = |when_scaled: &str, references: &[OwnerRef], pod_uid: Option<&Uid>| {
            let set = set("Retain", when_scaled);
            PossibleOwners { set: &set, pod_name: "web-1", pod_uid, is_condemned: false }
                .is_claim_of_earlier_owner(references)
        };
        for when_scaled in ["Delete", "Retain"] {
            assert!(is_stale(when_scaled, &earlier_pod, None) && is_stale(when_scaled, &earlier_set, None));
        }
        assert!(!is_stale("Retain", &[], None));
        assert!(!is_stale("Delete", &[of_set()], None));
        assert!(!is_stale("Delete", &[of_pod()], Some(&Uid::new(POD))));
    }

    #[test]
    fn acceptance_sts_062_a_claim_of_another_controller_loses_our_references() {
        let foreign = reference("example.com/v1", "Backup", "b", "other", true);
        let plain = reference("example.com/v1", "Backup", "b", "other", false);
        let both_delete = set("Delete", "Delete");
        with(&both_delete, false, |owners| {
            assert!(
                owners.has_conflict(std::slice::from_ref(&foreign))
                    && !owners.has_conflict(std::slice::from_ref(&plain))
            );
            assert_eq!(owners.check(std::slice::from_ref(&foreign)), OwnerCheck::UpToDate);
            assert_eq!(owners.check(&[foreign.clone(), of_set()]), OwnerCheck::Outdated);
            let on_server = [
                json!({ "apiVersion": "example.com/v1", "kind": "Backup", "name": "b", "uid": "other", "controller": true }),
                json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": SET, "controller": true }),
            ];
            assert_eq!(owners.corrected(&on_server, true), on_server[..1]);
        });
        let retain = set("Retain", "Retain");
        assert!(!with(&retain, false, |it| it.has_conflict(&[foreign])), "without a policy there is no conflict");
    }

    #[test]
    fn a_reference_that_is_no_controller_is_replaced() {
        let set = set("Delete", "Retain");
        let plain = reference("apps/v1", "StatefulSet", "web", SET, false);
        with(&set, false, |owners| {
            assert_eq!(owners.check(&[plain]), OwnerCheck::Outdated);
            let on_server = [json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": SET })];
            let corrected = owners.corrected(&on_server, false);
            assert_eq!((corrected.len(), &corrected[0]["controller"]), (1, &Value::Bool(true)));
        });
    }
}
