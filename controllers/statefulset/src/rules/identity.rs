//! The names and labels of pods and claims.

use api::Pod;
use revisions::REVISION_LABEL;

/// The label with the name of the pod.
pub(crate) const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the ordinal of the pod (KEP-4017).
pub(crate) const ORDINAL_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The longest value of a label, and of a host name.
const MAX_LABEL: usize = 63;

/// `<set>-<ordinal>`
pub(crate) fn pod_name(set: &str, ordinal: i32) -> String {
    [set, &ordinal.to_string()].join("-")
}

/// `<template>-<set>-<ordinal>`. The scheduler reads this form when it spreads zones (`ChooseZoneForVolume`).
pub(crate) fn claim_name(template: &str, set: &str, ordinal: i32) -> String {
    [template, set, &ordinal.to_string()].join("-")
}

/// The name of the set in the name of a pod or claim, and its ordinal (`getParentNameAndOrdinal`). The ordinal is
/// `None` if it is too large.
fn parent_and_ordinal(name: &str) -> Option<(&str, Option<i32>)> {
    let (parent, digits) = name.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| (parent, digits.parse().ok()))
}

/// The name of the set whose pods have names like this one.
pub(crate) fn set_name(pod: &str) -> Option<&str> {
    parent_and_ordinal(pod).map(|(set, _)| set)
}

/// Whether the name is of a pod of this set. Only such pods are claimed.
pub(crate) fn is_member_name(name: &str, set: &str) -> bool {
    set_name(name) == Some(set)
}

/// The ordinal of a pod of this set. `None` for a name that this controller never gives, such as `web-01`.
pub(crate) fn ordinal(pod: &str, set: &str) -> Option<i32> {
    let (parent, ordinal) = parent_and_ordinal(pod)?;
    let digits = pod.get(parent.len() + 1..)?;
    ordinal.filter(|_| parent == set && (digits == "0" || !digits.starts_with('0')))
}

/// The names of the sets that a claim of this name may belong to, each with the name of the template.
pub(crate) fn possible_sets(claim: &str) -> impl Iterator<Item = (&str, &str)> {
    let owner = parent_and_ordinal(claim).map(|(owner, _)| owner).unwrap_or_default();
    let dashes = owner.match_indices('-').map(|(at, _)| at);
    dashes.filter_map(|at| Some((owner.get(at + 1..)?, owner.get(..at)?)))
}

/// Whether the pod has the labels of its identity. The name is part of the claim (`identityMatches`).
pub(crate) fn has_identity(pod: &Pod) -> bool {
    pod.labels.get(NAME_LABEL) == Some(&*pod.meta.name)
}

/// The revision of a pod; empty if it has none.
pub(crate) fn revision(pod: &Pod) -> &str {
    pod.labels.get(REVISION_LABEL).unwrap_or_default()
}

/// The message about a label value that is too long, if there is one. The server would refuse such a pod.
pub(crate) fn label_length_error(pod: &str, revision: &str) -> Option<String> {
    let label =
        |key: &str, value: &str| format!("the value {value} of the label {key} has more than {MAX_LABEL} characters");
    if pod.len() > MAX_LABEL {
        return Some(label(NAME_LABEL, pod));
    }
    (revision.len() > MAX_LABEL).then(|| label(REVISION_LABEL, revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_sts_014_ordinals_are_read_from_names() {
        for (pod, want) in [
            ("web-0", Some(0)),
            ("web-17", Some(17)),
            ("web-2147483647", Some(i32::MAX)),
            ("web-99999999999", None),
            ("web-01", None),
            ("web-", None),
            ("web-a", None),
            ("web", None),
            ("web-1-1", None),
            ("other-1", None),
        ] {
            assert_eq!(ordinal(pod, "web"), want, "{pod}");
        }
        assert_eq!(ordinal("a-b-3", "a-b"), Some(3));
        assert!(is_member_name("web-99999999999", "web") && is_member_name("web-01", "web"));
        assert!(!is_member_name("web-x", "web") && !is_member_name("web-1-1", "web"));
    }

    #[test]
    fn a_claim_may_belong_to_several_sets() {
        let sets = |claim| possible_sets(claim).collect::<Vec<_>>();
        assert_eq!(sets("data-web-0"), [("web", "data")]);
        assert_eq!(sets("my-data-web-10"), [("data-web", "my"), ("web", "my-data")]);
        assert_eq!(sets("data-web-x"), []);
        assert_eq!(sets("data-1"), []);
    }

    #[test]
    fn pod_names_of_more_than_63_characters_cannot_be_labels() {
        let long = "a".repeat(64);
        assert_eq!(label_length_error("web-0", "web-589f85db5b"), None);
        let of_pod = label_length_error(&long, "r").unwrap();
        assert!(of_pod.contains(NAME_LABEL) && of_pod.contains(&long), "{of_pod}");
        assert!(label_length_error("web-0", &long).unwrap().contains(REVISION_LABEL));
        assert_eq!(label_length_error(&"a".repeat(63), &"b".repeat(63)), None);
    }
}
