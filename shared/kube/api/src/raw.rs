use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};

use crate::{Typed, Version};

/// The unchanged `metadata` of an object, without `managedFields`.
///
/// Kinds whose status or finalizers we write keep it. Such a PUT replaces labels, annotations, finalizers and owner
/// references with those of the body, so it must contain the unchanged ones.
#[derive(Clone)]
pub struct RawMetadata(Box<RawValue>);

impl RawMetadata {
    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The same metadata with the resourceVersion from the response of our own last write. No other field may have
    /// changed.
    ///
    /// # Errors
    /// Never for metadata from a server. The JSON is parsed again.
    pub fn at(&self, version: &Version) -> Result<Self, serde_json::Error> {
        let mut fields: Map<String, Value> = serde_json::from_str(self.0.get())?;
        fields.insert("resourceVersion".to_owned(), Value::String(version.to_string()));
        Ok(Self(serde_json::value::to_raw_value(&fields)?))
    }

    /// The same metadata with this annotation.
    ///
    /// # Errors
    /// Never for metadata from a server. The JSON is parsed again.
    pub(crate) fn with_annotation(&self, key: &str, value: &str) -> Result<Self, serde_json::Error> {
        let mut fields: Map<String, Value> = serde_json::from_str(self.0.get())?;
        let annotations = fields.entry("annotations").or_insert(Value::Null);
        if let Value::Object(annotations) = annotations {
            annotations.insert(key.to_owned(), value.into());
        } else {
            *annotations = json!({ key: value });
        }
        Ok(Self(serde_json::value::to_raw_value(&fields)?))
    }
}

impl PartialEq for RawMetadata {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for RawMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for RawMetadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = RawMetadata;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMetadata, A::Error> {
                let mut text = String::from("{");
                while let Some(key) = map.next_key::<String>()? {
                    if key == "managedFields" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let value: Box<RawValue> = map.next_value()?;
                    if text.len() > 1 {
                        text.push(',');
                    }
                    text.push_str(&Value::String(key).to_string());
                    text.push(':');
                    text.push_str(value.get());
                }
                text.push('}');
                RawValue::from_string(text).map(RawMetadata).map_err(serde::de::Error::custom)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// A kind whose status we write.
pub trait StatusOwner: Typed {
    /// The metadata for a PUT of the status.
    fn raw_metadata(&self) -> &RawMetadata;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_managed_fields_is_kept_unchanged() {
        let text = r#"{"name":"a\"b","labels":{"x":"1.0"},"managedFields":[{"manager":"m"}],"unknownField":1.50}"#;
        let raw: RawMetadata = serde_json::from_str(text).unwrap();
        assert_eq!(raw.get(), r#"{"name":"a\"b","labels":{"x":"1.0"},"unknownField":1.50}"#);
        let empty: RawMetadata = serde_json::from_str("{}").unwrap();
        assert_eq!(empty.get(), "{}");
    }

    #[test]
    fn at_changes_only_the_version() {
        let raw: RawMetadata = serde_json::from_str(r#"{"name":"a","resourceVersion":"7"}"#).unwrap();
        assert_eq!(raw.at(&Version::from(8)).unwrap().get(), r#"{"name":"a","resourceVersion":"8"}"#);
    }
}
