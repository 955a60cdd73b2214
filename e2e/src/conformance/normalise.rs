use std::collections::{BTreeMap, BTreeSet};

use clock::Timestamp;
use serde_json::{Map, Value};

use super::text::{self, Times};

/// The length of the suffix that follows a `generateName`.
const SUFFIX: usize = 5;

/// Columns whose cells are ages.
const AGES: [&str; 4] = ["Age", "Last Seen", "First Seen", "Last Schedule"];

/// Normalises the responses of one case: each value that a server chooses is replaced by a label, equal values by equal
/// labels.
#[derive(Debug)]
pub(super) struct Normaliser {
    /// Names that are unique for each case, with their variables.
    names: Vec<(String, &'static str)>,
    /// resourceVersions of objects.
    versions: BTreeMap<String, String>,
    /// resourceVersions of lists.
    list_versions: BTreeSet<String>,
    uids: BTreeMap<String, String>,
    generated: BTreeMap<String, String>,
    addresses: BTreeMap<String, String>,
    times: Times,
}

/// The context of a value.
#[derive(Debug, Clone, Copy)]
struct NormalisationContext<'a> {
    /// Set if the response is a list: how its own version is shown.
    list: Option<ListVersion>,
    bookmark: bool,
    columns: &'a Value,
    now: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListVersion {
    /// Any version that the server has reached.
    Any,
    /// A requested version.
    Known,
    /// The version of the previous page, or the present one.
    Continued,
}

impl Normaliser {
    pub(super) fn new(names: Vec<(String, &'static str)>) -> Self {
        Self {
            names,
            versions: BTreeMap::new(),
            list_versions: BTreeSet::new(),
            uids: BTreeMap::new(),
            generated: BTreeMap::new(),
            addresses: BTreeMap::new(),
            times: Times::default(),
        }
    }

    /// Normalises a body; `path` is that of the request.
    pub(super) fn body(&mut self, body: Value, is_list: bool, path: &str, now: Timestamp) -> Value {
        let version = asked_version(path);
        let columns = body["columnDefinitions"].clone();
        let list = is_list.then_some(version);
        self.value("", body, NormalisationContext { list, bookmark: false, columns: &columns, now })
    }

    /// Normalises an event of a watch; `columns` are those of its Table, or null.
    pub(super) fn event(&mut self, event: Value, columns: &Value, now: Timestamp) -> Value {
        let bookmark = event["type"] == "BOOKMARK" || event[".type"] == "BOOKMARK";
        self.value("", event, NormalisationContext { list: None, bookmark, columns, now })
    }

    /// Normalises a text outside of a body.
    pub(super) fn text(&mut self, text: &str) -> String {
        let text = self.named(text);
        text::replace_uids(&text, &mut self.uids)
    }

    fn value(&mut self, key: &str, value: Value, around: NormalisationContext<'_>) -> Value {
        // A part that was selected by `ONLY` has its whole path as the key.
        let key = key.rsplit('.').next().unwrap_or_default();
        match value {
            Value::Object(map) => self.object(key, map, around),
            Value::Array(items) if key == "cells" => Value::Array(self.cells(items, around)),
            Value::Array(items) => {
                // Only the outermost list has a version of its own.
                let inner = NormalisationContext { list: None, ..around };
                let items: Vec<Value> = items.into_iter().map(|it| self.value(key, it, inner)).collect();
                Value::Array(if key == "causes" { sorted(items) } else { items })
            }
            Value::String(text) => Value::String(self.string(key, &text, around)),
            Value::Number(_) if matches!(key, "nodePort" | "healthCheckNodePort") => Value::from("<port>"),
            other => other,
        }
    }

    fn object(&mut self, key: &str, mut map: Map<String, Value>, around: NormalisationContext<'_>) -> Value {
        if key == "metadata" {
            map.remove("managedFields");
            self.learn_generated(&map);
        }
        map.remove("storageVersionHash");
        if key == "columnDefinitions" {
            // kubectl does not show it, and our server does not have it.
            map.remove("description");
        }
        let mut object = Map::new();
        for (key, value) in map {
            let inner = NormalisationContext {
                list: around.list.filter(|_| key == "metadata" || key.starts_with('.')),
                ..around
            };
            let inner = if key == "resourceVersion" { around } else { inner };
            let value = self.value(&key, value, inner);
            object.insert(self.named(&key), value);
        }
        join_causes(&mut object);
        Value::Object(object)
    }

    /// The cells of a row, with labels for ages.
    fn cells(&mut self, cells: Vec<Value>, around: NormalisationContext<'_>) -> Vec<Value> {
        let cells = cells.into_iter().enumerate().map(|(at, cell)| {
            let column = &around.columns[at];
            let is_age = AGES.iter().any(|it| column["name"] == *it) || column["type"] == "date";
            match cell {
                Value::String(text) if is_age && text::is_duration(&text) => Value::from("<age>"),
                Value::String(text) => Value::String(text::without_ago(&self.string("", &text, around))),
                other => other,
            }
        });
        cells.collect()
    }

    fn string(&mut self, key: &str, text: &str, around: NormalisationContext<'_>) -> String {
        if key == "resourceVersion" {
            return self.version(text, around);
        }
        match key {
            "continue" if !text.is_empty() => return "<continue>".to_owned(),
            "serverAddress" => return "<address>".to_owned(),
            "clusterIP" | "clusterIPs" if text.parse::<std::net::IpAddr>().is_ok() => {
                let label = format!("<ip{}>", self.addresses.len() + 1);
                return self.addresses.entry(text.to_owned()).or_insert(label).clone();
            }
            _ => {}
        }
        if let Some(label) = self.addresses.get(text) {
            return label.clone();
        }
        // The path of the server's source file at build time; shortened.
        let text = text.replace("scheme \"k8s.io/apimachinery/pkg/", "scheme \"pkg/");
        let text = self.times.replace(&text, around.now);
        let text = self.text(&text);
        text::without_keys(&text::without_numbers(&text, &self.versions))
    }

    fn version(&mut self, text: &str, around: NormalisationContext<'_>) -> String {
        if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
            return text.to_owned();
        }
        if around.bookmark {
            return "<bookmark-rv>".to_owned();
        }
        match around.list {
            Some(ListVersion::Any) => {
                self.list_versions.insert(text.to_owned());
                "<list-rv>".to_owned()
            }
            // A list's version is checked first: without other writers it is also the version of the last object.
            Some(_) if self.list_versions.contains(text) => "<list-rv>".to_owned(),
            Some(ListVersion::Continued) => "<another-list-rv>".to_owned(),
            Some(ListVersion::Known) => {
                self.versions.get(text).cloned().unwrap_or_else(|| "<another-list-rv>".to_owned())
            }
            None => {
                let label = format!("<rv{}>", self.versions.len() + 1);
                self.versions.entry(text.to_owned()).or_insert(label).clone()
            }
        }
    }

