//! The types of Go of a pod template, for its hash and for comparisons.
//!
//! They are those of Kubernetes 1.36 and stay as they are when the API gets more fields, so that a new version of the
//! server changes no hash.

use std::{collections::HashMap, sync::LazyLock};

static TYPES: LazyLock<Types> = LazyLock::new(|| Types::read(include_str!("api_types/types.txt")));

struct Types {
    /// The fields of structs.
    structs: HashMap<&'static str, Vec<Field>>,
    /// The types below named ones.
    names: HashMap<&'static str, &'static str>,
}

/// A field of a struct.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Its name in Go.
    pub(crate) go: &'static str,
    /// Its name in JSON; `-` if the fields of its type are fields of the struct.
    pub(crate) json: &'static str,
    /// Its type.
    pub(crate) type_: &'static str,
}

/// What a type is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// A pointer to this type.
    Pointer(&'static str),
    /// A list of this type.
    List(&'static str),
    /// A map from texts to this type.
    Map(&'static str),
    Text,
    Bool,
    Number,
    Time,
    IntOrString,
    Quantity,
    /// JSON as bytes.
    Raw,
    /// A struct with these fields.
    Struct(&'static [Field]),
}

/// What this type is. A type that is not known has no fields.
pub(crate) fn form(type_: &'static str) -> Form {
    let types: &'static Types = &TYPES;
    let type_ = types.names.get(type_).copied().unwrap_or(type_);
    if let Some(pointee) = type_.strip_prefix('*') {
        return Form::Pointer(pointee);
    }
    if let Some(item) = type_.strip_prefix("[]") {
        return Form::List(item);
    }
    if let Some((_, item)) = type_.strip_prefix("map[").and_then(|it| it.split_once(']')) {
        return Form::Map(item);
    }
    match type_ {
        "string" => Form::Text,
        "bool" => Form::Bool,
        "int32" | "int64" => Form::Number,
        "v1.Time" => Form::Time,
        "intstr.IntOrString" => Form::IntOrString,
        "resource.Quantity" => Form::Quantity,
        "v1.FieldsV1" => Form::Raw,
        _ => Form::Struct(types.structs.get(type_).map_or(&[], Vec::as_slice)),
    }
}

impl Types {
    fn read(text: &'static str) -> Self {
        let (mut structs, mut names): (HashMap<_, Vec<Field>>, _) = (HashMap::new(), HashMap::new());
        let mut current = "";
        for line in text.lines().filter(|it| !it.starts_with('#')) {
            if let Some((name, below)) = line.split_once(" = ") {
                names.insert(name, below);
            } else if let Some(field) = line.strip_prefix(' ') {
                let mut words = field.split(' ');
                if let (Some(go), Some(json), Some(type_)) = (words.next(), words.next(), words.next()) {
                    structs.entry(current).or_default().push(Field { go, json, type_ });
                }
            } else {
                current = line;
                structs.entry(line).or_default();
            }
        }
        Self { structs, names }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_type_of_a_field_is_known() {
        let (mut seen, mut next) = (BTreeSet::new(), vec!["v1.PodTemplateSpec"]);
        while let Some(type_) = next.pop() {
            if !seen.insert(type_) {
                continue;
            }
            match form(type_) {
                Form::Pointer(item) | Form::List(item) | Form::Map(item) => next.push(item),
                Form::Struct(fields) => {
                    assert!(!fields.is_empty(), "{type_}");
                    next.extend(fields.iter().map(|it| it.type_));
                }
                _ => {}
            }
        }
        assert!(seen.contains("v1.WindowsSecurityContextOptions") && seen.contains("resource.Quantity"), "{seen:?}");
    }
}
