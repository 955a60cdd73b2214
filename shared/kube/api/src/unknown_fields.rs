//! Unknown fields, which are kept so that our writes contain them.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use crate::json::Key;

/// The fields of an object that its type does not define, unchanged.
#[derive(Clone, Default)]
pub(crate) struct UnknownFields(Box<[(Box<str>, Box<RawValue>)]>);

impl UnknownFields {
    /// Writes them after the known fields.
    pub(crate) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
    }
}

impl PartialEq for UnknownFields {
    fn eq(&self, other: &Self) -> bool {
        let text =
            |it: &Self| it.0.iter().map(|(key, value)| (key.clone(), value.get().to_owned())).collect::<Vec<_>>();
        self.0.len() == other.0.len() && (self.0.is_empty() || text(self) == text(other))
    }
}

impl Eq for UnknownFields {}

impl fmt::Debug for UnknownFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value.get()))).finish()
    }
}

/// A type that keeps its unknown fields.
pub(crate) trait WithUnknownFields: Default {
    /// Reads the value of `key`; returns false if the key is unknown.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error>;

    /// The unknown fields.
    fn unknown_fields(&mut self) -> &mut UnknownFields;
}

/// Decodes a [`WithUnknownFields`].
pub(crate) fn decode<'de, D: Deserializer<'de>, K: WithUnknownFields>(deserializer: D) -> Result<K, D::Error> {
    deserializer.deserialize_map(Fields(PhantomData))
}

struct Fields<K>(PhantomData<K>);

impl<'de, K: WithUnknownFields> Visitor<'de> for Fields<K> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<K, A::Error> {
        let mut known = K::default();
        let mut unknown_fields = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            if !known.take(&key, &mut map)? {
                unknown_fields.push((Box::from(&*key), map.next_value::<Box<RawValue>>()?));
            }
        }
        *known.unknown_fields() = UnknownFields(unknown_fields.into());
        Ok(known)
    }
}

/// Implements [`Deserialize`] by [`decode`].
macro_rules! impl_deserialize {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::unknown_fields::decode(deserializer)
            }
        }
    };
}

pub(crate) use impl_deserialize;
