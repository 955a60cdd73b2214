use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::{
    canonical,
    schema::{self, Field, Form, Type},
};

/// Decodes a value of a known schema into its shortest form: texts in canonical form, without empty fields.
///
/// It follows the schema at run time, so one decoder is enough for all kinds, for bodies and for patched objects, and
/// it always knows the path of the present field.
pub(crate) struct Reader<'a> {
    form: &'a Form,
    notes: &'a mut Notes,
}

/// What was found while decoding.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Unknown and duplicate fields, in their order.
    pub(crate) remarks: Vec<String>,
    /// Why the value does not match its schema.
    pub(crate) wrong: Option<Wrong>,
    /// Report duplicate keys in free-form data too, for custom resources.
    watch_free_data: bool,
    path: Vec<Step>,
}

/// Why a value does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The body is not an object but this.
    NoObject(&'static str),
    /// A field is wrong.
    Inside(String),
}

#[derive(Debug, Clone)]
enum Step {
    Field {
        of: &'static str,
        name: &'static str,
    },
    /// A field that is not in the schema, or a key of a map.
    Key(String),
    Index(usize),
}

/// Decodes an object of this type.
pub(crate) fn read<'de, D: Deserializer<'de>>(it: &'static Type, from: D) -> (Result<Value, D::Error>, Notes) {
    let mut notes = Notes { watch_free_data: it.open, ..Notes::default() };
    let read = from.deserialize_any(Whole { it, notes: &mut notes });
    (read, notes)
}

/// The whole object, in contrast to a value inside it.
struct Whole<'a> {
    it: &'static Type,
    notes: &'a mut Notes,
}

