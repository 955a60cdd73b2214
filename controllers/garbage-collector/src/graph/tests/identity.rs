//! One uid with several names, scopes and versions, in all orders of observation.

use std::collections::BTreeSet;

use api::Uid;

use super::super::{Coordinates, fixture::*};

type Report = fn(&mut World);

/// What is due after all of these, without order.
fn after_reports(reports: &[Report]) -> (World, BTreeSet<String>) {
    let mut world = World::new();
    reports.iter().for_each(|report| report(&mut world));
    let due = world.due().into_iter().collect();
    (world, due)
}

fn set_of<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
    words.map(str::to_owned).into()
}

#[test]
fn acceptance_gc_026_a_dependent_in_another_namespace_is_due_and_reported() {
    let all: [Report; 3] = [
        |world| world.pod(object("o").in_namespace("ns2")),
        |world| world.pod(object("good").in_namespace("ns2").owned_by([to("o")])),
        |world| world.pod(object("bad").in_namespace("ns1").owned_by([to("o")])),
    ];
    for order in orders(&all) {
        let (world, due) = after_reports(&order);
        assert!(due.contains("bad is not where o is") && due.contains("delete bad"), "{due:?}");
        assert!(due.iter().all(|it| !it.contains("look for")), "it is observed");
        assert_eq!(world.dependents("o"), ["bad", "good"]);
    }
    // A live read of the name in the child's own namespace proves nothing about the owner.
    let (mut world, _) = after_reports(&all);
    assert!(world.absent(&claim(&to("o"), "ns1")));
    assert_eq!(world.due(), ["delete bad"]);
    assert!(world.graph.node(&observed("o")).is_some());
}

#[test]
fn acceptance_gc_026_a_cluster_scoped_dependent_is_reported_too() {
    let all: [Report; 2] =
        [|world| world.pod(object("o")), |world| world.node(object("bad").cluster_scoped().owned_by([to("o")]))];
    for order in orders(&all) {
        let (_, due) = after_reports(&order);
        assert_eq!(due, set_of(["delete bad", "bad is not where o is"]));
    }
}

#[test]
fn a_dependent_is_due_again_when_its_bad_reference_is_removed_or_corrected() {
    let wrong = named("v1", "Unicorn", "u", "u");
    for mended in [vec![to("gone")], vec![to("gone"), to("u")]] {
        let mut world = World::new();
        world.pod(object("gone"));
        world.pod(object("u"));
        world.pod(object("a").owned_by([wrong.clone(), to("gone")]));
        world.pod_deleted("gone");
        world.due();
        world.pod(object("a").version(2).owned_by(mended));
        assert_eq!(world.due(), ["delete a"]);
    }
}

#[test]
fn a_reference_removed_meanwhile_is_not_reported() {
    let mut world = World::new();
    world.pod(object("o").in_namespace("ns2"));
    world.pod(object("bad").owned_by([to("o")]));
    world.pod(object("bad").version(2));
    assert_eq!(world.due(), ["delete bad"]);
}

#[test]
fn acceptance_gc_028_a_dependent_of_a_late_cluster_scoped_owner_is_not_reported() {
    let mut world = World::new();
    let owner = named("v1", "Node", "n", "n");
    world.pod(object("a").owned_by([owner.clone()]));
    assert_eq!(world.due(), ["look for v1/Node ns/n n"], "its type is not known to be cluster-scoped yet");
    world.node(object("n").cluster_scoped());
    assert_eq!((world.due(), world.graph.node(&lookup_coordinates(&owner, "ns"))), (vec![], None));
}

#[test]
fn acceptance_gc_030_031_a_dependent_by_another_version_is_linked_once_the_owner_is_observed() {
    let beta = named("apps/v1beta1", "ReplicaSet", "o", "o");
    let mut world = World::new();
    world.pod(object("a").owned_by([beta.clone()]));
    assert_eq!(world.due(), ["look for apps/v1beta1/ReplicaSet ns/o o"]);
    world.set(object("o"));
    assert_eq!(
        world.due(),
        ["delete a"],
        "a live read by the dependent's own version finds the owner or proves nothing"
    );
    assert_eq!(
        world.graph.node(&lookup_coordinates(&beta, "ns")),
        None,
        "the virtual parent is not looked up any more"
    );
    world.graph.on_deleted(world.sets, &Uid::new("o"));
    assert_eq!(world.due(), ["delete a"]);
}

