use super::*;
use crate::graph::fixture::*;

fn explained(world: &World, uid: &str, facts: &Facts) -> String {
    explain(&world.graph, &Uid::new(uid), facts)
}

fn leading() -> Facts {
    Facts { is_leader: true, ..Facts::default() }
}

fn proved(owners: &[(&str, OwnerProof)]) -> Facts {
    let owners = owners.iter().map(|(uid, proof)| (Uid::new(uid), proof.clone())).collect();
    Facts { owners, ..leading() }
}

#[test]
fn an_unknown_uid_is_explained_as_unknown() {
    let want = "Uid a is unknown: no monitor shows it, and no object that is shown names it as its owner.\n";
    assert_eq!(explained(&World::new(), "a", &leading()), want);
}

#[test]
fn all_known_facts_are_listed_in_order() {
    let mut world = World::new();
    world.set(object("web").uid("b").version(7).foreground());
    for name in ["p1", "p2", "p3", "p4", "p5", "p6"] {
        let owner = named("apps/v1", "ReplicaSet", "web", "b");
        world.pod(object(name).owned_by([OwnerRef { block_owner_deletion: name != "p1", ..owner }]));
    }
    let facts = Facts {
        failures: 3,
        error: Some("the server is busy".into()),
        unsynced: vec!["widgets.example.com".into(), "gadgets.example.com".into()],
        ..leading()
    };
    let want = "\
[apps/v1/ReplicaSet, namespace: ns, name: web, uid: b] is observed by the monitor of replicasets.apps, at version 7.
It is being deleted, with finalizers foregroundDeletion.
Dependents: 6, of which 5 block its deletion in the foreground.
- [v1/Pod, namespace: ns, name: p2, uid: p2], blocks
- [v1/Pod, namespace: ns, name: p3, uid: p3], blocks
- [v1/Pod, namespace: ns, name: p4, uid: p4], blocks
- [v1/Pod, namespace: ns, name: p5, uid: p5], blocks
- [v1/Pod, namespace: ns, name: p6, uid: p6], blocks
- and 1 more
Waiting: it is queued.
Waiting: 3 attempts in a row failed, the last one as the server is busy.
Waiting: not all dependents may be known, as these types have not synced: widgets.example.com, gadgets.example.com.
Next: it is deleted when no dependent blocks it any more.
";
    assert_eq!(explained(&world, "b", &facts), want);
}

#[test]
fn an_owner_is_described_by_its_proof_or_else_by_its_observed_state() {
    let mut world = World::new();
    for name in ["live", "gone"] {
        world.pod(object(name));
    }
    world.pod(object("waits").foreground());
    world.pod(object("ends").deleting(&["example.com/mine"]));
    world.set(object("unwatched"));
    let owners = ["live", "gone", "ends", "virtual"].map(to).into_iter().chain([blocking("waits")]);
    let unwatched = named("apps/v1", "ReplicaSet", "unwatched", "unwatched");
    world.pod(object("a").owned_by(owners.chain([unwatched])));
    world.pod_deleted("gone");
    world.graph.stop_monitor(world.sets);
    let world = world.without_due();
    let seen = explained(&world, "a", &leading());
    for line in [
        "Owner: v1/Pod live, uid live: observed, and not being deleted.\n",
        "Owner: v1/Pod gone, uid gone: it is no longer shown, and a live read must prove that it is gone.\n",
        "Owner: v1/Pod ends, uid ends: observed, being deleted.\n",
        "Owner: v1/Pod virtual, uid virtual: not observed yet, and looked up live.\n",
        "Owner: v1/Pod waits, uid waits, which this blocks in the foreground: observed, waiting for its dependents to \
         be deleted first.\n",
        "Owner: apps/v1/ReplicaSet unwatched, uid unwatched: its type is no longer watched; it is looked up live.\n",
        "Next: it stays, as an owner exists; references to owners that are gone are removed.\n",
    ] {
        assert!(seen.contains(line), "{line}{seen}");
    }
    let facts = proved(&[
        ("gone", OwnerProof::Gone),
        ("ends", OwnerProof::Orphaned),
        ("virtual", OwnerProof::Unprovable("the server does not serve v9/Pod".into())),
    ]);
    let proved = explained(&world, "a", &facts);
    for line in [
        "uid gone: proved gone.\n",
        "uid ends: proved gone, and its dependents stay.\n",
        "uid virtual: it cannot be looked up: the server does not serve v9/Pod.\n",
    ] {
        assert!(proved.contains(line), "{line}{proved}");
    }
}

