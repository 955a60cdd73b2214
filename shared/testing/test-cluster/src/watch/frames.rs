//! What a watch shows: which objects, and in which form.

use std::cell::Cell;

use bytes::Bytes;
use clock::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    Failure, decode, kinds, list, meta,
    response::{self, Form, Shown},
    selectors::Selectors,
    store::Event,
    stored::{self, Change, Stored},
    table::{self, TableOptions},
    write::Target,
};

/// The selectors and the form of a watch.
pub(super) struct FrameBuilder {
    pub(super) target: Target,
    pub(super) prefix: String,
    pub(super) selectors: Selectors,
    pub(super) form: Form,
    /// Objects are stored in the requested version.
    plain: bool,
    /// A table with the columns was sent.
    columns_sent: Cell<bool>,
}

impl FrameBuilder {
    pub(super) fn new(target: &Target, selectors: Selectors, form: Form) -> Self {
        let plain = target.api_version == target.kind.api_version();
        let (prefix, target) = (list::prefix(target), target.clone());
        Self { target, prefix, selectors, form, plain, columns_sent: Cell::new(false) }
    }

    /// A change after the selectors: an object that begins or ceases to match is ADDED or DELETED; other changes may be
    /// hidden.
    pub(super) fn event(&self, event: &Event, now: Timestamp) -> Option<Bytes> {
        let before = event.previous.as_ref().is_some_and(|it| self.selectors.matches(it));
        let after = event.change != Change::Removed && self.selectors.matches(&event.object);
        let change = match (before, after) {
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Removed,
            (false, false) => return None,
        };
        if change == event.change {
            // If no conversion is needed, the stored bytes are sent.
            let as_stored = self.form == Form::Full && self.plain;
            return Some(if as_stored { event.object.line() } else { self.frame(change, &event.object, now) });
        }
        match &event.previous {
            // It does not match any more: its last matching state is sent, with the present version.
            Some(last) if change == Change::Removed => {
                Some(self.frame(change, &last.renumbered(change, event.version), now))
            }
            _ => Some(self.frame(change, &event.object, now)),
        }
    }

    /// An object as an event of this type.
    pub(super) fn frame(&self, change: Change, object: &Stored, now: Timestamp) -> Bytes {
        let (kind, api_version) = (&self.target.kind, &self.target.api_version);
        match self.form {
            Form::Full if self.plain || kind.custom => {
                stored::line_of(change.word(), &stored::head(&kind.kind, api_version), object.members())
            }
            Form::Full => line(change.word(), &Shown { object: &object.decode(), api_version, typed: true }),
            Form::Metadata | Form::MetadataList => {
                let mut metadata = object.metadata().to_vec();
                metadata.push(b'}');
                stored::line_of(change.word(), &list::metadata_head(), &metadata)
            }
            Form::Table(options) => self.table_frame(change.word(), &object.decode(), options.at(now)),
        }
    }

    /// A table with one row. Only the first one of a watch has the columns. Ages are computed now.
    fn table_frame(&self, word: &str, object: &Value, options: TableOptions) -> Bytes {
        let with_columns = !self.columns_sent.replace(true);
        line(word, &table::of_one(&self.target.kind, &self.target.api_version, object, options, with_columns))
    }

    pub(super) fn bookmark(&self, version: u64, initial_end: bool, now: Timestamp) -> Bytes {
        let kind = &self.target.kind;
        let mut object = json!({
            "kind": kind.kind, "apiVersion": self.target.api_version,
            "metadata": { "resourceVersion": version.to_string() },
        });
        // Go prints zero numbers of these kinds for an object that was not decoded.
        if [kinds::DEPLOYMENTS, kinds::REPLICA_SETS, kinds::STATEFUL_SETS].iter().any(|it| kind.is(it)) {
            object["spec"] = json!({ "replicas": 0 });
        } else if kind.is(kinds::CONTROLLER_REVISIONS) {
            object["data"] = Value::Null;
        }
        decode::complete(kind, &mut object);
        let mut annotations = Map::new();
        if kind.is(kinds::DAEMON_SETS) {
            annotations.insert("deprecated.daemonset.template.generation".into(), "0".into());
        }
        if initial_end {
            annotations.insert("k8s.io/initial-events-end".into(), "true".into());
        }
        if !annotations.is_empty() {
            meta::set(&mut object, "annotations", annotations);
        }
        match self.form {
            Form::Full => line("BOOKMARK", &object),
            Form::Metadata | Form::MetadataList => line("BOOKMARK", &response::metadata_of(&object)),
            Form::Table(options) => self.table_frame("BOOKMARK", &object, options.at(now).of_bookmark()),
        }
    }
}

/// A failure as the last event of a watch.
pub(super) fn error_frame(failure: Failure) -> Bytes {
    line("ERROR", &failure.into_status())
}

#[derive(serde::Serialize)]
struct Line<'a, T> {
    #[serde(rename = "type")]
    word: &'a str,
    object: &'a T,
}

fn line<T: serde::Serialize>(word: &str, object: &T) -> Bytes {
    let mut bytes = serde_json::to_vec(&Line { word, object }).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