#[test]
fn acceptance_gc_032_an_absent_owner_named_by_two_versions_needs_a_proof_for_each() {
    let served = named("apps/v1", "ReplicaSet", "o", "o");
    let unserved = named("apps/v1beta1", "ReplicaSet", "o", "o");
    for served_first in [true, false] {
        let mut world = World::new();
        let children = [("served", &served), ("unserved", &unserved)];
        for at in if served_first { [0, 1] } else { [1, 0] } {
            let (name, owner) = children[at];
            world.pod(object(name).owned_by([owner.clone()]));
        }
        assert!(world.due().iter().any(|it| it.starts_with("look for")));
        assert!(world.absent(&claim(&served, "ns")));
        let due = world.due();
        assert_eq!(due.first().map(String::as_str), Some("delete served"));
        assert!(!due.contains(&"delete unserved".to_owned()));
        // From now on the other claim is looked up, with back-off if it was not looked up before.
        let other = lookup_coordinates(&unserved, "ns");
        assert!(world.graph.node(&other).is_some());
        let later = "later apps/v1beta1/ReplicaSet ns/o o".to_owned();
        assert_eq!(due.contains(&later), served_first);
        world.pod_deleted("served");
        assert!(world.graph.node(&other).is_some(), "the second claim stays");
    }
}

#[test]
fn a_proof_about_a_cluster_scoped_owner_serves_claims_from_all_namespaces() {
    let owner = named("v1", "Node", "n", "n");
    let mut world = World::new();
    let names: Vec<String> = (0..1_000).map(|number| format!("a{number:03}")).collect();
    for name in &names {
        world.pod(object(name).in_namespace(name).owned_by([owner.clone()]));
    }
    world.pod(object("other").owned_by([named("v1", "Pod", "n", "n")]));
    world.due();
    assert!(world.absent_anywhere(&claim(&owner, "a000")));
    let mut due = world.due();
    assert_eq!(due.pop().as_deref(), Some("later v1/Pod ns/n n"), "another type is another claim");
    assert_eq!(due.len(), 1_000);
    // For a namespaced type, only the claim that was looked up is proved absent.
    assert!(world.absent(&claim(&owner, "a001")));
    assert_eq!(world.due(), ["delete a001"]);
    // The watch may have shown it during the read, and not have shown its deletion yet.
    let mut world = World::new();
    world.pod(object("a").owned_by([owner.clone()]));
    world.node(object("n").cluster_scoped());
    world.due();
    assert!(world.absent_anywhere(&claim(&owner, "ns")));
    assert_eq!((world.due(), world.graph.node(&observed("n"))), (vec!["delete a".to_owned()], None));
}

#[test]
fn claims_are_tried_in_order_and_cyclically_until_each_is_proved_absent() {
    let claims = ["A", "B", "C", "D"].map(|kind| named("v1", kind, "o", "o"));
    let mut world = World::new();
    for (name, owner) in ["x", "y", "z"].iter().zip([&claims[1], &claims[2], &claims[0]]) {
        world.pod(object(name).owned_by([owner.clone()]));
    }
    world.due();
    for (probed, dependent, next) in [(1, "x", 2), (2, "y", 0)] {
        world.absent(&claim(&claims[probed], "ns"));
        let kind = &claims[next].kind;
        assert_eq!(world.due(), [format!("delete {dependent}"), format!("later v1/{kind} ns/o o")]);
    }
    // A queued item with another claim still looks up that claim, and a proof for it does not advance to the next one.
    let old = lookup_coordinates(&claims[1], "ns");
    assert_eq!(world.graph.node(&old).unwrap().coordinates, claim(&claims[1], "ns"));
    world.absent(&claim(&claims[1], "ns"));
    assert_eq!(world.due(), ["delete x"]);
    world.absent(&claim(&claims[0], "ns"));
    let due: BTreeSet<String> = world.due().into_iter().collect();
    assert_eq!(due, set_of(["delete x", "delete y", "delete z"]), "all claims are proved absent");
    assert_eq!(world.graph.node(&lookup_coordinates(&claims[0], "ns")), None);
    // A dependent with another claim may be right.
    world.pod(object("late").owned_by([claims[3].clone()]));
    assert_eq!(world.due(), ["delete late"]);
    for proved in &claims[..3] {
        world.graph.on_live_owner(&claim(proved, "ns"));
        assert_eq!(world.due(), [""; 0], "a late response changes nothing");
    }
    world.graph.on_live_owner(&claim(&claims[3], "ns"));
    assert_eq!(world.due(), ["later v1/D ns/o o"]);
    world.absent(&claim(&claims[3], "ns"));
    assert_eq!(world.due().len(), 4, "the other claims are proved absent");
}