    /// Collects names that the server generated.
    fn learn_generated(&mut self, metadata: &Map<String, Value>) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let (prefix, name) = (text("generateName"), text("name"));
        let Some(cut) = name.len().checked_sub(SUFFIX).filter(|it| name.is_char_boundary(*it)) else { return };
        let (beginning, suffix) = name.split_at(cut);
        let fits = !prefix.is_empty() && prefix.starts_with(beginning) && text::is_random(suffix);
        if fits && !self.generated.contains_key(name) {
            let label = format!("{beginning}<suffix{}>", self.generated.len() + 1);
            self.generated.insert(name.to_owned(), label);
        }
    }

    fn named(&self, text: &str) -> String {
        let generated = self.generated.iter().map(|(name, label)| (name, label.as_str()));
        let names = generated.chain(self.names.iter().map(|(name, label)| (name, *label)));
        names.fold(text.to_owned(), |text, (name, label)| text.replace(name, label))
    }
}

/// Sorted, because metadata is validated several times and in no particular order.
fn sorted(mut items: Vec<Value>) -> Vec<Value> {
    items.sort_by_key(Value::to_string);
    items.dedup();
    items
}

/// A message contains its causes in random order; the causes are compared separately.
fn join_causes(status: &mut Map<String, Value>) {
    let causes = status.get("details").and_then(|it| it["causes"].as_array()).map_or(0, Vec::len);
    if let Some(Value::String(message)) = status.get_mut("message")
        && causes > 1
        && let Some((before, _)) = message.split_once(" is invalid: [")
    {
        *message = format!("{before} is invalid: [<causes>]");
    }
}

/// How the request determines the version of the list.
fn asked_version(path: &str) -> ListVersion {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        let mut parts = query.split('&').filter_map(|it| it.split_once('='));
        parts.find(|(it, _)| *it == name).map_or("", |(_, value)| value)
    };
    let exact = match value("resourceVersionMatch") {
        "" => !matches!(value("limit"), "" | "0"),
        other => other == "Exact",
    };
    if !value("continue").is_empty() {
        ListVersion::Continued
    } else if exact && !matches!(value("resourceVersion"), "" | "0") {
        ListVersion::Known
    } else {
        ListVersion::Any
    }
}
