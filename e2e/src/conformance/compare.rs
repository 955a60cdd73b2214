use serde_json::Value;

use super::Entry;

/// Where two runs of a case differ, one finding each line; empty if nowhere.
#[must_use]
pub fn differences(recorded: &[Entry], answered: &[Entry]) -> Vec<String> {
    let mut found = Vec::new();
    for (want, have) in recorded.iter().zip(answered) {
        let mut here = Vec::new();
        if want.title != have.title {
            here.push(format!("recorded for another step: {}", want.title));
        }
        for at in 0..want.lines.len().max(have.lines.len()) {
            line(want.lines.get(at), have.lines.get(at), &mut here);
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
    fn a_difference_is_told_by_its_path() {
        let recorded = entry(&["200", r#"{"a":{"b":[1,2]},"c":3}"#]);
        let answered = entry(&["200", r#"{"a":{"b":[1]},"d":4}"#]);
        let told = differences(&recorded, &answered);
        assert_eq!(
            told,
            [
                "GET /",
                "    .a.b[1]: recorded 2, but missing",
                "    .c: recorded 3, but missing",
                "    .d: not recorded, answered 4"
            ]
        );
        assert!(differences(&recorded, &recorded).is_empty());
    }

    #[test]
    fn a_code_or_a_line_too_many_is_told() {
        assert_eq!(differences(&entry(&["200"]), &entry(&["404"])).len(), 3);
        assert_eq!(differences(&entry(&["200"]), &entry(&["200", "x: y"])).len(), 3);
        assert_eq!(differences(&[], &entry(&["200"])).len(), 1);
    }
}
