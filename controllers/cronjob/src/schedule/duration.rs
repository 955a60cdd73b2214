//! Durations as Go writes them, which is how schedules write theirs.

/// Nanoseconds of a text such as `1h30m`, or Go's words for what is wrong.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    // In 128 bits nothing below overflows before it is compared with what 64 hold.
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_ends = after.find(|it: char| it == '.' || it.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_ends);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let scale = nanos(unit).ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<i64>().map_err(|_| invalid())?.into() };
        total += whole * scale + part(fraction, scale);
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return Err(invalid());
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
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

/// What `0.<fraction>` of a unit is, cut to nanoseconds. More digits than fifteen change nothing.
fn part(fraction: &str, scale: i128) -> i128 {
    let digits = &fraction[..fraction.len().min(15)];
    let value: i128 = digits.parse().unwrap_or(0);
    let mut divisor: i128 = 1;
    for _ in 0..digits.len() {
        divisor *= 10;
    }
    value * scale / divisor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        const S: i64 = 1_000_000_000;
        for (text, want) in [
            ("0", 0),
            ("-0", 0),
            ("90s", 90 * S),
            ("1h30m", 5400 * S),
            ("1.5h", 5400 * S),
            (".5s", S / 2),
            ("1.s", S),
            ("-5m", -300 * S),
            ("+5m", 300 * S),
            ("1h1m1s1ms1us1ns", 3661 * S + 1_001_001),
            ("3µs", 3_000),
            ("3μs", 3_000),
            ("0.3333333333333333333s", 333_333_333),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-2562047h47m16.854775808s", i64::MIN),
        ] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        for (text, want) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("90", "time: missing unit in duration \"90\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            (" 1h", "time: invalid duration \" 1h\""),
            (".s", "time: invalid duration \".s\""),
            ("1h 5m", "time: unknown unit \"h \" in duration \"1h 5m\""),
            ("2562048h", "time: invalid duration \"2562048h\""),
            ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
            ("1H", "time: unknown unit \"H\" in duration \"1H\""),
        ] {
            assert_eq!(parse(text), Err(want.to_owned()), "{text}");
        }
    }
}
