//! Parses a schedule and computes its times.
//!
//! The grammar is that of the API server (robfig/cron), because the server stores every schedule that it accepts. Other
//! cron parsers differ in weekdays, steps and errors. Times follow the wall clock of a time zone: a time that a clock
//! change skips does not occur, a repeated time occurs twice, and no other time is missed.

mod field;
mod times;

use std::fmt;

use api::duration;
use jiff::tz::TimeZone;

use self::field::Fields;

/// A parsed schedule.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// At a fixed period in whole seconds, at least one.
    Every(i64),
    /// At the matching wall times of a time zone.
    At(Box<(Fields, TimeZone)>),
}

/// The parse error, with the text of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lookup of time zones.
pub(crate) trait ZoneNames {
    /// The time zone with this name, or the error.
    fn zone(&self, name: &str) -> Result<TimeZone, String>;
    /// The time zone of the process.
    fn process(&self) -> TimeZone;

    /// The time zone for a name in a CronJob, where some words have a special meaning.
    fn named(&self, name: &str) -> Result<TimeZone, String> {
        match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            "Local" => Ok(self.process()),
            name => self.zone(name),
        }
    }
}

impl Schedule {
    /// Parses a schedule, which may begin with its time zone.
    pub(crate) fn parse(text: &str, zones: &impl ZoneNames) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError("empty spec string".to_owned()));
        }
        let (zone, text) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(rest) => {
                let Some((name, fields)) = rest.split_once(' ') else {
                    return Err(ParseError(format!("invalid schedule format: no fields after the zone in {text:?}")));
                };
                let zone = zones.named(name);
                let zone = zone.map_err(|err| ParseError(format!("provided bad location {name}: {err}")))?;
                (zone, fields.trim())
            }
            None => (zones.process(), text),
        };
        let fields = match text.strip_prefix('@') {
            None => Fields::parse(text)?,
            Some(_) => match text.strip_prefix("@every ") {
                Some(period) => return parse_every(text, period),
                None => Fields::parse(expand_descriptor(text)?)?,
            },
        };
        Ok(Self(Kind::At(Box::new((fields, zone)))))
    }
}

/// The fields that a descriptor stands for.
fn expand_descriptor(word: &str) -> Result<&'static str, ParseError> {
    Ok(match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => return Err(ParseError(format!("unrecognized descriptor: {other}"))),
    })
}

fn parse_every(text: &str, period: &str) -> Result<Schedule, ParseError> {
    let nanos = duration::parse(period).map_err(|err| ParseError(format!("failed to parse duration {text}: {err}")))?;
    Ok(Schedule(Kind::Every((nanos / 1_000_000_000).max(1))))
}

#[cfg(test)]
pub(crate) mod tests;
