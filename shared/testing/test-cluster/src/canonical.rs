//! The canonical form of texts that can be written in several ways.

use base64::{
    DecodeError, Engine, alphabet,
    engine::{
        GeneralPurpose,
        general_purpose::{PAD, STANDARD},
    },
};
use clock::Timestamp;

/// A quantity in its shortest form: a whole number with the largest suffix of the kind that was given.
///
/// # Errors
/// A real server's message for an invalid text.
pub(crate) fn quantity(text: &str) -> Result<String, &'static str> {
    let (negative, amount, scale) = read(text)?;
    let sign = if negative && amount > 0 { "-" } else { "" };
    Ok(format!("{sign}{}", print(amount, scale)))
}

/// A quantity as a number for comparisons, in billionths; `None` for an invalid text.
pub(crate) fn amount(text: &str) -> Option<i128> {
    let (negative, amount, _) = read(text).ok()?;
    let amount = i128::try_from(amount).ok()?;
    Some(if negative { -amount } else { amount })
}

/// The sign of a quantity, its amount in billionths, and its notation.
fn read(text: &str) -> Result<(bool, u128, Scale), &'static str> {
    const NONE: &str = "quantities must match the regular expression \
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().take_while(|it| it.is_ascii_digit() || *it == b'.').count();
    let (number, suffix) = unsigned.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(NONE);
    }
    if !suffix.bytes().all(|it| b"eEinumkKMGTP+-0123456789".contains(&it)) {
        return Err(NONE);
    }
    let scale = Scale::read(suffix).ok_or("unable to parse quantity's suffix")?;
    let amount = nano(whole, fraction, scale).ok_or(NONE)?;
    Ok((text.starts_with('-'), amount, scale))
}

/// The notation of a suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// A power of ten, printed with a letter.
    Decimal(i32),
    /// A power of ten, printed as an exponent.
    Exponent(i32),
    /// A power of 1024.
    Binary(u32),
}

const DECIMAL: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANO: u128 = 1_000_000_000;

impl Scale {
    fn read(suffix: &str) -> Option<Self> {
        if let Some((power, _)) = DECIMAL.iter().find(|it| it.1 == suffix) {
            return Some(Self::Decimal(*power));
        }
        if let Some(power) = BINARY.iter().position(|it| *it == suffix) {
            return u32::try_from(power).ok().map(Self::Binary);
        }
        suffix.strip_prefix(['e', 'E'])?.parse().ok().map(Self::Exponent)
    }
}

/// The amount in billionths, rounded up; `None` when it is too large.
fn nano(whole: &str, fraction: &str, scale: Scale) -> Option<u128> {
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let mantissa: u128 = digits.parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let (power, factor) = match scale {
        Scale::Decimal(power) | Scale::Exponent(power) => (power, 1),
        Scale::Binary(power) => (0, 1_u128 << (10 * power)),
    };
    let shift = power.checked_add(9)?.checked_sub(decimals)?;
    let product = mantissa.checked_mul(factor)?;
    let ten = |count: i32| 10_u128.checked_pow(count.unsigned_abs());
    if shift >= 0 {
        product.checked_mul(ten(shift)?)
    } else {
        ten(shift).map_or(Some(1), |it| Some(product.div_ceil(it)))
    }
}

fn print(amount: u128, scale: Scale) -> String {
    if amount == 0 {
        return "0".into();
    }
    match scale {
        // Below one Ki a binary suffix is not used.
        Scale::Binary(_) if amount >= 1024 * NANO => {
            let (mut number, mut power) = (amount.div_ceil(NANO), 0);
            while number.is_multiple_of(1024) && power + 1 < BINARY.len() {
                number /= 1024;
                power += 1;
            }
            format!("{number}{}", BINARY[power])
        }
        _ => {
            let (mut number, mut place) = (amount, 0);
            while number.is_multiple_of(1000) && place + 1 < DECIMAL.len() {
                number /= 1000;
                place += 1;
            }
            let (power, letter) = DECIMAL[place];
            match scale {
                Scale::Exponent(_) if power != 0 => format!("{number}e{power}"),
                Scale::Exponent(_) => number.to_string(),
                _ => format!("{number}{letter}"),
            }
        }
    }
}

/// A time in whole seconds of UTC.
///
/// # Errors
/// A real server's message for an invalid text.
pub(crate) fn time(text: &str) -> Result<String, String> {
    let parsed = if text.get(10..11) == Some("T") { text.parse::<Timestamp>().ok() } else { None };
    match parsed {
        Some(_) if text.len() == 20 && text.ends_with('Z') => Ok(text.to_owned()),
        Some(time) => Ok(crate::meta::stamp(floor(time))),
        None => {
            Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""))
        }
    }
}

