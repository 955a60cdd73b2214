use std::fmt;

use tracing::field::{Field, Visit};

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Written with quotes.
    Text(String),
    /// A number or a boolean: written without quotes in both formats.
    Plain(String),
}

/// A field's name and value.
pub(crate) type FieldPair = (&'static str, Value);

/// The fields of a span or of a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    pub(crate) message: String,
    pub(crate) pairs: Vec<FieldPair>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        let name = field.name();
        self.pairs.push((name.strip_prefix("r#").unwrap_or(name), value));
    }

    fn text(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            _ => self.add(field, Value::Text(text)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN and no infinity.
        let value = if value.is_finite() { Value::Plain(value.to_string()) } else { Value::Text(value.to_string()) };
        self.add(field, value);
    }
}

/// Each name once, as in klog: a pair that repeats unchanged keeps its first position, a changed one has the position
/// of its last change.
pub(crate) fn deduplicated<'a>(pairs: impl IntoIterator<Item = &'a FieldPair>) -> Vec<&'a FieldPair> {
    let mut unique: Vec<&FieldPair> = Vec::new();
    for pair in pairs {
        match unique.iter().position(|it| it.0 == pair.0) {
            Some(at) if unique[at].1 == pair.1 => {}
            Some(at) => {
                unique.remove(at);
                unique.push(pair);
            }
            None => unique.push(pair),
        }
    }
    unique
}
