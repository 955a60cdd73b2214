//! The text of a schedule, and the times that it means.
//!
//! The grammar is that of the API server, which stores what this parser must accept: general-purpose cron readers differ
//! in weekdays, steps and what they refuse. Times follow the wall clock of a zone: a time that a change of the clock leaves
//! out is left out, one that it repeats comes twice, and everything that exists on the clock is found.

mod field;
mod times;

use std::fmt;

use api::duration;
use jiff::tz::TimeZone;

use self::field::Fields;

/// A schedule that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// At fixed distances, in whole seconds and at least one.
    Every(i64),
    /// At the wall times of a zone that match.
    At(Box<(Fields, TimeZone)>),
}

/// A text that is no schedule, in the words that the API server has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoSchedule(String);

impl fmt::Display for NoSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the names of zones are known.
pub(crate) trait ZoneNames {
    /// The zone of this name, or why there is none.
    fn zone(&self, name: &str) -> Result<TimeZone, String>;
    /// The zone of the process.
    fn process(&self) -> TimeZone;

    /// The zone of a name as users write it, where some words are no names.
    fn named(&self, name: &str) -> Result<TimeZone, String> {
        match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            "Local" => Ok(self.process()),
            name => self.zone(name),
        }
    }
}

impl Schedule {
    /// Reads a text, with its zone in front of it where it has one.
    pub(crate) fn parse(text: &str, zones: &impl ZoneNames) -> Result<Self, NoSchedule> {
        if text.is_empty() {
            return Err(NoSchedule("empty spec string".to_owned()));
        }
        let (zone, text) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(rest) => {
                let Some((name, fields)) = rest.split_once(' ') else {
                    return Err(NoSchedule(format!("invalid schedule format: no fields after the zone in {text:?}")));
                };
                let zone = zones.named(name);
                let zone = zone.map_err(|err| NoSchedule(format!("provided bad location {name}: {err}")))?;
                (zone, fields.trim())
            }
            None => (zones.process(), text),
        };
        let fields = match text.strip_prefix('@') {
            None => Fields::parse(text)?,
            Some(_) => match text.strip_prefix("@every ") {
                Some(period) => return every(text, period),
                None => Fields::parse(meaning(text)?)?,
            },
        };
        Ok(Self(Kind::At(Box::new((fields, zone)))))
    }
}

/// The fields that a word stands for.
fn meaning(word: &str) -> Result<&'static str, NoSchedule> {
    Ok(match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => return Err(NoSchedule(format!("unrecognized descriptor: {other}"))),
    })
}

fn every(text: &str, period: &str) -> Result<Schedule, NoSchedule> {
    let nanos = duration::parse(period).map_err(|err| NoSchedule(format!("failed to parse duration {text}: {err}")))?;
    Ok(Schedule(Kind::Every((nanos / 1_000_000_000).max(1))))
}

#[cfg(test)]
pub(crate) mod tests;