#[test]
fn a_proof_is_kept_while_a_reference_makes_the_claim() {
    let (here, beta) = (claim(&to("o"), "ns"), claim(&named("v1beta1", "Pod", "o", "o"), "ns"));
    let proved = |world: &World, claim: &Coordinates| world.graph.absence_proof(claim).is_some();
    for told in [true, false] {
        let mut world = World::new();
        world.pod(object("o"));
        for name in ["a", "b"] {
            world.pod(object(name).owned_by([to("o")]));
        }
        world.pod(object("c").owned_by([named("v1beta1", "Pod", "o", "o")]));
        if told {
            world.pod_deleted("o");
        } else {
            world.absent(&here);
        }
        assert!(proved(&world, &here), "by a watch: {told}");
        for other in [claim(&to("o"), "ns2"), claim(&named("v1", "Secret", "o", "o"), "ns"), beta.clone()] {
            assert!(!proved(&world, &other), "by a watch: {told}: {other}");
        }
        world.absent(&beta);
        world.pod_deleted("a");
        assert!(proved(&world, &here) && proved(&world, &beta), "by a watch: {told}");
        world.pod(object("b").version(2));
        world.absent(&beta);
        assert!(!proved(&world, &here) && proved(&world, &beta), "by a watch: {told}");
        world.pod_deleted("c");
        assert!(!world.is_known("o"));
    }
    // Absence from a list proves nothing, and an object that is shown again is not gone.
    let mut world = World::new();
    world.pod(object("o"));
    world.pod(object("a").owned_by([to("o")]));
    world.graph.on_missing(world.pods, &Uid::new("o"));
    assert!(!proved(&world, &here));
    world.absent(&here);
    assert!(proved(&world, &here));
    world.pod(object("o"));
    assert!(!proved(&world, &here));
    // Nor is an object that may exist again.
    world.pod_deleted("o");
    world.pod(object("b").owned_by([named("v1", "Pod", "o", "p"), named("v1", "Secret", "o", "p")]));
    let wrong = claim(&named("v1", "Secret", "o", "p"), "ns");
    world.absent(&wrong);
    assert!(proved(&world, &here) && proved(&world, &wrong));
    world.due();
    world.graph.drop_proofs_of(&Uid::new("o"));
    assert!(!proved(&world, &here) && proved(&world, &wrong));
    world.absent(&here);
    world.due();
    world.graph.drop_proofs();
    assert!(!proved(&world, &here) && !proved(&world, &wrong));
    assert!(world.graph.has_nothing_due());
}

#[test]
fn acceptance_gc_033_only_the_wrong_dependent_is_due_and_the_owner_stays() {
    let all: [Report; 3] = [
        |world| world.pod(object("o")),
        |world| world.pod(object("good").owned_by([to("o")])),
        |world| world.pod(object("bad").owned_by([named("v1", "Secret", "o", "o")])),
    ];
    for order in orders(&all) {
        let (mut world, due) = after_reports(&order);
        assert!(due.contains("delete bad"), "{due:?}");
        assert!(world.absent(&claim(&named("v1", "Secret", "o", "o"), "ns")));
        assert_eq!(world.due(), ["delete bad"]);
        assert!(world.graph.node(&observed("o")).is_some());
        assert_eq!(world.dependents("o"), ["bad", "good"]);
    }
}

