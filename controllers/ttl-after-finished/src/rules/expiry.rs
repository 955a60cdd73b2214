//! The rule: whether a Job must be deleted, and how long it still has. Pure.

use std::time::Duration;

use api::Job;
use clock::Timestamp;
use jiff::SignedDuration;

/// What to do with a Job now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Nothing until it changes: it is not finished, is being deleted already, or has no TTL.
    Keep,
    /// Its TTL is over after `remaining`. `ahead` means that its finish time is in our future.
    Wait { remaining: Duration, ahead: bool },
    /// Its TTL was over this long ago.
    Due { late: Duration },
    /// It is finished, but its conditions have no finish time. Nothing can be done until it changes.
    UnknownFinishTime,
}

/// The TTL of a finished Job that is not being deleted, whatever manages or owns it (`needsCleanup`).
pub(crate) fn active_ttl(job: &Job) -> Option<i32> {
    job.spec.ttl_after_finished.filter(|_| job.is_finished() && job.meta.deletion.is_none())
}

/// What to do with this Job now.
pub(crate) fn expiry(job: &Job, now: Timestamp) -> Expiry {
    let Some(ttl) = active_ttl(job) else { return Expiry::Keep };
    job.finished_at().map_or(Expiry::UnknownFinishTime, |finished| expiry_at(finished, ttl, now))
}

/// True for a finished Job with a TTL whose finish time is unknown.
pub(crate) fn has_unknown_finish_time(job: &Job) -> bool {
    active_ttl(job).is_some() && job.finished_at().is_none()
}

/// True for a Job that was deleted after its TTL was over and still exists.
pub(crate) fn is_lingering(job: &Job) -> bool {
    let due = job.finished_at().zip(job.spec.ttl_after_finished).map(|(finished, ttl)| due_at(finished, ttl));
    job.meta.deletion.zip(due).is_some_and(|(deletion, due)| deletion >= due)
}

fn expiry_at(finished: i64, ttl: i32, now: Timestamp) -> Expiry {
    let since = |second: i64| now.as_duration().saturating_sub(SignedDuration::from_secs(second));
    let late = since(due_at(finished, ttl));
    // At exactly this time the Job is due.
    match Duration::try_from(late) {
        Ok(late) => Expiry::Due { late },
        Err(_) => Expiry::Wait { remaining: late.unsigned_abs(), ahead: since(finished).is_negative() },
    }
}

/// In seconds since the epoch.
fn due_at(finished: i64, ttl: i32) -> i64 {
    finished.saturating_add(ttl.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10:00:00 on an arbitrary day.
    const TEN: i64 = 1_800_007_200;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_ttl_counts_from_the_finish_time() {
        let wait = |remaining| Expiry::Wait { remaining: secs(remaining), ahead: false };
        let due = |late| Expiry::Due { late: secs(late) };
        for (name, finished, ttl, now, want) in [
            ("a TTL of zero", TEN, 0, TEN, due(0)),
            ("all of it is left", TEN, 10, TEN, wait(10)),
            ("a part is left", TEN, 15, TEN + 10, wait(5)),
            ("exactly over", TEN, 10, TEN + 10, due(0)),
            ("set long after the finish", TEN, 5, TEN + 300, due(295)),
            ("the longest TTL", TEN, i32::MAX, TEN, wait(2_147_483_647)),
            ("an end beyond the range of times", i64::MAX, i32::MAX, TEN, wait(i64::MAX.abs_diff(TEN))),
        ] {
            let now = Timestamp::from_second(now).unwrap();
            let expiry = expiry_at(finished, ttl, now);
            match (expiry, want) {
                // In these rows every finish time is in the future.
                (Expiry::Wait { remaining, .. }, Expiry::Wait { remaining: want, .. }) => {
                    assert_eq!(remaining, want, "{name}");
                }
                _ => assert_eq!(expiry, want, "{name}"),
            }
        }
    }

    #[test]
    fn fractions_of_a_second_count() {
        let half_past = Timestamp::new(TEN, 500_000_000).unwrap();
        let half = Duration::from_millis(500);
        assert_eq!(expiry_at(TEN, 1, half_past), Expiry::Wait { remaining: half, ahead: false });
        assert_eq!(expiry_at(TEN, 0, half_past), Expiry::Due { late: half });
    }

    #[test]
    fn acceptance_ttl_020_a_finish_in_the_future_is_awaited() {
        let expiry = expiry_at(TEN + 30, 10, Timestamp::from_second(TEN).unwrap());
        assert_eq!(expiry, Expiry::Wait { remaining: secs(40), ahead: true });
    }
}
