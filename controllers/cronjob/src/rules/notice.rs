//! The events of a CronJob, with upstream's texts.

use events::EventType;
use jiff::Timestamp;

/// A state for which one event is sent when it begins, not in each sync.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// A Job of the CronJob is active that the controller did not create.
    UnexpectedJob { job: Box<str>, uid: api::Uid },
    /// The time zone is unknown.
    UnknownTimeZone { zone: Box<str>, why: String },
    /// The schedule contains `TZ`.
    UnsupportedSchedule { schedule: Box<str> },
    /// The schedule does not parse.
    UnparseableSchedule { schedule: Box<str>, why: String },
    /// The schedule has no time.
    InvalidSchedule { schedule: Box<str> },
    /// Many times were missed; this is the latest.
    TooManyMissedTimes { at: i64 },
    /// The starting deadline of this time is over.
    MissSchedule { at: i64 },
    /// This time waits for the end of an active Job.
    JobAlreadyActive { at: i64 },
    /// The name for this time is taken by a Job that the controller did not create.
    NameTaken { job: String },
    /// `lastScheduleTime` is in the future.
    LastScheduleInFuture {
        at: i64,
        /// No time before it runs.
        counts: bool,
    },
}

impl Notice {
    /// Type, reason and message of the event.
    pub(crate) fn event(&self) -> (EventType, &'static str, String) {
        use EventType::{Normal, Warning};
        match self {
            Self::UnexpectedJob { job, uid: _ } => {
                let message = format!("Saw a job that the controller did not create or forgot: {job}");
                (Warning, "UnexpectedJob", message)
            }
            Self::UnknownTimeZone { zone, why } => {
                (Warning, "UnknownTimeZone", format!("invalid timeZone: {zone:?}: {why}"))
            }
            Self::UnsupportedSchedule { schedule } => {
                let message = format!(
                    "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see \
                     https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                );
                (Warning, "UnsupportedSchedule", message)
            }
            Self::UnparseableSchedule { schedule, why } => {
                (Warning, "UnparseableSchedule", format!("unparseable schedule: {schedule:?} : {why}"))
            }
            Self::InvalidSchedule { schedule } => {
                let why = "time difference between two schedules is less than 1 second";
                (Warning, "InvalidSchedule", format!("invalid schedule: {schedule} : {why}"))
            }
            Self::TooManyMissedTimes { at: _ } => {
                let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock \
                               skew";
                (Warning, "TooManyMissedTimes", message.to_owned())
            }
            Self::MissSchedule { at } => {
                (Warning, "MissSchedule", format!("Missed scheduled time to start a job: {}", rfc1123(*at)))
            }
            Self::JobAlreadyActive { at: _ } => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                (Normal, "JobAlreadyActive", message.to_owned())
            }
            Self::NameTaken { job } => {
                let message =
                    format!("Error creating job: jobs.batch {job:?} already exists and is not of this CronJob");
                (Warning, "FailedCreate", message)
            }
            Self::LastScheduleInFuture { at, counts } => {
                let then = if *counts { "nothing runs before it" } else { "counting from now on" };
                let message = format!("Last schedule time {} is in the future: {then}", rfc1123(*at));
                (Warning, "LastScheduleInFuture", message)
            }
        }
    }
}

/// The RFC 1123 format with a numeric zone, in UTC.
fn rfc1123(at: i64) -> String {
    let at = Timestamp::from_second(at).unwrap_or_default();
    at.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn event_texts_are_those_of_upstream() {
        let text = |it: &str| Box::from(it);
        for (notice, type_, reason, message) in [
            (Notice::UnexpectedJob { job: text("j"), uid: api::Uid::default() }, "Warning", "UnexpectedJob",
             "Saw a job that the controller did not create or forgot: j"),
            (Notice::UnknownTimeZone { zone: text("Nowhere"), why: "unknown time zone Nowhere".to_owned() }, "Warning",
             "UnknownTimeZone", "invalid timeZone: \"Nowhere\": unknown time zone Nowhere"),
            (Notice::UnsupportedSchedule { schedule: text("TZ=UTC * * * * *") }, "Warning", "UnsupportedSchedule",
             "CRON_TZ or TZ used in schedule \"TZ=UTC * * * * *\" is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"),
            (Notice::UnparseableSchedule { schedule: text("x"), why: "e".to_owned() }, "Warning", "UnparseableSchedule",
             "unparseable schedule: \"x\" : e"),
            (Notice::InvalidSchedule { schedule: text("59 23 31 2 *") }, "Warning", "InvalidSchedule",
             "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"),
            (Notice::TooManyMissedTimes { at: 0 }, "Warning", "TooManyMissedTimes",
             "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"),
            (Notice::MissSchedule { at: 1_779_184_800 }, "Warning", "MissSchedule",
             "Missed scheduled time to start a job: Tue, 19 May 2026 10:00:00 +0000"),
            (Notice::JobAlreadyActive { at: 0 }, "Normal", "JobAlreadyActive",
             "Not starting job because prior execution is running and concurrency policy is Forbid"),
        ] {
            let (found, is, says) = notice.event();
            assert_eq!((format!("{found:?}").as_str(), is, says.as_str()), (type_, reason, message));
        }
    }
}
