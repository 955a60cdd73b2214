//! A pod template as Go prints it (`dump.ForHash`, spew's `%#v`): all fields of all types, in the order of Go, with their
//! types. Fields that the types lack are appended.
//!
//! The hash of a template is that of this text.

use std::collections::BTreeMap;

use clock::Timestamp;
use serde_json::{Map, Value};

use crate::rules::{
    api_types::{Field, Form, form},
    quantity,
};

/// Prints a pod template.
pub(crate) fn pod_template(template: &Value) -> String {
    let mut printer = Printer::default();
    printer.print_typed("v1.PodTemplateSpec", Some(template));
    let Printer { mut text, unknown } = printer;
    if !unknown.is_empty() {
        text.push_str(&serde_json::to_string(&unknown).unwrap_or_default());
    }
    text
}

#[derive(Default)]
struct Printer {
    text: String,
    /// Fields that the types lack.
    unknown: BTreeMap<String, Vec<Value>>,
}

impl Printer {
    /// Prints the type, then the value. Absent and null are the same.
    fn print_typed(&mut self, type_: &'static str, value: Option<&Value>) {
        let value = value.filter(|it| !it.is_null());
        self.push(&["(", type_, ")"]);
        match (form(type_), value) {
            (Form::Pointer(_), None) => self.push(&["<nil>"]),
            (Form::Pointer(pointee), value) => self.print(pointee, value),
            (_, value) => self.print(type_, value),
        }
    }

    fn print(&mut self, type_: &'static str, value: Option<&Value>) {
        let text = || value.and_then(Value::as_str).unwrap_or_default();
        match form(type_) {
            Form::Pointer(pointee) => self.print(pointee, value),
            Form::List(item) => self.print_list(item, value.and_then(Value::as_array)),
            Form::Map(item) => self.print_map(item, value.and_then(Value::as_object)),
            Form::Text => self.push(&[text()]),
            Form::Bool => self.push(&[if value == Some(&Value::Bool(true)) { "true" } else { "false" }]),
            Form::Number => self.push(&[&value.and_then(Value::as_i64).unwrap_or_default().to_string()]),
            Form::Time => self.print_time(text()),
            Form::IntOrString => self.print_int_or_string(value),
            Form::Quantity => self.push(&[&match value {
                Some(Value::Number(number)) => quantity::dump(&number.to_string()),
                _ => quantity::dump(text()),
            }]),
            Form::Raw => self.print_raw(value),
            Form::Struct(fields) => self.print_struct(type_, fields, value.and_then(Value::as_object)),
        }
    }

    fn print_list(&mut self, item: &'static str, items: Option<&Vec<Value>>) {
        let Some(items) = items.filter(|it| !it.is_empty()) else { return self.push(&["<nil>"]) };
        for (index, value) in items.iter().enumerate() {
            self.push(&[if index == 0 { "[" } else { " " }]);
            self.print(item, Some(value));
        }
        self.push(&["]"]);
    }

    /// The keys are sorted, as in [`Map`].
    fn print_map(&mut self, item: &'static str, pairs: Option<&Map<String, Value>>) {
        let Some(pairs) = pairs.filter(|it| !it.is_empty()) else { return self.push(&["<nil>"]) };
        for (index, (key, value)) in pairs.iter().enumerate() {
            self.push(&[if index == 0 { "map[" } else { " " }, key, ":"]);
            self.print(item, Some(value));
        }
        self.push(&["]"]);
    }

    fn print_struct(&mut self, type_: &str, fields: &'static [Field], value: Option<&Map<String, Value>>) {
        let known = self.print_fields(fields, value);
        for (key, value) in value.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            if !known.contains(&&**key) {
                self.unknown.entry(format!("{type_}.{key}")).or_default().push(value.clone());
            }
        }
    }

    /// Returns the names in JSON of all fields, also those of embedded types.
    fn print_fields(&mut self, fields: &'static [Field], value: Option<&Map<String, Value>>) -> Vec<&'static str> {
        let mut known = Vec::new();
        self.push(&["{"]);
        for (index, Field { go, json, type_ }) in fields.iter().enumerate() {
            self.push(&[if index == 0 { "" } else { " " }, go, ":"]);
            match form(type_) {
                Form::Struct(embedded) if *json == "-" => {
                    self.push(&["(", type_, ")"]);
                    known.extend(self.print_fields(embedded, value));
                }
                _ => {
                    known.push(*json);
                    self.print_typed(type_, value.and_then(|it| it.get(*json)));
                }
            }
        }
        self.push(&["}"]);
        known
    }

    /// A time is there only if a user has copied the metadata of a pod. The zone is that of a container, UTC.
    fn print_time(&mut self, text: &str) {
        /// The seconds from the year 1 to 1970.
        const EPOCH: i64 = 62_135_596_800;
        let (seconds, zone) = match text.parse::<Timestamp>() {
            Ok(time) => (
                time.as_second() + EPOCH,
                "{name:(string)UTC zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> extend:(string) \
                 cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}",
            ),
            Err(_) => (0, "<nil>"),
        };
        let seconds = seconds.to_string();
        self.push(&["{Time:(time.Time){wall:(uint64)0 ext:(int64)", &seconds, " loc:(*time.Location)", zone, "}}"]);
    }

    fn print_int_or_string(&mut self, value: Option<&Value>) {
        let (kind, number, text) = match value {
            Some(Value::String(text)) => ("1", 0, text.as_str()),
            other => ("0", other.and_then(Value::as_i64).unwrap_or_default(), ""),
        };
        let number = number.to_string();
        self.push(&["{Type:(intstr.Type)", kind, " IntVal:(int32)", &number, " StrVal:(string)", text, "}"]);
    }

    /// JSON as the list of its bytes.
    fn print_raw(&mut self, value: Option<&Value>) {
        let bytes = value.map(Value::to_string).unwrap_or_default();
        let bytes: Vec<String> = bytes.bytes().map(|it| it.to_string()).collect();
        self.push(&["{Raw:([]uint8)[", &bytes.join(" "), "]}"]);
    }

    fn push(&mut self, parts: &[&str]) {
        parts.iter().for_each(|it| self.text.push_str(it));
    }
}

#[cfg(test)]
mod tests;
