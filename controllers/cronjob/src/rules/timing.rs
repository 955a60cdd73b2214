//! The schedule of a CronJob with its time zone.

use api::CronJobSpec;
use jiff::tz::TimeZone;

use crate::rules::{
    notice::Notice,
    schedule::{Schedule, ZoneNames},
};

/// The schedule of a CronJob, or why it has none.
pub(crate) enum Timing {
    /// The time zone is unknown.
    UnknownZone(Notice),
    /// The time zone is known.
    Read {
        /// The schedule, or the notice about its parse error.
        schedule: Result<Schedule, Notice>,
        /// The time zone for times in annotations.
        annotation_zone: TimeZone,
        /// The schedule contains `TZ`, which is not supported.
        unsupported: Option<Notice>,
    },
}

impl Timing {
    /// Parses the schedule of a CronJob.
    pub(crate) fn of(spec: &CronJobSpec, zones: &impl ZoneNames) -> Self {
        timing(&spec.schedule, spec.time_zone.as_deref(), zones)
    }
}

/// Parses a schedule with the name of its time zone.
pub(crate) fn timing(text: &str, zone: Option<&str>, zones: &impl ZoneNames) -> Timing {
    let annotation_zone = match zone {
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
    Timing::Read { schedule, annotation_zone, unsupported }
}
