//! Parses single values like Go, with Go's error messages.

use std::net::IpAddr;

use super::{Kind, parse_duration};
use crate::version::RELEASE;

/// Checks that a text is a value of this kind.
///
/// # Errors
/// Why it is not.
pub(super) fn check(kind: Kind, text: &str) -> Result<(), String> {
    match kind {
        // The known gates depend on the release, so gates are checked when the release is known.
        Kind::Text | Kind::Gates => Ok(()),
        Kind::Bool => boolean(text).map(drop),
        Kind::Duration => parse_duration(text).map(drop).map_err(|err| err.to_string()),
        Kind::Int32 => int(text, 32).map(drop),
        Kind::Int => int(text, 64).map(drop),
        Kind::Float32 => float(text, 32).map(drop),
        Kind::Float => float(text, 64).map(drop),
        Kind::List => comma_list(text).map(drop),
        Kind::Numbers => text.split(',').try_for_each(|it| int(it, 32).map(drop)),
        Kind::Address => address(text).map(drop),
        Kind::Map => pairs(text).map(drop),
        Kind::CertKeys => cert_keys(text),
        Kind::Quantity => quantity(text).map(drop),
        Kind::Level => level(text).map(drop),
        Kind::Patterns => klog::Vmodule::parse(text).map(drop).map_err(|err| err.to_string()),
        Kind::Version if text == "raw" => Ok(()),
        Kind::Version if text.starts_with('v') => match text.strip_prefix(RELEASE) {
            Some(rest) if rest.is_empty() || rest.starts_with(['-', '+']) => Ok(()),
            _ => Err(format!("version {text:?} must match major/minor/patch of default version {:?}", RELEASE)),
        },
        Kind::Version => boolean(text).map(drop),
    }
}

/// Go's `strconv.ParseBool`.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(syntax("ParseBool", text)),
    }
}

fn syntax(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

fn range(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: value out of range")
}

/// Go's `strconv.ParseInt` with base 0: `0x1f`, `0b1`, `0o7`, `07`, `1_000`.
pub(super) fn int(text: &str, bits: u32) -> Result<i64, String> {
    let invalid = || syntax("ParseInt", text);
    let beyond = || range("ParseInt", text);
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &unsigned[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &unsigned[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &unsigned[2..]),
        [b'0', ..] => (8, &unsigned[1..]),
        [] => return Err(invalid()),
        _ => (10, unsigned),
    };
    if !underscores_stand_between_digits(unsigned) {
        return Err(invalid());
    }
    let mut number: i128 = 0;
    for digit in digits.chars().filter(|it| *it != '_') {
        let digit = digit.to_digit(base).ok_or_else(invalid)?;
        number = number.saturating_mul(base.into()).saturating_add(digit.into());
    }
    if text.starts_with('-') {
        number = -number;
    }
    let limit = 1_i128 << (bits - 1);
    if number < -limit || number >= limit {
        return Err(beyond());
    }
    i64::try_from(number).map_err(|_| beyond())
}

/// The prefix of a base counts as a digit.
fn underscores_stand_between_digits(unsigned: &str) -> bool {
    let (prefix, rest) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X' | b'b' | b'B' | b'o' | b'O', ..] => unsigned.split_at(2),
        _ => unsigned.split_at(0),
    };
    let hex = prefix.eq_ignore_ascii_case("0x");
    let is_digit = |it: u8| it.is_ascii_digit() || hex && it.is_ascii_hexdigit();
    let (mut after_digit, mut after_underscore) = (!prefix.is_empty(), false);
    for byte in rest.bytes() {
        let underscore = byte == b'_';
        if underscore && !after_digit || after_underscore && !is_digit(byte) {
            return false;
        }
        (after_digit, after_underscore) = (is_digit(byte), underscore);
    }
    !after_underscore
}

/// Go's `strconv.ParseFloat`, but without NaN, which no flag can use.
pub(super) fn float(text: &str, bits: u32) -> Result<f64, String> {
    let invalid = || syntax("ParseFloat", text);
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return Ok(sign * f64::INFINITY);
    }
    if !underscores_stand_between_digits(unsigned) {
        return Err(invalid());
    }
    let plain: String = unsigned.chars().filter(|it| *it != '_').collect();
    let number = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        Some(hex) => hex_float(hex).ok_or_else(invalid)?,
        // Rust would also accept its own names for infinity and NaN.
        None if plain.starts_with(|it: char| it.is_ascii_digit() || it == '.') => {
            plain.parse().map_err(|_| invalid())?
        }
        None => return Err(invalid()),
    };
    // A number less than half a step above the largest 32-bit float is rounded down to it.
    let beyond = if bits == 32 { f64::from(f32::MAX) + 2.0_f64.powi(103) } else { f64::INFINITY };
    if number < beyond { Ok(sign * number) } else { Err(range("ParseFloat", text)) }
}

