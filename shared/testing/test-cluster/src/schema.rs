use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value};

use crate::kinds::Kind;

/// The fields of built-in kinds, from the API's published schema. In `schema.txt` a line without indentation begins a
/// type; an indented line is a field with its name and form. Forms: `string`, `bool`, `int32`, `int64`, `quantity`,
/// `time`, `microtime`, `intstr`, `bytes`, `any`, or a type. A prefix `[]` means a list, `{}` a map with text keys, `*`
/// a value that may be absent (so that zero is a value of its own). A suffix `!` means that the field is printed even
/// when it is empty.
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("schema.txt")));

struct Table {
    types: Vec<Type>,
    by_name: BTreeMap<&'static str, usize>,
}

/// One type of the schema.
#[derive(Debug)]
pub(crate) struct Type {
    /// Package and name.
    pub(crate) name: &'static str,
    /// Sorted by name.
    pub(crate) fields: Vec<Field>,
    /// Unknown fields are data and not errors: for custom resources.
    pub(crate) open: bool,
    /// A field inside it is printed even when empty.
    padded: bool,
}

/// One field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// It may be absent, so zero is a value of its own.
    pub(crate) optional: bool,
    /// It is printed even when empty.
    pub(crate) always: bool,
}

/// The form of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Flag,
    Int32,
    Int64,
    Quantity,
    Time,
    MicroTime,
    IntOrText,
    Bytes,
    Any,
    Struct(usize),
    List(Box<Form>),
    Map(Box<Form>),
}

/// The type of a kind in one version; `None` if the table does not have it.
pub(crate) fn of(kind: &Kind, api_version: &str) -> Option<&'static Type> {
    if kind.custom {
        return named("custom.Resource");
    }
    by_kind(api_version, &kind.kind)
}

/// The type of a built-in kind by its name.
pub(crate) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Type> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let group = group.split('.').next().filter(|it| !it.is_empty()).unwrap_or("core");
    let version = if version == "v1" { "" } else { version };
    named(&format!("{group}{version}.{kind}"))
}

/// A type by package and name, such as `core.Pod`.
pub(crate) fn named(name: &str) -> Option<&'static Type> {
    TABLE.by_name.get(name).map(|it| &TABLE.types[*it])
}

/// The type of a [`Form::Struct`].
pub(crate) fn structure(id: usize) -> &'static Type {
    &TABLE.types[id]
}

/// Adds the fields that are printed even when empty.
pub(crate) fn pad(it: &Type, value: &mut Value) {
    let Value::Object(fields) = value else { return };
    if it.padded {
        pad_fields(it, fields);
    }
}

fn pad_fields(it: &Type, fields: &mut Map<String, Value>) {
    for field in it.fields.iter().filter(|it| it.always && !fields.contains_key(it.name)).collect::<Vec<_>>() {
        let nothing = if field.optional { Value::Null } else { empty(&field.form) };
        fields.insert(field.name.to_owned(), nothing);
    }
    for (name, value) in fields.iter_mut() {
        if (value.is_object() || value.is_array())
            && let Some(field) = it.field(name)
        {
            pad_form(&field.form, value);
        }
    }
}

fn pad_form(form: &Form, value: &mut Value) {
    match (form, value) {
        (Form::Struct(id), Value::Object(fields)) => {
            let it = structure(*id);
            if it.padded {
                pad_fields(it, fields);
            }
        }
        (Form::List(inner), Value::Array(list)) if inner.is_deep() => {
            for value in list {
                pad_form(inner, value);
            }
        }
        (Form::Map(inner), Value::Object(map)) if inner.is_deep() => {
            for value in map.values_mut() {
                pad_form(inner, value);
            }
        }
        _ => {}
    }
}

/// The empty value of a form.
pub(crate) fn empty(form: &Form) -> Value {
    match form {
        Form::Text => Value::String(String::new()),
        Form::Flag => Value::Bool(false),
        Form::Int32 | Form::Int64 | Form::IntOrText => Value::from(0),
        Form::Quantity => Value::from("0"),
        Form::Struct(_) => Value::Object(Map::new()),
        Form::Time | Form::MicroTime | Form::Bytes | Form::Any | Form::List(_) | Form::Map(_) => Value::Null,
    }
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|it| &self.fields[it])
    }

    /// The index of a field in its type.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|it| it.name.cmp(name)).ok()
    }

    /// The name without its package.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

impl Form {
    fn is_deep(&self) -> bool {
        match self {
            Self::Struct(id) => structure(*id).padded,
            Self::List(inner) | Self::Map(inner) => inner.is_deep(),
            _ => false,
        }
    }

