use std::{collections::BTreeMap, fmt::Write, path::Path};

use anyhow::{Context, bail};

use super::Case;

/// The response to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The line of the step.
    pub title: String,
    /// Code, headers, body or events, one per line.
    pub lines: Vec<String>,
}

/// The responses of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The fingerprint of the case when it was recorded.
    pub fingerprint: u64,
    /// One entry for each step.
    pub entries: Vec<Entry>,
}

/// The responses of all cases of one topic, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recordings(pub BTreeMap<String, Recorded>);

impl Recordings {
    /// Reads a file. A missing file has no recordings.
    ///
    /// # Errors
    /// If it cannot be parsed; the message has the line number.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| path.display().to_string()),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(err) => Err(err).with_context(|| path.display().to_string()),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut recordings = Self::default();
        let mut current: Option<(String, Recorded)> = None;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if let Some(head) = line.strip_prefix("=== ") {
                let (name, print) = head.split_once(' ').with_context(|| format!("line {}: {line}", at + 1))?;
                let fingerprint = u64::from_str_radix(print, 16).with_context(|| format!("line {}: {line}", at + 1))?;
                let begun = (name.to_owned(), Recorded { fingerprint, entries: Vec::new() });
                recordings.0.extend(current.replace(begun));
                continue;
            }
            let Some((_, recorded)) = &mut current else { bail!("line {}: before the first case: {line}", at + 1) };
            match (line.strip_prefix("> "), recorded.entries.last_mut()) {
                (Some(title), _) => recorded.entries.push(Entry { title: title.to_owned(), lines: Vec::new() }),
                (None, Some(entry)) => entry.lines.push(line.to_owned()),
                (None, None) => bail!("line {}: before the first step: {line}", at + 1),
            }
        }
        recordings.0.extend(current);
        Ok(recordings)
    }

    /// Writes the recordings of these cases, in their order.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path, cases: &[Case]) -> anyhow::Result<()> {
        std::fs::write(path, self.text(cases)?).with_context(|| path.display().to_string())
    }

    fn text(&self, cases: &[Case]) -> anyhow::Result<String> {
        let mut text =
            String::from("# What a real API server answered, made comparable. Written by RECORD=1, see README.md.\n");
        for case in cases {
            let Some(recorded) = self.0.get(&case.name) else { continue };
            writeln!(text, "\n=== {} {:016x}", case.name, recorded.fingerprint)?;
            for entry in &recorded.entries {
                writeln!(text, "> {}", entry.title)?;
                for line in &entry.lines {
                    writeln!(text, "{line}")?;
                }
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::parse;

    #[test]
    fn written_recordings_are_read_again() {
        let cases = parse("a", "=== conformance_b\nGET /b\n=== conformance_a\nGET /a\nREAD w 1\n").unwrap();
        let entry = |title: &str, lines: &[&str]| {
            let lines = lines.iter().map(|&it| it.to_owned()).collect();
            Entry { title: title.to_owned(), lines }
        };
        let a = vec![entry("GET /a", &["200", "Content-Type: x", r#"{"a":1}"#]), entry("READ w 1", &[])];
        let recorded = |fingerprint, entries| Recorded { fingerprint, entries };
        let recordings = Recordings(BTreeMap::from([
            ("conformance_a".to_owned(), recorded(255, a)),
            ("conformance_b".to_owned(), recorded(1, vec![entry("GET /b", &["404"])])),
        ]));
        let text = recordings.text(&cases).unwrap();
        assert_eq!(Recordings::parse(&text).unwrap(), recordings);
        assert!(text.find("conformance_b") < text.find("conformance_a"), "in the order of the cases: {text}");
        assert!(Recordings::parse("200").unwrap_err().to_string().starts_with("line 1"));
    }
}
