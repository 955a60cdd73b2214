//! The files of workloads.

use std::path::Path;

use e2e::{plays, workloads::Topic};

pub(crate) type Set = plays::Set<Topic>;

/// All files.
pub(crate) fn all() -> anyhow::Result<Vec<Set>> {
    Set::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads"))
}

#[test]
fn there_are_sixty_jobs_and_fifteen_cronjobs_each_with_its_record() {
    let sets = all().unwrap();
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md")).unwrap();
    let faults: Vec<String> = sets.iter().flat_map(|it| it.faults(&told)).collect();
    assert_eq!(faults, [] as [&str; 0]);
    let workloads = sets.iter().flat_map(|it| it.topic.workloads.values());
    let (cron_jobs, jobs): (Vec<_>, Vec<_>) = workloads.partition(|it| it.object["kind"] == "CronJob");
    let (jobs, cron_jobs) = (jobs.len(), cron_jobs.len());
    assert!(jobs >= 60 && cron_jobs >= 15, "{jobs} Jobs and {cron_jobs} CronJobs");
}
