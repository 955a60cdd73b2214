//! The files.

use std::path::{Path, PathBuf};

use e2e::{
    Flavour,
    workloads::{Recorded, Topic, Workload},
};
use serde_json::Value;

/// The workloads of one file, and what was recorded of them.
pub(crate) struct Set {
    name: String,
    pub(crate) topic: Topic,
    recorded: Recorded,
    /// Of those where ours does otherwise.
    ours: Recorded,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads")
}

/// All there are.
pub(crate) fn all() -> anyhow::Result<Vec<Set>> {
    let mut sets = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_none_or(|it| it != "yaml") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let read = |what: &str| Recorded::read(&folder().join(format!("{name}.{what}.json")));
        sets.push(Set { topic: Topic::read(&path)?, recorded: read("recorded")?, ours: read("ours")?, name });
    }
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sets)
}

impl Set {
    /// What a manager is expected to leave.
    pub(crate) fn expected(&self, name: &str, workload: &Workload, flavour: Flavour) -> Option<&Value> {
        let own = flavour == Flavour::Ours && workload.differs.is_some();
        if own { self.ours.0.get(name) } else { self.recorded.0.get(name) }
    }
}

/// Keeps what was left.
pub(crate) fn write(sets: &mut [Set], results: Vec<(String, Value)>, flavour: Flavour) -> anyhow::Result<()> {
    for (name, left) in results {
        let Some(set) = sets.iter_mut().find(|it| it.topic.workloads.contains_key(&name)) else { continue };
        let differs = set.topic.workloads[&name].differs.is_some();
        match flavour {
            Flavour::Go => drop(set.recorded.0.insert(name, left)),
            Flavour::Ours if differs => drop(set.ours.0.insert(name, left)),
            Flavour::Ours => {}
        }
    }
    for Set { name, topic, recorded, ours } in sets {
        recorded.0.retain(|it, _| topic.workloads.contains_key(it));
        ours.0.retain(|it, _| topic.workloads.get(it).is_some_and(|it| it.differs.is_some()));
        recorded.write(&folder().join(format!("{name}.recorded.json")))?;
        ours.write(&folder().join(format!("{name}.ours.json")))?;
    }
    Ok(())
}

#[test]
fn there_are_sixty_jobs_and_fifteen_cronjobs_each_with_its_record() {
    let sets = all().unwrap();
    let differences = std::fs::read_to_string(folder().join("../../docs/differences.md")).unwrap();
    let (mut jobs, mut cron_jobs) = (0, 0);
    for set in &sets {
        let workloads = &set.topic.workloads;
        for (name, workload) in workloads {
            *(if workload.object["kind"] == "CronJob" { &mut cron_jobs } else { &mut jobs }) += 1;
            assert!(set.recorded.0.contains_key(name), "{name} has no record");
            assert_eq!(set.ours.0.contains_key(name), workload.differs.is_some(), "a record of ours for {name}");
            let told = workload.differs.as_ref().is_none_or(|it| differences.contains(it));
            assert!(told, "{name}: {:?} is not in docs/differences.md", workload.differs);
        }
        let names = set.recorded.0.keys().chain(set.ours.0.keys());
        let stale: Vec<_> = names.filter(|it| !workloads.contains_key(*it)).collect();
        assert!(stale.is_empty(), "records of nothing in {}: {stale:?}", set.name);
    }
    assert!(jobs >= 60 && cron_jobs >= 15, "{jobs} Jobs and {cron_jobs} CronJobs");
}
