//! Responses as tables, for `kubectl get`. Each of the other files converts the objects of some kinds and the present
//! time into cells; this file builds the tables.

mod ages;
mod autoscaling;
mod core;
pub(crate) mod custom;
mod events;
mod jobs;
pub(crate) mod jsonpath;
mod network;
mod nodes;
mod pods;
mod policy;
mod storage;
mod workloads;

use std::{borrow::Cow, sync::Arc};

use clock::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::{
    Failure,
    kinds::Kind,
    meta,
    response::{Form, Shown},
};

/// The options of a table, and the present time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableOptions {
    /// `meta.k8s.io/v1` or `v1beta1`.
    api_version: &'static str,
    include: Include,
    now: Timestamp,
}

/// What each row contains in addition to the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

impl TableOptions {
    /// A table in the version of the Accept header; `None` when there is no such version.
    pub(crate) fn of_version(version: &str) -> Option<Self> {
        let api_version = match version {
            "v1" => "meta.k8s.io/v1",
            "v1beta1" => "meta.k8s.io/v1beta1",
            _ => return None,
        };
        Some(Self { api_version, include: Include::Metadata, now: Timestamp::UNIX_EPOCH })
    }

    /// The same with the query's `includeObject`.
    ///
    /// # Errors
    /// 400 for an unknown value.
    fn including(self, word: &str) -> Result<Self, Failure> {
        let include = match word {
            "" | "Metadata" => Include::Metadata,
            "Object" => Include::Object,
            "None" => Include::Nothing,
            other => {
                return Err(Failure::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
        Ok(Self { include, ..self })
    }

    /// The same at another time: the ages are computed when a row is printed.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }

    /// For a bookmark, which has its annotations for every `includeObject`.
    pub(crate) fn of_bookmark(self) -> Self {
        if self.include == Include::Nothing { Self { include: Include::Metadata, ..self } } else { self }
    }
}

/// The form with the query's `includeObject`, and a failure if the value is unknown. A real server reports it only when
/// something is converted.
pub(crate) fn asked(form: Form, include: &str, now: Timestamp) -> (Form, Option<Failure>) {
    match form {
        Form::Table(options) => match options.including(include) {
            Ok(options) => (Form::Table(options.at(now)), None),
            Err(failure) => (form, Some(failure)),
        },
        other => (other, None),
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    name: Cow<'static, str>,
    of: Cow<'static, str>,
    format: Cow<'static, str>,
    /// Only for columns of a CustomResourceDefinition; kubectl does not show it.
    description: Cow<'static, str>,
    priority: i64,
}

const fn column(name: &'static str, of: &'static str, format: &'static str, priority: i64) -> Column {
    Column {
        name: Cow::Borrowed(name),
        of: Cow::Borrowed(of),
        format: Cow::Borrowed(format),
        description: Cow::Borrowed(""),
        priority,
    }
}

const fn text(name: &'static str) -> Column {
    column(name, "string", "", 0)
}

const fn integer(name: &'static str) -> Column {
    column(name, "integer", "", 0)
}

const fn boolean(name: &'static str) -> Column {
    column(name, "boolean", "", 0)
}

/// Shown by `-o wide` only.
const fn wide(name: &'static str) -> Column {
    column(name, "string", "", 1)
}

const NAME: Column = column("Name", "string", "name", 0);
const AGE: Column = text("Age");

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("type", &self.of)?;
        map.serialize_entry("format", &self.format)?;
        map.serialize_entry("description", &self.description)?;
        map.serialize_entry("priority", &self.priority)?;
        map.end()
    }
}

/// How the objects of a kind are printed.
#[derive(Clone, Copy)]
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The printer of a built-in kind.
fn printer(kind: &Kind) -> Printer {
    let found = match kind.group.as_str() {
        "" => core::printer(&kind.plural)
            .or_else(|| pods::printer(&kind.plural))
            .or_else(|| nodes::printer(&kind.plural))
            .or_else(|| events::printer(&kind.plural))
            .or_else(|| network::printer(&kind.plural))
            .or_else(|| storage::printer(&kind.plural))
            .or_else(|| workloads::printer(&kind.plural)),
        "apps" => workloads::printer(&kind.plural),
        "batch" => jobs::printer(&kind.plural),
        "autoscaling" => autoscaling::printer(&kind.plural),
        "discovery.k8s.io" => network::printer(&kind.plural),
        "events.k8s.io" => events::printer(&kind.plural),
        "storage.k8s.io" => storage::printer(&kind.plural),
        "policy"
        | "coordination.k8s.io"
        | "scheduling.k8s.io"
        | "rbac.authorization.k8s.io"
        | "apiregistration.k8s.io" => policy::printer(&kind.plural),
        _ => None,
    };
    found.unwrap_or(Printer { columns: PLAIN, cells: plain })
}

/// For built-in kinds without columns of their own.
const PLAIN: &[Column] = &[NAME, column("Created At", "date", "", 0)];

fn plain(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), object["metadata"]["creationTimestamp"].clone()]
}