/// Parses `1.8p3` after `0x`: hexadecimal digits, then a required power of two. Infinite when it is too large.
fn hex_float(text: &str) -> Option<f64> {
    let (digits, power) = text.split_once(['p', 'P'])?;
    let unsigned = power.strip_prefix(['+', '-']).unwrap_or(power);
    if unsigned.is_empty() || !unsigned.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0_f64;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    // Zero times an infinite power would be NaN.
    if number == 0.0 {
        return Some(0.0);
    }
    let power: i32 = power.parse().unwrap_or(if power.starts_with('-') { i32::MIN } else { i32::MAX });
    let behind = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let number = number * 2.0_f64.powi(power.saturating_sub(behind.saturating_mul(4)));
    // The digits overflow and the power is tiny, so the result is not a number. It is treated as too large.
    Some(if number.is_nan() { f64::INFINITY } else { number })
}

/// An address. An empty text returns `None`, which keeps the previous value.
pub(super) fn address(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.trim().parse().map(Some).map_err(|_| format!("failed to parse IP: {text:?}"))
}

/// Parses one line of comma-separated values. Values may be quoted.
pub(super) fn comma_list(text: &str) -> Result<Vec<String>, String> {
    let mut elements = Vec::new();
    let mut rest = text;
    while !(rest.is_empty() && elements.is_empty()) {
        let column = text.len() - rest.len() + 1;
        let (element, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_element(quoted).ok_or_else(|| {
                format!("parse error on line 1, column {}: extraneous or missing \" in quoted-field", text.len() + 1)
            })?,
            None => {
                let (element, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                if let Some(quote) = element.find('"') {
                    return Err(format!(
                        "parse error on line 1, column {}: bare \" in non-quoted-field",
                        column + quote
                    ));
                }
                (element.to_owned(), after)
            }
        };
        elements.push(element);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    Ok(elements)
}

/// Returns the text up to the closing quote, and the rest, which is empty or begins with a comma. Two quotes stand for
/// one.
fn quoted_element(quoted: &str) -> Option<(String, &str)> {
    let mut element = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('"')?;
        element.push_str(part);
        match after.strip_prefix('"') {
            Some(next) => {
                element.push('"');
                rest = next;
            }
            None if after.is_empty() || after.starts_with(',') => return Some((element, after)),
            None => return None,
        }
    }
}

/// Parses `key=value,other=value`. A quoted pair may contain commas.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    // In a single pair commas are part of the value, as in pflag.
    let elements = match text.matches('=').count() {
        0 => return Err(format!("{text} must be formatted as key=value")),
        1 => vec![text.trim_matches('"').to_owned()],
        _ => comma_list(text)?,
    };
    let split = |it: String| match it.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!("{it} must be formatted as key=value")),
    };
    elements.into_iter().map(split).collect()
}

/// Log verbosity.
pub(super) fn level(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(syntax("ParseUint", text));
    }
    text.parse::<i32>().map(i32::unsigned_abs).map_err(|_| range("ParseUint", text))
}

