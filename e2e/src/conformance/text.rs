//! Finds the values that servers choose, inside texts.

use std::collections::BTreeMap;

use clock::Timestamp;

/// The characters of generated names.
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Times at most this far from now were set by the server.
const NEAR: i64 = 2 * 3600;

/// Times this far in the future were computed from now.
const AHEAD: i64 = 8;

/// A number in a message after one of these texts is a version of the server.
const NUMBERS: [&str; 4] =
    ["too old resource version: ", "current: ", "in record (", "the ResourceVersion in the precondition ("];

/// True when this may be the suffix of a generated name.
pub(super) fn is_random(suffix: &str) -> bool {
    suffix.chars().all(|it| ALPHABET.contains(it))
}

/// The labels of times in the future.
#[derive(Debug, Default)]
pub(super) struct Times(BTreeMap<String, String>);

impl Times {
    /// Replaces each time that the server set by a label.
    pub(super) fn replace(&mut self, text: &str, now: Timestamp) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = next_time(rest) {
            let (before, time) = rest.split_at(at);
            let length = time.find('Z').map_or(time.len(), |it| it + 1);
            replaced += before;
            replaced += &self.label(&time[..length], now);
            rest = &time[length..];
        }
        replaced + rest
    }

    fn label(&mut self, text: &str, now: Timestamp) -> String {
        if let Some(label) = self.0.get(text) {
            return label.clone();
        }
        let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
        let ahead = time.as_second() - now.as_second();
        let name = if text.contains('.') { "micro-time" } else { "time" };
        if ahead.abs() > NEAR {
            return text.to_owned();
        }
        if ahead < AHEAD {
            return format!("<{name}>");
        }
        let label = format!("<{name}+{}s>", (ahead + 5) / 10 * 10);
        self.0.insert(text.to_owned(), label.clone());
        label
    }
}

/// The position of a time such as `2026-01-02T03:04:05Z`.
fn next_time(text: &str) -> Option<usize> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let fits = |window: &[u8]| {
        let mut pairs = window.iter().zip(SHAPE);
        pairs.all(|(have, want)| if *want == b'0' { have.is_ascii_digit() } else { have == want })
    };
    let bytes = text.as_bytes();
    bytes.windows(SHAPE.len()).enumerate().find_map(|(at, window)| {
        let behind = &bytes[at + SHAPE.len()..];
        let digits = behind.iter().skip(1).take_while(|it| it.is_ascii_digit()).count();
        let ends = behind.first() == Some(&b'Z')
            || (behind.first() == Some(&b'.') && digits > 0 && behind.get(digits + 1) == Some(&b'Z'));
        (fits(window) && ends).then_some(at)
    })
}

/// Replaces each uid by a label.
pub(super) fn replace_uids(text: &str, labels: &mut BTreeMap<String, String>) -> String {
    const SHAPE: &[u8] = b"00000000-0000-4000-0000-000000000000";
    let fits = |window: &[u8]| {
        let mut pairs = window.iter().zip(SHAPE);
        pairs.all(|(have, want)| match want {
            b'0' => have.is_ascii_digit() || (b'a'..=b'f').contains(have),
            other => have == other,
        })
    };
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.as_bytes().windows(SHAPE.len()).position(fits) {
        let (before, uid) = rest.split_at(at);
        let (uid, behind) = uid.split_at(SHAPE.len());
        let label = format!("<uid{}>", labels.len() + 1);
        replaced += before;
        replaced += labels.entry(uid.to_owned()).or_insert(label);
        rest = behind;
    }
    replaced + rest
}

/// Removes the storage paths of objects.
pub(super) fn without_keys(text: &str) -> String {
    match text.split_once("Key: /") {
        Some((before, rest)) => {
            let behind = rest.find(", ").map_or("", |end| &rest[end..]);
            format!("{before}Key: <key>{behind}")
        }
        None => text.to_owned(),
    }
}

/// Replaces numbers that are certainly versions by labels.
pub(super) fn without_numbers(text: &str, versions: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for variables in NUMBERS {
        let Some((before, rest)) = text.split_once(variables) else { continue };
        let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        if number.is_empty() {
            continue;
        }
        let label = versions.get(number).map_or("<n>", String::as_str);
        // In `700 (1728)` the second number is the oldest version that is left.
        let behind = match behind.strip_prefix(" (").and_then(|it| it.split_once(')')) {
            Some((_, behind)) if variables.starts_with("too old") => format!(" (<n>){behind}"),
            _ => behind.to_owned(),
        };
        let label = match variables {
            "the ResourceVersion in the precondition (" if label == "<n>" => number,
            "current: " => "<n>",
            _ => label,
        };
        text = format!("{before}{variables}{label}{behind}");
    }
    text
}

/// True for a duration as in Tables.
pub(super) fn is_duration(text: &str) -> bool {
    let units = text.bytes().filter(|it| matches!(it, b's' | b'm' | b'h' | b'd' | b'y')).count();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    units > 0 && digits > 0 && units + digits == text.len() && text.as_bytes()[0].is_ascii_digit()
}

/// `3 (5m ago)` without the age.
pub(super) fn without_ago(text: &str) -> String {
    match text.strip_suffix(" ago)").and_then(|it| it.rsplit_once('(')) {
        Some((before, age)) if is_duration(age) => format!("{before}(<age> ago)"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_near_now_are_labelled_and_others_stay() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut times = Times::default();
        let mut label = |text: &str| times.replace(text, now);
        assert_eq!(label("at 2026-01-02T03:04:05Z, 2026-01-02T03:04:04.123456Z!"), "at <time>, <micro-time>!");
        assert_eq!(label("2026-01-02T03:04:34Z"), "<time+30s>");
        assert_eq!(label("2020-01-02T03:04:34Z"), "2020-01-02T03:04:34Z");
        let later = "2026-01-02T03:04:20Z".parse().unwrap();
        assert_eq!(times.replace("2026-01-02T03:04:34Z", later), "<time+30s>");
    }

    #[test]
    fn uids_are_numbered_by_first_appearance() {
        let mut labels = BTreeMap::new();
        let (one, two) = ("0f0e0d0c-0000-4000-8000-000000000001", "0f0e0d0c-0000-4000-8000-000000000002");
        assert_eq!(replace_uids(&format!("{two} x {one} {two}"), &mut labels), "<uid1> x <uid2> <uid1>");
        assert_eq!(replace_uids("0f0e0d0c", &mut labels), "0f0e0d0c");
    }

    #[test]
    fn versions_are_labelled() {
        let versions = BTreeMap::from([("577".to_owned(), "<rv1>".to_owned())]);
        for (text, wanted) in [
            ("too old resource version: 700 (1728)", "too old resource version: <n> (<n>)"),
            (
                "Too large resource version: 99999999, current: 372",
                "Too large resource version: 99999999, current: <n>",
            ),
            (
                "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (577).",
                "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (<rv1>).",
            ),
            ("in record (x)", "in record (x)"),
        ] {
            assert_eq!(without_numbers(text, &versions), wanted);
        }
        assert_eq!(without_keys("Code: 4, Key: /registry/a/b, X: 0"), "Code: 4, Key: <key>, X: 0");
    }

    #[test]
    fn ages_are_durations() {
        assert!(
            is_duration("5s") && is_duration("2d3h") && !is_duration("5") && !is_duration("d5") && !is_duration("")
        );
        assert_eq!(without_ago("3 (5m ago)"), "3 (<age> ago)");
        assert_eq!(without_ago("3 (me ago)"), "3 (me ago)");
    }
}
