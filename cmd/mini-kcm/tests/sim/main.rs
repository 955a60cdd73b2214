//! The whole manager under simulation: election, fence, informers, queues and controllers, with all simulated faults.
//! `docs/simulation.md` describes how to read a failure and how to write a scenario.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod cronjobs;
mod daemonsets;
mod deletion;
mod garbage;
mod garbage_collector;
mod history;
mod jobs;
mod kubelet;
mod manager;
mod namespaces;
mod nodes;
mod requests;
mod statefulsets;
mod workloads;

use testing::sim;

/// The allocator of the binary. Runs are short, and much of their time is spent on memory allocation.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[test]
fn namespaces_random() {
    sim::seeds(&namespaces::random());
}

#[test]
fn namespaces_sweep() {
    sim::sweep(&namespaces::swept());
}

#[test]
fn jobs_random() {
    sim::seeds(&jobs::random());
}

#[test]
fn jobs_sweep() {
    sim::sweep(&jobs::swept());
}

#[test]
fn cronjobs_random() {
    sim::seeds(&cronjobs::random());
}

#[test]
fn cronjobs_many_random() {
    sim::seeds(&cronjobs::many());
}

#[test]
fn cronjobs_sweep() {
    sim::sweep(&cronjobs::swept());
}

#[test]
fn cronjob_of_each_minute_starts_each_minute_when_clocks_change() {
    let changes = [
        // 2027-03-28T01:00Z and 2027-10-31T01:00Z.
        cronjobs::ClockChange { zone: "Europe/Berlin", at: 1_806_195_600, schedule: "30 2 * * *", times: &[] },
        cronjobs::ClockChange {
            zone: "Europe/Berlin",
            at: 1_824_944_400,
            schedule: "30 2 * * *",
            times: &[-1_800, 1_800],
        },
        // 2027-03-14T07:00Z and 2027-11-07T06:00Z.
        cronjobs::ClockChange { zone: "America/New_York", at: 1_805_007_600, schedule: "30 2 * * *", times: &[] },
        cronjobs::ClockChange {
            zone: "America/New_York",
            at: 1_825_567_200,
            schedule: "30 1 * * *",
            times: &[-1_800, 1_800],
        },
        // 2027-04-03T15:00Z. This zone changes its clocks by half an hour.
        cronjobs::ClockChange {
            zone: "Australia/Lord_Howe",
            at: 1_806_764_400,
            schedule: "45 1 * * *",
            times: &[-900, 900],
        },
    ];
    for change in changes {
        if let Err(why) = sim::trace(&cronjobs::across(change), 0) {
            panic!("{} at {}: {why}", change.zone, change.at);
        }
    }
}

#[test]
fn gc_random() {
    sim::seeds(&garbage::random());
}

#[test]
fn gc_sweep() {
    sim::sweep(&garbage::swept());
}

#[test]
fn statefulsets_random() {
    sim::seeds(&statefulsets::random());
}

#[test]
fn statefulsets_sweep() {
    sim::sweep(&statefulsets::swept());
}

#[test]
fn daemonsets_random() {
    sim::seeds(&daemonsets::random());
}

#[test]
fn daemonsets_sweep() {
    sim::sweep(&daemonsets::swept());
}

#[test]
fn nodes_random() {
    sim::seeds(&nodes::random());
}

#[test]
fn nodes_sweep() {
    sim::sweep(&nodes::swept());
}

#[test]
fn replicasets_random() {
    sim::seeds(&workloads::sets());
}

#[test]
fn replicasets_sweep() {
    sim::sweep(&workloads::swept_sets());
}

#[test]
fn deployments_random() {
    sim::seeds(&workloads::deployments());
}

#[test]
fn deployments_sweep() {
    sim::sweep(&workloads::swept_deployments());
}

#[test]
fn acceptance_ttl_019_pods_of_expired_job_are_deleted_before_the_job() {
    sim::trace(&garbage::expired_job(), 0).unwrap();
}

#[test]
fn acceptance_cronjob_053_jobs_and_pods_of_deleted_cronjob_are_deleted() {
    sim::trace(&garbage::deleted_cron_job(), 0).unwrap();
}

#[test]
fn same_seed_gives_same_trace() {
    let mut all = Vec::new();
    for seed in 0..16 {
        let trace = sim::trace(&namespaces::random(), seed).unwrap();
        assert!(trace.len() > 200, "seed {seed} does something: {}", trace.len());
        same(&trace, &sim::trace(&namespaces::random(), seed).unwrap(), &format!("seed {seed}"));
        all.extend(trace);
    }
    // The faults that could differ between runs must occur.
    for what in ["crashed", "is paused for", "is stopped", "frozen before"] {
        assert!(all.iter().any(|line| line.contains(what)), "none of the seeds shows: {what}");
    }
    let leads = |name: &str| {
        let lease = format!("{name} = Modified leases");
        all.iter().any(|line| line.contains(&lease))
    };
    assert!(leads("a#1") && (leads("b#1") || leads("a#2")), "the Lease goes from one to another");
}

#[test]
fn same_seed_gives_same_trace_of_the_garbage_collector() {
    for seed in 0..4 {
        let trace = sim::trace(&garbage::random(), seed).unwrap();
        same(&trace, &sim::trace(&garbage::random(), seed).unwrap(), &format!("seed {seed}"));
    }
}

#[test]
fn same_place_of_a_sweep_gives_same_trace() {
    for place in ["crash-after-request:60", "pause-at-request:60", "freeze-before-event:20", "restart-in-past:80/60"] {
        let [one, other] = [(); 2].map(|()| sim::trace_of(&namespaces::swept(), place).unwrap());
        assert!(one.iter().any(|line| line.contains("!!")), "{place} injects its fault");
        same(&one, &other, place);
    }
}

fn same(one: &[String], other: &[String], what: &str) {
    let differs = one.iter().zip(other).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
    assert_eq!(one.len(), other.len(), "{what}");
}
