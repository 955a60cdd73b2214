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
/// After an interruption of this time, no silence from before counts. A kubelet renews its Lease at this interval.
const LONG: Duration = Duration::from_secs(10);

/// The watches of nodes and what belongs to them.
#[derive(Debug, Default)]
pub struct Observation {
    last_check: Option<BootInstant>,
    interrupted_since: Option<BootInstant>,
}

/// What nodes may have reported, or could not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// During this time. It does not count as silence.
    Time(Duration),
    /// During so long a time that no silence from before counts.
    All,
}

impl Observation {
    /// Records the result of a check. When the watches work again, returns what may have been missed. When the check is
    /// late, returns [`Missed::All`] at once.
    pub fn check(&mut self, now: BootInstant, is_interrupted: bool) -> Option<Missed> {
        let since_last = self.last_check.replace(now).map(|it| now.saturating_since(it));
        let since = self.interrupted_since;
        self.interrupted_since = is_interrupted.then(|| since.unwrap_or(now));
        if since_last.is_some_and(|it| it > INTERVAL + LATE) {
            return Some(Missed::All);
        }
        let missed = now.saturating_since(since.filter(|_| !is_interrupted)?);
        Some(if missed < LONG { Missed::Time(missed) } else { Missed::All })
    }

    /// Whether a watch is interrupted, or this check is overdue. Then no node is judged.
    #[must_use]
    pub fn is_interrupted(&self, now: BootInstant) -> bool {
        let is_late = self.last_check.is_none_or(|it| now.saturating_since(it) > INTERVAL + LATE);
        self.interrupted_since.is_some() || is_late
    }
}

/// When these watches have their first lists, calls `begin`. From then on calls `check` once a second, with the resources
/// whose watch fails or has a request without a response.
pub async fn observe(
    watches: &[Arc<dyn Watched>],
    end: CancellationToken,
    begin: impl FnOnce(),
    mut check: impl FnMut(&[String]),
) {
    let synced = futures::future::join_all(watches.iter().map(|it| it.wait_for_sync()));
    tokio::select! {
        biased;
        () = end.cancelled() => return,
        _ = synced => {}
    }
    begin();
    loop {
        let interrupted = watches.iter().filter(|it| {
            it.failing_for().is_some() || it.unanswered_for().is_some_and(|unanswered| unanswered >= UNANSWERED)
        });
        check(&interrupted.map(|it| it.resource().to_string()).collect::<Vec<_>>());
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
        assert_eq!(observation.check(start(), false), None);
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
            assert_eq!(observation.check(now, false), None);
            assert!(!observation.is_interrupted(now + 900 * MS));
        }
    }

    #[test]
    fn long_interruption_misses_all_once_it_is_over() {
        let mut observation = checked();
        for second in 1..=60 {
            let now = start() + SEC * second;
            assert_eq!(observation.check(now, true), None, "it goes on");
            assert!(observation.is_interrupted(now));
        }
        let end = start() + 61 * SEC;
        assert_eq!(observation.check(end, false), Some(Missed::All));
        assert!(!observation.is_interrupted(end));
        assert_eq!(observation.check(end + SEC, false), None, "only once");
    }

    #[test]
    fn short_interruption_misses_its_own_time() {
        for seconds in 1..=12 {
            let mut observation = checked();
            for second in 1..=seconds {
                assert_eq!(observation.check(start() + SEC * second, true), None);
            }
            let end = start() + SEC * (seconds + 1);
            let missed = observation.check(end, false);
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
        assert_eq!(checked().check(late, false), None);
        assert_eq!(observation.check(late + MS, false), Some(Missed::All));
        assert!(!observation.is_interrupted(late + MS));
        let mut interrupted = checked();
        let missed = interrupted.check(late + MS, true);
        assert_eq!(missed, Some(Missed::All), "the sleep counts, although a watch is interrupted now");
        assert!(interrupted.is_interrupted(late + MS));
        assert_eq!(interrupted.check(late + SEC, true), None);
        assert!(interrupted.check(late + 3 * SEC, false).is_some(), "and the interruption counts at its end");
    }
}
