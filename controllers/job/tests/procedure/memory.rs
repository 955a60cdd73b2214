//! What memory keeps for a Job, and for how long.

use harness::pass;
use serde_json::json;

use crate::world::{MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_job_065_a_finished_job_creates_nothing_before_the_cache_shows_its_end() {
    let world = World::new();
    let options = job_controller::Options { read_own_writes: false, ..Default::default() };
    let _manager = world.start_with(options).await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    world.cluster.freeze_watches("jobs.batch");
    world.succeed(&pod);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
    // Its pod is deleted while the cache shows the Job as not finished.
    world.cluster.remove("pods", "n", &pod);
    pass(30 * SEC).await;
    assert_eq!((world.pods(), world.call_count("create pods")), (vec![], 1));
    world.cluster.unfreeze_watches("jobs.batch");
    pass(200 * SEC).await;
    assert_eq!(world.call_count("create pods"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_066_a_job_waits_until_its_own_writes_are_observed_and_each_skip_is_counted() {
    let world = World::new();
    let manager = world.start().await;
    pass(SEC).await;
    world.cluster.freeze_watches("pods");
    world.job("j", json!({ "parallelism": 1, "completions": 3 }));
    pass(5 * SEC).await;
    let before = world.lines();
    assert_eq!(world.call_count("create pods"), 1);
    world.edit("j", |spec| spec["parallelism"] = json!(2));
    pass(5 * SEC).await;
    assert_eq!(world.lines(), before, "nothing is written");
    let skips = r#"job_controller_stale_sync_skips_total{group="",resource="pods"}"#;
    assert!(manager.metric(skips) >= 1, "{}", manager.metrics_page());
    world.cluster.unfreeze_watches("pods");
    // A frozen watch is detected and reopened.
    pass(200 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("create pods")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_067_a_new_job_of_the_same_name_inherits_nothing() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    world.fail(&world.active_pods()[0]);
    pass(2 * SEC).await;
    let failed = world.pods();
    world.cluster.remove("jobs.batch", "n", "j");
    world.job("j", json!({}));
    pass(2 * SEC).await;
    assert_eq!(world.active_pods().len(), 1, "the failure belongs to the previous Job");
    assert_eq!((world.count("j", "failed"), failed.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_067_a_create_in_flight_does_not_delay_a_new_job_of_the_same_name() {
    let world = World::new();
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        let delayed = line == "create pods" && std::mem::take(&mut first);
        delayed.then_some(test_cluster::Interception::DelayAnswer(3 * SEC))
    });
    world.job("j", json!({}));
    pass(500 * MS).await;
    let old = world.pods();
    world.cluster.remove("jobs.batch", "n", "j");
    let successor = world.job("j", json!({}));
    pass(8 * SEC).await;
    let new: Vec<String> = world.pods().into_iter().filter(|it| !old.contains(it)).collect();
    assert_eq!(new.len(), 1);
    assert_eq!(world.pod(&new[0])["metadata"]["ownerReferences"][0]["uid"], successor["metadata"]["uid"]);
    assert_eq!(world.count("j", "active"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_batch_is_as_large_as_the_last_successful_sync() {
    let world = World::new();
    let _manager = world.start().await;
    world.fail_requests(|line, _| (line == "create pods").then_some(test_cluster::Interception::DelayAnswer(100 * MS)));
    let world = &world;
    let took = |expected: usize| async move {
        let began = world.clock.now();
        while world.active_pods().len() < expected {
            pass(10 * MS).await;
        }
        world.clock.now() - began
    };
    world.job("j", json!({ "parallelism": 15, "completions": 60 }));
    let first = took(15).await;
    assert!(first >= 300 * MS, "one, two, four, eight: {first:?}");
    pass(5 * SEC).await;
    world.active_pods().iter().for_each(|it| world.succeed(it));
    let again = took(15).await;
    let batches: Vec<_> = world.calls().into_iter().filter(|it| it.verb == "create").skip(15).map(|it| it.at).collect();
    let spread = *batches.last().unwrap() - batches[0];
    assert!(batches.len() == 15 && spread < 100 * MS, "{spread:?} {again:?}");
}
