mod labels;

use labels::Requirement;

use crate::{
    Failure,
    kinds::{self, Kind},
    stored::Stored,
};

/// The selectors of a request: every requirement must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selectors {
    labels: Vec<Requirement>,
    fields: Vec<FieldTest>,
}

#[derive(Debug, Clone, PartialEq)]
struct FieldTest {
    path: String,
    value: String,
    equal: bool,
}

impl Selectors {
    /// Parses `labelSelector` and `fieldSelector` of a request for `kind`.
    ///
    /// # Errors
    /// 400 with a real server's message.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let labels = labels::parse(labels).map_err(Failure::bad_request)?;
        let fields = fields_of(kind, fields)?;
        Ok(Self { labels, fields })
    }

    /// The same for one object. A field selector may name this object, but no other.
    ///
    /// # Errors
    /// 400 when a field selector does not name this object.
    pub(crate) fn of_one(mut self, name: &str) -> Result<Self, Failure> {
        let named = FieldTest { path: "metadata.name".to_owned(), value: name.to_owned(), equal: true };
        if self.fields.is_empty() {
            self.fields.push(named);
        } else if !self.fields.contains(&named) {
            return Err(Failure::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        Ok(self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// True when the object meets every requirement.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.labels.iter().all(|it| it.matches(object)) && self.fields.iter().all(|it| it.matches(object))
    }
}

impl FieldTest {
    fn matches(&self, object: &Stored) -> bool {
        (object.field(&self.path) == self.value) == self.equal
    }
}

/// Parses a whole field selector. The terms are split first and then compared with the fields of the kind.
fn fields_of(kind: &Kind, text: &str) -> Result<Vec<FieldTest>, Failure> {
    let terms = terms(text).into_iter().filter(|it| !it.is_empty());
    let split = terms.map(|term| {
        let why = || format!("invalid selector: '{text}'; can't understand '{term}'");
        let (label, equal, value) = operator(term).ok_or_else(why)?;
        Ok((label, equal, unescaped(value)?))
    });
    let split = split.collect::<Result<Vec<_>, String>>().map_err(Failure::bad_request)?;
    let tests = split.into_iter().map(|(label, equal, value)| {
        let path = path_of(kind, label).map_err(Failure::bad_request)?;
        Ok(FieldTest { path, value, equal })
    });
    tests.collect()
}

/// Splits at commas that are not escaped by a backslash.
fn terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

/// The label, whether the values must be equal, and the value, split at the first operator.
fn operator(term: &str) -> Option<(&str, bool, &str)> {
    let (label, value) = term.split_once('=')?;
    match label.strip_suffix('!') {
        Some(label) => Some((label, false, value)),
        None => Some((label, true, value.strip_prefix('=').unwrap_or(value))),
    }
}

fn unescaped(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let shown = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{shown}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(letter)));
            }
            plain_one => plain.push(plain_one),
        }
    }
    Ok(plain)
}

/// The path of the value of a field label, or a real server's error. Kinds with labels of their own have another
/// message than the other kinds.
fn path_of(kind: &Kind, label: &str) -> Result<String, String> {
    let own = kind.rules.fields;
    if label == "metadata.name" || (label == "metadata.namespace" && (kind.namespaced || own.is_empty())) {
        return Ok(label.to_owned());
    }
    match own.iter().find(|it| it.0 == label) {
        Some((_, path, _)) => Ok((*path).to_owned()),
        None if kind.declared.iter().any(|it| it.fields.iter().any(|field| field == label)) => Ok(label.to_owned()),
        None if own.is_empty() && !kind.custom => {
            let known = r#"only "metadata.name", "metadata.namespace""#;
            Err(format!("{label:?} is not a known field selector: {known}"))
        }
        None if kind.is(kinds::JOBS) => Err(format!("field label {label:?} not supported for Job")),
        None => Err(format!("field label not supported: {label}")),
    }
}
