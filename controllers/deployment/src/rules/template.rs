//! Comparison of pod templates.

use serde_json::{Map, Value};

use crate::rules::{
    api_types::{Field, Form, form},
    quantity,
};

/// The label with the hash of the template.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";

/// Whether two templates are equal, without the label of the hash (`EqualIgnoreHash`, `Semantic.DeepEqual`): absent and
/// empty lists and maps are equal, and quantities are compared by value. Fields that the types lack are compared too.
pub(crate) fn is_equal(a: &str, b: &str) -> Result<bool, serde_json::Error> {
    let (a, b) = (without_hash(a)?, without_hash(b)?);
    Ok(a == b || is_equal_as("v1.PodTemplateSpec", Some(&a), Some(&b)))
}

/// The template without the label of the hash.
pub(crate) fn without_hash(template: &str) -> Result<Value, serde_json::Error> {
    let mut template: Value = serde_json::from_str(template)?;
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    Ok(template)
}

/// Whether two values of a type are equal. Absent and null are the same.
fn is_equal_as(type_: &'static str, a: Option<&Value>, b: Option<&Value>) -> bool {
    let (a, b) = (a.filter(|it| !it.is_null()), b.filter(|it| !it.is_null()));
    let equals_with = |default: Value| a.unwrap_or(&default) == b.unwrap_or(&default);
    match form(type_) {
        Form::Pointer(pointee) => a.is_some() == b.is_some() && is_equal_as(pointee, a, b),
        Form::List(item) => are_equal_lists(item, a.and_then(Value::as_array), b.and_then(Value::as_array)),
        Form::Map(item) => are_equal_maps(item, a.and_then(Value::as_object), b.and_then(Value::as_object)),
        Form::Struct(fields) => are_equal_structs(fields, a.and_then(Value::as_object), b.and_then(Value::as_object)),
        Form::Quantity => {
            let (text_a, text_b) = (a.map_or(Some("0"), Value::as_str), b.map_or(Some("0"), Value::as_str));
            text_a.zip(text_b).map_or(a == b, |(a, b)| quantity::is_equal(a, b))
        }
        Form::Text => equals_with("".into()),
        Form::Bool => equals_with(false.into()),
        Form::Number | Form::IntOrString => equals_with(0.into()),
        Form::Time | Form::Raw => equals_with(Value::Null),
    }
}

fn are_equal_lists(item: &'static str, a: Option<&Vec<Value>>, b: Option<&Vec<Value>>) -> bool {
    let items = |it: Option<&Vec<Value>>| it.map_or(0, Vec::len);
    let mut pairs = a.into_iter().flatten().zip(b.into_iter().flatten());
    items(a) == items(b) && pairs.all(|(a, b)| is_equal_as(item, Some(a), Some(b)))
}

fn are_equal_maps(item: &'static str, a: Option<&Map<String, Value>>, b: Option<&Map<String, Value>>) -> bool {
    let keys = |it: Option<&Map<String, Value>>| it.map_or(0, Map::len);
    let in_b = |key: &str| b.and_then(|it| it.get(key));
    let is_equal = |(key, a): (&String, &Value)| in_b(key).is_some_and(|b| is_equal_as(item, Some(a), Some(b)));
    keys(a) == keys(b) && a.into_iter().flatten().all(is_equal)
}

fn are_equal_structs(fields: &'static [Field], a: Option<&Map<String, Value>>, b: Option<&Map<String, Value>>) -> bool {
    let is_unknown = |(key, value): &(&String, &Value)| !value.is_null() && !has_field(fields, key);
    let unknown = |it: Option<&Map<String, Value>>| {
        let all = it.into_iter().flatten().filter(is_unknown);
        all.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
    };
    are_equal_fields(fields, a, b) && unknown(a) == unknown(b)
}

fn are_equal_fields(fields: &'static [Field], a: Option<&Map<String, Value>>, b: Option<&Map<String, Value>>) -> bool {
    fields.iter().all(|field| match form(field.type_) {
        Form::Struct(embedded) if field.json == "-" => are_equal_fields(embedded, a, b),
        _ => is_equal_as(field.type_, a.and_then(|it| it.get(field.json)), b.and_then(|it| it.get(field.json))),
    })
}

fn has_field(fields: &'static [Field], key: &str) -> bool {
    fields.iter().any(|field| match form(field.type_) {
        Form::Struct(embedded) if field.json == "-" => has_field(embedded, key),
        _ => field.json == key,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn equal(a: Value, b: Value) -> bool {
        is_equal(&a.to_string(), &b.to_string()).unwrap()
    }

    fn container(fields: Value) -> Value {
        json!({ "spec": { "containers": [fields] } })
    }

    #[test]
    fn the_label_of_the_hash_and_empty_lists_and_maps_make_no_difference() {
        let bare = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c" }] } });
        let same = json!({
            "metadata": { "creationTimestamp": null, "annotations": {}, "labels": { "pod-template-hash": "h", "a": "b" } },
            "spec": { "containers": [{ "name": "c", "args": [], "env": null, "stdin": false, "resources": {} }],
                "nodeSelector": {}, "hostNetwork": false, "hostname": "" },
        });
        assert!(equal(bare.clone(), same));
        for other in [
            json!({ "metadata": { "labels": { "a": "c" } }, "spec": { "containers": [{ "name": "c" }] } }),
            json!({ "metadata": { "labels": { "a": "b", "b": "" } }, "spec": { "containers": [{ "name": "c" }] } }),
            json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } }),
            json!({ "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c" }], "securityContext": {} } }),
            json!({ "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "c" }], "fieldFromTomorrow": 0 } }),
        ] {
            assert!(!equal(bare.clone(), other.clone()) && !equal(other.clone(), bare.clone()), "{other}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value_and_only_they() {
        let limit = |cpu: &str| container(json!({ "resources": { "limits": { "cpu": cpu } } }));
        assert!(equal(limit("1"), limit("1000m")) && !equal(limit("1"), limit("2")));
        let volume = |limit: &str| json!({ "spec": { "volumes": [{ "emptyDir": { "sizeLimit": limit } }] } });
        assert!(equal(volume("1Gi"), volume("1024Mi")));
        let divisor = |it: Value| container(json!({ "env": [{ "valueFrom": { "resourceFieldRef": it } }] }));
        assert!(equal(divisor(json!({})), divisor(json!({ "divisor": "0" }))));
        for text in [
            |it: &str| container(json!({ "args": [it] })),
            |it: &str| json!({ "metadata": { "labels": { "divisor": it } } }),
            |it: &str| json!({ "spec": { "volumes": [{ "csi": { "volumeAttributes": { "sizeLimit": it } } }] } }),
        ] {
            assert!(!equal(text("1"), text("1000m")), "{}", text("1"));
        }
    }

    #[test]
    fn embedded_fields_and_ports_of_both_kinds_are_compared() {
        let probe = |it: Value| container(json!({ "livenessProbe": it }));
        assert!(!equal(probe(json!({ "httpGet": { "port": 80 } })), probe(json!({ "httpGet": { "port": "80" } }))));
        assert!(!equal(probe(json!({ "httpGet": { "port": 80 } })), probe(json!({ "tcpSocket": { "port": 80 } }))));
        assert!(!equal(probe(json!({ "exec": {} })), probe(json!({}))), "a pointer to nothing is no nil");
        assert!(equal(probe(json!({ "exec": { "command": [] } })), probe(json!({ "exec": {} }))));
    }

    #[test]
    fn a_template_that_does_not_decode_is_an_error() {
        assert!(is_equal("", "{}").is_err());
    }
}
