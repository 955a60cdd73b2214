//! Writes small objects as YAML.

use std::fmt::Write as _;

use serde_json::Value;

/// An object in block style. Scalars and lists are written as JSON, which is valid YAML.
pub(super) fn block(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text
}

fn write(text: &mut String, value: &Value, indent: usize) {
    for (key, value) in value.as_object().into_iter().flatten() {
        // Writing into a string cannot fail.
        let _ = match value {
            Value::Object(fields) if !fields.is_empty() => {
                let _ = writeln!(text, "{:indent$}{key}:", "");
                write(text, value, indent + 2);
                Ok(())
            }
            _ => writeln!(text, "{:indent$}{key}: {value}", ""),
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_indented_and_scalars_are_quoted() {
        let value =
            json!({"kind": "Flagz", "metadata": {"name": "n"}, "paths": ["/a", "/b"], "flags": {"v": "a: \"b\"\n"}});
        let want =
            "flags:\n  v: \"a: \\\"b\\\"\\n\"\nkind: \"Flagz\"\nmetadata:\n  name: \"n\"\npaths: [\"/a\",\"/b\"]\n";
        assert_eq!(block(&value), want);
    }
}
