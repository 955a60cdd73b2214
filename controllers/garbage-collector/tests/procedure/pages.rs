//! The debug pages of an object that is not deleted.

use client::Propagation::{Background, Foreground, Orphan};

use crate::world::{SEC, World, failure, nobody, owner, pass};

#[tokio::test(start_paused = true)]
async fn what_a_server_refuses_is_told_by_its_own_words() {
    for (spoilt, policy, kind, error) in [
        ("delete pods pod", Background, "Pod", "cannot delete [v1/Pod, namespace: n, name: pod"),
        ("patch pods pod", Orphan, "ReplicationController", "cannot orphan [v1/Pod, namespace: n, name: pod"),
        (
            "patch replicationcontrollers rc",
            Foreground,
            "ReplicationController",
            "cannot let [v1/ReplicationController",
        ),
        ("patch replicationcontrollers rc", Orphan, "ReplicationController", "cannot let [v1/ReplicationController"),
    ] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        let pod = world.create("Pod", "pod", &[owner(&rc)]);
        world.spoil(move |line, _| (line == spoilt).then(|| failure(403, "Forbidden")).flatten());
        let manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(policy)).await;
        pass(10 * SEC).await;
        let object = if kind == "Pod" { &pod } else { &rc };
        let text = manager.why(object);
        let told = text.lines().find(|it| it.contains("attempts in a row failed, the last one as ")).unwrap_or(&text);
        assert!(told.contains(error) && told.contains("not now"), "{spoilt} {policy:?}: {text}");
        world.cluster.stop_intercepting();
        pass(120 * SEC).await;
        let text = manager.why(object);
        assert!(!text.contains("attempts in a row"), "{spoilt} {policy:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_to_look_for_what_nobody_has_seen_are_told() {
    let world = World::new();
    let never = nobody("v1", "ReplicationController", "never");
    world.create("Pod", "pod", std::slice::from_ref(&never));
    world.spoil(|line, _| line.starts_with("get").then(|| failure(403, "Forbidden")).flatten());
    let manager = world.start().await;
    pass(10 * SEC).await;
    let text = manager.why(&never);
    let told = text.lines().find(|it| it.contains("attempts in a row failed")).unwrap_or(&text);
    assert!(told.contains("cannot look for") && told.contains("not now"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn of_an_owner_that_was_orphaned_it_is_told_that_its_dependents_stay() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    world.spoil(|line, _| line.starts_with("patch").then(|| failure(403, "Forbidden")).flatten());
    let late = world.create("Pod", "late", &[owner(&rc)]);
    pass(5 * SEC).await;
    let text = manager.why(&late);
    assert!(text.contains(": proved gone, and its dependents were to stay.\n"), "{text}");
    assert!(text.contains("Next: it stays, as it was orphaned"), "{text}");
}
