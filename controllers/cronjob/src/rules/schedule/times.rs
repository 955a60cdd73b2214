//! The times of a schedule, in seconds since the epoch.

use jiff::{
    Timestamp,
    civil::Date,
    tz::{Offset, TimeZone},
};

use super::{Fields, Kind, Schedule};

/// A schedule without a time in this many years after the present one has no time.
const YEARS: i16 = 5;
const DAY: i64 = 86_400;

impl Schedule {
    /// The first time after `after`; `None` if there is none for years. A period counts from `after`.
    pub(crate) fn next(&self, after: i64) -> Option<i64> {
        match &self.0 {
            Kind::Every(period) => after.checked_add(*period),
            Kind::At(at) => next_at(&at.0, &at.1, after),
        }
    }

    /// The last time that is after `after` and not after `now`.
    pub(crate) fn last(&self, after: i64, now: i64) -> Option<i64> {
        let first = self.next(after).filter(|it| *it <= now)?;
        if let Kind::Every(period) = &self.0 {
            return Some(first + (now - first) / period * period);
        }
        // Invariant: `known` is a time, and there is no time after `empty` and not after `now`.
        let (mut known, mut empty) = (first, now);
        while known < empty {
            let middle = known + (empty - known) / 2;
            match self.next(middle).filter(|it| *it <= now) {
                Some(later) => known = later,
                None => empty = middle,
            }
        }
        Some(known)
    }

    /// The number of times after `after` and not after `now`, at most `most`. A period counts from `from`.
    pub(crate) fn count(&self, from: i64, after: i64, now: i64, most: usize) -> usize {
        if let Kind::Every(period) = &self.0 {
            let until = |at: i64| (at.max(from) - from) / period;
            return usize::try_from(until(now) - until(after)).unwrap_or(0).min(most);
        }
        let times = std::iter::successors(self.next(after.max(from)), |it| self.next(*it));
        times.take_while(|it| *it <= now).take(most).count()
    }

    /// The first time after `now`. A period counts from `from`.
    pub(crate) fn next_from(&self, from: i64, now: i64) -> Option<i64> {
        self.next(match &self.0 {
            Kind::Every(_) => self.last(from, now).unwrap_or(from),
            Kind::At(_) => now,
        })
    }
}

/// Between two clock changes wall time is UTC plus a constant offset, so the first matching wall time before the next
/// change is the result. A skipped wall time is in no such interval, and a repeated one is in two.
fn next_at(fields: &Fields, zone: &TimeZone, after: i64) -> Option<i64> {
    let mut from = after.checked_add(1)?;
    let limit = year(wall(zone, from)?.0)?.checked_add(YEARS)?;
    loop {
        let (local, offset) = wall(zone, from)?;
        let ends = zone.following(Timestamp::from_second(from).ok()?).find(|it| it.offset() != offset);
        let ends = ends.map(|it| it.timestamp().as_second());
        let offset = i64::from(offset.seconds());
        let found = next_wall(fields, local, ends.map(|it| it + offset), limit);
        match (found, ends) {
            (Some(local), _) => return Some(local - offset),
            (None, Some(ends)) if year(wall(zone, ends)?.0)? <= limit => from = ends,
            (None, _) => return None,
        }
    }
}

/// The wall time of an instant, as seconds as if it were UTC, and its offset.
fn wall(zone: &TimeZone, at: i64) -> Option<(i64, Offset)> {
    let offset = zone.to_offset(Timestamp::from_second(at).ok()?);
    Some((at + i64::from(offset.seconds()), offset))
}

fn year(local: i64) -> Option<i16> {
    date(local.div_euclid(DAY)).map(|it| it.year())
}

fn date(day: i64) -> Option<Date> {
    let midnight = Timestamp::from_second(day.checked_mul(DAY)?).ok()?;
    Some(Offset::UTC.to_datetime(midnight).date())
}

/// The first matching wall time that is at least `from` and before `ends`, up to the end of the year `limit`.
fn next_wall(fields: &Fields, from: i64, ends: Option<i64>, limit: i16) -> Option<i64> {
    let before_end = |it: &i64| ends.is_none_or(|ends| *it < ends);
    let first_day = from.div_euclid(DAY);
    let mut date = date(first_day)?;
    let mut midnight = first_day * DAY;
    while date.year() <= limit && before_end(&midnight) {
        if !fields.months.has(number(date.month())) {
            // Continue with the first day of the next month.
            let left = i64::from(date.days_in_month() - date.day()) + 1;
            (date, midnight) = (date.last_of_month().tomorrow().ok()?, midnight + left * DAY);
            continue;
        }
        let weekday = number(date.weekday().to_sunday_zero_offset());
        if fields.has_day(number(date.day()), weekday)
            && let Some(time) = time_of_day(fields, from - midnight)
        {
            return Some(midnight + time).filter(before_end);
        }
        (date, midnight) = (date.tomorrow().ok()?, midnight + DAY);
    }
    None
}

/// The first matching time of a day, in seconds, that is at least `from`.
fn time_of_day(fields: &Fields, from: i64) -> Option<i64> {
    let minute_of_day = u32::try_from((from.max(0) + 59) / 60).ok()?;
    let (hour, minute) = (minute_of_day / 60, minute_of_day % 60);
    let this_hour = fields.hours.has(hour).then(|| fields.minutes.from(minute)).flatten().map(|minute| (hour, minute));
    let (hour, minute) = match this_hour {
        Some(found) => found,
        None => (fields.hours.from(hour + 1)?, fields.minutes.from(0)?),
    };
    Some(i64::from(hour * 60 + minute) * 60)
}

/// Months, days and weekdays are never negative.
fn number(small: i8) -> u32 {
    small.unsigned_abs().into()
}
