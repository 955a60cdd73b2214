use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use serde_json::Value;

use crate::{kinds::Kind, meta};

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The object was created.
    Added,
    /// The object was changed.
    Modified,
    /// The object was removed.
    Removed,
}

impl Change {
    /// The event type of a watch.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Removed => "DELETED",
        }
    }
}

/// One state of one object, encoded once, as the line that a watch sends. The object, its metadata and the item of a
/// list are parts of that line, so none of them is encoded again. To change an object it must be decoded.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) kind: Arc<Kind>,
    /// `namespace/name`, or only the name.
    pub(crate) key: Arc<str>,
    /// `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{..},..}}` and a line feed.
    line: Bytes,
    places: Places,
    facts: Arc<Facts>,
}

/// The positions of the parts of a line. 32 bits are enough, because a body has at most 3 MiB.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    object: u32,
    /// After kind and apiVersion: the metadata, and then the other fields.
    members: u32,
    metadata_end: u32,
    /// The digits of the resourceVersion.
    version: u32,
    version_end: u32,
}

/// The values for selectors. Several states of an object share them while they do not change.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    labels: Box<[(Box<str>, Box<str>)]>,
    /// In the order of the kind's field selectors.
    fields: Box<[Box<str>]>,
    deleting: bool,
}

/// The end of a line after its object.
const END: &[u8] = b"}\n";

impl Stored {
    /// Encodes an object. `previous` is its last state, whose unchanged values are shared.
    pub(crate) fn new(
        kind: &Arc<Kind>,
        key: Arc<str>,
        change: Change,
        object: &Value,
        previous: Option<&Self>,
    ) -> Self {
        let (line, places) = encode(kind, change, object);
        let facts = Facts::of(kind, object);
        let shared = previous.map(|it| &it.facts).filter(|it| ***it == facts).cloned();
        let facts = shared.unwrap_or_else(|| Arc::new(facts));
        Self { kind: kind.clone(), key, line, places, facts }
    }

    /// The same state with another version, for a removal.
    pub(crate) fn renumbered(&self, change: Change, version: u64) -> Self {
        let number = version.to_string();
        let mut line = begin(change);
        let object = line.len();
        let (digits, digits_end) = (self.places.version as usize, self.places.version_end as usize);
        line.extend_from_slice(&self.line[self.places.object as usize..digits]);
        let at = line.len();
        line.extend_from_slice(number.as_bytes());
        line.extend_from_slice(&self.line[digits_end..]);
        let moved = |place: u32| place as usize - self.places.object as usize + object;
        let places = Places {
            object: place(object),
            members: place(moved(self.places.members)),
            metadata_end: place(moved(self.places.metadata_end) + number.len() - (digits_end - digits)),
            version: place(at),
            version_end: place(at + number.len()),
        };
        let line = Bytes::copy_from_slice(&line);
        Self { kind: self.kind.clone(), key: self.key.clone(), line, places, facts: self.facts.clone() }
    }

    /// The object as a value.
    pub(crate) fn decode(&self) -> Value {
        // The bytes were encoded here, so they decode.
        serde_json::from_slice(self.object()).unwrap_or_default()
    }

    /// `{"metadata":{..}}` as a value.
    pub(crate) fn decode_metadata(&self) -> Value {
        serde_json::from_slice(&[b"{", self.metadata(), b"}"].concat()).unwrap_or_default()
    }

    /// The line of a watch for the change that created this state.
    pub(crate) fn line(&self) -> Bytes {
        self.line.clone()
    }

    /// The whole object, without copying.
    pub(crate) fn body(&self) -> Bytes {
        self.line.slice(self.places.object as usize..self.line.len() - END.len())
    }

    /// The whole object.
    pub(crate) fn object(&self) -> &[u8] {
        &self.line[self.places.object as usize..self.line.len() - END.len()]
    }

    /// `"metadata":{..},..}`: the object without its kind and apiVersion, to the end.
    pub(crate) fn members(&self) -> &[u8] {
        &self.line[self.places.members as usize..self.line.len() - END.len()]
    }

    /// `"metadata":{..}`
    pub(crate) fn metadata(&self) -> &[u8] {
        &self.line[self.places.members as usize..self.places.metadata_end as usize]
    }

    /// The digits of the resourceVersion.
    pub(crate) fn version(&self) -> &str {
        let digits = self.places.version as usize..self.places.version_end as usize;
        std::str::from_utf8(&self.line[digits]).unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |it| it.0)
    }

    pub(crate) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |it| it.1)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.facts.labels.iter().find(|it| *it.0 == *key).map(|it| &*it.1)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.facts.deleting
    }

    /// The value of a field selector, by its path.
    pub(crate) fn field(&self, path: &str) -> Cow<'_, str> {
        let known = match path {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => {
                let at = self.kind.rules.fields.iter().position(|it| it.1 == path);
                at.and_then(|it| self.facts.fields.get(it)).map(|it| &**it)
            }
        };
        // The kind may have got this field after the object was stored.
        known.map_or_else(|| text(&self.decode(), path, "").into(), Cow::Borrowed)
    }
}

impl Facts {
    fn of(kind: &Kind, object: &Value) -> Self {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())));
        let fields = kind.rules.fields.iter().map(|(_, path, default)| text(object, path, default).into());
        Self { labels: labels.collect(), fields: fields.collect(), deleting: meta::is_deleting(object) }
    }
}

