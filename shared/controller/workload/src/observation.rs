//! Whether this process can observe the nodes. [`Observation`] is a state machine without I/O, which gets the time as an
//! argument; [`observe`] calls it.

use std::{sync::Arc, time::Duration};

use clock::BootInstant;
use informer::Watched;
use tokio_util::sync::CancellationToken;

/// The interval of the checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A watch or list request without a response for this long is an interruption.
const UNANSWERED: Duration = Duration::from_secs(2);
/// If a check is late by more than this, the process did not run: the machine slept, or the process was stopped.
const LATE: Duration = Duration::from_secs(5);
/// After an interruption this long, all grace periods begin again. A kubelet renews its Lease at this interval.
const LONG: Duration = Duration::from_secs(10);

/// The interruptions of the node watches: those of nodes, and of Leases if the caller needs them.
#[derive(Debug, Default)]
pub struct Observation {
    last_check: Option<BootInstant>,
    interrupted_since: Option<BootInstant>,
}

/// For how long reports of nodes may have been missed, or nodes could not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// This long. The time does not count in grace periods or as tolerated.
    Time(Duration),
    /// So long that all these times begin again.
    All,
}

impl Observation {
    /// Records the result of a check: for how long a watch is interrupted already, if one is. When the watches work again,
    /// returns what may have been missed. When the check is late, returns [`Missed::All`] at once.
    pub fn check(&mut self, now: BootInstant, interrupted_for: Option<Duration>) -> Option<Missed> {
        let since_last = self.last_check.replace(now).map(|it| now.saturating_since(it));
        let since = self.interrupted_since;
        self.interrupted_since = interrupted_for.map(|it| since.unwrap_or(now).min(now - it));
        if since_last.is_some_and(|it| it > INTERVAL + LATE) {
            return Some(Missed::All);
        }
        let missed = now.saturating_since(since.filter(|_| interrupted_for.is_none())?);
        Some(if missed < LONG { Missed::Time(missed) } else { Missed::All })
    }

    /// Whether a watch is interrupted, or this check is overdue. Then nothing is decided from the silence of nodes or
    /// from times that passed.
    #[must_use]
    pub fn is_interrupted(&self, now: BootInstant) -> bool {
        let is_late = self.last_check.is_none_or(|it| now.saturating_since(it) > INTERVAL + LATE);
        self.interrupted_since.is_some() || is_late
    }
}

/// When these watches have their first lists, calls `begin`. From then on calls `check` once a second, with the resources
/// whose watch fails or has a request without a response, and the longest time for which one has.
pub async fn observe(
    watches: &[Arc<dyn Watched>],
    end: CancellationToken,
    begin: impl FnOnce(),
    mut check: impl FnMut(&[String], Option<Duration>),
) {
    let synced = futures::future::join_all(watches.iter().map(|it| it.wait_for_sync()));
    tokio::select! {
        biased;
        () = end.cancelled() => return,
        _ = synced => {}
    }
    begin();
    loop {
        let interrupted = watches.iter().filter_map(|it| {
            let unanswered = it.unanswered_for().filter(|it| *it >= UNANSWERED);
            Some((it.resource().to_string(), it.failing_for().max(unanswered)?))
        });
        let (resources, times): (Vec<String>, Vec<Duration>) = interrupted.unzip();
        check(&resources, times.into_iter().max());
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    fn start() -> BootInstant {
        BootInstant::from_millis(1_000_000_000)
    }

    /// An observation that was checked at the start.
    fn checked() -> Observation {
        let mut observation = Observation::default();
        assert_eq!(observation.check(start(), None), None);
        observation
    }

    #[test]
    fn nothing_is_observed_before_the_first_check() {
        assert!(Observation::default().is_interrupted(start()));
        assert!(!checked().is_interrupted(start()));
    }

    #[test]
    fn regular_checks_miss_nothing() {
        let mut observation = checked();
        let mut now = start();
        for _ in 0..100 {
            now = now + SEC;
            assert_eq!(observation.check(now, None), None);
            assert!(!observation.is_interrupted(now + 900 * MS));
        }
    }

    #[test]
    fn long_interruption_misses_all_once_it_is_over() {
        let mut observation = checked();
        for second in 1..=60 {
            let now = start() + SEC * second;
            assert_eq!(observation.check(now, Some(Duration::ZERO)), None, "it goes on");
            assert!(observation.is_interrupted(now));
        }
        let end = start() + 61 * SEC;
        assert_eq!(observation.check(end, None), Some(Missed::All));
        assert!(!observation.is_interrupted(end));
        assert_eq!(observation.check(end + SEC, None), None, "only once");
    }

    #[test]
    fn short_interruption_misses_its_own_time() {
        for seconds in 1..=12 {
            let mut observation = checked();
            for second in 1..=seconds {
                assert_eq!(observation.check(start() + SEC * second, Some(Duration::ZERO)), None);
            }
            let end = start() + SEC * (seconds + 1);
            let missed = observation.check(end, None);
            let want = if seconds < 10 { Missed::Time(SEC * seconds) } else { Missed::All };
            assert_eq!(missed, Some(want), "{seconds} s: a kubelet renews its Lease every 10 s");
            assert!(!observation.is_interrupted(end));
        }
    }

    #[test]
    fn late_check_means_that_the_process_did_not_run() {
        let mut observation = checked();
        let late = start() + INTERVAL + LATE;
        assert!(!observation.is_interrupted(late) && observation.is_interrupted(late + MS));
        assert_eq!(checked().check(late, None), None);
        assert_eq!(observation.check(late + MS, None), Some(Missed::All));
        assert!(!observation.is_interrupted(late + MS));
        let mut interrupted = checked();
        let missed = interrupted.check(late + MS, Some(Duration::ZERO));
        assert_eq!(missed, Some(Missed::All), "the sleep counts, although a watch is interrupted now");
        assert!(interrupted.is_interrupted(late + MS));
        assert_eq!(interrupted.check(late + SEC, Some(Duration::ZERO)), None);
        assert!(interrupted.check(late + 3 * SEC, None).is_some(), "and the interruption counts at its end");
    }

    #[test]
    fn interruption_begins_when_its_watch_failed_first() {
        let mut observation = checked();
        let noticed = start() + 45 * SEC;
        for second in 1..45 {
            observation.check(start() + SEC * second, None);
        }
        assert_eq!(observation.check(noticed, Some(9 * SEC)), None);
        assert_eq!(observation.check(noticed + SEC, Some(3 * SEC)), None, "a later failure does not move its begin");
        assert_eq!(observation.check(noticed + 2 * SEC, None), Some(Missed::All), "11 s");
    }
}
