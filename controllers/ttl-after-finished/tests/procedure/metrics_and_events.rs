//! The events, logs and metrics.

use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, complete, job, observed};

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_020_a_finish_in_the_future_is_logged_and_awaited() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(30)]));
    let _manager = world.start().await;
    let words = "Warning: Found Job finished in the future. This is likely due to time skew in the cluster. Job cleanup \
                 will be deferred.";
    assert_eq!(world.logged(words).len(), 1);
    world.sleep_until(40 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(41 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn a_finish_far_in_the_future_is_logged_once() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(86_400)]));
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.logged("Warning: Found Job finished in the future.").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_021_a_job_without_a_finish_time_is_kept_and_reported() {
    let world = World::new();
    let finished = json!({ "type": "Complete", "status": "True", "lastTransitionTime": null });
    world.cluster.create(job("a", Some(0), &[finished]));
    let _manager = world.start().await;
    // Events expire after one hour.
    world.sleep_until(3000 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "a read would change nothing");
    let words = "unable to find the time when the Job default/a finished";
    assert_eq!(world.logged(words).len(), 1);
    let events = world.cluster.list("events", "default");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["reason"], &events[0]["message"]), (&json!("FinishTimeUnknown"), &json!(words)));
    assert_eq!(events[0]["involvedObject"]["name"], "a");
    // An update that does not change the finish time sends no second event.
    world.cluster.update("jobs", "default", "a", |it| it["metadata"]["labels"] = json!({ "new": "one" }));
    world.sleep_until(3000 * SEC + 100 * MS).await;
    assert_eq!(world.logged(words).len(), 1);

    world.finish("a", "Complete");
    world.sleep_until(3001 * SEC).await;
    assert!(world.is_deleted("a"), "the next update is synced");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_024_only_the_delay_of_a_successful_delete_is_observed() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start().await;
    let mut tries = 0;
    world.fail_requests(move |line, _| {
        tries += i32::from(line == "delete jobs a");
        match tries {
            1 if line == "delete jobs a" => Some(Interception::status(500, "InternalError", "not today")),
            2 if line == "delete jobs a" => Some(Interception::Delay(3 * SEC)),
            _ => None,
        }
    });
    world.sleep_until(12 * SEC).await;
    assert_eq!(world.call_times("delete jobs a").len(), 2);
    assert_eq!(observed(&manager).0, 0, "one failed, one is in flight");
    world.sleep_until(20 * SEC).await;
    let (count, sum) = observed(&manager);
    assert!(count == 1 && (3.0..3.1).contains(&sum), "{count} {sum}");
    let le = |bound: &str| {
        let name = "ttl_after_finished_controller_job_deletion_duration_seconds_bucket";
        manager.metric(&format!("{name}{{le=\"{bound}\"}}"))
    };
    assert_eq!((le("1.6"), le("3.2"), le("819.2"), le("+Inf")), (0, 1, 1, 1), "upstream's buckets");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_logged_with_the_ttl() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.sleep_until(11 * SEC).await;
    let told = world.logged("Deleted a finished Job, as its time to live is over");
    assert!(told.len() == 1 && told[0].contains("default/a") && told[0].contains("ttl=10"), "{told:?}");
}
