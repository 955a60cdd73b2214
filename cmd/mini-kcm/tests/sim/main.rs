//! The whole manager under simulation: election, fence, informers, queues and controllers, with all simulated faults.
//! `docs/simulation.md` describes how to read a failure and how to write a scenario.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod cronjobs;
mod garbage;
mod jobs;
mod manager;
mod namespaces;

use testing::sim;

/// The allocator of the binary. Runs are short, and much of their time is spent on memory allocation.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[test]
fn namespaces_random() {
    sim::seeds(&namespaces::wild());
}

#[test]
fn namespaces_sweep() {
    sim::sweep(&namespaces::small());
}

#[test]
fn jobs_random() {
    sim::seeds(&jobs::wild());
}

#[test]
fn jobs_sweep() {
    sim::sweep(&jobs::small());
}

#[test]
fn cronjobs_random() {
    sim::seeds(&cronjobs::wild());
}

#[test]
fn cronjobs_crowd_random() {
    sim::seeds(&cronjobs::many());
}

#[test]
fn cronjobs_sweep() {
    sim::sweep(&cronjobs::small());
}

#[test]
fn a_cronjob_of_each_minute_fires_each_minute_while_clocks_change() {
    let shifts = [
        // 2027-03-28T01:00Z and 2027-10-31T01:00Z.
        cronjobs::Shift { zone: "Europe/Berlin", at: 1_806_195_600, schedule: "30 2 * * *", fires: &[] },
        cronjobs::Shift { zone: "Europe/Berlin", at: 1_824_944_400, schedule: "30 2 * * *", fires: &[-1_800, 1_800] },
        // 2027-03-14T07:00Z and 2027-11-07T06:00Z.
        cronjobs::Shift { zone: "America/New_York", at: 1_805_007_600, schedule: "30 2 * * *", fires: &[] },
        cronjobs::Shift {
            zone: "America/New_York",
            at: 1_825_567_200,
            schedule: "30 1 * * *",
            fires: &[-1_800, 1_800],
        },
        // 2027-04-03T15:00Z. This zone shifts by half an hour.
        cronjobs::Shift { zone: "Australia/Lord_Howe", at: 1_806_764_400, schedule: "45 1 * * *", fires: &[-900, 900] },
    ];
    for shift in shifts {
        if let Err(why) = sim::trace(&cronjobs::across(shift), 0) {
            panic!("{} at {}: {why}", shift.zone, shift.at);
        }
    }
}

#[test]
fn gc_random() {
    sim::seeds(&garbage::wild());
}

#[test]
fn gc_sweep() {
    sim::sweep(&garbage::small());
}

#[test]
fn acceptance_ttl_019_the_collector_takes_the_pods_of_an_expired_job_first() {
    sim::trace(&garbage::job_expires(), 0).unwrap();
}

#[test]
fn acceptance_cronjob_053_the_collector_takes_what_a_cronjob_leaves() {
    sim::trace(&garbage::cron_job_goes(), 0).unwrap();
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let mut all = Vec::new();
    for seed in 0..16 {
        let trace = sim::trace(&namespaces::wild(), seed).unwrap();
        assert!(trace.len() > 200, "seed {seed} does something: {}", trace.len());
        same(&trace, &sim::trace(&namespaces::wild(), seed).unwrap(), &format!("seed {seed}"));
        all.extend(trace);
    }
    // The faults that could differ between runs must occur.
    for what in ["crashed", "stands still", "is asked to stop", "frozen before"] {
        assert!(all.iter().any(|line| line.contains(what)), "none of the seeds shows: {what}");
    }
    let leads = |name: &str| {
        let lease = format!("{name} = Modified leases");
        all.iter().any(|line| line.contains(&lease))
    };
    assert!(leads("a#1") && (leads("b#1") || leads("a#2")), "the Lease goes from one to another");
}

#[test]
fn the_collector_repeats_itself_byte_for_byte() {
    for seed in 0..4 {
        let trace = sim::trace(&garbage::wild(), seed).unwrap();
        same(&trace, &sim::trace(&garbage::wild(), seed).unwrap(), &format!("seed {seed}"));
    }
}

#[test]
fn the_same_place_of_a_sweep_gives_the_same_trace_byte_for_byte() {
    for place in ["crash-after-request:60", "pause-at-request:60", "freeze-before-event:20", "restart-in-past:80/60"] {
        let [one, other] = [(); 2].map(|()| sim::trace_of(&namespaces::small(), place).unwrap());
        assert!(one.iter().any(|line| line.contains("!!")), "{place} strikes");
        same(&one, &other, place);
    }
}

fn same(one: &[String], other: &[String], what: &str) {
    let differs = one.iter().zip(other).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
    assert_eq!(one.len(), other.len(), "{what}");
}
