//! The files of graphs.

use std::path::Path;

use e2e::{graphs::Topic, plays};

pub(crate) type Set = plays::Set<Topic>;

/// All files.
pub(crate) fn all() -> anyhow::Result<Vec<Set>> {
    Set::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs"))
}

#[test]
fn there_are_thirty_graphs_each_play_with_its_record() {
    let sets = all().unwrap();
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md")).unwrap();
    let faults: Vec<String> = sets.iter().flat_map(|it| it.faults(&told)).collect();
    assert_eq!(faults, [] as [&str; 0]);
    let graphs: usize = sets.iter().map(|it| it.topic.graphs.len()).sum();
    assert!(graphs >= 30, "{graphs} graphs");
}
