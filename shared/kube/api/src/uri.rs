//! Percent-encodes text from other sources for a URI (RFC 3986).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// All characters except the unreserved ones.
const VALUE: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// All characters that are not allowed in a path segment.
const SEGMENT: AsciiSet = VALUE
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// Encodes the value of a query parameter.
pub fn value(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &VALUE)
}

/// Encodes a path segment. It may contain any character: names of roles may be any text, and the server does not check
/// the names in owner references.
pub(crate) fn segment(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_uri_characters_are_encoded() {
        for (text, of_query, of_path) in [
            ("Az09-._~", "Az09-._~", "Az09-._~"),
            ("system:a/b", "system%3Aa%2Fb", "system:a%2Fb"),
            ("a b?c#d%", "a%20b%3Fc%23d%25", "a%20b%3Fc%23d%25"),
            ("!$&'()*+,;=@", "%21%24%26%27%28%29%2A%2B%2C%3B%3D%40", "!$&'()*+,;=@"),
            ("\u{e4}\n", "%C3%A4%0A", "%C3%A4%0A"),
        ] {
            assert_eq!(value(text).to_string(), of_query);
            assert_eq!(segment(text).to_string(), of_path);
        }
    }
}
