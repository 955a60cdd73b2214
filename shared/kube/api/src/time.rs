//! The times of the API as numbers.

use std::fmt;

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// `metav1.Time`, decoded from RFC 3339 to whole seconds since the epoch. A malformed time is an error, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) i64);

/// `metav1.MicroTime`, decoded from RFC 3339 to microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Micros(pub(crate) i64);

/// The text of a `metav1.Time`, from seconds since the epoch.
///
/// # Errors
/// If the year does not have four digits.
pub fn rfc3339(seconds: i64) -> Result<String, jiff::Error> {
    Timestamp::from_second(seconds).map(|it| it.to_string())
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Rfc3339).map(|it| Self(it.as_second()))
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Rfc3339).map(|it| Self(it.as_microsecond()))
    }
}

struct Rfc3339;

impl Visitor<'_> for Rfc3339 {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in RFC 3339")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
        text.parse().map_err(|err| E::custom(format_args!("{text:?} is no time: {err}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_strictly() {
        let seconds = |text: &str| serde_json::from_str(text).map(|Seconds(it)| it).ok();
        let micros = |text: &str| serde_json::from_str(text).map(|Micros(it)| it).ok();
        assert_eq!(seconds(r#""2026-01-02T03:04:05Z""#), Some(1_767_323_045));
        assert_eq!(seconds(r#""2026-01-02T05:04:05+02:00""#), Some(1_767_323_045));
        assert_eq!(micros(r#""2026-01-02T03:04:05.123456Z""#), Some(1_767_323_045_123_456));
        assert_eq!(rfc3339(1_767_323_045).unwrap(), "2026-01-02T03:04:05Z");
        for wrong in [r#""""#, r#""yesterday""#, r#""2026-13-02T03:04:05Z""#, "7"] {
            assert_eq!((seconds(wrong), micros(wrong)), (None, None), "{wrong}");
        }
    }
}
