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
pub(crate) struct Rest(Box<[(Box<str>, Box<RawValue>)]>);

impl Rest {
    /// Writes them after the known fields.
    pub(crate) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
    }
}

impl PartialEq for Rest {
    fn eq(&self, other: &Self) -> bool {
        let text =
            |it: &Self| it.0.iter().map(|(key, value)| (key.clone(), value.get().to_owned())).collect::<Vec<_>>();
        self.0.len() == other.0.len() && (self.0.is_empty() || text(self) == text(other))
    }
}

impl Eq for Rest {}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value.get()))).finish()
    }
}

/// A type that keeps its unknown fields.
pub(crate) trait Known: Default {
    /// Reads the value of `key`; returns false if the key is unknown.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error>;

    /// The unknown fields.
    fn rest(&mut self) -> &mut Rest;
}

/// Decodes a [`Known`].
pub(crate) fn known<'de, D: Deserializer<'de>, K: Known>(deserializer: D) -> Result<K, D::Error> {
    deserializer.deserialize_map(Fields(PhantomData))
}

struct Fields<K>(PhantomData<K>);

impl<'de, K: Known> Visitor<'de> for Fields<K> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<K, A::Error> {
        let mut known = K::default();
        let mut rest = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            if !known.take(&key, &mut map)? {
                rest.push((Box::from(&*key), map.next_value::<Box<RawValue>>()?));
            }
        }
        *known.rest() = Rest(rest.into());
        Ok(known)
    }
}

/// Implements [`Deserialize`] by [`known`].
macro_rules! known_fields {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::rest::known(deserializer)
            }
        }
    };
}

pub(crate) use known_fields;
