//! Scripted tests of the graph. `model` compares random events with a naive model; `size` measures the cost.

mod identity;
mod lifecycle;
mod model;
mod size;

use api::{Resource, Uid};

pub(super) use self::size::given;
use super::{Graph, Monitor, fixture::*, slab::Slab};

impl Graph {
    fn slab(&self) -> &Slab {
        &self.nodes
    }

    fn monitors(&self) -> impl Iterator<Item = &Monitor> {
        self.monitors.values()
    }
}

#[test]
fn an_object_without_owners_and_dependents_is_never_due() {
    let mut world = World::new();
    world.pod(object("a"));
    world.pod(object("a").version(2));
    world.pod(object("b").deleting(&["example.com/mine"]));
    assert!(world.graph.has_nothing_due());
    assert_eq!(world.due(), [""; 0]);
    world.pod_deleted("a");
    world.pod_deleted("unknown");
    assert_eq!(world.due(), [""; 0], "acceptance 3: deletions of other objects do not affect it");
    assert_eq!(world.graph.size(), (1, 0));
}

#[test]
fn an_unobserved_owner_is_due_once_for_any_number_of_dependents() {
    let mut world = World::new();
    world.pod(object("a").owned_by([to("o")]));
    world.pod(object("b").owned_by([to("o")]));
    assert_eq!(world.due(), ["look for v1/Pod ns/o o"]);
    world.pod(object("c").owned_by([to("o")]));
    assert_eq!((world.due(), world.graph.size()), (vec![], (3, 1)));
    // acceptance 4: no event of the owner ever comes.
    assert!(world.absent(&claim(&to("o"), "ns")), "it is the last claim, so the proof is kept");
    assert_eq!(world.due(), ["delete a", "delete b", "delete c"]);
}

#[test]
fn an_untaken_due_item_stays_due_once_and_is_removed_with_its_node() {
    let mut world = World::new();
    for version in 1..50 {
        world.pod(object("a").version(version).owned_by([named("v1", "Pod", &format!("x{version}"), "o")]));
        world.pod(object("b").version(2 * version).orphaning());
        world.pod(object("b").version(2 * version + 1).deleting(&[]));
    }
    assert_eq!(world.due(), ["look for v1/Pod ns/x49 o", "orphan b"]);
    world.pod(object("c").owned_by([to("p")]));
    world.pod(object("d").version(200).orphaning());
    assert!(!world.graph.has_nothing_due());
    world.pod_deleted("c");
    world.pod_deleted("d");
    assert!(world.graph.has_nothing_due());
    assert_eq!(world.due(), [""; 0]);
}

#[test]
fn a_standby_keeps_no_due_entries_of_removed_nodes() {
    let mut world = World::new();
    for number in 0..10_000 {
        let name = format!("n{number}");
        world.pod(object(&name).owned_by([to("never")]).foreground());
        world.pod_deleted(&name);
    }
    assert_eq!(world.graph.size(), (0, 0));
    assert!(world.graph.due_entries() < 500, "{}", world.graph.due_entries());
}

#[test]
fn acceptance_gc_005_the_graph_contains_no_deleted_owner() {
    let mut world = World::new();
    for name in ["kept", "gone"] {
        world.pod(object(name));
        world.pod(object(&format!("of {name}")).owned_by([to(name)]));
    }
    world.pod(object("orphaned").version(1));
    world.pod(object("of orphaned").owned_by([to("orphaned")]));
    world.pod(object("orphaned").version(2).orphaning());
    assert_eq!(world.due(), ["orphan orphaned"]);
    world.pod(object("of orphaned").version(3));
    world.pod_deleted("orphaned");
    assert!(!world.is_known("orphaned"));
    assert_eq!(world.due(), [""; 0], "an orphaned object is not due");

    assert_eq!(world.pod_deleted("gone"), Some(claim(&to("gone"), "ns")));
    assert_eq!(world.due(), ["delete of gone"]);
    assert_eq!(world.graph.node(&observed("gone")), None);
    world.pod_deleted("of gone");
    assert!(!world.is_known("gone"));
    assert_eq!(world.graph.size(), (3, 0));
}

#[test]
fn acceptance_gc_039_an_owner_proved_absent_is_removed_and_its_dependents_are_due() {
    // Virtual, and observed: a live read may be faster than the watch.
    for is_seen in [false, true] {
        let mut world = World::new();
        if is_seen {
            world.pod(object("o"));
        }
        world.pod(object("a").owned_by([to("o")]));
        world.due();
        assert!(world.absent(&claim(&to("o"), "ns")));
        assert_eq!((world.due(), world.graph.node(&observed("o"))), (vec!["delete a".to_owned()], None));
        assert_eq!(world.graph.node(&lookup_coordinates(&to("o"), "ns")), None, "the item has nothing to do");
        assert_eq!((world.pod_deleted("o"), world.due()), (None, vec![]), "the deleted event has no effect");
        world.pod(object("late").owned_by([to("o")]));
        assert_eq!(world.due(), ["delete late"], "a dependent observed later is due too");
    }
}

