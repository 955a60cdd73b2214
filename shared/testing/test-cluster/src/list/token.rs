//! The continue token of a page: the version of the first page, and the key at which to continue.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::Failure;

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The version to show; none for the present state.
    pub(super) version: Option<u64>,
    /// The first key, without the prefix of the list: a token is valid for any namespace.
    pub(super) first: String,
}

/// A token to continue after `last`, a key without the prefix of the list.
pub(super) fn encode(version: Option<u64>, last: &str) -> String {
    let version = version.map_or_else(|| json!(-1), |it| json!(it));
    // The smallest key after `last` is `last` followed by a zero byte.
    let token = json!({ "v": VERSION, "rv": version, "start": format!("/{last}\0") });
    URL_SAFE_NO_PAD.encode(token.to_string())
}

/// Decodes a token.
///
/// # Errors
/// 400 for an invalid token.
pub(super) fn decode(token: &str) -> Result<Place, Failure> {
    let wrong = |why: String| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong("illegal base64 data".into()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_token_is_decoded() {
        for last in ["a", "ab", "abc", "ns/name", "ns.x/a-b.c"] {
            let place = decode(&encode(Some(7), last)).unwrap();
            assert_eq!(place, Place { version: Some(7), first: format!("{last}\0") });
        }
        assert_eq!(decode(&encode(None, "a")).unwrap().version, None);
    }

    #[test]
    fn invalid_token_is_refused() {
        for text in ["garbage", "%", "A", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
