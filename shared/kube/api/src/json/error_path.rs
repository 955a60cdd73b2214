//! The path in a document at which decoding failed.
//!
//! serde_path_to_error is not used: its wrapper, compiled for every kind, was a twentieth of the manager's code, and
//! code is most of the memory of an idle manager.

/// An open object or array.
enum Open {
    /// The key whose value is being read; `None` before the first key and between two entries.
    Object(Option<String>),
    /// The index of the item that is being read.
    Array(usize),
}

/// The path of the value that an error is about, for example `spec.containers[0].name`; empty for the whole document.
/// It is the path of the value itself, whether the value was read completely or not begun.
pub(super) fn path_of(err: &serde_json::Error, text: &[u8]) -> String {
    let before: usize = text.split(|it| *it == b'\n').take(err.line().saturating_sub(1)).map(|it| it.len() + 1).sum();
    let read = text.get(..before + err.column()).unwrap_or(text);
    let mut open: Vec<Open> = Vec::new();
    let mut rest = read;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'{' => open.push(Open::Object(None)),
            b'[' => open.push(Open::Array(0)),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Open::Object(key)) => *key = None,
                Some(Open::Array(at)) => *at += 1,
                None => {}
            },
            b'"' => {
                let (string, after) = string(after);
                rest = after;
                if let Some(Open::Object(key @ None)) = open.last_mut() {
                    *key = Some(String::from_utf8_lossy(string).into_owned());
                }
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for it in open {
        match it {
            Open::Object(None) => {}
            Open::Object(Some(key)) if path.is_empty() => path = key,
            Open::Object(Some(key)) => {
                path.push('.');
                path.push_str(&key);
            }
            Open::Array(at) => path.push_str(&format!("[{at}]")),
        }
    }
    path
}

/// The raw text of a string without its quotes, and the rest of the text.
fn string(text: &[u8]) -> (&[u8], &[u8]) {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    match end {
        Some(end) => (text.get(..end).unwrap_or(text), text.get(end + 1..).unwrap_or_default()),
        None => (text, &[]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::path_of;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "the values are not used")]
    struct Pod {
        name: String,
        #[serde(default)]
        containers: Vec<Container>,
        #[serde(default)]
        labels: BTreeMap<String, String>,
        #[serde(default)]
        phase: Option<Phase>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "the values are not used")]
    struct Container {
        image: String,
        #[serde(default)]
        ports: Vec<u16>,
    }

    #[derive(Debug, Deserialize)]
    enum Phase {
        Running,
    }

    #[test]
    fn path_is_that_of_the_value_with_the_error() {
        let cases = [
            (r#"{"name": 3}"#, "name"),
            (r#"{"name": {"a": 1}}"#, "name"),
            (r#"{"name": ["a"]}"#, "name"),
            (r#"{"name": null}"#, "name"),
            (r#"{"containers": []}"#, ""),
            (r#"[1]"#, "[0]"),
            (r#"{"name": "a", "containers": [{"image": "i"}, {"image": 1}]}"#, "containers[1].image"),
            (r#"{"name": "a", "containers": [{"image": "i"}, {"ports": [1]}]}"#, "containers[1]"),
            (r#"{"name": "a", "containers": [{"image": "i", "ports": [1, 70000]}]}"#, "containers[0].ports[1]"),
            (r#"{"name": "a", "containers": [{"image": "i", "ports": [1, {}]}]}"#, "containers[0].ports[1]"),
            (r#"{"name": "a", "containers": {"image": "i"}}"#, "containers"),
            (r#"{"name": "a\",[{", "labels": {"x": "]}", "y": 1}}"#, "labels.y"),
            (r#"{"name": "a\\", "labels": {"x": true}}"#, "labels.x"),
            (r#"{"name": "a", "phase": "Gone"}"#, "phase"),
            ("{\n  \"name\": \"a\",\n  \"labels\": {\n    \"x\": 1\n  }\n}", "labels.x"),
            (r#"{"name": "a", "name": "b"}"#, "name"),
        ];
        for (text, want) in cases {
            let err = serde_json::from_str::<Pod>(text).expect_err(text);
            assert_eq!(path_of(&err, text.as_bytes()), want, "{text}: {err}");
        }
    }

    #[test]
    fn truncated_text_has_a_short_path() {
        let whole = r#"{"name": "a", "containers": [{"image": "i", "ports": [1, 2]}], "labels": {"x\"": "y"}}"#;
        for end in 0..whole.len() {
            let text = &whole[..end];
            let err = serde_json::from_str::<Pod>(text).expect_err(text);
            assert!(path_of(&err, text.as_bytes()).len() <= whole.len());
        }
    }
}