#[test]
fn acceptance_gc_033_a_wrong_claim_proved_absent_does_not_affect_right_claims() {
    // The last reports the result of a live read at the name that only the bad child claims.
    let all: [(&str, Report); 4] = [
        ("parent", |world| world.pod(object("o"))),
        ("good", |world| world.pod(object("good").owned_by([to("o")]))),
        ("bad", |world| world.pod(object("bad").owned_by([named("v1", "Secret", "o", "o")]))),
        ("proof", |world| {
            world.absent(&claim(&named("v1", "Secret", "o", "o"), "ns"));
        }),
    ];
    let mut played = 0;
    for order in orders(&all) {
        let names: Vec<&str> = order.iter().map(|it| it.0).collect();
        let at = |name: &str| names.iter().position(|it| *it == name);
        if at("proof") < at("bad") {
            // Not looked up yet.
            continue;
        }
        let mut world = World::new();
        let mut due = BTreeSet::new();
        for (name, tell) in &order {
            tell(&mut world);
            let now_due = world.due();
            // Another reason to be due does no harm.
            assert!(*name != "proof" || !now_due.contains(&"delete good".to_owned()), "{names:?}: {now_due:?}");
            due.extend(now_due);
        }
        assert!(due.contains("delete bad"), "{names:?}: {due:?}");
        assert!(world.graph.node(&observed("o")).is_some(), "{names:?}");
        assert_eq!(world.dependents("o"), ["bad", "good"], "{names:?}");
        world.pod_deleted("o");
        assert!(world.due().contains(&"delete good".to_owned()), "{names:?}: it is deleted with its owner");
        played += 1;
    }
    assert_eq!(played, 12);
}

#[test]
fn acceptance_gc_040_a_reference_with_another_name_is_another_claim() {
    let wrong = named("v1", "Pod", "another", "o");
    let all: [Report; 2] = [
        |world| world.pod(object("good").owned_by([to("o")])),
        |world| {
            world.pod(object("bad").owned_by([named("v1", "Pod", "another", "o")]));
        },
    ];
    for order in orders(&all) {
        let (mut world, _) = after_reports(&order);
        assert!(world.absent(&claim(&wrong, "ns")));
        let due = world.due();
        assert!(due.contains(&"delete bad".to_owned()) && !due.contains(&"delete good".to_owned()), "{due:?}");
        // The right name is looked up until the owner is observed.
        let right = lookup_coordinates(&to("o"), "ns");
        assert!(world.graph.node(&right).is_some_and(|it| it.coordinates.name == "o".into()));
        world.pod(object("o"));
        assert_eq!((world.graph.node(&right), world.due()), (None, vec!["delete bad".to_owned()]));
        // The reference is corrected in place.
        world.pod(object("bad").version(2).owned_by([to("o")]));
        world.due();
        world.pod_deleted("o");
        assert_eq!(world.due().into_iter().collect::<BTreeSet<_>>(), set_of(["delete bad", "delete good"]));
    }
}

#[test]
fn acceptance_gc_033_without_an_observed_owner_a_proof_is_about_the_wrong_claim_only() {
    let all: [Report; 2] = [
        |world| world.pod(object("good").owned_by([to("o")])),
        |world| world.pod(object("bad").owned_by([named("v1", "Secret", "o", "o")])),
    ];
    for order in orders(&all) {
        let (mut world, _) = after_reports(&order);
        assert!(world.absent(&claim(&named("v1", "Secret", "o", "o"), "ns")));
        let due = world.due();
        assert!(due.contains(&"delete bad".to_owned()) && !due.contains(&"delete good".to_owned()), "{due:?}");
        assert!(world.is_known("o"));
        world.pod(object("o"));
        assert_eq!(world.due(), ["delete bad"]);
    }
}

#[test]
fn acceptance_gc_034_a_dependent_is_checked_by_its_own_namespace_beside_a_wrong_cluster_scoped_one() {
    let all: [Report; 2] = [
        |world| world.node(object("bad").cluster_scoped().owned_by([to("o")])),
        |world| world.pod(object("good").owned_by([to("o")])),
    ];
    for order in orders(&all) {
        let (mut world, due) = after_reports(&order);
        // The later one of the two is due.
        assert!(due.iter().any(|it| it.starts_with("delete")), "{due:?}");
        // The owner does not exist: a live read in the good one's namespace proves it for that one only.
        assert!(world.absent(&claim(&to("o"), "ns")));
        let due = world.due();
        assert!(due.contains(&"delete good".to_owned()) && !due.contains(&"delete bad".to_owned()), "{due:?}");
        world.pod_deleted("good");
        assert_eq!(world.dependents("o"), ["bad"]);

        // The owner is observed late: the good one matches. The bad one is reported and checked, which never deletes
        // it.
        let (mut world, _) = after_reports(&order);
        world.pod(object("o"));
        let due: BTreeSet<String> = world.due().into_iter().collect();
        assert_eq!(due, set_of(["delete bad", "bad is not where o is"]));
    }
}

