use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Context;
use serde_json::Value;

/// The results of the runs of a file, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedResults(pub BTreeMap<String, Value>);

impl RecordedResults {
    /// Reads a file. A missing file has no results.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self(serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?)),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(err) => Err(err).with_context(|| path.display().to_string()),
        }
    }

    /// Writes the file. Without results the file is removed.
    ///
    /// # Errors
    /// If that fails.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        if self.0.is_empty() && !path.exists() {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(&self.0)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

/// The differences of two values, one line each.
#[must_use]
pub fn differences(want: &Value, have: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", want, have, &mut found);
    found
}

fn compare(path: &str, want: &Value, have: &Value, found: &mut Vec<String>) {
    match (want, have) {
        _ if want == have => {}
        (Value::Object(wants), Value::Object(haves)) => {
            let keys: BTreeSet<&String> = wants.keys().chain(haves.keys()).collect();
            for key in keys {
                compare(&format!("{path}.{key}"), &want[key], &have[key], found);
            }
        }
        // Arrays are compared as sets: elements that only one side has.
        (Value::Array(wants), Value::Array(haves)) => {
            let before = found.len();
            let missing = wants.iter().filter(|it| !haves.contains(it));
            found.extend(missing.map(|it| format!("{path}: missing: {it}")));
            let extra = haves.iter().filter(|it| !wants.contains(it));
            found.extend(extra.map(|it| format!("{path}: not recorded: {it}")));
            if found.len() == before {
                found.push(format!("{path}: in another order: {want} and {have}"));
            }
        }
        _ => found.push(format!("{path}: recorded {want}, now {have}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_reported_by_path() {
        let want = json!({ "status": { "active": 1 }, "events": [{ "a": 1 }, { "b": 1 }] });
        let have = json!({ "status": { "active": 2 }, "events": [{ "a": 1 }, { "c": 1 }], "more": true });
        let words = [
            r#".events: missing: {"b":1}"#,
            r#".events: not recorded: {"c":1}"#,
            ".more: recorded null, now true",
            ".status.active: recorded 1, now 2",
        ];
        assert_eq!(differences(&want, &have), words);
        assert_eq!(differences(&want, &want), [] as [&str; 0]);
    }
}
