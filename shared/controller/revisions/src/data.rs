//! The data of a revision: a strategic merge patch that sets the template. Pure.

use api::Labels;
use serde_json::{Map, Value, value::RawValue};

/// The data of a revision for a pod template, as the Go controllers write it: keys are sorted, and the characters that
/// Go's encoder escapes are escaped. The template must be as the server returned it, with its unknown fields.
///
/// # Errors
/// If the template is not a JSON object.
pub fn template_data(template: &RawValue) -> Result<Box<str>, serde_json::Error> {
    let mut template: Map<String, Value> = serde_json::from_str(template.get())?;
    remove_null_creation(&mut template);
    template.insert("$patch".to_owned(), "replace".into());
    let data = serde_json::json!({ "spec": { "template": template } });
    Ok(escape(&data.to_string()).into())
}

/// The labels of a pod template, which its revision gets.
///
/// # Errors
/// If the template does not decode.
pub fn template_labels(template: &RawValue) -> Result<Labels, serde_json::Error> {
    let template: Value = serde_json::from_str(template.get())?;
    let labels = template["metadata"]["labels"].as_object().into_iter().flatten();
    Ok(labels.filter_map(|(key, value)| Some(((**key).into(), value.as_str()?.into()))).collect())
}

/// Whether two revisions have equal data: the same bytes, or the same JSON value. Before Kubernetes 1.34 the data of
/// the same template contained a null creationTimestamp, which means nothing (k/k#134773).
#[must_use]
pub fn is_same_data(a: &str, b: &str) -> bool {
    a == b || matches!((parse(a), parse(b)), (Some(a), Some(b)) if a == b)
}

fn parse(data: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_str(data).ok()?;
    if let Some(Value::Object(template)) = value.pointer_mut("/spec/template") {
        remove_null_creation(template);
    }
    Some(value)
}

fn remove_null_creation(template: &mut Map<String, Value>) {
    if let Some(Value::Object(metadata)) = template.get_mut("metadata")
        && metadata.get("creationTimestamp").is_some_and(Value::is_null)
    {
        metadata.remove("creationTimestamp");
    }
}

/// Escapes the characters that Go's JSON encoder escapes and serde does not. Outside of strings JSON has none of them.
fn escape(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(template: &str) -> Box<str> {
        template_data(serde_json::from_str(template).unwrap()).unwrap()
    }

    #[test]
    fn data_is_what_the_go_controller_writes() {
        let template = r#"{"spec":{"containers":[{"name":"c","args":["a<b>&c"],"unknown":{"z":1,"a":9007199254740993}}]},
            "metadata":{"labels":{"b":"1","a":"2"}}}"#;
        let want = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"2","b":"1"}},"#.to_owned()
            + r#""spec":{"containers":[{"args":["a\u003cb\u003e\u0026c"],"name":"c","unknown":{"a":9007199254740993,"z":1}}]}}}}"#;
        assert_eq!(*data(template), *want);
    }

    #[test]
    fn a_null_creation_timestamp_and_the_order_of_keys_make_no_difference() {
        let now = data(r#"{"metadata":{"labels":{"a":"b"}},"spec":{}}"#);
        assert_eq!(data(r#"{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{}}"#), now);
        let before = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"b"},"creationTimestamp":null},"spec":{}}}}"#;
        assert!(is_same_data(before, &now) && is_same_data(&now, before));
        assert!(!is_same_data(&now, &data(r#"{"metadata":{"labels":{"a":"c"}},"spec":{}}"#)));
        assert!(!is_same_data("", &now) && is_same_data("", ""), "missing data is equal only to missing data");
    }

    #[test]
    fn a_template_that_is_no_object_is_an_error() {
        assert!(template_data(serde_json::from_str("[]").unwrap()).is_err());
    }
}
