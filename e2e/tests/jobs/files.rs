//! The files of workloads.

use std::path::Path;

use e2e::{script_files::ScriptFile, workloads::Topic};

pub(crate) type File = ScriptFile<Topic>;

/// All files.
pub(crate) fn all() -> anyhow::Result<Vec<File>> {
    File::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads"))
}

#[test]
fn there_are_sixty_jobs_and_fifteen_cronjobs_and_each_is_recorded() {
    let files = all().unwrap();
    let differences = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md")).unwrap();
    let faults: Vec<String> = files.iter().flat_map(|it| it.faults(&differences)).collect();
    assert_eq!(faults, [] as [&str; 0]);
    let workloads = files.iter().flat_map(|it| it.topic.workloads.values());
    let (cron_jobs, jobs): (Vec<_>, Vec<_>) = workloads.partition(|it| it.object["kind"] == "CronJob");
    let (jobs, cron_jobs) = (jobs.len(), cron_jobs.len());
    assert!(jobs >= 60 && cron_jobs >= 15, "{jobs} Jobs and {cron_jobs} CronJobs");
}
