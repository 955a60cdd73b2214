//! The files of graphs.

use std::path::Path;

use e2e::{graphs::Topic, script_files::ScriptFile};

pub(crate) type File = ScriptFile<Topic>;

/// All files.
pub(crate) fn all() -> anyhow::Result<Vec<File>> {
    File::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs"))
}

#[test]
fn there_are_thirty_graphs_and_each_run_is_recorded() {
    let files = all().unwrap();
    let differences = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md")).unwrap();
    let faults: Vec<String> = files.iter().flat_map(|it| it.faults(&differences)).collect();
    assert_eq!(faults, [] as [&str; 0]);
    let graphs: usize = files.iter().map(|it| it.topic.graphs.len()).sum();
    assert!(graphs >= 30, "{graphs} graphs");
}