/// The columns of a kind in one of its versions.
fn columns(kind: &Kind, api_version: &str) -> Cow<'static, [Column]> {
    if kind.custom { custom::columns(kind, api_version).into() } else { printer(kind).columns.into() }
}

/// One table.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Map<String, Value>,
    column_definitions: Option<Cow<'static, [Column]>>,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    cells: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Value>,
    object: Beside<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Beside<'a> {
    Nothing(()),
    #[serde(rename_all = "camelCase")]
    Metadata {
        kind: &'static str,
        api_version: &'static str,
        metadata: &'a Value,
    },
    Object(Shown<'a>),
}

/// The table of a list.
pub(crate) fn of_list<'a>(
    kind: &Kind,
    api_version: &'a str,
    items: &'a [Arc<Value>],
    metadata: Map<String, Value>,
    options: TableOptions,
) -> Table<'a> {
    let rows = items.iter().map(|it| row(kind, api_version, it, options)).collect();
    Table {
        kind: "Table",
        api_version: options.api_version,
        metadata,
        column_definitions: Some(columns(kind, api_version)),
        rows,
    }
}

/// The table of one object. In a watch only the first table has the columns.
pub(crate) fn of_one<'a>(
    kind: &Kind,
    api_version: &'a str,
    object: &'a Value,
    options: TableOptions,
    with_columns: bool,
) -> Table<'a> {
    let mut metadata = Map::new();
    if !meta::version(object).is_empty() {
        metadata.insert("resourceVersion".into(), meta::version(object).into());
    }
    Table {
        kind: "Table",
        api_version: options.api_version,
        metadata,
        column_definitions: with_columns.then(|| columns(kind, api_version)),
        rows: vec![row(kind, api_version, object, options)],
    }
}

fn row<'a>(kind: &Kind, api_version: &'a str, object: &'a Value, options: TableOptions) -> Row<'a> {
    let cells = if kind.custom {
        custom::cells(kind, api_version, object, options.now)
    } else {
        (printer(kind).cells)(object, options.now)
    };
    let beside = match options.include {
        Include::Nothing => Beside::Nothing(()),
        Include::Metadata => Beside::Metadata {
            kind: "PartialObjectMetadata",
            api_version: options.api_version,
            metadata: &object["metadata"],
        },
        Include::Object => Beside::Object(Shown { object, api_version, typed: true }),
    };
    let conditions = kind.is(crate::kinds::PODS).then(|| pods::row_conditions(object)).flatten();
    Row { cells, conditions, object: beside }
}

/// The name as a cell; empty if there is none, as in a bookmark.
fn name(object: &Value) -> Value {
    meta::name(object).into()
}

/// The text at a dotted path; empty when missing.
fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    meta::at(object, path).as_str().unwrap_or_default()
}

/// The number at a dotted path; 0 when missing.
fn number_at(object: &Value, path: &str) -> i64 {
    meta::at(object, path).as_i64().unwrap_or(0)
}

/// The elements of a list at a dotted path.
fn list_at<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    meta::at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The text, or `missing` if it is empty.
fn or<'a>(text: &'a str, missing: &'a str) -> &'a str {
    if text.is_empty() { missing } else { text }
}

const NONE: &str = "<none>";

/// Words with commas between them.
fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(",")
}

/// Names and images of the containers of a pod spec, as two cells.
fn containers(spec: &Value) -> [Value; 2] {
    let of = |field: &str| joined(list_at(spec, "containers").iter().map(|it| text_at(it, field))).into();
    [of("name"), of("image")]
}

/// A label selector as text, by key; an empty one is `<none>`.
fn selector(selector: &Value) -> String {
    let mut parts = Vec::<(&str, String)>::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for it in list_at(selector, "matchExpressions") {
        let key = text_at(it, "key");
        let values = || {
            let mut values = meta::texts(it, "values");
            values.sort_unstable();
            values.join(",")
        };
        let part = match text_at(it, "operator") {
            "In" => format!("{key} in ({})", values()),
            "NotIn" => format!("{key} notin ({})", values()),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key, part));
    }
    parts.sort_by_key(|it| it.0);
    or(&joined(parts.iter().map(|it| it.1.as_str())), NONE).to_owned()
}

/// A map of texts as `k=v` in the order of keys; an empty one is `<none>`.
fn pairs(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or(&pairs.join(","), NONE).to_owned()
}

/// The age of the object as a cell.
fn age(object: &Value, now: Timestamp) -> Value {
    ages::since(&object["metadata"]["creationTimestamp"], now).into()
}

/// A text, or a number as text: quantities and ports may be either.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The status of a condition; empty when missing.
fn condition<'a>(object: &'a Value, of: &str) -> &'a str {
    let found = list_at(object, "status.conditions").iter().find(|it| it["type"] == of);
    found.map(|it| text_at(it, "status")).unwrap_or_default()
}

/// The first words of a list, and how many more there are.
fn at_most(words: &[String], most: usize, between: &str) -> String {
    let shown = words[..words.len().min(most)].join(between);
    if words.len() > most { format!("{shown} + {} more...", words.len() - most) } else { shown }
}

/// Cells from values of different types.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$(serde_json::Value::from($cell)),*] };
}
use cells;

#[cfg(test)]
mod tests;
