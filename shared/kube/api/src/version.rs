use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Atom;

/// A resourceVersion: a number, as all known servers use, or any other text unchanged.
///
/// It can be compared only within one resource type (KEP-5504).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Atom),
}

impl Version {
    /// Stores `text`. Well-formed means digits without a leading zero.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let well_formed = text.bytes().all(|it| it.is_ascii_digit()) && !text.starts_with('0');
        match text.parse() {
            Ok(number) if well_formed => Self(Repr::Number(number)),
            _ => Self(Repr::Text(Atom::from(text))),
        }
    }

    /// True for the empty text, which means that no version is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// The number, if this is a well-formed version: digits, no leading zero, not "0".
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Text(_) => None,
        }
    }

    /// Compares two versions of one type; `None` if one of them is not well-formed.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(self.number()?.cmp(&other.number()?))
    }

    /// True if `self` is known to be older than `other`; false if one of them is not well-formed.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::new("")
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self(if number == 0 { Repr::Text(Atom::from("0")) } else { Repr::Number(number) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => write!(f, "{number}"),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Version;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a resourceVersion")
            }
            fn visit_str<E>(self, text: &str) -> Result<Version, E> {
                Ok(Version::new(text))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers_and_malformed_ones_never() {
        let older = |a: &str, b: &str| Version::new(a).is_older_than(&Version::new(b));
        assert!(older("9", "10"));
        assert!(!older("10", "9") && !older("10", "10"));
        for malformed in ["", "0", "07", "x1", "-3", "99999999999999999999999"] {
            assert!(!older(malformed, "10") && !older("1", malformed), "{malformed}");
            assert_eq!(Version::new(malformed).to_string(), malformed);
        }
    }
}