impl Whole<'_> {
    fn no_object<E: Error>(self, word: &'static str) -> Result<Value, E> {
        self.notes.wrong = Some(Wrong::NoObject(word));
        Err(E::custom(word))
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        read_fields(self.it, self.notes, map)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Object(Map::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        self.no_object("array")
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Value, E> {
        self.no_object("string")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        self.no_object("bool")
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        self.no_object("number")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        self.no_object("number")
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        self.no_object("number")
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Reader<'_> {
    /// A value of the JSON type `word` does not match the schema.
    fn unfit<E: Error>(self, word: &str) -> Result<Value, E> {
        let why = format!("json: cannot unmarshal {word} into {} of type {}", self.notes.place(), self.form.go_name());
        self.notes.fail(why)
    }

    fn checked<E: Error>(self, text: Result<String, impl Into<String>>) -> Result<Value, E> {
        match text {
            Ok(text) => Ok(Value::String(text)),
            Err(why) => self.notes.fail(why.into()),
        }
    }

    fn number<E: Error>(self, number: Number) -> Result<Value, E> {
        let fits = match self.form {
            Form::Int32 | Form::IntOrText => number.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
            Form::Int64 => number.is_i64(),
            Form::Any => true,
            Form::Quantity => {
                let text = canonical::quantity(&number.to_string());
                return self.checked(text);
            }
            _ => return self.unfit("number"),
        };
        if fits { Ok(Value::Number(number)) } else { self.unfit(&format!("number {number}")) }
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        if matches!(self.form, Form::Flag | Form::Any) { Ok(Value::Bool(value)) } else { self.unfit("bool") }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => self.number(number),
            None => self.unfit("number"),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        match self.form {
            Form::Text | Form::Any | Form::IntOrText => Ok(Value::String(value.to_owned())),
            Form::Quantity => self.checked(canonical::quantity(value)),
            Form::Time => self.checked(canonical::time(value)),
            Form::MicroTime => self.checked(canonical::micro_time(value)),
            Form::Bytes => self.checked(canonical::base64(value)),
            _ => self.unfit("string"),
        }
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        match self.form {
            Form::Text | Form::Any | Form::IntOrText => Ok(Value::String(value)),
            _ => self.visit_str(&value),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = match self.form {
            Form::List(inner) => &**inner,
            Form::Any => self.form,
            _ => return self.unfit("array"),
        };
        let mut list = Vec::new();
        loop {
            self.notes.path.push(Step::Index(list.len()));
            let Some(value) = seq.next_element_seed(Reader { form: inner, notes: self.notes })? else { break };
            list.push(or_empty(inner, value));
            self.notes.path.pop();
        }
        self.notes.path.pop();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (inner, free) = match self.form {
            Form::Struct(id) => return read_fields(schema::structure(*id), self.notes, map),
            Form::Map(inner) => (&**inner, false),
            Form::Any => (self.form, !self.notes.watch_free_data),
            _ => return self.unfit("object"),
        };
        let mut read = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.notes.path.push(Step::Key(key));
            let value = map.next_value_seed(Reader { form: inner, notes: self.notes })?;
            let Some(Step::Key(key)) = self.notes.path.pop() else { break };
            if !free && read.contains_key(&key) {
                self.notes.remark("duplicate", &key);
            }
            read.insert(key, or_empty(inner, value));
        }
        Ok(Value::Object(read))
    }
}

/// Elements of lists and maps are never absent.
fn or_empty(form: &Form, value: Value) -> Value {
    match (value, form) {
        (Value::Null, Form::Bytes) => Value::String(String::new()),
        (Value::Null, form) => schema::empty(form),
        (value, _) => value,
    }
}

fn read_fields<'de, A: MapAccess<'de>>(it: &'static Type, notes: &mut Notes, mut map: A) -> Result<Value, A::Error> {
    let mut object = Map::new();
    let mut seen = 0_u128;
    while let Some(key) = map.next_key_seed(Key(it))? {
        let at = match key {
            Ok(at) => at,
            Err(name) if it.open => {
                if object.contains_key(&name) {
                    notes.remark("duplicate", &name);
                }
                notes.path.push(Step::Key(name));
                let value = map.next_value_seed(Reader { form: &Form::Any, notes })?;
                if let Some(Step::Key(name)) = notes.path.pop() {
                    object.insert(name, value);
                }
                continue;
            }
            Err(name) => {
                notes.remark("unknown", &name);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
        };
        let field = &it.fields[at];
        if seen & (1 << at) != 0 {
            notes.remark("duplicate", field.name);
        }
        seen |= 1 << at;
        notes.path.push(Step::Field { of: it.short_name(), name: field.name });
        let value = map.next_value_seed(Reader { form: &field.form, notes })?;
        notes.path.pop();
        if has_content(field, &value) {
            insert(&mut object, field.name, value);
        }
    }
    Ok(Value::Object(object))
}

/// The last of several values of one name is used, but objects are merged.
fn insert(object: &mut Map<String, Value>, name: &str, value: Value) {
    match (object.get_mut(name), value) {
        (Some(Value::Object(before)), Value::Object(members)) => {
            for (name, value) in members {
                insert(before, &name, value);
            }
        }
        (_, value) => {
            object.insert(name.to_owned(), value);
        }
    }
}

/// True when the value differs from its absence.
fn has_content(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty() || field.form == Form::Any,
        Value::Object(map) => !map.is_empty() || field.optional || field.form == Form::Any,
        _ if field.optional || field.form == Form::Any => true,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_i64() != Some(0),
        Value::String(value) => !value.is_empty(),
    }
}

/// Decodes the name of a field: its index in the type, or the name if the type does not have it.
struct Key(&'static Type);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.position(name).ok_or_else(|| name.to_owned()))
    }
}

impl Notes {
    fn fail<T, E: Error>(&mut self, why: String) -> Result<T, E> {
        self.wrong = Some(Wrong::Inside(why));
        Err(E::custom("wrong"))
    }

    fn remark(&mut self, what: &str, name: &str) {
        let mut path = String::new();
        for step in &self.path {
            // Writing into a string cannot fail.
            let _ = match step {
                Step::Index(at) => write!(path, "[{at}]"),
                Step::Field { name, .. } => write!(path, "{}{name}", if path.is_empty() { "" } else { "." }),
                Step::Key(name) => write!(path, "{}{name}", if path.is_empty() { "" } else { "." }),
            };
        }
        let dot = if path.is_empty() { "" } else { "." };
        let remark = format!("{what} field \"{path}{dot}{name}\"");
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// The present position as in Go's messages: the innermost type, and the path of fields.
    fn place(&self) -> String {
        let fields = self.path.iter().filter_map(|it| match it {
            Step::Field { of, name } => Some((*of, *name)),
            Step::Key(_) | Step::Index(_) => None,
        });
        let innermost = fields.clone().next_back().map_or("", |it| it.0);
        let names: Vec<&str> = fields.map(|it| it.1).collect();
        format!("Go struct field {innermost}.{}", names.join("."))
    }
}