/// The value at a path, or at the first of several paths that has one, as field selectors compare it.
fn text(object: &Value, paths: &str, default: &str) -> String {
    for path in paths.split('|') {
        match meta::at(object, path) {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => return text.clone(),
            Value::Null => {}
            other => return other.to_string(),
        }
    }
    default.to_owned()
}

fn encode(kind: &Kind, change: Change, object: &Value) -> (Bytes, Places) {
    let mut places = Places::default();
    let mut line = begin(change);
    places.object = place(line.len());
    line.extend_from_slice(&head(&kind.kind, &kind.api_version()));
    places.members = place(line.len());
    line.extend_from_slice(b"\"metadata\":{");
    for (at, (field, value)) in object["metadata"].as_object().into_iter().flatten().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        append(&mut line, field);
        line.push(b':');
        // After the opening quote and before the closing one.
        let start = line.len() + 1;
        append(&mut line, value);
        if field == "resourceVersion" {
            (places.version, places.version_end) = (place(start), place(line.len() - 1));
        }
    }
    line.push(b'}');
    places.metadata_end = place(line.len());
    for (field, value) in object.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "kind" | "apiVersion" | "metadata") {
            line.push(b',');
            append(&mut line, field);
            line.push(b':');
            append(&mut line, value);
        }
    }
    line.push(b'}');
    line.extend_from_slice(END);
    // Copied into a buffer of the exact size.
    (Bytes::copy_from_slice(&line), places)
}

/// A line up to its object.
fn begin(change: Change) -> Vec<u8> {
    let mut line = Vec::with_capacity(4096);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(change.word().as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line
}

/// The beginning of an object of this kind, up to and including the comma before its metadata.
pub(crate) fn head(kind: &str, api_version: &str) -> Vec<u8> {
    let mut head = Vec::with_capacity(96);
    head.extend_from_slice(b"{\"kind\":");
    append(&mut head, kind);
    head.extend_from_slice(b",\"apiVersion\":");
    append(&mut head, api_version);
    head.push(b',');
    head
}

/// The line of a watch for an object that consists of `head` and `rest`.
pub(crate) fn line_of(word: &str, head: &[u8], rest: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(word.len() + head.len() + rest.len() + 32);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(word.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(head);
    line.extend_from_slice(rest);
    line.extend_from_slice(END);
    line.into()
}

fn append<T: serde::Serialize + ?Sized>(line: &mut Vec<u8>, value: &T) {
    // Values always encode, and writing into a vector cannot fail.
    let _ = serde_json::to_writer(line, value);
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    fn pods() -> Arc<Kind> {
        kinds::by_route(kinds::PODS).unwrap().clone()
    }

    fn stored(version: u64) -> (Value, Stored) {
        let object = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": "a", "namespace": "ns", "resourceVersion": version.to_string(), "uid": "u",
                "labels": { "app": "we\"b" }, "annotations": { "resourceVersion": "7" },
            },
            "spec": { "nodeName": "n1" }, "status": { "phase": "Running" },
        });
        let stored = Stored::new(&pods(), "ns/a".into(), Change::Added, &object, None);
        (object, stored)
    }

    #[test]
    fn parts_of_the_line_are_the_object_its_metadata_and_its_members() {
        let (object, it) = stored(9);
        let line: Value = serde_json::from_slice(&it.line()).unwrap();
        assert_eq!(line, json!({ "type": "ADDED", "object": object }));
        assert_eq!(it.decode(), object);
        assert_eq!(it.body(), it.object());
        let metadata = format!("{{{}}}", std::str::from_utf8(it.metadata()).unwrap());
        assert_eq!(serde_json::from_str::<Value>(&metadata).unwrap()["metadata"], object["metadata"]);
        let members = format!("{{{}", std::str::from_utf8(it.members()).unwrap());
        let mut untyped = object.clone();
        untyped.as_object_mut().unwrap().retain(|field, _| field != "kind" && field != "apiVersion");
        assert_eq!(serde_json::from_str::<Value>(&members).unwrap(), untyped);
        assert_eq!((it.namespace(), it.name(), it.label("app")), ("ns", "a", Some("we\"b")));
        let fields = ["metadata.name", "spec.nodeName", "status.phase", "spec.hostNetwork", "status.podIP"];
        assert_eq!(fields.map(|path| it.field(path)), ["a", "n1", "Running", "false", ""]);
    }

    #[test]
    fn removal_changes_only_type_and_version() {
        let (mut object, it) = stored(9);
        let gone = it.renumbered(Change::Removed, 12_345);
        object["metadata"]["resourceVersion"] = json!("12345");
        let line: Value = serde_json::from_slice(&gone.line()).unwrap();
        assert_eq!(line, json!({ "type": "DELETED", "object": object }));
        let metadata = format!("{{{}}}", std::str::from_utf8(gone.metadata()).unwrap());
        assert_eq!(serde_json::from_str::<Value>(&metadata).unwrap()["metadata"], object["metadata"]);
        assert_eq!(gone.renumbered(Change::Added, 7).decode()["metadata"]["resourceVersion"], "7");
    }
}
