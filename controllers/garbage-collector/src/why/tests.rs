use super::*;
use crate::graph::fixture::*;

fn told(world: &World, uid: &str, facts: &Facts) -> String {
    why(&world.graph, &Uid::new(uid), facts)
}

fn leading() -> Facts {
    Facts { leads: true, ..Facts::default() }
}

fn proved(owners: &[(&str, Proof)]) -> Facts {
    let owners = owners.iter().map(|(uid, proof)| (Uid::new(uid), proof.clone())).collect();
    Facts { owners, ..leading() }
}

#[test]
fn what_is_unknown_is_said_to_be() {
    let want = "Nothing is known of uid a: no monitor shows it, and nothing that is shown names it as its owner.\n";
    assert_eq!(told(&World::new(), "a", &leading()), want);
}

#[test]
fn everything_that_is_known_is_told_in_order() {
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
    assert_eq!(told(&world, "b", &facts), want);
}

#[test]
fn an_owner_is_told_of_as_it_was_proved_or_else_as_it_is_seen() {
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
    let seen = told(&world, "a", &leading());
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
        ("gone", Proof::Gone),
        ("ends", Proof::Orphaned),
        ("virtual", Proof::Unprovable("the server does not serve v9/Pod".into())),
    ]);
    let proved = told(&world, "a", &facts);
    for line in [
        "uid gone: proved gone.\n",
        "uid ends: proved gone, and its dependents were to stay.\n",
        "uid virtual: it cannot be asked for, as the server does not serve v9/Pod.\n",
    ] {
        assert!(proved.contains(line), "{line}{proved}");
    }
}

#[test]
fn what_comes_next_is_said_of_every_state() {
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
    let held = Facts { held: Some("60 deletes in the last minute".into()), ..proved(&[("x", Proof::Gone)]) };
    let cases = [
        ("lives", leading(), "nothing: it has no owner, so it stays"),
        ("owned", leading(), "nothing: its owners live, so it stays"),
        ("two", leading(), "it stays until each owner is proved gone"),
        ("two", proved(&[("x", Proof::Gone)]), "it is deleted, as no owner of it stays"),
        ("two", held, "it is deleted as soon as the breaker lets it"),
        ("two", proved(&[("x", Proof::Orphaned)]), "it is deleted, as no owner of it stays"),
        (
            "two",
            proved(&[("x", Proof::Orphaned), ("waits", Proof::Orphaned)]),
            "it stays, as it was orphaned; references to those that are gone are taken off",
        ),
        ("waits", leading(), "the finalizer foregroundDeletion is taken off"),
        ("orphans", leading(), "its dependents lose their references to it, then it goes"),
        ("ends", leading(), "nothing here: it goes when its finalizers are taken off by whoever set them"),
        ("went", leading(), "what depends on it is deleted, unless another owner of it lives"),
        ("x", leading(), "a live read tells whether it is there; what depends on it stays until that proves it gone"),
    ];
    for (uid, facts, next) in cases {
        let text = told(&world, uid, &facts);
        assert!(text.ends_with(&format!("Next: {next}.\n")), "{uid}: {text}");
    }
}

#[test]
fn what_blocks_it_is_named_though_nobody_watches_it() {
    let mut world = World::new();
    world.pod(object("a").foreground());
    world.set(object("set").owned_by([blocking("a")]));
    world.pod(object("before").owned_by([to("a")]));
    world.graph.stop_monitor(world.sets);
    let text = told(&world, "a", &leading());
    let want = "\
Dependents: 2, of which 1 block its deletion in the foreground.
- [apps/v1/ReplicaSet, namespace: ns, name: set, uid: set], blocks, though its type is watched no more
- [v1/Pod, namespace: ns, name: before, uid: before]
";
    assert!(text.contains(want), "{text}");
}

#[test]
fn what_holds_it_back_is_told() {
    let mut world = World::new();
    world.pod(object("a"));
    let facts = Facts { held: Some("60 deletes in the last minute".into()), failures: 2, ..Facts::default() };
    let text = told(&world, "a", &facts);
    let settled = "Waiting: 2 attempts in a row settled nothing: no watch shows it yet, or it changes all the time.\n";
    assert!(text.contains(settled), "{text}");
    assert!(text.contains("Waiting: this manager does not lead, so it writes nothing.\n"), "{text}");
    assert!(text.contains("Waiting: the breaker holds it back: 60 deletes in the last minute.\n"), "{text}");
}
