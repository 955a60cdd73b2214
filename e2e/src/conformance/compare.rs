use serde_json::Value;

use super::Entry;

/// The beginning of a line with the duration of a step.
pub(super) const AFTER: &str = "AFTER ";

/// The clock of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Virtual time is exact.
    Virtual,
    /// Real time: a busy machine may take up to a second more.
    Machine,
}

/// The differences of two runs of a case, one line each.
#[must_use]
pub fn differences(recorded: &[Entry], answered: &[Entry], time: Time) -> Vec<String> {
    let mut found = Vec::new();
    for (want, have) in recorded.iter().zip(answered) {
        let mut here = Vec::new();
        if want.title != have.title {
            here.push(format!("recorded for another step: {}", want.title));
        }
        for at in 0..want.lines.len().max(have.lines.len()) {
            let (want, have) = (want.lines.get(at), have.lines.get(at));
            if time == Time::Virtual || !is_similar_duration(want, have) {
                line(want, have, &mut here);
            }
        }
        if !here.is_empty() {
            found.push(have.title.clone());
            found.extend(here.into_iter().map(|it| format!("    {it}")));
        }
    }
    if recorded.len() != answered.len() {
        found.push(format!("{} steps are recorded, not {}", recorded.len(), answered.len()));
    }
    found
}

/// True for two durations that differ by at most one second. A missing line means no duration.
fn is_similar_duration(want: Option<&String>, have: Option<&String>) -> bool {
    let seconds = |line: Option<&String>| match line {
        Some(line) => line.strip_prefix(AFTER)?.strip_suffix(" s")?.parse::<u64>().ok(),
        None => Some(0),
    };
    matches!((seconds(want), seconds(have)), (Some(want), Some(have)) if want.abs_diff(have) <= 1)
}

fn line(want: Option<&String>, have: Option<&String>, found: &mut Vec<String>) {
    if want == have {
        return;
    }
    let parsed = |line: Option<&String>| line.and_then(|it| serde_json::from_str::<Value>(it).ok());
    match (parsed(want), parsed(have)) {
        (Some(want), Some(have)) if want.is_object() && have.is_object() => values("", &want, &have, found),
        _ => {
            let shown = |it: Option<&String>| it.map_or("nothing", String::as_str).to_owned();
            found.push(format!("recorded {}", shown(want)));
            found.push(format!("answered {}", shown(have)));
        }
    }
}

fn values(path: &str, want: &Value, have: &Value, found: &mut Vec<String>) {
    match (want, have) {
        _ if want == have => {}
        (Value::Object(wants), Value::Object(haves)) => {
            let mut keys: Vec<&String> = wants.keys().chain(haves.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                member(&format!("{path}.{key}"), wants.get(key), haves.get(key), found);
            }
        }
        (Value::Array(wants), Value::Array(haves)) => {
            for at in 0..wants.len().max(haves.len()) {
                member(&format!("{path}[{at}]"), wants.get(at), haves.get(at), found);
            }
        }
        _ => found.push(format!("{path}: recorded {want}, answered {have}")),
    }
}

fn member(path: &str, want: Option<&Value>, have: Option<&Value>, found: &mut Vec<String>) {
    match (want, have) {
        (Some(want), Some(have)) => values(path, want, have, found),
        (Some(want), None) => found.push(format!("{path}: recorded {want}, but missing")),
        (None, Some(have)) => found.push(format!("{path}: not recorded, answered {have}")),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(lines: &[&str]) -> Vec<Entry> {
        vec![Entry { title: "GET /".to_owned(), lines: lines.iter().map(|&it| it.to_owned()).collect() }]
    }

    #[test]
    fn difference_is_reported_by_path() {
        let recorded = entry(&["200", r#"{"a":{"b":[1,2]},"c":3}"#]);
        let answered = entry(&["200", r#"{"a":{"b":[1]},"d":4}"#]);
        let told = differences(&recorded, &answered, Time::Virtual);
        assert_eq!(
            told,
            [
                "GET /",
                "    .a.b[1]: recorded 2, but missing",
                "    .c: recorded 3, but missing",
                "    .d: not recorded, answered 4"
            ]
        );
        assert!(differences(&recorded, &recorded, Time::Virtual).is_empty());
    }

    #[test]
    fn additional_code_or_line_is_reported() {
        assert_eq!(differences(&entry(&["200"]), &entry(&["404"]), Time::Virtual).len(), 3);
        assert_eq!(differences(&entry(&["200"]), &entry(&["200", "x: y"]), Time::Virtual).len(), 3);
        assert_eq!(differences(&[], &entry(&["200"]), Time::Virtual).len(), 1);
    }

    #[test]
    fn one_second_is_no_difference_on_machine_time() {
        let same = |want: &[&str], have: &[&str], time| differences(&entry(want), &entry(have), time).is_empty();
        for (want, have, by_machine) in [
            (vec!["END", "AFTER 3 s"], vec!["END", "AFTER 4 s"], true),
            (vec!["END", "AFTER 3 s"], vec!["END", "AFTER 5 s"], false),
            (vec!["END"], vec!["END", "AFTER 1 s"], true),
            (vec!["END", "AFTER 2 s"], vec!["END"], false),
        ] {
            assert_eq!(same(&want, &have, Time::Machine), by_machine, "{want:?} {have:?}");
            assert!(!same(&want, &have, Time::Virtual), "{want:?} {have:?}");
        }
    }
}
