use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::RecordedResults;
use crate::Flavour;

/// The scripts of one file.
pub trait Topic: DeserializeOwned {
    /// The name of each run, and why our result differs, if it does: words of the line in `docs/differences.md`.
    fn planned_runs(&self) -> impl Iterator<Item = (String, Option<&str>)>;

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If it has an unknown field.
    fn parse(text: &str) -> anyhow::Result<Self> {
        // Parsed as a value first, because a YAML alias may stand for any type.
        let value: Value = serde_saphyr::from_str(text)?;
        Ok(serde_json::from_value(value)?)
    }

    /// Why our result of this run differs; `None` also for an unknown run.
    fn differs(&self, run: &str) -> Option<&str> {
        self.planned_runs().find(|(name, _)| name == run)?.1
    }
}

/// The scripts of one file, and the recorded results of their runs.
#[derive(Debug)]
pub struct ScriptFile<T> {
    /// Without an extension.
    path: PathBuf,
    /// The scripts.
    pub topic: T,
    recorded: RecordedResults,
    /// Our results where they differ.
    ours: RecordedResults,
}

impl<T: Topic> ScriptFile<T> {
    /// All files of a folder.
    ///
    /// # Errors
    /// If one cannot be parsed.
    pub fn all(folder: &Path) -> anyhow::Result<Vec<Self>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "yaml") {
                files.push(Self::read(&path).with_context(|| path.display().to_string())?);
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let topic = T::parse(&std::fs::read_to_string(path)?)?;
        let recorded = RecordedResults::read(&path.with_extension("recorded.json"))?;
        let ours = RecordedResults::read(&path.with_extension("ours.json"))?;
        Ok(Self { path: path.with_extension(""), topic, recorded, ours })
    }

    /// The expected result of a run.
    #[must_use]
    pub fn expected(&self, run: &str, flavour: Flavour) -> Option<&Value> {
        let own = flavour == Flavour::Ours && self.topic.differs(run).is_some();
        if own { self.ours.0.get(run) } else { self.recorded.0.get(run) }
    }

    /// Writes the results. Of ours, only those that differ on purpose are written. Results of removed runs are
    /// removed.
    ///
    /// # Errors
    /// If that fails.
    pub fn record(&mut self, results: &[(String, Value)], flavour: Flavour) -> anyhow::Result<()> {
        let Self { path, topic, recorded, ours } = self;
        for (run, left) in results {
            let Some((_, differs)) = topic.planned_runs().find(|(it, _)| it == run) else { continue };
            match flavour {
                Flavour::Go => drop(recorded.0.insert(run.clone(), left.clone())),
                Flavour::Ours if differs.is_some() => drop(ours.0.insert(run.clone(), left.clone())),
                Flavour::Ours => {}
            }
        }
        recorded.0.retain(|it, _| topic.planned_runs().any(|(run, _)| run == *it));
        ours.0.retain(|it, _| topic.differs(it).is_some());
        recorded.write(&path.with_extension("recorded.json"))?;
        ours.write(&path.with_extension("ours.json"))
    }

    /// Inconsistencies of the files: a run without a record, a record without a run, a difference that is not in
    /// `differences` (the text of `docs/differences.md`).
    #[must_use]
    pub fn faults(&self, differences: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for (run, differs) in self.topic.planned_runs() {
            if !self.recorded.0.contains_key(&run) {
                faults.push(format!("{run} has no record"));
            }
            if self.ours.0.contains_key(&run) != differs.is_some() {
                faults.push(format!("{run} has a record of ours, or differs, but not both"));
            }
            if let Some(words) = differs.filter(|it| !differences.contains(it)) {
                faults.push(format!("{run}: {words:?} is not in docs/differences.md"));
            }
        }
        let names = self.recorded.0.keys().chain(self.ours.0.keys());
        let stale = names.filter(|it| !self.topic.planned_runs().any(|(run, _)| run == **it));
        faults.extend(stale.map(|it| format!("{it} is recorded, but there is no such run")));
        faults
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct TestTopic(BTreeMap<String, Option<String>>);

    impl Topic for TestTopic {
        fn planned_runs(&self) -> impl Iterator<Item = (String, Option<&str>)> {
            self.0.iter().map(|(name, differs)| (name.clone(), differs.as_deref()))
        }
    }

    fn results(runs: &[&str]) -> Vec<(String, Value)> {
        runs.iter().map(|it| ((*it).to_owned(), json!([it]))).collect()
    }

    #[test]
    fn recorded_results_are_read_again_and_expected() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("some.yaml"), "{same: null, other: ours is better}").unwrap();
        std::fs::write(folder.path().join("README.md"), "no set").unwrap();
        let all = || ScriptFile::<TestTopic>::all(folder.path()).unwrap();
        let mut file = all().remove(0);
        let missing = ["other has no record", "other has a record of ours, or differs, but not both"];
        assert_eq!(file.faults("ours is better"), [missing[0], missing[1], "same has no record"]);

        file.record(&results(&["same", "other", "removed"]), Flavour::Go).unwrap();
        file.record(&[("same".to_owned(), json!(1)), ("other".to_owned(), json!(2))], Flavour::Ours).unwrap();
        let file = all().remove(0);
        assert_eq!(file.faults("ours is better"), [] as [&str; 0]);
        assert_eq!(file.faults(""), [r#"other: "ours is better" is not in docs/differences.md"#]);
        let expected = |run, flavour| file.expected(run, flavour).cloned();
        assert_eq!(expected("same", Flavour::Ours), Some(json!(["same"])), "the same for both");
        assert_eq!(expected("other", Flavour::Ours), Some(json!(2)));
        assert_eq!(expected("other", Flavour::Go), Some(json!(["other"])));
        assert_eq!(expected("removed", Flavour::Go), None);

        std::fs::write(folder.path().join("some.yaml"), "{same: null}").unwrap();
        let mut file = all().remove(0);
        assert_eq!(
            file.faults(""),
            ["other is recorded, but there is no such run", "other is recorded, but there is no such run"]
        );
        file.record(&[], Flavour::Go).unwrap();
        assert_eq!(all().remove(0).faults(""), [] as [&str; 0]);
    }

    #[test]
    fn unreadable_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("some.yaml"), "{same: [}").unwrap();
        let err = format!("{:#}", ScriptFile::<TestTopic>::all(folder.path()).unwrap_err());
        assert!(err.contains("some.yaml"), "{err}");
    }
}
