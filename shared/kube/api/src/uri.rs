//! Text of somebody else in a URI, percent-encoded (RFC 3986).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// Everything but the unreserved characters.
const VALUE: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Everything but what a segment of a path may hold.
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

/// As the value of a parameter of a query.
pub fn value(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &VALUE)
}

/// As one segment of a path, whatever is in it: names of roles may be any text, and owner references name what nobody
/// checks.
pub fn segment(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_a_uri_is_encoded() {
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
