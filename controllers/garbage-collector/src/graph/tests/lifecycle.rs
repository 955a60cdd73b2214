//! Foreground deletion and orphaning: states, in any order of observation.

use api::{Uid, Version};

use super::super::fixture::*;

type Report = fn(&mut World);

#[test]
fn acceptance_gc_014_orphaning_has_priority_over_foreground_deletion() {
    let mut world = World::new();
    world.pod(object("o"));
    world.pod(object("a").owned_by([blocking("o")]));
    world.pod(object("o").version(2).deleting(&["foregroundDeletion", "orphan"]));
    assert_eq!(world.due(), ["orphan o"]);
    assert!(!world.graph.node(&observed("o")).unwrap().deleting_dependents);
    // Upstream never checks the one that remains.
    world.pod(object("a").version(3));
    world.pod(object("o").version(4).foreground());
    assert_eq!(world.due(), ["delete o"]);
    assert!(world.graph.node(&observed("o")).unwrap().deleting_dependents);
}

#[test]
fn acceptance_gc_018_only_blocking_references_keep_a_waiting_owner() {
    let mut world = World::new();
    world.pod(object("o").foreground());
    world.pod(object("a").owned_by([to("o")]).deleting(&["example.com/mine"]));
    assert_eq!(world.due(), ["delete o", "delete a"]);
    assert_eq!(world.graph.blocking(&Uid::new("o")), []);
    world.pod(object("b").owned_by([blocking("o")]).foreground());
    assert_eq!(world.graph.blocking(&Uid::new("o")), [(observed("b"), true)]);
    assert!(world.graph.node(&observed("o")).unwrap().has_waiting_dependent);
}

#[test]
fn acceptance_gc_022_a_second_foreground_deletion_is_processed_as_the_first() {
    let mut world = World::new();
    for version in [2, 4] {
        world.pod(object("o").version(version).deleting(&["example.com/mine", "foregroundDeletion"]));
        assert_eq!(world.due(), ["delete o"]);
        world.pod(object("o").version(version + 1).deleting(&["example.com/mine"]));
        assert_eq!(world.due(), [""; 0]);
        assert!(!world.graph.node(&observed("o")).unwrap().deleting_dependents);
    }
}

#[test]
fn acceptance_gc_023_a_waiting_owner_is_due_when_its_last_blocking_dependent_is_gone() {
    let ways: [(&str, Report); 4] = [
        ("removed", |world| world.pod(object("a").version(9))),
        ("flipped", |world| world.pod(object("a").version(9).owned_by([to("o")]))),
        ("gone", |world| drop(world.pod_deleted("a"))),
        ("another's", |world| world.pod(object("a").version(9).owned_by([to("other")]))),
    ];
    for (way, leave) in ways {
        let mut world = World::new();
        world.pod(object("other"));
        world.pod(object("o").foreground());
        world.pod(object("a").owned_by([blocking("o")]));
        world.pod(object("b").owned_by([blocking("o")]));
        world.due();
        world.pod_deleted("b");
        assert_eq!(world.due(), [""; 0], "{way}: the other still blocks it");
        leave(&mut world);
        assert_eq!(world.due(), ["delete o"], "{way}");
        assert_eq!(world.graph.blocking(&Uid::new("o")), [], "{way}");
    }
}

#[test]
fn a_reference_that_begins_to_block_is_counted() {
    let mut world = World::new();
    world.pod(object("o").foreground());
    world.pod(object("a").owned_by([to("o")]));
    world.pod(object("a").version(2).owned_by([blocking("o")]));
    assert_eq!(world.graph.blocking(&Uid::new("o")), [(observed("a"), false)]);
    world.due();
    world.pod(object("a").version(3).owned_by([to("o")]));
    assert_eq!(world.due(), ["delete o"]);
}

#[test]
fn acceptance_gc_024_025_a_deletion_is_processed_for_every_event_type_and_order() {
    // The owner: as an add that is already terminating; as an update that also changes other fields; known only by name
    // before.
    let histories: [(&str, &[Report]); 3] = [
        ("added while terminating", &[|world| world.pod(object("o").version(7).foreground())]),
        (
            "merged",
            &[
                |world| world.pod(object("o")),
                |world| world.pod(object("o").version(7).owned_by([to("x")]).foreground()),
            ],
        ),
        (
            "the same deletion twice",
            &[
                |world| world.pod(object("o").version(7).foreground()),
                |world| world.pod(object("o").version(7).foreground()),
            ],
        ),
    ];
    let child: Report = |world| world.pod(object("a").owned_by([blocking("o")]));
    for (history, tellings) in histories {
        for at in 0..=tellings.len() {
            let mut world = World::new();
            world.pod(object("x"));
            let mut tellings = tellings.to_vec();
            tellings.insert(at, child);
            tellings.iter().for_each(|tell| tell(&mut world));
            let mut due = world.due();
            due.sort();
            assert_eq!(due, ["delete a", "delete o"], "{history}, the child at {at}");
            assert!(world.graph.node(&observed("o")).unwrap().deleting_dependents);
            assert_eq!(world.graph.blocking(&Uid::new("o")), [(observed("a"), false)]);
        }
    }
}

