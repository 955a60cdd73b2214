//! Changes of the wall clock, and clock jumps.

use clock::Timestamp;
use harness::pass;
use serde_json::json;

use crate::world::{MINUTE, SEC, SOON, World};

/// The scheduled times of a CronJob's Jobs in an interval; each Job finishes at once.
async fn times(schedule: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let world = World::at(from);
    let _manager = world.start().await;
    let all = json!({ "schedule": schedule, "timeZone": zone, "successfulJobsHistoryLimit": 10_000 });
    world.cron_job("c", all);
    let to: Timestamp = to.parse().unwrap();
    while world.clock.wall() < to {
        pass(MINUTE).await;
        for job in world.active("c") {
            world.end(&job, "Complete");
        }
    }
    world.times()
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_009_a_skipped_wall_time_does_not_run_and_a_repeated_one_runs_twice() {
    let berlin = |from, to| times("30 2 * * *", "Europe/Berlin", from, to);
    assert_eq!(
        berlin("2026-03-27T12:00:30Z", "2026-03-30T12:00:00Z").await,
        ["2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"]
    );
    assert_eq!(
        berlin("2026-10-24T12:00:30Z", "2026-10-26T12:00:00Z").await,
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"]
    );
}

#[tokio::test(start_paused = true)]
async fn daily_schedules_run_daily_across_each_clock_change() {
    for (zone, from, to, want) in [
        (
            "Europe/Berlin",
            "2026-03-28T00:00:30Z",
            "2026-03-30T12:00:00Z",
            ["2026-03-28T03:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T03:00:00+02:00"],
        ),
        (
            "America/New_York",
            "2026-10-31T05:30:30Z",
            "2026-11-02T12:00:00Z",
            ["2026-10-31T03:00:00-04:00", "2026-11-01T03:00:00-05:00", "2026-11-02T03:00:00-05:00"],
        ),
        // Upstream misses the hours after a change by half an hour.
        (
            "Australia/Lord_Howe",
            "2026-10-02T12:00:30Z",
            "2026-10-05T12:00:00Z",
            ["2026-10-03T03:00:00+10:30", "2026-10-04T03:00:00+11:00", "2026-10-05T03:00:00+11:00"],
        ),
    ] {
        assert_eq!(times("0 3 * * *", zone, from, to).await, want, "{zone}");
    }
}

#[tokio::test(start_paused = true)]
async fn minutely_schedules_run_each_minute_across_each_clock_change() {
    for (zone, from, hours) in [
        ("Europe/Berlin", "2026-03-29T00:29:30Z", 1),
        ("Europe/Berlin", "2026-10-25T00:29:30Z", 1),
        ("America/New_York", "2026-03-08T06:29:30Z", 1),
        ("America/New_York", "2026-11-01T05:29:30Z", 1),
        ("Australia/Lord_Howe", "2026-04-04T14:44:30Z", 1),
    ] {
        let begin: Timestamp = from.parse().unwrap();
        let end = begin + SEC * 3600 * hours;
        let found = times("* * * * *", zone, from, &end.to_string()).await;
        let second = |it: &String| it.parse::<Timestamp>().unwrap().as_second();
        let found: Vec<i64> = found.iter().map(second).collect();
        let first = begin.as_second() + 30;
        let want: Vec<i64> = (0..60 * i64::from(hours)).map(|it| first + 60 * it).collect();
        assert_eq!(found[..want.len()], want, "{zone} from {from}");
        assert!(found.len() <= want.len() + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn after_machine_sleep_the_latest_time_runs_soon() {
    let world = World::at("2026-05-19T09:30:00Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    pass(SOON).await;
    // The timers do not notice that it is 13:15 now.
    world.clock.suspend(MINUTE * 225);
    pass(SEC * 11).await;
    assert_eq!(world.times(), ["2026-05-19T13:00:00Z"]);
    world.until("2026-05-19T14:00:00Z").await;
    assert_eq!(world.times().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_future_last_time_is_reported_and_times_count_from_now() {
    let world = World::at("2026-05-19T09:59:30Z");
    world.cron_job("c", json!({}));
    world.set_status("c", "lastScheduleTime", json!("2027-01-01T00:00:00Z"));
    let _manager = world.start().await;
    assert!(world.jobs().is_empty());
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T10:00:00Z"]);
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
    pass(MINUTE * 2).await;
    assert_eq!(world.jobs().len(), 3);
    assert_eq!(
        world.events()[0],
        "1 Warning LastScheduleInFuture Last schedule time Fri, 01 Jan 2027 00:00:00 +0000 is in the future: counting \
         from now on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_last_time_slightly_in_the_future_is_accepted() {
    let world = World::at("2026-05-19T09:59:30Z");
    world.cron_job("c", json!({}));
    world.set_status("c", "lastScheduleTime", json!("2026-05-19T10:00:00Z"));
    let _manager = world.start().await;
    world.until("2026-05-19T10:00:00Z").await;
    assert!(world.jobs().is_empty() && world.events().is_empty());
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T10:01:00Z"]);
}
