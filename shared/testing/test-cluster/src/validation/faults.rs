use serde_json::{Map, Value, json};

use crate::{meta, response::Fault};

/// The faults found so far, and checks that many kinds share.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

pub(super) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
pub(super) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
    '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
    is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
    '93%', regex used for validation is '[0-9]+%')";

impl Faults {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_list(self) -> Vec<Fault> {
        self.0
    }

    /// Removes faults that the state before had too.
    pub(super) fn forgive(&mut self, before: &Self) {
        self.0.retain(|it| !before.0.contains(it));
    }

    pub(super) fn add(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault::of(reason, field, message));
    }

    pub(super) fn add_required(&mut self, field: impl Into<String>, detail: &str) {
        self.0.push(Fault::required(field, detail));
    }

    pub(super) fn add_invalid(&mut self, field: impl Into<String>, value: &Value, detail: &str) {
        self.0.push(Fault::invalid(field, value, detail));
    }

    /// Invalid, with a message that does not show the value.
    pub(super) fn add_wrong(&mut self, field: impl Into<String>, detail: &str) {
        self.add("FieldValueInvalid", field, format!("Invalid value: {detail}"));
    }

    pub(super) fn add_forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.0.push(Fault::forbidden(field, detail));
    }

    pub(super) fn add_duplicate(&mut self, field: impl Into<String>, value: &Value) {
        self.add("FieldValueDuplicate", field, format!("Duplicate value: {value}"));
    }

    pub(super) fn check_count(&mut self, field: impl Into<String>, count: usize, most: usize) {
        if count > most {
            let message = format!("Too many: {count}: must have at most {most} items");
            self.add("FieldValueTooMany", field, message);
        }
    }

    pub(super) fn check_length(&mut self, field: impl Into<String>, text: &str, most: usize) {
        if text.len() > most {
            self.add("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"));
        }
    }

    /// Adds a fault for a value that is not one of these.
    pub(super) fn add_unsupported(&mut self, field: impl Into<String>, value: &Value, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|it| format!("{it:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.add("FieldValueNotSupported", field, message);
    }

    /// A text, if present, must be one of these.
    pub(super) fn check_one_of(&mut self, parent: &Value, field: &str, path: &str, supported: &[&str]) {
        if let Some(value) = parent[field].as_str().filter(|it| !supported.contains(it)) {
            self.add_unsupported(path, &json!(value), supported);
        }
    }

    /// Numbers, if present, must not be below 0.
    pub(super) fn check_not_negative(&mut self, parent: &Value, path: &str, fields: &[&str]) {
        for field in fields {
            self.check_at_least(parent, path, field, 0);
        }
    }

    pub(super) fn check_at_least(&mut self, parent: &Value, path: &str, field: &str, least: i64) {
        if let Some(value) = parent[field].as_i64().filter(|it| *it < least) {
            let why = format!("must be greater than or equal to {least}");
            self.add_invalid(join(path, field), &json!(value), &why);
        }
    }

    /// The field at this path must not change.
    pub(super) fn check_immutable(&mut self, old: &Value, new: &Value, path: &str) {
        let value = meta::at(new, path);
        if value != meta::at(old, path) {
            self.add_invalid(path, value, "field is immutable");
        }
    }

    /// A number or a percentage must be valid and not negative.
    pub(super) fn check_quantity(&mut self, value: &Value, path: &str) {
        match value {
            Value::Number(_) if value.as_i64().unwrap_or(0) < 0 => {
                self.add_invalid(path, value, "must be greater than or equal to 0");
            }
            Value::String(text) if percent(text).is_none() => self.add_invalid(path, value, PERCENT),
            _ => {}
        }
    }

    /// A percentage must be at most 100%.
    pub(super) fn check_percentage(&mut self, value: &Value, path: &str) {
        if value.as_str().and_then(percent).is_some_and(|it| it > 100) {
            self.add_invalid(path, value, "must not be greater than 100%");
        }
    }

    pub(super) fn check_label_name(&mut self, name: &str, path: &str) {
        if !is_label(name) {
            self.add_invalid(path, &json!(name), LABEL);
        }
    }

    /// The key of a label, with an optional prefix.
    pub(super) fn check_qualified_name(&mut self, name: &str, path: &str) {
        let part = name.rsplit_once('/').map_or(name, |it| it.1);
        if part.is_empty() {
            self.add_invalid(path, &json!(name), "name part must be non-empty");
        }
        if !is_name_part(part) {
            self.add_invalid(path, &json!(name), NAME_PART);
        }
    }

    pub(super) fn check_label_value(&mut self, value: &str, path: &str) {
        if !value.is_empty() && !is_name_part(value) {
            self.add_invalid(path, &json!(value), LABEL_VALUE);
        }
    }

    /// A map of labels of a selector.
    pub(super) fn check_labels(&mut self, labels: &Value, path: &str) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            self.check_qualified_name(key, path);
            self.check_label_value(value.as_str().unwrap_or_default(), path);
        }
    }

    /// Checks a label selector. Returns true when it is valid.
    pub(super) fn check_selector(&mut self, selector: &Value, path: &str) -> bool {
        let before = self.0.len();
        self.check_labels(&selector["matchLabels"], &format!("{path}.matchLabels"));
        for (at, expression) in super::list(selector, "matchExpressions").iter().enumerate() {
            let path = format!("{path}.matchExpressions[{at}]");
            let values = super::list(expression, "values").len();
            match super::text(expression, "operator") {
                "In" | "NotIn" if values == 0 => {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    self.add_required(format!("{path}.values"), why);
                }
                "Exists" | "DoesNotExist" if values > 0 => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    self.add_forbidden(format!("{path}.values"), why);
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => self.add_invalid(format!("{path}.operator"), &json!(other), "not a valid selector operator"),
            }
            self.check_qualified_name(super::text(expression, "key"), &format!("{path}.key"));
        }
        self.0.len() == before
    }
}

pub(super) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// The number of a percentage.
pub(super) fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%').filter(|it| it.bytes().all(|it| it.is_ascii_digit()))?.parse().ok()
}

/// True when a number or a percentage is zero.
pub(super) fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0) || value.as_str().and_then(percent) == Some(0)
}

pub(super) fn is_label(name: &str) -> bool {
    let edge = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let inside = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    name.len() <= 63 && edge(name.bytes().next()) && edge(name.bytes().last()) && name.bytes().all(inside)
}

pub(super) fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_name_part(part: &str) -> bool {
    let edge = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    let inside = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    part.len() <= 63 && edge(part.bytes().next()) && edge(part.bytes().last()) && part.bytes().all(inside)
}

/// True when a valid label selector matches these labels; a missing one matches none.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let none = Map::new();
    let wanted = selector["matchLabels"].as_object().unwrap_or(&none);
    let equal = wanted.iter().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && super::list(selector, "matchExpressions").iter().all(|it| {
            let present = labels.get(super::text(it, "key"));
            let listed = present.is_some_and(|value| super::list(it, "values").contains(value));
            match super::text(it, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => present.is_some(),
                _ => present.is_none(),
            }
        })
}