#[test]
fn every_new_dependent_of_a_waiting_owner_is_due() {
    let mut world = World::new();
    world.pod(object("o").foreground());
    world.due();
    world.pod(object("late").owned_by([blocking("o")]));
    assert_eq!(world.due(), ["delete late"]);
}

#[test]
fn an_object_that_owns_itself_does_not_wait_for_itself() {
    let mut world = World::new();
    world.pod(object("a").owned_by([blocking("a")]));
    assert_eq!(world.due(), [""; 0]);
    world.pod(object("a").version(2).owned_by([blocking("a")]).foreground());
    world.due();
    assert_eq!(world.graph.blocking(&Uid::new("a")), []);
    assert_eq!(world.pod_deleted("a"), Some(claim(&to("a"), "ns")));
    assert_eq!((world.due(), world.graph.size()), (vec![], (0, 0)));
}

#[test]
fn a_cycle_of_waiting_owners_is_detected() {
    let mut world = World::new();
    for (name, owner) in [("a", "c"), ("b", "a"), ("c", "b")] {
        world.pod(object(name).owned_by([blocking(owner)]));
    }
    world.due();
    world.pod(object("a").version(2).owned_by([blocking("c")]).foreground());
    assert_eq!(world.due(), ["delete a", "delete b"]);
    // The last one of the cycle has a waiting dependent; acceptance 21 needs that.
    assert!(world.graph.node(&observed("c")).unwrap().has_waiting_dependent);
    assert!(!world.graph.node(&observed("b")).unwrap().has_waiting_dependent);
    world.pod(object("a").version(3).owned_by([to("c")]).deleting(&[]));
    assert!(!world.graph.node(&observed("c")).unwrap().has_waiting_dependent);
}

