//! What a page ends with, for the client to hand back: the state that the first page showed, and where to go on.

use serde_json::{Value, json};

use crate::Failure;

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The state to show; none for the present one.
    pub(super) version: Option<u64>,
    /// The first key that may come, behind the prefix of the list: a token serves any namespace.
    pub(super) first: String,
}

/// A token to go on behind `last`, a key behind the prefix of the list.
pub(super) fn encode(version: Option<u64>, last: &str) -> String {
    let version = version.map_or_else(|| json!(-1), |it| json!(it));
    // The next key of all is the same one with a zero behind it.
    let token = json!({ "v": VERSION, "rv": version, "start": format!("/{last}\0") });
    to_base64(token.to_string().as_bytes())
}

/// Reads a token.
///
/// # Errors
/// 400 for what is none.
pub(super) fn decode(token: &str) -> Result<Place, Failure> {
    let wrong = |why: String| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = from_base64(token).ok_or_else(|| wrong("illegal base64 data".into()))?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|err| wrong(err.to_string()))?;
    let version = token["v"].as_str().unwrap_or_default();
    if version != VERSION {
        return Err(wrong(format!("server does not recognize this encoded version {version}")));
    }
    let start = token["start"].as_str().unwrap_or_default();
    if start.is_empty() {
        return Err(wrong(format!("encoded start key empty (version {VERSION})")));
    }
    let version = match token["rv"].as_i64() {
        Some(-1) => None,
        Some(number) if number > 0 => Some(number.unsigned_abs()),
        _ => return Err(wrong(format!("incorrect encoded start resourceVersion (version {VERSION})"))),
    };
    if start.split('/').any(|it| matches!(it, "." | "..")) {
        return Err(wrong(start.to_owned()));
    }
    Ok(Place { version, first: start.strip_prefix('/').unwrap_or(start).to_owned() })
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The alphabet of URLs, without padding.
fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for letter in chunk {
            let value = LETTERS.iter().position(|it| it == letter)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        bits <<= 6 * (4 - chunk.len());
        let whole = bits.to_be_bytes();
        bytes.extend_from_slice(whole.get(1..chunk.len())?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for last in ["a", "ab", "abc", "ns/name", "ns.x/a-b.c"] {
            let place = decode(&encode(Some(7), last)).unwrap();
            assert_eq!(place, Place { version: Some(7), first: format!("{last}\0") });
        }
        assert_eq!(decode(&encode(None, "a")).unwrap().version, None);
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["garbage", "%", "A", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
