//! The files.

use std::path::{Path, PathBuf};

use e2e::{
    Flavour,
    graphs::{Graph, Policy, Topic},
    workloads::Recorded,
};
use serde_json::Value;

/// The graphs of one file, and what was recorded of them.
pub(crate) struct Set {
    name: String,
    pub(crate) topic: Topic,
    recorded: Recorded,
    /// Of those where ours does otherwise.
    ours: Recorded,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs")
}

/// The name of a play.
pub(crate) fn play(graph: &str, policy: Policy) -> String {
    format!("{graph}.{}", policy.word())
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
    /// The plays of this file.
    fn plays(&self) -> impl Iterator<Item = (String, &Graph)> {
        let graphs = self.topic.graphs.iter();
        graphs.flat_map(|(name, graph)| graph.policies.iter().map(move |it| (play(name, *it), graph)))
    }

    /// What a collector is expected to leave.
    pub(crate) fn expected(&self, play: &str, graph: &Graph, flavour: Flavour) -> Option<&Value> {
        let own = flavour == Flavour::Ours && graph.differs.is_some();
        if own { self.ours.0.get(play) } else { self.recorded.0.get(play) }
    }

    /// Keeps what was left; of ours only what is meant to differ.
    pub(crate) fn keep(&mut self, play: String, left: Value, flavour: Flavour) {
        let Some(differs) = self.plays().find(|(it, _)| *it == play).map(|(_, it)| it.differs.is_some()) else {
            return;
        };
        match flavour {
            Flavour::Go => drop(self.recorded.0.insert(play, left)),
            Flavour::Ours if differs => drop(self.ours.0.insert(play, left)),
            Flavour::Ours => {}
        }
    }

    /// Writes what is known of the plays that there are.
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        let plays: Vec<(String, bool)> = self.plays().map(|(play, it)| (play, it.differs.is_some())).collect();
        self.recorded.0.retain(|it, _| plays.iter().any(|(play, _)| play == it));
        self.ours.0.retain(|it, _| plays.iter().any(|(play, differs)| play == it && *differs));
        self.recorded.write(&folder().join(format!("{}.recorded.json", self.name)))?;
        self.ours.write(&folder().join(format!("{}.ours.json", self.name)))
    }
}

#[test]
fn there_are_thirty_graphs_each_play_with_its_record() {
    let sets = all().unwrap();
    let differences = std::fs::read_to_string(folder().join("../../docs/differences.md")).unwrap();
    let mut graphs = 0;
    for set in &sets {
        graphs += set.topic.graphs.len();
        for (play, graph) in set.plays() {
            assert!(set.recorded.0.contains_key(&play), "{play} has no record");
            assert_eq!(set.ours.0.contains_key(&play), graph.differs.is_some(), "a record of ours for {play}");
            let told = graph.differs.as_ref().is_none_or(|it| differences.contains(it));
            assert!(told, "{play}: {:?} is not in docs/differences.md", graph.differs);
        }
        let names = set.recorded.0.keys().chain(set.ours.0.keys());
        let stale: Vec<_> = names.filter(|it| !set.plays().any(|(play, _)| play == **it)).collect();
        assert!(stale.is_empty(), "records of nothing in {}: {stale:?}", set.name);
    }
    assert!(graphs >= 30, "{graphs} graphs");
}
