//! Quantities such as `100m` or `1Gi`, as Go parses them (`resource.ParseQuantity`).

/// A text as sign, digits and suffix.
struct Parts<'a> {
    is_negative: bool,
    /// The digits before the point, without leading zeros.
    whole: &'a str,
    /// The digits after the point.
    fraction: &'a str,
    /// The power of two of the suffix.
    binary: u32,
    /// The power of ten of the suffix.
    decimal: i32,
    format: &'static str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole = whole.trim_start_matches('0');
        let (binary, decimal, format) = match suffix {
            "Ki" => (10, 0, "BinarySI"),
            "Mi" => (20, 0, "BinarySI"),
            "Gi" => (30, 0, "BinarySI"),
            "Ti" => (40, 0, "BinarySI"),
            "Pi" => (50, 0, "BinarySI"),
            "Ei" => (60, 0, "BinarySI"),
            "n" => (0, -9, "DecimalSI"),
            "u" => (0, -6, "DecimalSI"),
            "m" => (0, -3, "DecimalSI"),
            "" => (0, 0, "DecimalSI"),
            "k" => (0, 3, "DecimalSI"),
            "M" => (0, 6, "DecimalSI"),
            "G" => (0, 9, "DecimalSI"),
            "T" => (0, 12, "DecimalSI"),
            "P" => (0, 15, "DecimalSI"),
            "E" => (0, 18, "DecimalSI"),
            other => (0, other.strip_prefix(['e', 'E'])?.parse().ok()?, "DecimalExponent"),
        };
        Some(Self { is_negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, binary, decimal, format })
    }

    fn digits(&self) -> String {
        format!("{}{}", self.whole, self.fraction)
    }

    /// The power of ten of the digits.
    fn scale(&self) -> i32 {
        self.decimal.saturating_sub(i32::try_from(self.fraction.len()).unwrap_or(i32::MAX))
    }

    /// The digits as a number, with the power of two and the sign; `None` if it is too large.
    fn number(&self) -> Option<i128> {
        let number: i128 = self.digits().parse().ok()?;
        let number = number.checked_mul(1 << self.binary)?;
        Some(if self.is_negative { -number } else { number })
    }

    /// Whether Go keeps it as a number of 64 bits and not of any size.
    fn is_small(&self) -> bool {
        let digits = self.whole.len() + self.fraction.len();
        if self.binary > 0 {
            let factor = usize::try_from(self.binary * 3 / 10).unwrap_or_default();
            self.fraction.is_empty() && digits + factor < 15
        } else {
            digits <= 18 && self.scale() >= -9
        }
    }

    /// Whether Go keeps the text, because it takes it for the canonical one.
    fn is_kept(&self) -> bool {
        let digits = self.digits();
        if self.binary > 0 {
            digits.parse::<i64>().is_ok_and(|it| it & 7 != 0)
        } else {
            self.scale() % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
        }
    }
}

/// Whether two quantities have the same value (`Quantity.Cmp`).
pub(crate) fn is_equal(a: &str, b: &str) -> bool {
    a == b || value(a).is_some_and(|it| value(b) == Some(it))
}

/// The value as digits without trailing zeros, and a power of ten; `None` for a text that is no quantity, or too large.
fn value(text: &str) -> Option<(i128, i32)> {
    let parts = Parts::of(text)?;
    let (mut number, mut scale) = (parts.number()?, parts.scale());
    if number == 0 {
        return Some((0, 0));
    }
    while number % 10 == 0 {
        number /= 10;
        scale = scale.checked_add(1)?;
    }
    Some((number, scale))
}