#[test]
fn an_object_missing_from_a_list_is_no_proof_but_its_dependents_are_due() {
    let mut world = World::new();
    world.pod(object("o"));
    world.pod(object("a").owned_by([to("o")]));
    world.graph.on_missing(world.sets, &Uid::new("o"));
    assert_eq!(world.due(), [""; 0], "the set of another monitor proves nothing");
    world.graph.on_missing(world.pods, &Uid::new("o"));
    assert_eq!(world.due(), ["delete a"]);
    // The object is not gone after all: the edges still exist.
    world.pod(object("o").foreground());
    assert_eq!(
        (world.dependents("o"), world.due()),
        (vec!["a".to_owned()], vec!["delete a".to_owned(), "delete o".to_owned()])
    );
}

#[test]
fn a_late_older_state_never_replaces_a_newer_one() {
    let mut world = World::new();
    world.pod(object("o"));
    world.pod(object("a").version(5));
    world.pod(object("a").version(4).owned_by([to("o")]).foreground());
    assert_eq!((world.due(), world.dependents("o")), (vec![], vec![]));
}

#[test]
fn acceptance_gc_035_dependents_of_a_deleted_owner_are_not_those_of_its_successor() {
    let mut world = World::new();
    world.pod(object("o").uid("old"));
    world.pod(object("a").owned_by([named("v1", "Pod", "o", "old")]));
    assert!(world.pod_deleted("old").is_some());
    world.pod(object("o").uid("new"));
    assert_eq!(world.due(), ["delete a"]);
    assert_eq!((world.dependents("new"), world.dependents("old")), (vec![], vec!["a".to_owned()]));
}

#[test]
fn acceptance_gc_040_a_virtual_owner_is_looked_up_until_it_is_observed() {
    let mut world = World::new();
    world.pod(object("a").owned_by([to("o")]));
    let item = lookup_coordinates(&to("o"), "ns");
    let view = world.graph.node(&item).unwrap();
    assert_eq!((view.meta, view.resource, view.has_dependents), (None, None, true));
    world.pod(object("o"));
    assert_eq!(world.graph.node(&item), None, "the item has nothing to do");
    assert_eq!(world.due(), [""; 0], "the only due item was the lookup");
}

#[test]
fn a_virtual_owner_is_removed_with_its_last_dependent() {
    let mut world = World::new();
    world.pod(object("a").owned_by([to("o")]));
    world.pod(object("b").owned_by([to("o")]));
    world.pod(object("a").version(2));
    assert!(world.graph.node(&lookup_coordinates(&to("o"), "ns")).is_some());
    world.pod_deleted("b");
    assert_eq!((world.graph.node(&lookup_coordinates(&to("o"), "ns")), world.is_known("o")), (None, false));
    assert_eq!(world.due(), [""; 0], "a virtual owner without dependents is not looked up");
}