#[test]
fn acceptance_gc_022_a_second_deletion_is_new_without_an_event_in_between() {
    type Again = (&'static str, fn(&mut World));
    let again: [Again; 3] = [
        ("a relist", |world| world.pod(object("o").version(9).foreground())),
        ("late events first", |world| {
            world.pod(object("o").version(5).foreground());
            assert_eq!(world.due(), [""; 0], "our own write is newer");
            world.pod(object("o").version(9).foreground());
        }),
        ("orphaned now", |world| world.pod(object("o").version(9).orphaning())),
    ];
    for (way, tell) in again {
        let mut world = World::new();
        world.pod(object("o").version(2).foreground());
        world.due();
        world.graph.on_finalizers_removed(&Uid::new("o"), &Version::from(7));
        assert_eq!(world.due(), [""; 0], "{way}");
        tell(&mut world);
        assert_eq!(world.due(), [if way == "orphaned now" { "orphan o" } else { "delete o" }], "{way}");
        world.pod(object("o").version(10).foreground());
        let new: &[&str] = if way == "orphaned now" { &["delete o"] } else { &[] };
        assert_eq!(world.due(), new, "{way}: once");
    }
}

#[test]
fn a_second_deletion_observed_before_the_report_of_the_first_is_new() {
    let mut world = World::new();
    world.pod(object("o").version(2).orphaning());
    world.pod(object("o").version(9).orphaning());
    world.due();
    world.graph.on_finalizers_removed(&Uid::new("o"), &Version::from(7));
    assert_eq!(world.due(), ["orphan o"]);
    world.graph.on_finalizers_removed(&Uid::new("o"), &Version::from(9));
    assert_eq!(world.due(), [""; 0], "its finalizers were already removed in that version");
}

#[test]
fn of_two_finalizer_removals_the_later_counts_in_any_order() {
    for told in [[5, 7], [7, 5]] {
        let mut world = World::new();
        world.pod(object("o").version(2).foreground());
        world.due();
        for at in told {
            world.graph.on_finalizers_removed(&Uid::new("o"), &Version::from(at));
        }
        world.pod(object("o").version(6).foreground());
        assert_eq!(world.due(), [""; 0], "{told:?}: version seven no longer has the finalizers");
        world.pod(object("o").version(9).foreground());
        assert_eq!(world.due(), ["delete o"], "{told:?}");
    }
}

#[test]
fn the_same_state_again_is_not_the_awaited_newer_one() {
    let child = |version: u64| object("a").version(version).owned_by([to("o")]);
    let told: [Report; 2] = [
        |world| world.graph.await_newer(&Uid::new("a"), &Version::from(2)),
        |world| world.graph.on_references_removed(&Uid::new("a"), &Version::from(2), &[Uid::new("o")]),
    ];
    for tell in told {
        let mut world = World::new();
        world.pod(object("o").foreground());
        world.pod(child(2));
        world.due();
        tell(&mut world);
        world.pod(child(2));
        assert_eq!(world.due(), [""; 0], "from a relist that began before the write");
        world.pod(child(4));
        assert_eq!(world.due(), ["delete a"]);
    }
}

#[test]
fn an_object_that_awaits_a_newer_state_is_not_due() {
    let mut world = World::new();
    world.pod(object("a"));
    let is_due = |world: &World| world.graph.view(&Uid::new("a")).unwrap().is_due;
    world.graph.await_newer(&Uid::new("a"), &Version::from(1));
    world.graph.on_references_removed(&Uid::new("a"), &Version::from(1), &[Uid::new("o")]);
    assert!(!is_due(&world) && world.graph.has_nothing_due());
    world.pod(object("a").version(2));
    assert!(is_due(&world) && !world.graph.has_nothing_due());
}

#[test]
fn an_object_is_due_when_the_awaited_newer_state_is_observed() {
    let mut world = World::new();
    world.pod(object("a").version(2));
    world.due();
    world.graph.await_newer(&Uid::new("a"), &Version::from(2));
    world.pod(object("a").version(3));
    assert_eq!(world.due(), ["delete a"]);
    world.pod(object("a").version(4));
    assert_eq!(world.due(), [""; 0], "once");
    world.graph.await_newer(&Uid::new("a"), &Version::from(3));
    assert_eq!(world.due(), ["delete a"], "the watch showed it before the report");
}

#[test]
fn a_reference_removed_and_restored_without_an_event_is_checked_again() {
    let mut world = World::new();
    world.pod(object("o").foreground());
    world.pod(object("p"));
    world.pod(object("a").version(2).owned_by([to("o"), to("p")]));
    world.due();
    let detach = |world: &mut World, from: u64| {
        world.graph.on_references_removed(&Uid::new("a"), &Version::from(from), &[Uid::new("o")])
    };
    detach(&mut world, 2);
    world.pod(object("a").version(4).owned_by([to("o"), to("p")]));
    assert_eq!(world.due(), ["delete a"]);
    world.pod(object("a").version(5).owned_by([to("o"), to("p")]));
    assert_eq!(world.due(), [""; 0], "once");
    detach(&mut world, 4);
    assert_eq!(world.due(), ["delete a"], "the watch was faster");
    detach(&mut world, 5);
    world.pod(object("a").version(6).owned_by([to("p")]));
    assert_eq!(world.due(), [""; 0], "it is our own write");
    world.pod(object("a").version(7).owned_by([to("p")]));
    assert_eq!(world.due(), [""; 0]);
}

#[test]
fn an_owner_stops_waiting_for_a_dependent_that_cannot_be_looked_up() {
    let mut world = World::new();
    world.set(object("o").foreground());
    world.pod(object("a").owned_by([blocking("o")]));
    world.due();
    world.graph.stop_monitor(world.pods);
    assert_eq!(
        (world.due(), world.graph.is_unwatched_blocker(&Uid::new("a"))),
        (vec!["look for v1/Pod ns/a a".to_owned()], true)
    );
    assert!(world.graph.unblock_owners(&Uid::new("a")) && !world.graph.unblock_owners(&Uid::new("a")));
    assert_eq!((world.due(), world.is_known("a")), (vec!["delete o".to_owned()], false));
    assert_eq!(world.graph.blocking(&Uid::new("o")), []);
}

#[test]
fn an_unwatched_blocking_object_is_due_when_it_gets_a_dependent() {
    let mut world = World::new();
    world.set(object("o"));
    world.pod(object("x").owned_by([blocking("o")]));
    world.graph.stop_monitor(world.pods);
    assert_eq!((world.due(), world.is_known("x")), (vec![], true), "it has no dependents that need it");
    world.node(object("d").owned_by([to("x")]));
    assert_eq!(world.due(), ["look for v1/Pod ns/x x"]);
    world.node(object("e").owned_by([to("x")]));
    assert_eq!(world.due(), [""; 0], "the lookup is already due");
    assert!(world.absent(&claim(&to("x"), "ns")));
    assert_eq!(world.due(), ["delete d", "delete e"]);
}

/// Issue 16, 15: after a restore of etcd, the shown state is the restored one.
#[test]
fn an_older_state_in_a_complete_set_counts_as_a_new_one() {
    let mut world = World::new();
    world.pod(object("o").version(20));
    world.pod(object("a").version(50).foreground());
    world.graph.on_finalizers_removed(&Uid::new("a"), &Version::from(60));
    world.due();
    world.graph.await_newer(&Uid::new("a"), &Version::from(50));
    let older = object("a").version(10).owned_by([to("o")]).foreground();
    world.pod(older.clone());
    assert_eq!((world.due(), world.dependents("o")), (vec![], vec![]), "it is older than the known state");
    world.graph.observe_any(world.pods, older.0);
    assert_eq!((world.due(), world.dependents("o")), (vec!["delete a".to_owned()], vec!["a".to_owned()]));
    world.pod(object("a").version(11).owned_by([to("o")]).foreground());
    assert_eq!(world.due(), [""; 0], "the earlier removal does not count any more");
    world.pod(object("a").version(61).owned_by([to("o")]).foreground());
    assert_eq!(world.due(), [""; 0]);
}
