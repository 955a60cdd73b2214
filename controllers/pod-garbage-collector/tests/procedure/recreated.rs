//! Pods that a running kubelet re-creates under the same name.

use std::time::Duration;

use harness::pass;

use crate::world::{MS, SEC, World};

/// Re-creates the pod whenever it is missing, until this time. Returns the seconds between its deletions.
async fn pauses_of_mirror(world: &World, until: Duration) -> Vec<u64> {
    let start = world.clock.now();
    while world.clock.now() - start < until {
        if world.pod("mirror").is_none() {
            world.add_pod("mirror", "gone", "Running");
        }
        pass(SEC).await;
    }
    let times = world.call_times("delete pods mirror");
    times.windows(2).map(|it| (it[1] - it[0]).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_recreated_again_and_again_is_deleted_less_and_less_often() {
    let world = World::new();
    let _manager = world.start().await;
    let pauses = pauses_of_mirror(&world, 3 * 3600 * SEC).await;
    // The first two are the quarantine of the new pod.
    assert_eq!(pauses[..2].iter().map(|it| it / 10).collect::<Vec<_>>(), [4, 8], "{pauses:?}");
    assert_eq!(pauses[2..], [160, 320, 640, 1280, 2560, 3600], "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn other_pods_of_the_node_do_not_wait_with_it() {
    let world = World::new();
    let _manager = world.start().await;
    pauses_of_mirror(&world, 1000 * SEC).await;
    world.add_pod("other", "gone", "Running");
    let before = world.call_count("delete pods mirror");
    pass(40 * SEC + 100 * MS).await;
    assert!(world.pod("other").is_none());
    assert_eq!(world.call_count("delete pods mirror"), before);
}

#[tokio::test(start_paused = true)]
async fn after_a_return_of_the_node_the_back_off_starts_anew() {
    let world = World::new();
    let _manager = world.start().await;
    pauses_of_mirror(&world, 1000 * SEC).await;
    world.add_node("gone");
    pass(SEC).await;
    world.remove_node("gone");
    pass(40 * SEC + 100 * MS).await;
    assert!(world.pod("mirror").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_returns_late_does_not_back_off() {
    let world = World::new();
    let _manager = world.start().await;
    for _ in 0..10 {
        world.add_pod("mirror", "gone", "Running");
        pass(40 * SEC + 100 * MS).await;
        assert!(world.pod("mirror").is_none(), "{:?}", world.call_times("delete"));
        pass(500 * SEC).await;
    }
}
