use std::time::Duration;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number is missing or malformed.
    #[error("time: invalid duration {0:?}")]
    Malformed(String),
    /// Go demands a unit, except for a plain `0`.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// Not one of ns, us, ms, s, m, h.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// What stands where a unit should.
        unit: String,
        /// All of it.
        text: String,
    },
    /// Nothing here can last less than nothing.
    #[error("duration {0:?} must not be negative")]
    Negative(String),
    /// Longer than Go can hold (292 years).
    #[error("duration {0:?} is too long")]
    TooLong(String),
}

/// Reads a duration in Go's syntax: `1h30m`, `1.5s`, `100ms`, `0`.
///
/// # Errors
/// As [`DurationError`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(malformed());
    }
    let mut rest = unsigned;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        if number.is_empty() {
            return Err(malformed());
        }
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let unit_nanos = unit_nanos(unit)
            .ok_or_else(|| DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() })?;
        let part = in_nanos(number, unit_nanos).ok_or_else(malformed)?;
        nanos = nanos.checked_add(part).ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
        rest = after;
    }
    if text.starts_with('-') && nanos > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    let nanos = i64::try_from(nanos).map_err(|_| DurationError::TooLong(text.to_owned()))?;
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

/// A duration as Go writes it: `1h30m0s`, `1.5s`, `100ms`, `0s`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    // Go writes all of what is shorter than a second in one unit.
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

fn unit_nanos(unit: &str) -> Option<u128> {
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

/// `1.5` of a unit. Fractions below a nanosecond are cut off, as Go does.
fn in_nanos(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut scale = unit;
    let mut digits: u128 = 0;
    let mut divisor: u128 = 1;
    for digit in fraction.bytes().take(18) {
        digits = digits * 10 + u128::from(digit - b'0');
        divisor *= 10;
    }
    scale = scale.checked_mul(digits)?;
    nanos = nanos.checked_add(scale / divisor)?;
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let good = [
            ("0", 0),
            ("5s", 5_000_000_000),
            ("30s", 30_000_000_000),
            ("1478s", 1_478_000_000_000),
            ("+5s", 5_000_000_000),
            ("-0", 0),
            ("5.0s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("13ms", 13_000_000),
            ("15m", 900_000_000_000),
            ("16h", 57_600_000_000_000),
            ("12h0m0s", 43_200_000_000_000),
            ("3h30m", 12_600_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", i64::MAX.unsigned_abs()),
        ];
        for (text, nanos) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "--5s", "-5s", "1.2.3s", "9223372036854775808ns"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for text in ["0s", "1ns", "1.5µs", "100ms", "1.001s", "59s", "1m0s", "1m0.5s", "1h0m0s", "12h0m0s", "8760h0m0s"]
        {
            assert_eq!(parse_duration(text).map(show_duration), Ok(text.to_owned()));
        }
    }
}
