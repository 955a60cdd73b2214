//! The gate for own writes, and the end of a term.

use harness::{NAMESPACE, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, waiting};

#[tokio::test(start_paused = true)]
async fn acceptance_rs_058_059_a_sync_waits_until_the_cache_shows_the_writes_of_the_last_one() {
    let world = World::new();
    let manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(1, json!({}));
    pass(SEC).await;
    let skips = || manager.metric(r#"replicaset_controller_stale_sync_skips_total{group="",resource="pods"}"#);
    let before = skips();
    world.cluster.clear_requests();
    world.scale(2);
    pass(SEC).await;
    assert_eq!((world.lines(), skips()), (Vec::new(), before + 1));
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert_eq!((world.own().len(), world.count("observedGeneration")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_059_nothing_is_kept_about_a_set_that_is_gone() {
    let (world, manager) = World::running(2, json!({})).await;
    world.cluster.freeze_watches("pods");
    world.scale(1);
    pass(SEC).await;
    world.touch_set("again");
    pass(SEC).await;
    assert_eq!(waiting(&manager), 1);
    world.remove_set();
    pass(SEC).await;
    assert_eq!(waiting(&manager), 0);
    world.pods().iter().for_each(|it| world.cluster.remove("pods", NAMESPACE, it));
    world.set(1, json!({}));
    pass(SEC).await;
    assert_eq!(world.call_count("create pods"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_060_at_the_end_of_a_term_calls_are_completed_and_no_key_is_taken() {
    let world = World::new();
    let manager = world.start().await;
    world.fail_first("create pods", &Interception::Delay(2 * SEC));
    world.set(5, json!({}));
    pass(500 * MS).await;
    world.named_set("later", 1, json!({}));
    manager.stop();
    let before = world.clock.now();
    world.touch_set("again");
    manager.stop_and_wait().await;
    assert!(world.clock.now() - before > SEC, "it waits for the call");
    assert_eq!(world.pods().len(), 1, "no further batch is started: {:?}", world.lines());
    assert!(!world.lines().contains(&"update replicasets/status later".to_owned()), "{:?}", world.lines());
    assert!(world.logged("cannot create").is_empty());
    let _next = world.start().await;
    pass(SEC).await;
    assert_eq!(world.own().len(), 5);
}