fn cert_keys(text: &str) -> Result<(), String> {
    let (files, names) = text.split_once(':').map_or((text, None), |(files, names)| (files, Some(names)));
    if names.is_some_and(|it| it.trim().is_empty()) {
        return Err("empty names list is not allowed".to_owned());
    }
    match files.split(',').count() {
        2 => Ok(()),
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

/// A number of bytes in the syntax of Kubernetes quantities, rounded up.
pub(super) fn quantity(text: &str) -> Result<i64, String> {
    const INVALID: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let invalid = || INVALID.to_owned();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, suffix) =
        unsigned.split_at(unsigned.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(unsigned.len()));
    let number: f64 = number.parse().map_err(|_| invalid())?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        _ => {
            let power = suffix.strip_prefix(['e', 'E']).and_then(|it| it.parse().ok());
            10.0_f64.powi(power.ok_or_else(invalid)?)
        }
    };
    let bytes = (number * factor).ceil();
    let bytes = if text.starts_with('-') { -bytes } else { bytes };
    #[expect(clippy::cast_possible_truncation, reason = "values beyond 64 bits saturate, as upstream")]
    Ok(bytes as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_like_go() {
        for (text, want) in [
            ("0", Ok(0)),
            ("10", Ok(10)),
            ("+10", Ok(10)),
            ("-10", Ok(-10)),
            ("0x1F", Ok(31)),
            ("0b101", Ok(5)),
            ("0o17", Ok(15)),
            ("017", Ok(15)),
            ("1_000", Ok(1000)),
            ("0x_1f", Ok(31)),
            ("0_7", Ok(7)),
            ("2147483647", Ok(2_147_483_647)),
            ("-2147483648", Ok(-2_147_483_648)),
            ("2147483648", Err("value out of range")),
            ("", Err("invalid syntax")),
            ("-", Err("invalid syntax")),
            ("0x", Err("invalid syntax")),
            ("08", Err("invalid syntax")),
            ("1__0", Err("invalid syntax")),
            ("_1", Err("invalid syntax")),
            ("1_", Err("invalid syntax")),
            ("1.5", Err("invalid syntax")),
            (" 1", Err("invalid syntax")),
            ("1e3", Err("invalid syntax")),
            ("٣", Err("invalid syntax")),
        ] {
            let got = int(text, 32);
            match want {
                Ok(want) => assert_eq!(got, Ok(want), "{text}"),
                Err(why) => {
                    assert_eq!(got, Err(format!("strconv.ParseInt: parsing {text:?}: {why}")), "{text}");
                }
            }
        }
    }

    #[test]
    fn floats_are_parsed_like_go() {
        for (text, want) in [
            ("0.1", 0.1),
            ("1e-1", 0.1),
            (".5", 0.5),
            ("5.", 5.0),
            ("1_0.5", 10.5),
            ("0x1p4", 16.0),
            ("0x1.8P1", 3.0),
            ("-2", -2.0),
            ("+Inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("0x0p99999", 0.0),
            ("0x.0p2", 0.0),
            ("0x1p-99999", 0.0),
            ("3.4028235e38", 3.402_823_5e38),
        ] {
            assert_eq!(float(text, 32), Ok(want), "{text}");
        }
        for text in ["", "-", ".", "e1", "0x1", "0x1p", "0xp1", "1e", "nan", "1,5", "1_", "+-1", "infinit"] {
            assert_eq!(float(text, 64), Err(syntax("ParseFloat", text)));
        }
        let digits = format!("0x{}p-9999", "f".repeat(300));
        for text in ["1e50", "3.4028236e38", "0x1p128", "0x1p99999", "-0x1p99999", "0x1p9999999999", digits.as_str()] {
            assert_eq!(float(text, 32), Err(range("ParseFloat", text)));
        }
        assert!(float("1e50", 64).is_ok() && float("1e999", 64).is_err());
    }

    #[test]
    fn lists_may_be_quoted() {
        for (text, want) in [
            ("", vec![]),
            ("a", vec!["a"]),
            ("a,", vec!["a", ""]),
            (",", vec!["", ""]),
            ("\"a,b\",c", vec!["a,b", "c"]),
            ("\"a\"\"b\"", vec!["a\"b"]),
            ("\"\"", vec![""]),
        ] {
            assert_eq!(comma_list(text).unwrap(), want, "{text}");
        }
        assert_eq!(comma_list("a\"b").unwrap_err(), "parse error on line 1, column 2: bare \" in non-quoted-field");
        assert_eq!(
            comma_list("\"a").unwrap_err(),
            "parse error on line 1, column 3: extraneous or missing \" in quoted-field"
        );
        assert!(comma_list("\"a\"b").is_err());
    }

    #[test]
    fn other_kinds_are_parsed_like_upstream() {
        for (kind, text, want) in [
            (Kind::Address, "", None),
            (Kind::Address, " ::1 ", None),
            (Kind::Address, " ", Some("failed to parse IP: \" \"")),
            (Kind::Address, "010.1.1.1", Some("failed to parse IP: \"010.1.1.1\"")),
            (Kind::Map, "", Some(" must be formatted as key=value")),
            (Kind::Map, "foo", Some("foo must be formatted as key=value")),
            (Kind::Map, "m1,l=a", None),
            (Kind::Map, "\"m1,l=a,b\",\"m2,l=c\"", None),
            (Kind::CertKeys, "a,b:x,y", None),
            (Kind::CertKeys, "a,b:", Some("empty names list is not allowed")),
            (Kind::CertKeys, "", Some("expected comma separated certificate and key file paths")),
            (Kind::CertKeys, "foo", Some("expected comma separated certificate and key file paths")),
            (Kind::Numbers, "1,2", None),
            (Kind::Numbers, "", Some("strconv.ParseInt: parsing \"\": invalid syntax")),
            (Kind::Numbers, "1, 2", Some("strconv.ParseInt: parsing \" 2\": invalid syntax")),
            (Kind::Numbers, "1,a", Some("strconv.ParseInt: parsing \"a\": invalid syntax")),
            (Kind::Patterns, "a=1,b*=2", None),
            (Kind::Patterns, "x", Some("\"x\" does not have the pattern=N format")),
            (
                Kind::Patterns,
                "a=b",
                Some("parsing verbosity in \"a=b\": strconv.ParseUint: parsing \"b\": invalid syntax"),
            ),
            (Kind::Quantity, "64Ki", None),
            (Kind::Quantity, "1e3", None),
            (
                Kind::Quantity,
                "x",
                Some("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
            ),
            (Kind::Bool, "maybe", Some("strconv.ParseBool: parsing \"maybe\": invalid syntax")),
            (Kind::Version, "v1.37.0-foo", None),
            (
                Kind::Version,
                "v1.2.3",
                Some("version \"v1.2.3\" must match major/minor/patch of default version \"v1.37.0\""),
            ),
            (Kind::Duration, "12", Some("time: missing unit in duration \"12\"")),
        ] {
            assert_eq!(check(kind, text).err().as_deref(), want, "{kind:?} {text}");
        }
        assert_eq!(quantity("64Ki"), Ok(65536));
        assert_eq!(pairs("m1,l=a").unwrap(), [("m1,l".to_owned(), "a".to_owned())]);
    }
}
