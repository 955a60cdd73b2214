//! Which time is due, and when to sync again.

use crate::rules::{schedule::Schedule, snapshot::MAX_CLOCK_SKEW};

/// When more times than this were missed, a warning event is sent.
pub(crate) const MANY_MISSED: usize = 100;

/// A last time that is less than this many seconds in the future causes no event.
const SMALL_CLOCK_SKEW: i64 = 60;

/// From when times count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// Times after this one count.
    pub(crate) from: i64,
    /// The last time in the status, if it is more than [`SMALL_CLOCK_SKEW`] in the future.
    pub(crate) ahead: Option<i64>,
    /// Only times after this run: `from`, or the time of a later edit of the schedule (k/k#130838).
    pub(crate) after: i64,
    /// The latest time of the old schedule that was due and had not run when the schedule was edited. It runs if the
    /// new schedule contains it too.
    pub(crate) waiting: Option<i64>,
}

impl Base {
    /// The base from the time in the status. A manager with a faster clock may have run times in our future, by up to
    /// [`MAX_CLOCK_SKEW`]. A later time is a clock error; then times count from `since`, when it was first seen.
    pub(crate) fn of(last: Option<i64>, creation: Option<i64>, now: i64, since: impl FnOnce(i64) -> i64) -> Self {
        let (from, ahead) = match last {
            Some(last) if last > now + MAX_CLOCK_SKEW => (since(last), Some(last)),
            _ => (last.or(creation).unwrap_or(now), last.filter(|it| *it > now + SMALL_CLOCK_SKEW)),
        };
        Self { from, ahead, after: from, waiting: None }
    }

    /// The same after an edit of the schedule at `at`. `earlier` is the edit before, and `was` the schedule between
    /// them.
    pub(crate) fn with_edit(self, earlier: i64, at: i64, was: Option<&Schedule>) -> Self {
        let waiting = was.and_then(|it| it.last(self.from, at)).filter(|it| *it > earlier);
        Self { after: self.from.max(at), waiting, ..self }
    }

    /// The time in the status that must be ignored.
    pub(crate) fn wrong(&self) -> Option<i64> {
        self.ahead.filter(|it| self.from < *it)
    }
}

/// The due times of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// The latest time that has come and has not run.
    pub(crate) latest: Option<Latest>,
    /// The next time; `None` if there is none for years.
    pub(crate) next: Option<i64>,
}

/// A time that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Latest {
    /// The time, in seconds since the epoch.
    pub(crate) at: i64,
    /// `startingDeadlineSeconds` is over.
    pub(crate) too_late: bool,
    /// How many times within the deadline have not run, including this one; at most one more than [`MANY_MISSED`].
    pub(crate) missed: usize,
}

/// A schedule without any time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoTimes;

