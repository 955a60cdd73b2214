//! The debug pages of an object that is not deleted.

use client::Propagation::{Background, Foreground, Orphan};
use harness::{failure, pass};

use crate::world::{SEC, World, missing_owner, owner, why};

#[tokio::test(start_paused = true)]
async fn a_refusal_is_explained_with_the_message_of_the_server() {
    for (spoilt, policy, kind, error) in [
        ("delete pods pod", Background, "Pod", "cannot delete [v1/Pod, namespace: n, name: pod"),
        ("patch pods pod", Orphan, "ReplicationController", "cannot orphan [v1/Pod, namespace: n, name: pod"),
        (
            "patch replicationcontrollers rc",
            Foreground,
            "ReplicationController",
            "cannot remove the finalizer of [v1/ReplicationController",
        ),
        (
            "patch replicationcontrollers rc",
            Orphan,
            "ReplicationController",
            "cannot remove the finalizer of [v1/ReplicationController",
        ),
    ] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        let pod = world.create("Pod", "pod", &[owner(&rc)]);
        world.respond(move |line, _| (line == spoilt).then(|| failure(403, "Forbidden")).flatten());
        let manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(policy)).await;
        pass(10 * SEC).await;
        let object = if kind == "Pod" { &pod } else { &rc };
        let text = why(&manager, object);
        let told = text.lines().find(|it| it.contains("attempts in a row failed, the last one as ")).unwrap_or(&text);
        assert!(told.contains(error) && told.contains("not now"), "{spoilt} {policy:?}: {text}");
        world.cluster.stop_intercepting();
        pass(120 * SEC).await;
        let text = why(&manager, object);
        assert!(!text.contains("attempts in a row"), "{spoilt} {policy:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn lookups_of_an_unobserved_owner_are_explained() {
    let world = World::new();
    let never = missing_owner("v1", "ReplicationController", "never");
    world.create("Pod", "pod", std::slice::from_ref(&never));
    world.respond(|line, _| line.starts_with("get").then(|| failure(403, "Forbidden")).flatten());
    let manager = world.start().await;
    pass(10 * SEC).await;
    let text = why(&manager, &never);
    let told = text.lines().find(|it| it.contains("attempts in a row failed")).unwrap_or(&text);
    assert!(told.contains("cannot look up") && told.contains("not now"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_owner_is_explained_with_dependents_that_stay() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    world.respond(|line, _| line.starts_with("patch").then(|| failure(403, "Forbidden")).flatten());
    let late = world.create("Pod", "late", &[owner(&rc)]);
    pass(5 * SEC).await;
    let text = why(&manager, &late);
    assert!(text.contains(": proved gone, and its dependents stay.\n"), "{text}");
    assert!(text.contains("Next: it stays, as it was orphaned"), "{text}");
}