#[test]
fn a_reference_corrected_in_place_leaves_no_claim_behind() {
    let wrong = named("v1", "Secret", "o", "o");
    let mut world = World::new();
    world.pod(object("a").owned_by([wrong.clone()]));
    world.due();
    world.pod(object("a").version(2).owned_by([to("o")]));
    assert_eq!(world.graph.node(&lookup_coordinates(&wrong, "ns")).unwrap().coordinates.kind, wrong.kind);
    assert_eq!(world.due(), ["look for v1/Pod ns/o o"], "as one removed and one added reference");

    world.pod(object("o"));
    world.pod(object("a").version(3).owned_by([wrong]));
    assert_eq!(world.due(), ["delete a"], "the correct reference became wrong in place");
}

#[test]
fn one_object_may_name_one_uid_twice() {
    let mut world = World::new();
    world.pod(object("a").owned_by([to("o"), named("v1", "Secret", "o", "o")]));
    assert_eq!(world.due(), ["look for v1/Pod ns/o o", "delete a"]);
    assert!(world.absent(&claim(&to("o"), "ns")));
    assert_eq!(world.due(), ["delete a", "later v1/Secret ns/o o"]);
    world.pod(object("a").version(2).owned_by([to("o")]));
    assert_eq!(world.dependents("o"), ["a"]);
}

/// Without this lookup, nothing would show the deletion of the owner.
#[test]
fn an_owner_found_by_a_live_read_is_looked_up_at_those_coordinates() {
    let wrong = named("v1", "Pod", "another", "o");
    let (right, by_right) = (claim(&to("o"), "ns"), "later v1/Pod ns/o o");
    // It was referenced wrongly first, and assumed gone because there was no other claim.
    for was_probed in [false, true] {
        let mut world = World::new();
        world.set(object("bad").owned_by([wrong.clone()]));
        if was_probed {
            assert!(world.absent(&claim(&wrong, "ns")));
        }
        world.set(object("good").owned_by([to("o")]));
        world.due();
        world.graph.on_live_owner(&right);
        assert_eq!(world.due(), [by_right], "{was_probed}");
        world.graph.on_live_owner(&right);
        assert_eq!(world.due(), [""; 0], "{was_probed}: once");
        assert!(world.absent(&right));
        assert!(world.due().contains(&"delete good".to_owned()), "{was_probed}");
    }
    // With the right coordinates, except for the namespace that a cluster-scoped type does not have; or known in
    // another way.
    let mut world = World::new();
    let node = named("v1", "Node", "n", "n");
    world.set(object("of-n").owned_by([node.clone()]));
    world.pod(object("seen"));
    world.due();
    for found in [claim(&node, ""), claim(&named("v1", "Pod", "other", "seen"), "ns"), claim(&to("unnamed"), "ns")] {
        world.graph.on_live_owner(&found);
        assert_eq!(world.due(), [""; 0], "{found}");
    }
    assert!(!world.is_known("unnamed"));
}

#[test]
fn a_set_from_a_stale_server_shows_no_restore_after_a_newer_set_was_cut_off() {
    let mut world = World::new();
    world.pod(object("o").version(5));
    world.pod(object("half").version(12));
    let is_shown_at =
        |name: &str, version: u64| world.graph.is_shown_at(world.pods, &Uid::new(name), &version.into(), &10.into());
    assert!(is_shown_at("o", 5) && !is_shown_at("o", 4), "this version shows a restore");
    assert!(is_shown_at("half", 12) && is_shown_at("half", 7), "the object is newer than the last complete set");
    assert!(!is_shown_at("unknown", 7));
    assert!(
        world.graph.is_shown_at(world.nodes, &Uid::new("o"), &4.into(), &10.into()),
        "another monitor shows the object"
    );
}