/// Finds the due time at `now`, which is in whole seconds. A run may start less than `deadline` seconds late.
///
/// All missed times are considered, however many and however irregular they are. Only the latest one runs.
pub(crate) fn due(schedule: &Schedule, base: Base, deadline: Option<i64>, now: i64) -> Result<Due, NoTimes> {
    let Base { from, ahead: _, after, waiting } = base;
    let next = schedule.next_from(from, now);
    let waiting = waiting.filter(|it| schedule.last(from, *it) == Some(*it));
    let Some(at) = schedule.last(from, now).filter(|it| *it > after).or(waiting) else {
        return if next.is_some() { Ok(Due { latest: None, next }) } else { Err(NoTimes) };
    };
    let after = after.min(at - 1);
    // `deadline` may be as large as `i64::MAX`.
    let allowed_after = deadline.map_or(after, |it| now.saturating_sub(it).max(after));
    let missed = schedule.count(from, allowed_after, at, MANY_MISSED + 1);
    let latest = Latest { at, too_late: at <= allowed_after, missed };
    Ok(Due { latest: Some(latest), next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::schedule::tests::{at, schedule};

    /// The base after a run at `last`.
    fn from(last: i64) -> Base {
        Base::of(Some(last), None, last, |it| it)
    }

    struct Row {
        schedule: &'static str,
        base: &'static str,
        now: &'static str,
        deadline: Option<i64>,
        /// The time that runs.
        runs: Option<&'static str>,
        /// The number of missed times, including this one.
        missed: usize,
        next: &'static str,
    }

    fn check(row: &Row) {
        let Row { schedule: text, base, now, deadline, runs, missed, next } = *row;
        let day = |it: &str| at(&format!("2026-{it}Z"));
        let found = due(&schedule(text).unwrap(), from(day(base)), deadline, day(now)).unwrap();
        let what = format!("{text} from {base} at {now}");
        let run = found.latest.filter(|it| !it.too_late);
        assert_eq!(run.map(|it| it.at), runs.map(day), "{what}");
        assert_eq!(found.latest.map_or(0, |it| it.missed), missed, "{what}");
        assert_eq!(found.next, Some(day(next)), "{what}");
    }

    #[test]
    #[rustfmt::skip]
    fn acceptance_cronjob_011_every_row_of_the_table_of_due_times() {
        for row in [
            Row { schedule: "0 * * * *", base: "05-19T10:00:00", now: "05-19T10:30:00", deadline: None,
                  runs: None, missed: 0, next: "05-19T11:00:00" },
            // Upstream also distinguishes only between at most and more than 100.
            Row { schedule: "0 * * * *", base: "05-19T10:00:00", now: "05-26T10:00:00", deadline: None,
                  runs: Some("05-26T10:00:00"), missed: 101, next: "05-26T11:00:00" },
            Row { schedule: "0 * * * *", base: "05-19T10:00:00", now: "05-26T10:00:00", deadline: Some(7200),
                  runs: Some("05-26T10:00:00"), missed: 2, next: "05-26T11:00:00" },
            Row { schedule: "0 * * * *", base: "05-19T10:00:00", now: "05-26T10:00:11", deadline: Some(10),
                  runs: None, missed: 0, next: "05-26T11:00:00" },
            Row { schedule: "0 * * * *", base: "05-19T10:00:00", now: "05-19T11:00:00.1", deadline: Some(0),
                  runs: None, missed: 0, next: "05-19T12:00:00" },
            Row { schedule: "0 * * * *", base: "05-19T10:00:00", now: "05-19T11:00:00.1", deadline: Some(1),
                  runs: Some("05-19T11:00:00"), missed: 1, next: "05-19T12:00:00" },
            Row { schedule: "* * * * *", base: "05-19T10:00:00", now: "05-19T11:40:30", deadline: None,
                  runs: Some("05-19T11:40:00"), missed: 100, next: "05-19T11:41:00" },
            Row { schedule: "* * * * *", base: "05-19T10:00:00", now: "05-19T11:41:30", deadline: None,
                  runs: Some("05-19T11:41:00"), missed: 101, next: "05-19T11:42:00" },
            // Upstream's estimate (`mostRecentScheduleTime`) misses these two.
            Row { schedule: "30 10,11,12 * * 1-5", base: "05-21T10:30:00", now: "05-22T16:30:00", deadline: None,
                  runs: Some("05-22T12:30:00"), missed: 5, next: "05-25T10:30:00" },
            Row { schedule: "*/10 9 * * *", base: "05-21T09:00:00", now: "05-21T18:00:00", deadline: None,
                  runs: Some("05-21T09:50:00"), missed: 5, next: "05-22T09:00:00" },
            Row { schedule: "@every 1h", base: "05-19T10:01:00", now: "05-26T10:00:00", deadline: None,
                  runs: Some("05-26T09:01:00"), missed: 101, next: "05-26T10:01:00" },
            // Upstream never runs a period whose deadline is shorter.
            Row { schedule: "@every 1h", base: "05-19T09:59:00", now: "05-19T10:59:00.1", deadline: Some(10),
                  runs: Some("05-19T10:59:00"), missed: 1, next: "05-19T11:59:00" },
        ] {
            check(&row);
        }
        let never = due(&schedule("59 23 31 2 *").unwrap(), from(at("2026-05-19T10:00:10Z")), None, at("2026-05-19T11:00:00Z"));
        assert_eq!(never, Err(NoTimes));
    }

    #[test]
    fn acceptance_cronjob_016_only_what_the_deadline_allows_counts_as_missed() {
        let week = |deadline| {
            due(&schedule("0 * * * *").unwrap(), from(at("2026-05-19T10:00:00Z")), deadline, at("2026-05-26T10:30:00Z"))
        };
        let missed = |deadline| week(deadline).unwrap().latest.unwrap().missed;
        assert_eq!([missed(Some(7200)), missed(Some(1801)), missed(Some(i64::MAX)), missed(None)], [2, 1, 101, 101]);
    }

    #[test]
    fn acceptance_cronjob_017_a_time_older_than_the_deadline_does_not_run() {
        let hourly = schedule("0 * * * *").unwrap();
        let late = |deadline| {
            let found =
                due(&hourly, from(at("2026-05-19T10:00:00Z")), Some(deadline), at("2026-05-19T11:00:30Z")).unwrap();
            (found.latest.unwrap().too_late, found.next == Some(at("2026-05-19T12:00:00Z")))
        };
        assert_eq!([late(0), late(29), late(30), late(31)], [(true, true), (true, true), (true, true), (false, true)]);
        let period = due(&schedule("@every 1h").unwrap(), from(0), Some(100), 3600 * 5 + 100).unwrap();
        assert_eq!(period.latest, Some(Latest { at: 3600 * 5, too_late: true, missed: 0 }));
        assert_eq!(period.next, Some(3600 * 6));
    }

    #[test]
    fn acceptance_cronjob_018_the_next_time_is_always_after_now() {
        for text in ["* * * * *", "*/7 3 * * 2", "@every 1s", "@every 90s", "TZ=Europe/Berlin 30 2 * * *", "@yearly"] {
            let schedule = schedule(text).unwrap();
            for base in (0..40).map(|it| at("2026-10-24T00:00:00Z") + it * 4_321) {
                for now in (0..40).map(|it| base - 7_000 + it * 1_783) {
                    let next = due(&schedule, from(base), None, now).unwrap().next.unwrap();
                    assert!(next > now, "{text} from {base} at {now}: {next}");
                }
            }
        }
    }

    #[test]
    fn the_final_time_of_a_schedule_runs() {
        let leap = schedule("0 0 29 2 *").unwrap();
        let found = due(&leap, from(at("2095-01-01T00:00:00Z")), None, at("2096-02-29T00:00:05Z")).unwrap();
        assert_eq!(found.latest.map(|it| it.at), Some(at("2096-02-29T00:00:00Z")));
        assert_eq!(found.next, None);
    }

    #[test]
    #[rustfmt::skip]
    fn a_time_before_a_schedule_edit_runs_only_if_it_was_due_already() {
        const WEEK: i64 = 7 * 86_400;
        // For the second of two edits: schedule before, schedule after, last run, first edit, second edit, deadline,
        // now, time that runs, missed times.
        let (noon, two) = ("0 12 * * *", "0 14 * * *");
        for (was, is, last, earlier, edit, deadline, now, runs, missed) in [
            (noon, two, "19T12:00:00", None, "19T15:00:00", None, "19T15:00:01", None, 0),
            // The case of k/k#130838: the time of the old schedule comes.
            (noon, two, "19T12:00:00", None, "19T15:00:00", None, "20T12:00:00", None, 0),
            (noon, two, "19T12:00:00", None, "19T15:00:00", Some(WEEK), "20T12:00:00", None, 0),
            (noon, two, "19T12:00:00", None, "19T15:00:00", None, "20T14:00:00", Some("20T14:00:00"), 1),
            (noon, two, "19T12:00:00", None, "19T15:00:00", Some(WEEK), "22T14:00:00", Some("22T14:00:00"), 3),
            (noon, two, "19T12:00:00", None, "19T14:00:00", None, "19T14:00:01", None, 0),
            (noon, two, "19T12:00:00", None, "19T13:59:59", None, "19T14:00:00", Some("19T14:00:00"), 1),
            // Noon is over, but its Job was not created yet.
            (noon, "0 12 * * 1-5", "18T12:00:00", None, "19T12:00:05", None, "19T12:00:06", Some("19T12:00:00"), 1),
            (noon, "0 12,14 * * *", "18T12:00:00", None, "19T15:00:00", None, "19T15:00:01", Some("19T12:00:00"), 1),
            (noon, "0 12 * * 1-5", "18T12:00:00", None, "19T15:00:00", Some(60), "19T15:00:01", None, 0),
            (noon, "0 11 * * *", "18T12:00:00", None, "19T12:00:05", None, "19T12:00:06", None, 0),
            ("59 23 31 2 *", noon, "18T12:00:00", None, "19T15:00:00", None, "19T15:00:01", None, 0),
            ("nonsense", noon, "18T12:00:00", None, "19T15:00:00", None, "19T15:00:01", None, 0),
            // The schedule before the first edit did not contain noon.
            (noon, "0 12,14 * * *", "18T12:00:00", Some("19T13:00:00"), "19T15:00:00", None, "19T15:00:01", None, 0),
            (noon, "0 12,14 * * *", "18T12:00:00", Some("19T11:00:00"), "19T15:00:00", None, "19T15:00:01", Some("19T12:00:00"), 1),
            // Missed times count from the edit. A period still counts from the last run.
            (noon, "* * * * *", "18T12:00:00", None, "19T11:00:00", None, "19T11:03:30", Some("19T11:03:00"), 3),
            ("@every 1h", "@every 10m", "19T10:01:00", None, "19T10:30:00", None, "19T10:40:59", Some("19T10:31:00"), 1),
            ("@every 1h", "@every 10m", "19T10:01:00", None, "19T10:32:00", None, "19T10:40:59", None, 0),
            ("@every 10m", "@every 5m", "19T10:01:00", None, "19T10:17:00", None, "19T10:17:01", Some("19T10:11:00"), 1),
        ] {
            let day = |it: &str| at(&format!("2026-05-{it}Z"));
            let base = from(day(last)).with_edit(earlier.map_or(i64::MIN, day), day(edit), schedule(was).ok().as_ref());
            let found = due(&schedule(is).unwrap(), base, deadline, day(now)).unwrap();
            let what = format!("{was} edited at {edit} to {is}, at {now}");
            let run = found.latest.filter(|it| !it.too_late);
            assert_eq!((run.map(|it| it.at), found.latest.map_or(0, |it| it.missed)), (runs.map(day), missed), "{what}");
            assert_eq!(found.next, schedule(is).unwrap().next_from(day(last), day(now)), "{what}");
        }
    }
}
