use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

use crate::{Atom, json::Key, shared::share};

/// Labels, or the annotations that are used. They are sorted by key, and all objects with equal sets share one.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Arc<[(Atom, Atom)]>);

impl Labels {
    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// All pairs in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Atom, &Atom)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// If a key is repeated, the last value is used, as in JSON.
impl FromIterator<(Atom, Atom)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Atom, Atom)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.reverse();
        pairs.sort_by(|(a, _), (b, _)| (**a).cmp(b));
        pairs.dedup_by(|(later, _), (kept, _)| later == kept);
        Self(share(pairs))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (&**key, &**value))).finish()
    }
}

/// Decodes all pairs.
pub(crate) struct AllLabels(pub(crate) Labels);

impl<'de> Deserialize<'de> for AllLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Pairs { keep: |_| true }.deserialize(deserializer).map(Self)
    }
}

/// Decodes a map of strings and keeps the pairs whose key `keep` accepts. Other values are skipped.
pub(crate) struct Pairs {
    pub(crate) keep: fn(&str) -> bool,
}

impl Pairs {
    /// The next value of `map`.
    pub(crate) fn next<'de, A: MapAccess<'de>>(self, map: &mut A) -> Result<Labels, A::Error> {
        map.next_value_seed(self)
    }
}

impl<'de> DeserializeSeed<'de> for Pairs {
    type Value = Labels;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Labels, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Pairs {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_none<E>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Labels, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut pairs = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            if (self.keep)(&key) {
                let value: Option<Atom> = map.next_value()?;
                pairs.push((Atom::from(&*key), value.unwrap_or_default()));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_in_any_order_are_one_set() {
        let decode = |text: &str| {
            let mut json = serde_json::Deserializer::from_str(text);
            Pairs { keep: |key| key != "dropped" }.deserialize(&mut json).unwrap()
        };
        let one = decode(r#"{"team":"labels-test","app":"x","dropped":7}"#);
        let two = decode(r#"{"app":"was","app":"x","team":"labels-test"}"#);
        assert!(Arc::ptr_eq(&one.0, &two.0));
        assert_eq!((one.get("app"), one.get("team"), one.get("dropped")), (Some("x"), Some("labels-test"), None));
        assert_eq!(decode(r#"{"empty":null}"#).get("empty"), Some(""));
        assert!(decode("null").is_empty());
    }
}