#[test]
fn every_state_has_a_next_step() {
    let mut world = World::new();
    world.pod(object("live"));
    world.pod(object("waits").foreground());
    world.pod(object("owned").owned_by([to("live")]));
    world.pod(object("two").owned_by([to("x"), to("waits")]));
    world.pod(object("orphans").orphaning());
    world.pod(object("ends").deleting(&["example.com/mine"]));
    world.pod(object("went"));
    world.pod(object("left").owned_by([to("went")]));
    world.pod_deleted("went");
    let world = world.without_due();
    let held = Facts { held: Some("60 deletes in the last minute".into()), ..proved(&[("x", OwnerProof::Gone)]) };
    let cases = [
        ("live", leading(), "nothing: it has no owner, so it stays"),
        ("owned", leading(), "nothing: its owners exist, so it stays"),
        ("two", leading(), "it stays until each owner is proved gone"),
        ("two", proved(&[("x", OwnerProof::Gone)]), "it is deleted, as none of its owners stays"),
        ("two", held, "it is deleted when the delete limit allows it"),
        ("two", proved(&[("x", OwnerProof::Orphaned)]), "it is deleted, as none of its owners stays"),
        (
            "two",
            proved(&[("x", OwnerProof::Orphaned), ("waits", OwnerProof::Orphaned)]),
            "it stays, as it was orphaned; references to owners that are gone are removed",
        ),
        ("waits", leading(), "the finalizer foregroundDeletion is removed"),
        ("orphans", leading(), "its dependents lose their references to it, then it is deleted"),
        (
            "ends",
            leading(),
            "nothing: it is deleted when its remaining finalizers are removed by their own controllers",
        ),
        ("went", leading(), "its dependents are deleted, except those with another owner that exists"),
        ("x", leading(), "a live read checks if it exists; its dependents stay until a read proves it gone"),
    ];
    for (uid, facts, next) in cases {
        let text = explained(&world, uid, &facts);
        assert!(text.ends_with(&format!("Next: {next}.\n")), "{uid}: {text}");
    }
}

#[test]
fn an_unwatched_blocking_dependent_is_named() {
    let mut world = World::new();
    world.pod(object("a").foreground());
    world.set(object("set").owned_by([blocking("a")]));
    world.pod(object("before").owned_by([to("a")]));
    world.graph.stop_monitor(world.sets);
    let text = explained(&world, "a", &leading());
    let want = "\
Dependents: 2, of which 1 block its deletion in the foreground.
- [apps/v1/ReplicaSet, namespace: ns, name: set, uid: set], blocks, though its type is no longer watched
- [v1/Pod, namespace: ns, name: before, uid: before]
";
    assert!(text.contains(want), "{text}");
}

#[test]
fn reasons_to_wait_are_listed() {
    let mut world = World::new();
    world.pod(object("a"));
    let facts = Facts { held: Some("60 deletes in the last minute".into()), failures: 2, ..Facts::default() };
    let text = explained(&world, "a", &facts);
    let waiting = "Waiting: 2 attempts in a row had no result: no watch shows it yet, or it changes constantly.\n";
    assert!(text.contains(waiting), "{text}");
    assert!(text.contains("Waiting: this manager is a standby, so it writes nothing.\n"), "{text}");
    assert!(text.contains("Waiting: the delete limit delays it: 60 deletes in the last minute.\n"), "{text}");
}
