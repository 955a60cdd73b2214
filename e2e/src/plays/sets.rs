use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Recorded;
use crate::Flavour;

/// The scripts of one file.
pub trait Topic: DeserializeOwned {
    /// The name of each play, and why our result differs, if it does: words of the line in `docs/differences.md`.
    fn plays(&self) -> impl Iterator<Item = (String, Option<&str>)>;

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If it has an unknown field.
    fn parse(text: &str) -> anyhow::Result<Self> {
        // Parsed as a value first, because a YAML alias may stand for any type.
        let value: Value = serde_saphyr::from_str(text)?;
        Ok(serde_json::from_value(value)?)
    }

    /// Why our result of this play differs; `None` also for an unknown play.
    fn differs(&self, play: &str) -> Option<&str> {
        self.plays().find(|(name, _)| name == play)?.1
    }
}

/// The scripts of one file, and the recorded results of their plays.
#[derive(Debug)]
pub struct Set<T> {
    /// Without an extension.
    path: PathBuf,
    /// The scripts.
    pub topic: T,
    recorded: Recorded,
    /// Our results where they differ.
    ours: Recorded,
}

impl<T: Topic> Set<T> {
    /// All files of a folder.
    ///
    /// # Errors
    /// If one cannot be parsed.
    pub fn all(folder: &Path) -> anyhow::Result<Vec<Self>> {
        let mut sets = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "yaml") {
                sets.push(Self::read(&path).with_context(|| path.display().to_string())?);
            }
        }
        sets.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sets)
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let topic = T::parse(&std::fs::read_to_string(path)?)?;
        let recorded = Recorded::read(&path.with_extension("recorded.json"))?;
        let ours = Recorded::read(&path.with_extension("ours.json"))?;
        Ok(Self { path: path.with_extension(""), topic, recorded, ours })
    }

    /// The expected result of a play.
    #[must_use]
    pub fn expected(&self, play: &str, flavour: Flavour) -> Option<&Value> {
        let own = flavour == Flavour::Ours && self.topic.differs(play).is_some();
        if own { self.ours.0.get(play) } else { self.recorded.0.get(play) }
    }

    /// Writes the results. Of ours, only those that differ on purpose are written. Results of removed plays are
    /// removed.
    ///
    /// # Errors
    /// If that fails.
    pub fn record(&mut self, results: &[(String, Value)], flavour: Flavour) -> anyhow::Result<()> {
        let Self { path, topic, recorded, ours } = self;
        for (play, left) in results {
            let Some((_, differs)) = topic.plays().find(|(it, _)| it == play) else { continue };
            match flavour {
                Flavour::Go => drop(recorded.0.insert(play.clone(), left.clone())),
                Flavour::Ours if differs.is_some() => drop(ours.0.insert(play.clone(), left.clone())),
                Flavour::Ours => {}
            }
        }
        recorded.0.retain(|it, _| topic.plays().any(|(play, _)| play == *it));
        ours.0.retain(|it, _| topic.differs(it).is_some());
        recorded.write(&path.with_extension("recorded.json"))?;
        ours.write(&path.with_extension("ours.json"))
    }

    /// Inconsistencies of the files: a play without a record, a record without a play, a difference that is not in
    /// `differences` (the text of `docs/differences.md`).
    #[must_use]
    pub fn faults(&self, differences: &str) -> Vec<String> {
        let mut faults = Vec::new();
        for (play, differs) in self.topic.plays() {
            if !self.recorded.0.contains_key(&play) {
                faults.push(format!("{play} has no record"));
            }
            if self.ours.0.contains_key(&play) != differs.is_some() {
                faults.push(format!("{play} has a record of ours, or differs, but not both"));
            }
            if let Some(told) = differs.filter(|it| !differences.contains(it)) {
                faults.push(format!("{play}: {told:?} is not in docs/differences.md"));
            }
        }
        let names = self.recorded.0.keys().chain(self.ours.0.keys());
        let stale = names.filter(|it| !self.topic.plays().any(|(play, _)| play == **it));
        faults.extend(stale.map(|it| format!("{it} is recorded, but there is no such play")));
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
    struct Words(BTreeMap<String, Option<String>>);

    impl Topic for Words {
        fn plays(&self) -> impl Iterator<Item = (String, Option<&str>)> {
            self.0.iter().map(|(name, differs)| (name.clone(), differs.as_deref()))
        }
    }

    fn left(plays: &[&str]) -> Vec<(String, Value)> {
        plays.iter().map(|it| ((*it).to_owned(), json!([it]))).collect()
    }

    #[test]
    fn what_is_left_is_kept_beside_the_scripts_and_expected_again() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("some.yaml"), "{same: null, other: ours is better}").unwrap();
        std::fs::write(folder.path().join("README.md"), "no set").unwrap();
        let all = || Set::<Words>::all(folder.path()).unwrap();
        let mut set = all().remove(0);
        let missing = ["other has no record", "other has a record of ours, or differs, but not both"];
        assert_eq!(set.faults("ours is better"), [missing[0], missing[1], "same has no record"]);

        set.record(&left(&["same", "other", "removed"]), Flavour::Go).unwrap();
        set.record(&[("same".to_owned(), json!(1)), ("other".to_owned(), json!(2))], Flavour::Ours).unwrap();
        let set = all().remove(0);
        assert_eq!(set.faults("ours is better"), [] as [&str; 0]);
        assert_eq!(set.faults(""), [r#"other: "ours is better" is not in docs/differences.md"#]);
        let expected = |play, flavour| set.expected(play, flavour).cloned();
        assert_eq!(expected("same", Flavour::Ours), Some(json!(["same"])), "the same for both");
        assert_eq!(expected("other", Flavour::Ours), Some(json!(2)));
        assert_eq!(expected("other", Flavour::Go), Some(json!(["other"])));
        assert_eq!(expected("removed", Flavour::Go), None);

        std::fs::write(folder.path().join("some.yaml"), "{same: null}").unwrap();
        let mut set = all().remove(0);
        assert_eq!(
            set.faults(""),
            ["other is recorded, but there is no such play", "other is recorded, but there is no such play"]
        );
        set.record(&[], Flavour::Go).unwrap();
        assert_eq!(all().remove(0).faults(""), [] as [&str; 0]);
    }

    #[test]
    fn a_file_that_is_not_understood_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("some.yaml"), "{same: [}").unwrap();
        let err = format!("{:#}", Set::<Words>::all(folder.path()).unwrap_err());
        assert!(err.contains("some.yaml"), "{err}");
    }
}
