use clock::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, ages, jsonpath::Path, name};
use crate::kinds::Kind;

/// A printer column of a definition.
#[derive(Debug, Clone)]
pub(crate) struct PrinterColumn {
    column: Column,
    path: Option<Path>,
}

/// Parses the printer columns of a version; without any, the age.
pub(crate) fn declared(version: &Value) -> Vec<PrinterColumn> {
    let given = version["additionalPrinterColumns"].as_array().map(Vec::as_slice).unwrap_or_default();
    if given.is_empty() {
        let column = Column { of: "date".into(), ..AGE };
        return vec![PrinterColumn { column, path: Path::parse(".metadata.creationTimestamp") }];
    }
    let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let read = |it: &Value| PrinterColumn {
        column: Column {
            name: text(it, "name").into(),
            of: text(it, "type").into(),
            format: text(it, "format").into(),
            description: text(it, "description").into(),
            priority: it["priority"].as_i64().unwrap_or(0),
        },
        path: Path::parse(&text(it, "jsonPath")),
    };
    given.iter().map(read).collect()
}

pub(super) fn columns(kind: &Kind, api_version: &str) -> Vec<Column> {
    std::iter::once(NAME).chain(printed(kind, api_version).iter().map(|it| it.column.clone())).collect()
}

pub(super) fn cells(kind: &Kind, api_version: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let cell = |it: &PrinterColumn| {
        let found = it.path.as_ref().map(|path| path.find(object)).unwrap_or_default();
        cell(&it.column.of, &found, now)
    };
    std::iter::once(name(object)).chain(printed(kind, api_version).iter().map(cell)).collect()
}

fn printed<'a>(kind: &'a Kind, api_version: &str) -> &'a [PrinterColumn] {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    kind.declared(version).map(|it| it.columns.as_slice()).unwrap_or_default()
}

/// The value in the type of the column; null if it does not fit.
fn cell(of: &str, found: &[&Value], now: Timestamp) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match (of, first) {
        (_, Value::Null) => Value::Null,
        ("string", _) => plain(first).into(),
        ("integer", Value::Number(number)) => {
            // A fraction is truncated.
            number.as_i64().or_else(|| number.as_f64().map(|it| it as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*first).clone(),
        ("date", Value::String(_)) if ages::parse(first).is_none() => "<invalid>".into(),
        ("date", Value::String(_)) => ages::since(first, now).into(),
        _ => Value::Null,
    }
}

/// A value as plain text; lists and maps as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
