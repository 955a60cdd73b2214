/// Percent-decodes a path, as Go does before authorization. An invalid escape stays unchanged.
pub(crate) fn percent_decoded(path: &str) -> String {
    let hex = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = bytes.get(at + 1).copied().and_then(hex).zip(bytes.get(at + 2).copied().and_then(hex));
        match (byte, pair) {
            (b'%', Some((high, low))) => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_other_text_stays() {
        for (path, want) in
            [("/metrics", "/metrics"), ("/%6detrics", "/metrics"), ("/a%2", "/a%2"), ("/%zz%20", "/%zz "), ("", "")]
        {
            assert_eq!(percent_decoded(path), want);
        }
        assert_eq!(percent_decoded("/%ff"), "/\u{fffd}");
    }
}
