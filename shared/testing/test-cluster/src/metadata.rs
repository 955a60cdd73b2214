//! Validates the metadata of objects of all kinds.

use serde_json::{Value, json};

use crate::{
    kinds::{self, Kind, NameRule},
    meta,
    response::Fault,
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// The limit of all keys and values of the annotations together.
const MOST_ANNOTATIONS: usize = 256 * 1024;

/// Checks the name of a new object, and the prefix that it was generated from.
pub(crate) fn check_names(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    let prefix = meta::text(object, "generateName");
    if !prefix.is_empty() {
        // A dash at its end will be in the middle of the name.
        let whole = prefix.strip_suffix('-').map_or_else(|| prefix.to_owned(), |it| format!("{it}a"));
        for why in name_faults(kind, object, &whole) {
            // A generated name is cut to the allowed length.
            if !why.starts_with("must be no more than") {
                faults.push(Fault::invalid("metadata.generateName", &json!(prefix), &why));
            }
        }
    }
    let name = meta::name(object);
    for why in name_faults(kind, object, name) {
        faults.push(Fault::invalid("metadata.name", &json!(name), &why));
    }
}

/// Checks everything except names.
pub(crate) fn check(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    let metadata = &object["metadata"];
    if let Some(generation) = metadata["generation"].as_i64().filter(|it| *it < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(Fault::invalid("metadata.generation", &json!(generation), why));
    }
    check_labels(metadata, faults);
    check_annotations(metadata, faults);
    check_owner_references(metadata, faults);
    check_finalizers(kind, object, faults);
}

fn name_faults(kind: &Kind, object: &Value, name: &str) -> Vec<String> {
    if kind.is(kinds::EVENTS) && object["eventTime"].is_null() {
        // Events of core/v1 may have any name that is a path segment.
        return segment_faults(name);
    }
    let mut whys = Vec::new();
    let (legal, most, text) = match kind.rules.name {
        NameRule::Label => (is_label(name), 63, LABEL),
        NameRule::Segment => return segment_faults(name),
        NameRule::CronJob => (is_subdomain(name), 52, SUBDOMAIN),
        NameRule::Subdomain => (is_subdomain(name), 253, SUBDOMAIN),
    };
    if name.len() > most {
        whys.push(format!("must be no more than {most} characters"));
    }
    if kind.rules.name == NameRule::Label && name.contains('.') {
        whys.push("must not contain dots".into());
    } else if !legal {
        whys.push(text.to_owned());
    }
    whys
}

/// Faults of a name that must be a path segment.
fn segment_faults(name: &str) -> Vec<String> {
    let mut whys = Vec::new();
    if matches!(name, "." | "..") {
        whys.push(format!("may not be '{name}'"));
    }
    for letter in ['/', '%'] {
        if name.contains(letter) {
            whys.push(format!("may not contain '{letter}'"));
        }
    }
    whys
}

fn is_label(name: &str) -> bool {
    let end = |it: Option<&u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let inside = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let bytes = name.as_bytes();
    end(bytes.first()) && end(bytes.last()) && bytes.iter().all(|it| inside(*it))
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// Letters and digits at both ends, dashes, dots and underscores between them.
fn is_word(name: &str) -> bool {
    let bytes = name.as_bytes();
    let end = |it: Option<&u8>| it.is_some_and(u8::is_ascii_alphanumeric);
    let inside = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inside)
}

/// Faults of a key such as `example.com/my-name`.
fn key_faults(key: &str) -> Vec<String> {
    let mut whys = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                whys.push("prefix part must be non-empty".into());
            } else if !is_subdomain(prefix) {
                whys.push(format!("prefix part {SUBDOMAIN}"));
            } else if prefix.len() > 253 {
                whys.push("prefix part must be no more than 253 bytes".into());
            }
            name
        }
        _ => {
            let shape = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {shape}")];
        }
    };
    if name.is_empty() {
        whys.push("name part must be non-empty".into());
    }
    if name.len() > 63 {
        whys.push("name part must be no more than 63 bytes".into());
    }
    if !is_word(name) {
        whys.push(format!("name part {QUALIFIED}"));
    }
    whys
}

fn check_labels(metadata: &Value, faults: &mut Vec<Fault>) {
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        for why in key_faults(key) {
            faults.push(Fault::invalid("metadata.labels", &json!(key), &why));
        }
        if value.len() > 63 {
            faults.push(Fault::invalid("metadata.labels", &json!(value), "must be no more than 63 bytes"));
        }
        if !value.is_empty() && !is_word(value) {
            faults.push(Fault::invalid("metadata.labels", &json!(value), LABEL_VALUE));
        }
    }
}

fn check_annotations(metadata: &Value, faults: &mut Vec<Fault>) {
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        // The prefix may have capital letters too.
        for why in key_faults(&key.to_ascii_lowercase()) {
            faults.push(Fault::invalid("metadata.annotations", &json!(key), &why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MOST_ANNOTATIONS {
        faults.push(Fault::too_long("metadata.annotations", MOST_ANNOTATIONS));
    }
}

fn check_owner_references(metadata: &Value, faults: &mut Vec<Fault>) {
    let field = |name: &str| format!("metadata.ownerReferences{}{name}", if name.is_empty() { "" } else { "." });
    let text = |owner: &Value, name: &str| owner[name].as_str().unwrap_or_default().to_owned();
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    for owner in owners {
        let version = text(owner, "apiVersion");
        if version.is_empty() || version.split('/').count() > 2 {
            faults.push(Fault::invalid(field("apiVersion"), &json!(version), "version must not be empty"));
        }
        for name in ["kind", "name", "uid"].into_iter().filter(|it| text(owner, it).is_empty()) {
            faults.push(Fault::invalid(field(name), &json!(""), "must not be empty"));
        }
        if version == "v1" && owner["kind"] == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            faults.push(Fault::invalid_shown(field(""), &shown(owner), why));
        }
    }
    let mut first: Option<&Value> = None;
    for owner in owners.iter().filter(|it| it["controller"] == true) {
        let Some(first) = first else {
            first = Some(owner);
            continue;
        };
        let named = |it: &Value| format!("{}/{}", text(it, "kind"), text(it, "name"));
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            named(first),
            named(owner)
        );
        let all: Vec<String> = owners.iter().map(shown).collect();
        faults.push(Fault::invalid_shown(field(""), &format!("[{}]", all.join(",")), &why));
    }
}

/// An owner reference with its fields in the order of a real server's messages.
fn shown(owner: &Value) -> String {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let given = order.iter().filter(|it| !owner[**it].is_null());
    let fields: Vec<String> = given.map(|it| format!("{:?}:{}", it, owner[*it])).collect();
    format!("{{{}}}", fields.join(","))
}

fn check_finalizers(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    let list = meta::finalizers(object);
    for (at, finalizer) in list.iter().enumerate() {
        for why in key_faults(finalizer) {
            faults.push(Fault::invalid("metadata.finalizers", &json!(finalizer), &why));
        }
        let standard = matches!(*finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !standard && !finalizer.contains('/') && demands_domains(kind) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            faults.push(Fault::invalid(format!("metadata.finalizers[{at}]"), &json!(finalizer), why));
        }
    }
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        faults.push(Fault::invalid("metadata.finalizers", &json!(list), why));
    }
}

/// True when finalizers other than the server's own must have a domain.
fn demands_domains(kind: &Kind) -> bool {
    let table = kind.table();
    !kind.custom
        && !matches!(table.as_str(), kinds::EVENTS | kinds::LEASES | kinds::BUDGETS | kinds::CRDS | kinds::API_SERVICES)
}
