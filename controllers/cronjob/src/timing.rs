//! The schedule of a CronJob with its zone.

use api::CronJobSpec;
use jiff::tz::TimeZone;

use crate::{
    notice::Notice,
    schedule::{Schedule, ZoneNames},
};

/// When a CronJob is to run.
pub(crate) enum Timing {
    /// Its zone is not known.
    UnknownZone(Notice),
    /// Its text was read.
    Read {
        /// The schedule, or what is wrong with the text.
        schedule: Result<Schedule, Notice>,
        /// The zone in which times are told to people.
        told_in: TimeZone,
        /// The text names a zone, which is none of its business.
        unsupported: Option<Notice>,
    },
}

impl Timing {
    /// Reads the schedule of a CronJob.
    pub(crate) fn of(spec: &CronJobSpec, zones: &impl ZoneNames) -> Self {
        timing(&spec.schedule, spec.time_zone.as_deref(), zones)
    }
}

/// Reads the text of a schedule and the name of its zone.
pub(crate) fn timing(text: &str, zone: Option<&str>, zones: &impl ZoneNames) -> Timing {
    let told_in = match zone {
        None => TimeZone::UTC,
        Some(name) => match zones.named(name) {
            Ok(zone) => zone,
            Err(why) => return Timing::UnknownZone(Notice::UnknownTimeZone { zone: name.into(), why }),
        },
    };
    let unsupported = text.contains("TZ").then(|| Notice::UnsupportedSchedule { schedule: text.into() });
    let schedule = match zone {
        Some(name) if unsupported.is_none() => Schedule::parse(&format!("TZ={name} {text}"), zones),
        _ => Schedule::parse(text, zones),
    };
    let schedule = schedule.map_err(|why| Notice::UnparseableSchedule { schedule: text.into(), why: why.to_string() });
    Timing::Read { schedule, told_in, unsupported }
}
