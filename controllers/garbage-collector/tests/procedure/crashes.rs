//! A process that crashes before, during or after any of its writes, and a new process that continues.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use client::Propagation::{Background, Foreground, Orphan};
use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, blocking, owner};

/// Builds the same objects each time and deletes them in three ways.
async fn forest(world: &World) {
    let rc = world.create("ReplicationController", "background", &[]);
    let set = world.create("ReplicaSet", "below", &[owner(&rc)]);
    world.create("Pod", "far-below", &[owner(&set)]);
    let web = world.create("Deployment", "foreground", &[]);
    let set = world.create("ReplicaSet", "blocks", &[blocking(&web)]);
    world.create("Pod", "blocks-too", &[blocking(&set)]);
    let rc = world.create("ReplicationController", "orphan", &[]);
    world.create("Pod", "left-a", &[blocking(&rc)]);
    let kept = world.create("Widget", "keeps", &[]);
    world.create("Widget", "left-b", &[owner(&rc), owner(&kept)]);
    let first = world.create("Widget", "circle-a", &[]);
    let second = world.create("Widget", "circle-b", &[blocking(&first)]);
    world
        .cluster
        .update("Widget", "n", "circle-a", |it| it["metadata"]["ownerReferences"] = json!([blocking(&second)]));
    world.delete("ReplicationController", "background", Some(Background)).await;
    world.delete("Deployment", "foreground", Some(Foreground)).await;
    world.delete("ReplicationController", "orphan", Some(Orphan)).await;
    world.delete("Widget", "circle-a", Some(Foreground)).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_leads_to_the_same_result() {
    for fate in [Interception::Fail, Interception::LoseAnswer] {
        let mut crashes = 0;
        for last in 0.. {
            let world = World::with_widgets();
            forest(&world).await;
            let (count, reached) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let (counted, crash, end) = (count.clone(), reached.clone(), fate.clone());
            world.respond(move |line, _| {
                if line.starts_with("get") {
                    return None;
                }
                let number = counted.fetch_add(1, Ordering::SeqCst);
                crash.fetch_or(number == last, Ordering::SeqCst);
                // From its last write on, no request of this process arrives.
                (number >= last).then(|| if number == last { end.clone() } else { Interception::Fail })
            });
            let manager = world.start().await;
            for _ in 0..5_000 {
                if reached.load(Ordering::SeqCst) {
                    break;
                }
                pass(MS).await;
            }
            drop(manager);
            world.cluster.stop_intercepting();
            let _next = world.start().await;
            pass(120 * SEC).await;
            assert_eq!(world.names("pods"), ["left-a"], "{fate:?} {last}");
            assert_eq!(world.names("Widget"), ["keeps", "left-b"], "{fate:?} {last}");
            assert!(world.owners("pods", "left-a").is_empty(), "{fate:?} {last}");
            assert_eq!(world.owners("Widget", "left-b"), ["keeps"], "{fate:?} {last}");
            for kind in ["ReplicationController", "ReplicaSet", "Deployment"] {
                assert_eq!(world.names(kind), [""; 0], "{fate:?} {last}");
            }
            if !reached.load(Ordering::SeqCst) {
                break;
            }
            crashes += 1;
        }
        assert!(crashes >= 12, "{crashes} writes");
    }
}