/// The fields of a quantity as Go prints them.
pub(crate) fn dump(text: &str) -> String {
    let fields = |value: i64, scale: i32, dec: &str, kept: &str, format: &str| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec){dec}}} s:(string){kept} Format:(resource.Format){format}}}"
        )
    };
    let Some(parts) = Parts::of(text).filter(|_| !text.is_empty()) else { return fields(0, 0, "<nil>", text, "") };
    if text == "0" {
        return fields(0, 0, "<nil>", text, parts.format);
    }
    let small = parts.number().and_then(|it| i64::try_from(it).ok()).filter(|_| parts.is_small());
    if let Some(number) = small {
        return fields(number, parts.scale(), "<nil>", if parts.is_kept() { text } else { "" }, parts.format);
    }
    let dec = match parts.number().and_then(|it| nanos(it, parts.scale())) {
        Some(nanos) => {
            let magnitude = nanos.unsigned_abs();
            let (high, low) = (magnitude >> 64, magnitude & u128::from(u64::MAX));
            let words = if high == 0 { low.to_string() } else { format!("{low} {high}") };
            format!("{{unscaled:(big.Int){{neg:(bool){} abs:(big.nat)[{words}]}} scale:(inf.Scale)9}}", nanos < 0)
        }
        // Not as in Go, but different for each text.
        None => text.to_owned(),
    };
    fields(0, 0, &dec, "", parts.format)
}

/// A number with this power of ten in billionths, rounded away from zero; `None` if it is too large.
fn nanos(number: i128, scale: i32) -> Option<i128> {
    let scale = scale.checked_add(9)?;
    let factor = 10_i128.checked_pow(scale.unsigned_abs())?;
    if scale >= 0 {
        return number.checked_mul(factor);
    }
    let rest = i128::from(number % factor != 0) * number.signum();
    Some(number / factor + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_value() {
        for (a, b, want) in [
            ("1", "1000m", true),
            ("0.5", "500m", true),
            ("1Gi", "1024Mi", true),
            ("1Ki", "1024", true),
            ("1e3", "1k", true),
            ("1E", "1e18", true),
            ("0", "0Gi", true),
            ("-1", "-1000m", true),
            ("+5", "05", true),
            ("1", "2", false),
            ("1G", "1Gi", false),
            ("1x", "1y", false),
            ("1x", "1x", true),
        ] {
            assert_eq!(is_equal(a, b), want, "{a} {b}");
        }
    }

    /// Recorded from Go: value, scale, what is in `Dec`, the kept text, the format.
    #[test]
    fn quantities_are_printed_as_go_does() {
        for (text, value, scale, dec, kept, format) in [
            ("100m", 100_i64, -3, "", "100m", "DecimalSI"),
            ("0", 0, 0, "", "0", "DecimalSI"),
            ("64Mi", 67_108_864, 0, "", "", "BinarySI"),
            ("1Gi", 1_073_741_824, 0, "", "1Gi", "BinarySI"),
            ("-5Gi", -5_368_709_120, 0, "", "-5Gi", "BinarySI"),
            ("99999Gi", 107_373_108_658_176, 0, "", "99999Gi", "BinarySI"),
            ("100000Gi", 0, 0, "false [14131891010409594880 5820]", "", "BinarySI"),
            ("-100Ti", 0, 0, "true [8568098291072368640 5960]", "", "BinarySI"),
            ("1Ei", 0, 0, "false [0 62500000]", "", "BinarySI"),
            ("123456789012345678", 123_456_789_012_345_678, 0, "", "123456789012345678", "DecimalSI"),
            ("1234567890123456789", 0, 0, "false [7888470988684038656 66926059]", "", "DecimalSI"),
            ("9223372036854775807", 0, 0, "false [18446744072709551616 499999999]", "", "DecimalSI"),
            ("12e6", 12, 6, "", "12e6", "DecimalExponent"),
            ("1e-3", 1, -3, "", "1e-3", "DecimalExponent"),
            ("05", 5, 0, "", "05", "DecimalSI"),
            ("1n", 1, -9, "", "1n", "DecimalSI"),
        ] {
            let dec = match dec.split_once(' ') {
                Some((negative, words)) => {
                    format!("{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat){words}}} scale:(inf.Scale)9}}")
                }
                None => "<nil>".to_owned(),
            };
            let want = format!(
                "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
                 d:(resource.infDecAmount){{Dec:(*inf.Dec){dec}}} s:(string){kept} Format:(resource.Format){format}}}"
            );
            assert_eq!(dump(text), want);
        }
    }

    #[test]
    fn a_number_of_any_size_makes_a_difference() {
        let large = |last: char| dump(&format!("{}{last}", "9".repeat(40)));
        assert_ne!(large('1'), large('2'));
    }
}
