//! Limits of the collector.

use client::Limits;
use client::Propagation::{Background, Foreground};
use garbage_collector_controller::Options;
use harness::pass;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, blocking, lead, missing_owner, own_metric, owner};

#[tokio::test(start_paused = true)]
async fn deletes_per_minute_do_not_exceed_the_limit() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..12 {
        world.create("Pod", &format!("pod-{number:02}"), &[owner(&rc)]);
    }
    let manager = world.start_with(Options { max_deletes_per_minute: 5, ..Options::default() }).await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    for (seconds, left, held) in [(5, 7, 7), (54, 7, 7), (4, 2, 2), (56, 2, 2), (5, 0, 0)] {
        pass(seconds * SEC).await;
        assert_eq!(world.names("pods").len(), left, "{seconds}");
        assert_eq!(own_metric(&manager, "held_deletes"), held, "{seconds}");
    }
    assert_eq!(world.call_count("delete"), 12);
    let told = world.logged("--gc-max-deletes-per-minute delays deletions");
    assert!(told.len() <= 3 && told[0].contains("pod-"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn deletes_per_minute_reach_the_limit() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..40 {
        world.create("Pod", &format!("pod-{number:02}"), &[owner(&rc)]);
    }
    // The items for the third and fourth minute retry before the requests of the earlier minutes are answered.
    world.respond(|line, _| line.starts_with("delete").then_some(Interception::DelayAnswer(50 * MS)));
    let _manager = world.start_with(Options { max_deletes_per_minute: 10, ..Options::default() }).await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    for (seconds, left) in [(5, 30), (60, 20), (60, 10), (60, 0)] {
        pass(seconds * SEC).await;
        assert_eq!(world.names("pods").len(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_type_leaves_free_slots_to_others() {
    let world = World::with_widgets();
    let widget = world.create("Widget", "waits", &[]);
    for name in ["a", "b", "c"] {
        world.create("Pod", name, &[blocking(&widget)]);
    }
    let manager = world.start_with(Options { max_deletes_per_minute: 1, ..Options::default() }).await;
    world.delete("Widget", "waits", Some(Foreground)).await;
    pass(50 * SEC).await;
    assert_eq!((world.call_count("delete pods"), own_metric(&manager, "held_deletes")), (1, 2));
    // When the next slot becomes free, reads of the type hang, and many items need such a read.
    world.respond(|line, _| line.starts_with("get widgets").then_some(Interception::Delay(600 * SEC)));
    for number in 0..20 {
        let mut never = missing_owner("example.com/v1", "Widget", &format!("never-{number}"));
        never["uid"] = serde_json::json!(format!("00000000-0000-4000-8000-1{number:011}"));
        world.create("Secret", &format!("of-{number}"), &[never, owner(&widget)]);
    }
    let mut lost = missing_owner("v1", "ReplicationController", "lost");
    lost["uid"] = serde_json::json!("00000000-0000-4000-8000-200000000000");
    world.create("ConfigMap", "late", &[lost]);
    pass(3 * SEC).await;
    assert_eq!(own_metric(&manager, "held_deletes"), 3, "it is queued after the others");
    pass(185 * SEC).await;
    assert_eq!(world.call_count("delete configmaps late"), 1, "{:?}", world.lines());
    assert_eq!(world.call_count("delete"), 2, "no other object is checked: {:?}", world.lines());
    world.cluster.stop_intercepting();
    pass(1_800 * SEC).await;
    assert_eq!((world.names("pods"), world.names("secrets").len()), (vec![], 0), "{:?}", world.lines());
    assert_eq!(world.call_count("delete"), 24, "each once");
}

#[tokio::test(start_paused = true)]
async fn a_standby_observes_and_writes_nothing() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "bound", &[owner(&rc)]);
    world.create("Pod", "lost", &[missing_owner("v1", "ReplicationController", "never")]);
    let standby = world.stand_by().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(300 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    let _manager = lead(standby).await;
    pass(SEC).await;
    assert_eq!(world.names("pods"), [""; 0]);
    assert_eq!(world.call_count("get"), 1, "what a watch showed on standby is proved: {:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn unvalidated_names_do_not_change_the_request_path() {
    let world = World::new();
    world.create("ConfigMap", "a", &[]);
    let names = ["a/status", "..", ".", "a%2F", "a/../a", "a?x=y", "ä b"];
    for (number, name) in names.into_iter().enumerate() {
        let mut reference = missing_owner("v1", "ConfigMap", name);
        reference["uid"] = serde_json::json!(format!("00000000-0000-4000-8000-00000000000{number}"));
        world.create("Secret", &format!("child-{number}"), &[reference]);
    }
    let manager = world.start_limited(Options::default(), Limits { qps: 10_000.0, burst: 10_000 }).await;
    pass(30 * SEC).await;
    assert!(world.has("configmaps", "a"));
    // No object can have such a name. A server would interpret the path as something else.
    let asked: Vec<String> = world.lines().into_iter().filter(|it| it.starts_with("get")).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(world.calls().iter().all(|it| it.name != "a" && it.subresource.is_empty()), "{:?}", world.lines());
    assert_eq!(world.names("secrets"), ["child-0", "child-1", "child-2", "child-3", "child-4"]);
    assert_eq!(own_metric(&manager, "unresolvable_objects{why=\"misnamed\"}"), 5);
}
