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
    let want = "Nothing is known of uid a: no monitor shows it, and nothing that is shown names it as its owner.\n";
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
Waiting: it is to be looked at.
Waiting: 3 attempts in a row failed, the last one as the server is busy.
Waiting: not all dependents may be known, as these types have not synced: widgets.example.com, gadgets.example.com.
Next: it goes when no dependent blocks it any more.
";
    assert_eq!(explained(&world, "b", &facts), want);
}

#[test]
fn an_owner_is_described_by_its_proof_or_else_by_its_observed_state() {
    let mut world = World::new();
    for name in ["lives", "gone"] {
        world.pod(object(name));
    }
    world.pod(object("waits").foreground());
    world.pod(object("ends").deleting(&["example.com/mine"]));
    world.set(object("unwatched"));
    let owners = ["lives", "gone", "ends", "virtual"].map(to).into_iter().chain([blocking("waits")]);
    let unwatched = named("apps/v1", "ReplicaSet", "unwatched", "unwatched");
    world.pod(object("a").owned_by(owners.chain([unwatched])));
    world.pod_deleted("gone");
    world.graph.stop_monitor(world.sets);
    let world = world.settled();
    let seen = explained(&world, "a", &leading());
    for line in [
        "Owner: v1/Pod lives, uid lives: observed, and not being deleted.\n",
        "Owner: v1/Pod gone, uid gone: it is shown no more, which is to be proved live.\n",
        "Owner: v1/Pod ends, uid ends: observed, being deleted.\n",
        "Owner: v1/Pod virtual, uid virtual: not observed so far, and looked for live.\n",
        "Owner: v1/Pod waits, uid waits, which this blocks in the foreground: observed, waiting for its dependents to go \
         first.\n",
        "Owner: apps/v1/ReplicaSet unwatched, uid unwatched: its type is watched no more, and it is looked for live.\n",
        "Next: it stays, as an owner lives; references to those that are gone are taken off.\n",
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
        "uid ends: proved gone, and its dependents were to stay.\n",
        "uid virtual: it cannot be asked for, as the server does not serve v9/Pod.\n",
    ] {
        assert!(proved.contains(line), "{line}{proved}");
    }
}

#[test]
fn every_state_has_a_next_step() {
    let mut world = World::new();
    world.pod(object("lives"));
    world.pod(object("waits").foreground());
    world.pod(object("owned").owned_by([to("lives")]));
    world.pod(object("two").owned_by([to("x"), to("waits")]));
    world.pod(object("orphans").orphaning());
    world.pod(object("ends").deleting(&["example.com/mine"]));
    world.pod(object("went"));
    world.pod(object("left").owned_by([to("went")]));
    world.pod_deleted("went");
    let world = world.settled();
    let held = Facts { held: Some("60 deletes in the last minute".into()), ..proved(&[("x", OwnerProof::Gone)]) };
    let cases = [
        ("lives", leading(), "nothing: it has no owner, so it stays"),
        ("owned", leading(), "nothing: its owners live, so it stays"),
        ("two", leading(), "it stays until each owner is proved gone"),
        ("two", proved(&[("x", OwnerProof::Gone)]), "it is deleted, as no owner of it stays"),
        ("two", held, "it is deleted as soon as the breaker lets it"),
        ("two", proved(&[("x", OwnerProof::Orphaned)]), "it is deleted, as no owner of it stays"),
        (
            "two",
            proved(&[("x", OwnerProof::Orphaned), ("waits", OwnerProof::Orphaned)]),
            "it stays, as it was orphaned; references to those that are gone are taken off",
        ),
        ("waits", leading(), "the finalizer foregroundDeletion is taken off"),
        ("orphans", leading(), "its dependents lose their references to it, then it goes"),
        ("ends", leading(), "nothing here: it goes when its finalizers are taken off by whoever set them"),
        ("went", leading(), "what depends on it is deleted, unless another owner of it lives"),
        ("x", leading(), "a live read tells whether it is there; what depends on it stays until that proves it gone"),
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
- [apps/v1/ReplicaSet, namespace: ns, name: set, uid: set], blocks, though its type is watched no more
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
    let settled = "Waiting: 2 attempts in a row settled nothing: no watch shows it yet, or it changes all the time.\n";
    assert!(text.contains(settled), "{text}");
    assert!(text.contains("Waiting: this manager does not lead, so it writes nothing.\n"), "{text}");
    assert!(text.contains("Waiting: the breaker holds it back: 60 deletes in the last minute.\n"), "{text}");
}
