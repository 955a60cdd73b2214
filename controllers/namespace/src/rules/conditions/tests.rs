use super::*;
use crate::rules::remains::Remains;

const THEN: i64 = 1_800_000_000;
const NOW: i64 = THEN + 60;

fn kind(group: &str, plural: &str) -> Resource {
    Resource::namespaced(group, "v1", plural, "Any")
}

fn left(count: u64, finalizers: &[(&str, u64)]) -> Remains {
    let finalizers = finalizers.iter().map(|(name, count)| (Atom::from(*name), *count)).collect();
    Remains { count, finalizers, ..Remains::default() }
}

fn stuck() -> Findings {
    let mut findings = Findings::default();
    findings.add_remaining(&kind("apps", "deployments"), &left(1, &[("custom.io/finalizer", 1)]));
    findings.add_remaining(&kind("", "pods"), &left(2, &[("b", 2), ("a", 1)]));
    findings.add_remaining(&kind("", "secrets"), &left(0, &[]));
    findings
}

fn failing(errors: &[&str]) -> Findings {
    Findings { errors: errors.iter().map(|it| (*it).to_owned()).collect(), ..stuck() }
}

/// One line for each condition: `type status reason: message`.
fn lines(conditions: &[Condition]) -> Vec<String> {
    conditions.iter().map(|it| format!("{} {} {}: {}", it.type_, it.status.as_str(), it.reason, it.message)).collect()
}

#[test]
fn all_five_are_false_in_their_order_when_all_is_well() {
    let conditions = update(&[], &Findings::default(), NOW).unwrap();
    assert_eq!(
        lines(&conditions),
        [
            "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: \
             All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure False ContentDeleted: \
             All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining False ContentRemoved: All content successfully removed",
            "NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving finalizers finished",
        ]
    );
    assert!(conditions.iter().all(|it| it.last_transition == Some(NOW)));
}

#[test]
fn remaining_content_is_named_sorted_with_counts() {
    let findings = Findings {
        discovery: Some("no answer".to_owned()),
        unparsable: Some("unexpected GroupVersion string: a/b/c".to_owned()),
        ..failing(&["zebra", "ant"])
    };
    assert_eq!(
        lines(&update(&[], &findings, NOW).unwrap()),
        [
            "NamespaceDeletionDiscoveryFailure True DiscoveryFailed: no answer",
            "NamespaceDeletionGroupVersionParsingFailure True GroupVersionParsingFailed: \
             unexpected GroupVersion string: a/b/c",
            "NamespaceDeletionContentFailure True ContentDeletionFailed: \
             Failed to delete all resource types, 2 remaining: ant, zebra",
            "NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: \
             deployments.apps has 1 resource instances, pods. has 2 resource instances",
            "NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers \
             remaining: a in 1 resource instances, b in 2 resource instances, \
             custom.io/finalizer in 1 resource instances",
        ]
    );
}

#[test]
fn uncounted_content_is_unknown_and_not_removed() {
    let why = || Some("no answer".to_owned());
    let cases = [
        ("all was counted", Findings::default(), ["False", "False"]),
        ("a list failed", Findings { uncounted: true, ..Findings::default() }, ["Unknown", "Unknown"]),
        ("discovery failed", Findings { discovery: why(), ..Findings::default() }, ["Unknown", "Unknown"]),
        ("a malformed group version", Findings { unparsable: why(), ..Findings::default() }, ["Unknown", "Unknown"]),
        ("content is known to remain", Findings { uncounted: true, ..stuck() }, ["True", "True"]),
    ];
    for (name, findings, want) in cases {
        let conditions = update(&[], &findings, NOW).unwrap();
        assert_eq!([conditions[3].status.as_str(), conditions[4].status.as_str()], want, "{name}");
    }
}

#[test]
fn acceptance_namespace_020_the_same_findings_are_not_written_twice() {
    let written = update(&[], &failing(&["ant", "zebra"]), THEN).unwrap();
    assert_eq!(update(&written, &failing(&["zebra", "ant"]), NOW), None);
}

#[test]
fn acceptance_namespace_021_a_recovered_failure_changes_its_condition_and_transition_time() {
    let before = update(&[], &failing(&["ant"]), THEN).unwrap();
    let after = update(&before, &stuck(), NOW).unwrap();
    assert_eq!((&before[2].status, &after[2].status), (&ConditionStatus::True, &ConditionStatus::False));
    assert_eq!(after[2].last_transition, Some(NOW));
    for other in [0, 1, 3, 4] {
        assert_eq!(before[other], after[other], "the other conditions do not change");
    }
}

#[test]
fn a_new_message_alone_is_no_transition() {
    let before = update(&[], &stuck(), THEN).unwrap();
    let mut more = stuck();
    more.add_remaining(&kind("", "pods"), &left(1, &[]));
    let after = update(&before, &more, NOW).unwrap();
    assert!(after[3].message.contains("pods. has 3 resource instances"));
    assert_eq!(after[3].last_transition, Some(THEN));
}

#[test]
fn conditions_of_other_types_keep_their_position() {
    let theirs = Condition { type_: "Mine".into(), reason: "Why".into(), ..Condition::default() };
    let conditions = update(std::slice::from_ref(&theirs), &Findings::default(), NOW).unwrap();
    assert_eq!((&conditions[0], conditions.len()), (&theirs, 6));
}

#[test]
fn the_failure_of_a_pass_contains_all_errors() {
    assert_eq!(Findings::default().failure(), None);
    assert_eq!(stuck().failure(), None, "content with finalizers is not a failure");
    let findings = Findings { discovery: Some("no answer".to_owned()), ..failing(&["zebra", "ant"]) };
    assert_eq!(findings.failure().unwrap(), "no answer, ant, zebra");
}