    /// The type name in Go's messages.
    pub(crate) fn go_name(&self) -> String {
        match self {
            Self::Text | Self::Time | Self::MicroTime => "string".into(),
            Self::Flag => "bool".into(),
            Self::Int32 => "int32".into(),
            Self::Int64 => "int64".into(),
            Self::Quantity => "resource.Quantity".into(),
            Self::IntOrText => "intstr.IntOrString".into(),
            Self::Bytes => "[]uint8".into(),
            Self::Any => "interface {}".into(),
            Self::Struct(id) => format!("v1.{}", structure(*id).short_name()),
            Self::List(inner) => format!("[]{}", inner.go_name()),
            Self::Map(inner) => format!("map[string]{}", inner.go_name()),
        }
    }
}

impl Table {
    fn read(text: &'static str) -> Self {
        let heads = text.lines().filter(|it| !it.is_empty() && !it.starts_with([' ', '#']));
        let by_name: BTreeMap<&str, usize> = heads.zip(0..).collect();
        let mut types: Vec<Type> = Vec::with_capacity(by_name.len());
        for line in text.lines().filter(|it| !it.is_empty() && !it.starts_with('#')) {
            match (line.trim().split_once(' '), types.last_mut()) {
                (Some((name, form)), Some(last)) => last.fields.push(Field::read(name, form, &by_name)),
                _ => types.push(Type {
                    name: line,
                    fields: Vec::new(),
                    open: line.starts_with("custom."),
                    padded: false,
                }),
            }
        }
        let mut table = Self { types, by_name };
        while table.spread_padding() {}
        table
    }

    /// Marks types that contain a padded type as padded. Returns true when there was a change.
    fn spread_padding(&mut self) -> bool {
        let now: Vec<bool> = self.types.iter().map(|it| it.padded).collect();
        let mut changed = false;
        for it in &mut self.types {
            let padded = it.fields.iter().any(|field| field.always || field.form.structure().is_some_and(|id| now[id]));
            changed |= padded != it.padded;
            it.padded = padded;
        }
        changed
    }
}

impl Field {
    fn read(name: &'static str, form: &'static str, types: &BTreeMap<&str, usize>) -> Self {
        let (form, always) = form.strip_suffix('!').map_or((form, false), |it| (it, true));
        let (form, optional) = form.strip_prefix('*').map_or((form, false), |it| (it, true));
        Self { name, form: Form::read(form, types), optional, always }
    }
}

impl Form {
    fn read(text: &str, types: &BTreeMap<&str, usize>) -> Self {
        if let Some(inner) = text.strip_prefix("[]") {
            return Self::List(Box::new(Self::read(inner, types)));
        }
        if let Some(inner) = text.strip_prefix("{}") {
            return Self::Map(Box::new(Self::read(inner, types)));
        }
        match text {
            "string" => Self::Text,
            "bool" => Self::Flag,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "quantity" => Self::Quantity,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "intstr" => Self::IntOrText,
            "bytes" => Self::Bytes,
            _ => types.get(text).map_or(Self::Any, |it| Self::Struct(*it)),
        }
    }

    /// The element type of nested lists and maps.
    fn structure(&self) -> Option<usize> {
        match self {
            Self::Struct(id) => Some(*id),
            Self::List(inner) | Self::Map(inner) => inner.structure(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_is_known_and_every_type_is_sorted() {
        for it in &TABLE.types {
            assert!(it.fields.is_sorted_by(|a, b| a.name < b.name), "{}", it.name);
        }
        let unknown = include_str!("schema.txt").lines().filter_map(|it| it.trim().split_once(' '));
        let bottom = |form: &str| form.trim_matches(['[', ']', '{', '}', '*', '!']).to_owned();
        for (name, form) in unknown.filter(|it| !it.0.starts_with('#')) {
            let form = bottom(form);
            let read = Form::read(&form, &TABLE.by_name);
            assert!(read != Form::Any || form == "any", "{name}: {form}");
        }
    }

    #[test]
    fn every_built_in_kind_has_its_type() {
        for kind in crate::kinds::builtin() {
            for version in &kind.versions {
                let api_version = crate::kinds::join(&kind.group, version);
                assert!(of(kind, &api_version).is_some(), "{api_version} {}", kind.kind);
            }
        }
    }

    #[test]
    fn empty_fields_that_are_printed_are_added() {
        let mut set = json!({ "metadata": { "name": "a" }, "spec": { "template": { "spec": {
            "containers": [{ "name": "c" }] } } } });
        pad(named("apps.StatefulSet").unwrap(), &mut set);
        assert_eq!(set["spec"]["serviceName"], "");
        assert_eq!(set["status"], json!({ "replicas": 0, "availableReplicas": 0 }));
        assert_eq!(set["spec"]["template"]["metadata"], json!({}));
        assert_eq!(set["spec"]["template"]["spec"]["containers"][0], json!({ "name": "c", "resources": {} }));
        assert_eq!(set["spec"]["selector"], Value::Null);
        assert!(set["spec"].as_object().unwrap().contains_key("selector"));
    }
}
