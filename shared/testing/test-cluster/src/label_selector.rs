//! Label selectors in objects: `matchLabels` and `matchExpressions`.

use std::collections::BTreeMap;

use serde_json::Value;

/// True when the selector of an object matches these labels. An empty selector matches all, a missing one matches none.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    let Value::Object(_) = selector else { return false };
    let equal = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
    let holds = |expression: &Value| {
        let label = expression["key"].as_str().and_then(|key| labels.get(key));
        let listed = || label.is_some_and(|it| values(expression).any(|value| it == value));
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    };
    selector["matchLabels"].as_object().is_none_or(|it| it.iter().all(equal))
        && selector["matchExpressions"].as_array().is_none_or(|it| it.iter().all(holds))
}

/// A selector in the syntax of a query, sorted by its keys.
pub(crate) fn text(selector: &Value) -> String {
    let mut terms = plain_terms(&selector["matchLabels"]);
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut listed: Vec<&str> = values(expression).collect();
        listed.sort_unstable();
        let listed = listed.join(",");
        terms.entry(key.to_owned()).or_default().push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({listed})"),
            "NotIn" => format!("{key} notin ({listed})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    join(terms)
}

/// A map of labels in the syntax of a query.
pub(crate) fn text_of_labels(labels: &Value) -> String {
    join(plain_terms(labels))
}

fn plain_terms(labels: &Value) -> BTreeMap<String, Vec<String>> {
    let labels = labels.as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), vec![format!("{key}={}", value.as_str().unwrap_or_default())])).collect()
}

fn join(terms: BTreeMap<String, Vec<String>>) -> String {
    terms.into_values().flatten().collect::<Vec<_>>().join(",")
}

fn values(expression: &Value) -> impl Iterator<Item = &str> {
    expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str)
}
