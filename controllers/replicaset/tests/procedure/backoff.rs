//! Pods that fail at once.

use harness::pass;
use serde_json::json;

use crate::world::{MS, SEC, World};

/// Upstream replaces each at once, about a hundred in a minute (k/k#72593).
#[tokio::test(start_paused = true)]
async fn pods_that_a_kubelet_rejects_are_replaced_after_growing_delays_with_one_event() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(1, json!({}));
    for _ in 0..600 {
        world.own().iter().for_each(|it| reject(&world, it));
        pass(200 * MS).await;
    }
    // After 0, 0, 1, 3, 7, 15, 31 and 63 seconds.
    assert!((7..=9).contains(&world.call_count("create pods")), "{:?}", world.call_times("create pods"));
    assert_eq!(world.event_count("BackOff").await, 1);
    let events = world.events().await;
    assert!(
        events.iter().any(|it| it.starts_with("Warning BackOff: pods fail at once, the last being rs-")),
        "{events:?}"
    );
    // A pod that becomes ready ends it.
    pass(300 * SEC).await;
    world.run_all();
    pass(5 * SEC).await;
    world.cluster.clear_requests();
    reject(&world, &world.own()[0]);
    pass(100 * MS).await;
    assert_eq!(world.call_count("create pods"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_replacements_does_not_delay_scaling() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(1, json!({}));
    pass(100 * MS).await;
    for _ in 0..40 {
        world.own().iter().for_each(|it| reject(&world, it));
        pass(SEC).await;
    }
    assert_eq!(world.own().len(), 0);
    world.scale(4);
    pass(100 * MS).await;
    assert_eq!(world.own().len(), 3, "one waits");
}

/// As a kubelet that does not admit the pod.
fn reject(world: &World, pod: &str) {
    let now = world.second();
    world.update_pod(pod, |it| {
        it["spec"]["nodeName"] = json!("node");
        it["status"] = json!({ "phase": "Failed", "reason": "OutOfcpu", "startTime": now });
    });
}