#[test]
fn observed_owners_are_looked_up_live_after_their_monitor_stops() {
    let mut world = World::new();
    world.pod(object("parent"));
    world.set(object("o").owned_by([blocking("parent")]));
    world.set(object("alone"));
    world.pod(object("a").owned_by([named("apps/v1", "ReplicaSet", "o", "o")]));
    world.pod(object("parent").version(2).foreground());
    world.due();
    assert_eq!((world.graph.observed_count(world.sets), world.graph.observed_by(world.sets).count()), (2, 2));
    world.graph.stop_monitor(world.sets);
    assert_eq!((world.graph.observed_count(world.sets), world.graph.observed_by(world.sets).count()), (0, 0));
    assert_eq!(world.due(), ["look for apps/v1/ReplicaSet ns/o o"]);
    let item = lookup_coordinates(&named("apps/v1", "ReplicaSet", "o", "o"), "ns");
    assert_eq!(world.graph.blocking(&Uid::new("parent")), [(item, false)], "a monitor that stops unblocks no owner");
    assert!(!world.is_known("alone"));
    // The monitor has ended, so its reports have no effect.
    world.set(object("o").version(9));
    assert_eq!(world.graph.on_deleted(world.sets, &Uid::new("o")), None);
    assert_eq!(world.graph.node(&observed("o")), None);
    // A new monitor of the same type shows it again, and its dependents.
    let again = world.graph.monitor(&Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"));
    world.graph.observe(again, object("o").0);
    assert_eq!((world.dependents("o"), world.due()), (vec!["a".to_owned()], vec!["delete parent".to_owned()]));
    assert_eq!(world.graph.blocking(&Uid::new("parent")), [], "it no longer names that owner");
}

/// An object that waits for dependents of a type whose monitor stops.
fn waiting_for_unwatched() -> World {
    let mut world = World::new();
    world.pod(object("parent").foreground());
    for name in ["a", "b"] {
        world.set(object(name).owned_by([blocking("parent"), to("elsewhere")]).foreground());
    }
    world.set(object("free").owned_by([to("parent")]));
    world.due();
    world.graph.stop_monitor(world.sets);
    world
}

#[test]
fn an_unwatched_dependent_blocks_its_owner_until_it_is_proved_gone() {
    let mut world = waiting_for_unwatched();
    let of = |name: &str| named("apps/v1", "ReplicaSet", name, name);
    assert_eq!(world.due(), ["look for apps/v1/ReplicaSet ns/a a", "look for apps/v1/ReplicaSet ns/b b"]);
    assert!(
        !world.is_known("free") && !world.is_known("elsewhere"),
        "an unwatched object that blocks no owner is removed"
    );
    assert!(
        !world.graph.node(&observed("parent")).unwrap().has_waiting_dependent,
        "an unwatched dependent does not count as waiting"
    );
    for (name, due) in [("a", vec![]), ("b", vec!["delete parent".to_owned()])] {
        world.absent(&claim(&of(name), "ns"));
        assert_eq!((world.due(), world.is_known(name)), (due, false), "{name}");
    }
    assert_eq!((world.graph.blocking(&Uid::new("parent")), world.graph.size()), (vec![], (1, 0)));
}

#[test]
fn a_dependent_that_is_watched_again_blocks_by_its_present_references() {
    let mut world = waiting_for_unwatched();
    let again = world.graph.monitor(&Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet"));
    world.due();
    world.graph.observe(again, object("a").version(3).owned_by([blocking("parent")]).foreground().0);
    assert_eq!(world.graph.blocking(&Uid::new("parent")).len(), 2);
    assert!(world.graph.node(&observed("parent")).unwrap().has_waiting_dependent);
    world.graph.observe(again, object("b").version(3).owned_by([to("parent")]).0);
    world.graph.observe(again, object("a").version(4).owned_by([to("parent")]).0);
    assert_eq!(world.graph.blocking(&Uid::new("parent")), []);
    assert!(world.due().contains(&"delete parent".to_owned()));
    assert_eq!(world.dependents("parent"), ["a", "b"]);
}

#[test]
fn the_first_monitor_of_a_uid_counts_and_a_second_one_proves_nothing() {
    let mut world = World::new();
    let mirror = world.graph.monitor(&Resource::cluster("projects.example.com", "v1", "projects", "Project"));
    let namespace = world.graph.monitor(&Resource::cluster("", "v1", "namespaces", "Namespace"));
    world.graph.observe(namespace, object("o").cluster_scoped().version(7).0);
    world.pod(object("a").owned_by([named("v1", "Namespace", "o", "o")]));
    // Its resourceVersion is newer, but separate. A lost permission for the second type looks like a deletion.
    world.graph.observe(mirror, object("o").cluster_scoped().version(900).foreground().0);
    assert_eq!(world.graph.on_deleted(mirror, &Uid::new("o")), None);
    world.graph.on_missing(mirror, &Uid::new("o"));
    assert_eq!((world.due(), world.graph.observed_count(mirror)), (vec![], 0));
    assert_eq!(&*world.graph.node(&observed("o")).unwrap().coordinates.kind, "Namespace");
    world.graph.observe(namespace, object("o").cluster_scoped().version(8).foreground().0);
    assert_eq!(world.due(), ["delete o", "delete a"], "versions of the other monitor do not count");
    world.graph.stop_monitor(namespace);
    world.due();
    assert_eq!(world.graph.on_deleted(mirror, &Uid::new("o")), None);
    assert_eq!(world.due(), ["look for v1/Namespace /o o"]);
    world.graph.observe(mirror, object("o").cluster_scoped().version(901).0);
    assert_eq!(world.graph.observed_count(mirror), 1, "the second monitor is the only one now");
}

#[test]
fn an_object_without_a_uid_is_not_stored() {
    let mut world = World::new();
    world.pod(object("metrics").uid(""));
    world.pod(object("a").owned_by([named("v1", "Pod", "o", "")]));
    assert_eq!((world.due(), world.graph.size()), (vec![], (1, 0)));
}

#[test]
fn the_component_walk_stops_at_one_more_than_the_limit() {
    let mut world = World::new();
    for number in 0..10 {
        world.pod(object(&format!("pod-{number}")).owned_by([to(&format!("pod-{}", number + 1))]));
    }
    let reached = |most: usize| world.graph.component(&[Uid::new("pod-5")], most).len();
    assert_eq!([reached(3), reached(11), reached(usize::MAX)], [4, 11, 11]);
}