/// A time in UTC with six digits of a second, which the input must have too.
///
/// # Errors
/// A real server's message for an invalid text.
pub(crate) fn micro_time(text: &str) -> Result<String, String> {
    let parsed = if text.get(10..11) == Some("T") { text.parse::<Timestamp>().ok() } else { None };
    let wrong = |rest: &str, wanted: &str| {
        Err(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as {wanted:?}"
        ))
    };
    let Some(time) = parsed else { return wrong(text, "2006") };
    let rest = text.get(19..).unwrap_or_default();
    let decimals = rest.strip_prefix('.').map_or(0, |it| it.bytes().take_while(u8::is_ascii_digit).count());
    match decimals {
        6 => Ok(format!("{time:.6}")),
        7.. => wrong(rest.get(7..).unwrap_or_default(), "Z07:00"),
        _ => wrong(rest, ".000000"),
    }
}

/// The time rounded down to a whole second.
fn floor(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_nanosecond().div_euclid(1_000_000_000).try_into().unwrap_or(0)).unwrap_or(time)
}

/// Base64 with padding in the server's canonical form: without line breaks, and with unused bits set to zero.
///
/// # Errors
/// A real server's message for an invalid text.
pub(crate) fn base64(text: &str) -> Result<String, String> {
    let letters: Vec<u8> = text.bytes().filter(|it| !matches!(it, b'\r' | b'\n')).collect();
    let illegal = |at: usize| format!("illegal base64 data at input byte {at}");
    let bytes = LAX.decode(&letters).map_err(|err| match err {
        DecodeError::InvalidByte(at, letter) if letter != b'=' => illegal(at),
        _ => illegal(letters.len() - letters.len() % 4),
    })?;
    Ok(STANDARD.encode(bytes))
}

/// With padding; unused bits in the last letter may be set.
const LAX: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// How many bytes a base64 text decodes to.
pub(crate) fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|it| *it == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shortened() {
        for (sent, printed) in [
            ("1024Mi", "1Gi"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1023", "1023"),
            ("1000", "1k"),
            ("1023Ki", "1023Ki"),
            ("1Ki", "1Ki"),
            ("0.1Ki", "102400m"),
            ("100k", "100k"),
            ("1e3", "1e3"),
            ("12e4", "120e3"),
            ("1E", "1E"),
            ("1E3", "1e3"),
            ("0.0000000001", "1n"),
            ("-1500m", "-1500m"),
            ("-0", "0"),
            ("+5", "5"),
            ("00012", "12"),
            ("0Ki", "0"),
            (".5", "500m"),
            ("1.", "1"),
        ] {
            assert_eq!(quantity(sent).as_deref(), Ok(printed), "{sent}");
        }
        for sent in ["", "x", "1x", "1.2.3", "1 Gi", "--1", "1ki", "Ki", "1e"] {
            assert!(quantity(sent).is_err(), "{sent}");
        }
    }

    #[test]
    fn quantities_of_every_suffix_are_compared() {
        let ascending = ["-1Ei", "-1m", "0", "1n", "1e-3", "999m", "1", "1e3", "1Ki", "5E3", "1Pi", "1E", "1Ei"];
        let amounts: Vec<i128> = ascending.iter().map(|it| amount(it).unwrap()).collect();
        assert!(amounts.is_sorted_by(|a, b| a < b), "{amounts:?}");
        assert_eq!(amount("1Gi"), amount("1024Mi"));
        assert_eq!(amount("0.1"), amount("100m"));
        assert_eq!(amount("x"), None);
    }

    #[test]
    fn times_are_whole_seconds_of_utc() {
        assert_eq!(time("2026-01-01T02:00:00.9+02:00").as_deref(), Ok("2026-01-01T00:00:00Z"));
        assert_eq!(time("2026-01-01T02:00:00Z").as_deref(), Ok("2026-01-01T02:00:00Z"));
        assert!(time("yesterday").is_err());
        assert!(time("").is_err());
        assert!(time("2026-01-01 02:00:00Z").is_err());
        assert_eq!(micro_time("2026-01-01T02:00:00.123456+02:00").as_deref(), Ok("2026-01-01T00:00:00.123456Z"));
        assert!(micro_time("2026-01-01T02:00:00Z").unwrap_err().contains("cannot parse \"Z\" as \".000000\""));
        assert!(micro_time("2026-01-01T02:00:00.123456789Z").is_err());
    }

    #[test]
    fn base64_is_checked_and_made_canonical() {
        assert_eq!(base64("YQ==").as_deref(), Ok("YQ=="));
        assert_eq!(base64("YR==").as_deref(), Ok("YQ=="));
        assert_eq!(base64("YWJj\r\nZA==\n").as_deref(), Ok("YWJjZA=="));
        assert_eq!(base64("").as_deref(), Ok(""));
        for sent in ["YQ", "YQ=", "Y!==", "=", "YQ==YQ=="] {
            assert!(base64(sent).is_err(), "{sent}");
        }
        assert_eq!((decoded_len("YQ=="), decoded_len("YWJj"), decoded_len("")), (1, 3, 0));
    }
}
