//! Durations in the format of Go, which flags and schedules use.

use std::time::Duration;

/// Why a text is not a duration, with the messages of Go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A number is missing or malformed, or the duration is too long for Go (292 years).
    #[error("time: invalid duration {0:?}")]
    Malformed(String),
    /// Go requires a unit, except for a plain `0`.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// The unit is not one of ns, us, ms, s, m, h.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The text in place of the unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Parses a text such as `1h30m`, `-1.5s`, `100ms` or `0` to nanoseconds.
///
/// # Errors
/// As [`Error`].
pub fn parse(text: &str) -> Result<i64, Error> {
    let malformed = || Error::Malformed(text.to_owned());
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(malformed());
    }
    // With 128 bits nothing below can overflow before the result is compared with the range of 64 bits.
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(malformed());
        }
        let unit_ends = after.find(|it: char| it == '.' || it.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_ends);
        if unit.is_empty() {
            return Err(Error::MissingUnit(text.to_owned()));
        }
        let scale = nanos(unit).ok_or_else(|| Error::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() })?;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| malformed())?.into() };
        total += whole * scale + part(fraction, scale);
        if total > i128::from(i64::MAX) + i128::from(is_negative) {
            return Err(malformed());
        }
        rest = after;
    }
    i64::try_from(if is_negative { -total } else { total }).map_err(|_| malformed())
}

/// Formats a duration as Go does: `1h30m0s`, `1.5s`, `100ms`, `0s`.
#[must_use]
pub fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    // Go uses a single unit for a duration below one second.
    let (unit, name) = match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, rest) = (nanos / unit, nanos % unit);
    let digits = unit.ilog10() as usize;
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:0digits$}") };
    let fraction = fraction.trim_end_matches('0');
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        _ if unit < 1_000_000_000 => format!("{whole}{fraction}{name}"),
        (0, 0, seconds) => format!("{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The value of `0.<fraction>` of a unit, truncated to nanoseconds. More than eighteen digits make no difference.
fn part(fraction: &str, scale: i128) -> i128 {
    let (mut value, mut divisor): (i128, i128) = (0, 1);
    for digit in fraction.bytes().take(18) {
        value = value * 10 + i128::from(digit - b'0');
        divisor *= 10;
    }
    value * scale / divisor
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn durations_are_parsed_like_go() {
        for (text, want) in [
            ("0", 0),
            ("-0", 0),
            ("5s", 5 * S),
            ("90s", 90 * S),
            ("1478s", 1_478 * S),
            ("1h30m", 5_400 * S),
            ("1.5h", 5_400 * S),
            (".5s", S / 2),
            ("1.s", S),
            ("5.0s", 5 * S),
            ("5.6s", 5_600_000_000),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("-5m", -300 * S),
            ("+5m", 300 * S),
            ("10ns", 10),
            ("11us", 11_000),
            ("3µs", 3_000),
            ("3μs", 3_000),
            ("13ms", 13_000_000),
            ("15m", 900 * S),
            ("16h", 57_600 * S),
            ("12h0m0s", 43_200 * S),
            ("10.5s4m", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("0.3333333333333333333s", 333_333_333),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", i64::MAX),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn parse_errors_have_the_text_of_go() {
        for (text, want) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("--5s", "time: invalid duration \"--5s\""),
            ("s", "time: invalid duration \"s\""),
            (".", "time: invalid duration \".\""),
            ("-.", "time: invalid duration \"-.\""),
            (".s", "time: invalid duration \".s\""),
            ("+.s", "time: invalid duration \"+.s\""),
            (" 1h", "time: invalid duration \" 1h\""),
            ("90", "time: missing unit in duration \"90\""),
            ("1.2.3s", "time: missing unit in duration \"1.2.3s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1h 5m", "time: unknown unit \"h \" in duration \"1h 5m\""),
            ("1H", "time: unknown unit \"H\" in duration \"1H\""),
            ("2562048h", "time: invalid duration \"2562048h\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
        ] {
            assert_eq!(parse(text).map_err(|it| it.to_string()), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_are_formatted_like_go() {
        for text in ["0s", "1ns", "1.5µs", "100ms", "1.001s", "59s", "1m0s", "1m0.5s", "1h0m0s", "12h0m0s", "8760h0m0s"]
        {
            let nanos = parse(text).unwrap();
            assert_eq!(show(Duration::from_nanos(nanos.unsigned_abs())), text);
        }
    }
}
