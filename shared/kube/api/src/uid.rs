use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Atom;

/// The UID of an object. A later object of the same name has another one.
///
/// Canonical text, lower-case with dashes, is stored as 16 bytes. Any other text is stored unchanged, so that it is
/// written back unchanged.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Canonical([u8; 16]),
    Text(Atom),
}

/// The positions of the dashes in `8-4-4-4-12`.
const DASHES: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// Stores `text`, in 16 bytes if it is canonical.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(canonical(text.as_bytes()).map_or_else(|| Repr::Text(Atom::from(text)), Repr::Canonical))
    }

    /// True for the empty text. Every stored object has a UID.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }
}

impl Default for Uid {
    fn default() -> Self {
        Self::new("")
    }
}

fn canonical(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0u8; 16];
    let mut nibbles = 0;
    for (at, &byte) in text.iter().enumerate() {
        if DASHES.contains(&at) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        bytes[nibbles / 2] = (bytes[nibbles / 2] << 4) | digit(byte)?;
        nibbles += 1;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => f.write_str(text),
            Repr::Canonical(bytes) => {
                let all = u128::from_be_bytes(*bytes);
                let group = |shift: u32| (all >> shift) & 0xffff;
                let last = all & 0xffff_ffff_ffff;
                write!(f, "{:08x}-{:04x}-{:04x}-{:04x}-{last:012x}", all >> 96, group(80), group(64), group(48))
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Uid;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a uid")
            }
            fn visit_str<E>(self, text: &str) -> Result<Uid, E> {
                Ok(Uid::new(text))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_uid_takes_sixteen_bytes_and_any_text_is_kept() {
        let cases = [
            ("6b4e1c52-8d1f-4a0b-9b6e-0123456789ab", true),
            ("6B4E1C52-8D1F-4A0B-9B6E-0123456789AB", false),
            ("6b4e1c528d1f4a0b9b6e0123456789ab", false),
            ("6b4e1c52-8d1f-4a0b-9b6e-0123456789ag", false),
            ("6b4e1c52-8d1f-4a0b-9b6e_0123456789ab", false),
            ("", false),
            ("my-own-uid", false),
        ];
        for (text, is_canonical) in cases {
            let uid = Uid::new(text);
            assert_eq!(matches!(uid.0, Repr::Canonical(_)), is_canonical, "{text}");
            assert_eq!(uid.to_string(), text);
            assert_eq!(uid, Uid::new(text));
        }
    }
}
