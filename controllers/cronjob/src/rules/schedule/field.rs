//! The five fields of a cron schedule.

use super::ParseError;

/// The values that the fields of a schedule match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) minutes: Set,
    pub(super) hours: Set,
    days: Set,
    pub(super) months: Set,
    weekdays: Set,
}

/// The numbers that one field matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set {
    bits: u64,
    /// True if a part of the field begins with a star and has no step greater than one.
    star: bool,
}

struct Range {
    least: u32,
    most: u32,
    /// The names in order; the first stands for `least`.
    names: &'static [&'static str],
}

const MINUTES: Range = Range { least: 0, most: 59, names: &[] };
const HOURS: Range = Range { least: 0, most: 23, names: &[] };
const DAYS: Range = Range { least: 1, most: 31, names: &[] };
const MONTHS: Range = Range {
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Range = Range { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = *fields else {
            let (found, all) = (fields.len(), fields.join(" "));
            return Err(ParseError(format!("expected exactly 5 fields, found {found}: [{all}]")));
        };
        Ok(Self {
            minutes: MINUTES.set(minutes)?,
            hours: HOURS.set(hours)?,
            days: DAYS.set(days)?,
            months: MONTHS.set(months)?,
            weekdays: WEEKDAYS.set(weekdays)?,
        })
    }

    /// Whether this day of the month and of the week matches. If neither field has a star, a match of one of them is
    /// enough.
    pub(super) fn has_day(&self, day: u32, weekday: u32) -> bool {
        let (by_day, by_weekday) = (self.days.has(day), self.weekdays.has(weekday));
        if self.days.star || self.weekdays.star { by_day && by_weekday } else { by_day || by_weekday }
    }
}

impl Set {
    pub(super) fn has(self, number: u32) -> bool {
        self.bits & (1 << number) != 0
    }

    /// The smallest matching number that is at least `from`.
    pub(super) fn from(self, from: u32) -> Option<u32> {
        let left = self.bits.checked_shr(from).unwrap_or(0);
        (left != 0).then(|| from + left.trailing_zeros())
    }
}

impl Range {
    fn set(&self, field: &str) -> Result<Set, ParseError> {
        let mut set = Set { bits: 0, star: false };
        for piece in field.split(',').filter(|it| !it.is_empty()) {
            let Set { bits, star } = self.piece(piece)?;
            set.bits |= bits;
            set.star |= star;
        }
        Ok(set)
    }

    /// Parses `5`, `*`, `1-5`, each with or without `/step`.
    fn piece(&self, piece: &str) -> Result<Set, ParseError> {
        let mut parts = piece.split('/');
        let span: Vec<&str> = parts.next().unwrap_or_default().split('-').collect();
        let (low, mut high, mut star) = match *span {
            ["*" | "?", ..] => (self.least.into(), self.most.into(), true),
            [low] => {
                let low = self.number(low)?;
                (low, low, false)
            }
            [low, high] => (self.number(low)?, self.number(high)?, false),
            _ => {
                span.first().map_or(Ok(0), |low| self.number(low))?;
                return Err(ParseError(format!("too many hyphens: {piece}")));
            }
        };
        let mut step = 1;
        if let Some(text) = parts.next() {
            if parts.next().is_some() {
                return Err(ParseError(format!("too many slashes: {piece}")));
            }
            step = number(text)?;
            if span.len() == 1 {
                high = self.most.into();
            }
            star &= step <= 1;
        }
        self.check(low, high, step, piece)?;
        let mut bits = 0;
        let mut number = low;
        // All numbers are at most 59 here, so neither shift nor sum overflows.
        while number <= high {
            bits |= 1 << number;
            number += step.min(64);
        }
        Ok(Set { bits, star })
    }

    fn check(&self, low: u64, high: u64, step: u64, piece: &str) -> Result<(), ParseError> {
        let Self { least, most, .. } = self;
        Err(ParseError(if low < u64::from(*least) {
            format!("beginning of range ({low}) below minimum ({least}): {piece}")
        } else if high > u64::from(*most) {
            format!("end of range ({high}) above maximum ({most}): {piece}")
        } else if low > high {
            format!("beginning of range ({low}) beyond end of range ({high}): {piece}")
        } else if step == 0 {
            format!("step of range should be a positive number: {piece}")
        } else {
            return Ok(());
        }))
    }

    /// Parses a name in any letter case, or a number.
    fn number(&self, text: &str) -> Result<u64, ParseError> {
        match self.names.iter().zip(self.least..).find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, number)) => Ok(number.into()),
            None => number(text),
        }
    }
}

/// Parses a 64-bit number with an optional sign.
fn number(text: &str) -> Result<u64, ParseError> {
    let number: i64 = text.parse().map_err(|err: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = if matches!(err.kind(), PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" };
        ParseError(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"))
    })?;
    u64::try_from(number).map_err(|_| ParseError(format!("negative number ({number}) not allowed: {text}")))
}
