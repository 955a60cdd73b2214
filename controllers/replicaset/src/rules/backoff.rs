//! How long failed pods wait for their replacement, so that a node that rejects pods does not get a hundred of them each
//! minute (k/k#72593). Upstream replaces each at once.
//!
//! The delay follows from the failed pods in the cache alone, so it survives a restart. Failures in quick succession are
//! one round. The first round is replaced at once. The delay begins anew when a pod that was created after the last
//! failure becomes ready, or when none has failed for long.

use std::{sync::Arc, time::Duration};

use api::{ContainerState, Pod, PodPhase};
use clock::Timestamp;
use workload::{is_ready, is_terminal};

/// The delay of the second round, in seconds.
const FIRST: i64 = 1;

/// The longest delay, in seconds. It is that of containers that crash (`CrashLoopBackOff`).
const MAX: i64 = 300;

/// A pod that ends within this time after it was scheduled has failed at once, in seconds.
const AT_ONCE: i64 = 60;

/// The pods of a set that failed at once, without a success since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Streak {
    /// The number of rounds that failed. Pods that failed together count as one round.
    pub(crate) rounds: usize,
    /// How many of them wait for their replacement.
    pub(crate) waiting: usize,
    /// How long they wait; `None` if none waits.
    pub(crate) remaining: Option<Duration>,
}

/// The streak of these pods of a set, which include those that have ended. No more than `wanted` can fail together.
pub(crate) fn streak(own: &[Arc<Pod>], wanted: usize, now: Timestamp) -> Streak {
    let mut failures: Vec<i64> = own.iter().filter_map(|it| failed_at_once(it, now)).collect();
    if failures.is_empty() || wanted == 0 {
        return Streak::default();
    }
    failures.sort_unstable();
    let last_success = own.iter().filter(|it| has_succeeded(it, now)).filter_map(|it| it.creation).max();
    let is_after_success = |it: &i64| last_success.is_none_or(|success| *it > success);
    let mut rounds: Vec<Round> = Vec::new();
    for at in failures.into_iter().filter(is_after_success) {
        match rounds.last_mut() {
            Some(round) if at < round.end() && round.failed < wanted => round.failed += 1,
            Some(round) if at > round.expires() => rounds = vec![Round::new(at, 0)],
            last => {
                let delay = last.map_or(0, |it| it.next_delay());
                rounds.push(Round::new(at, delay));
            }
        }
    }
    let is_present = |it: &&Round| millis(it.expires()) > now.as_millisecond();
    let Some(last) = rounds.last().filter(is_present) else { return Streak::default() };
    let left = millis(last.at.saturating_add(last.delay)).saturating_sub(now.as_millisecond());
    let remaining = u64::try_from(left).ok().filter(|it| *it > 0).map(Duration::from_millis);
    Streak { rounds: rounds.len(), waiting: if remaining.is_some() { last.failed } else { 0 }, remaining }
}

/// Pods that failed in quick succession. Times are in seconds.
struct Round {
    at: i64,
    /// How long these pods wait.
    delay: i64,
    failed: usize,
}

impl Round {
    fn new(at: i64, delay: i64) -> Self {
        Self { at, delay, failed: 1 }
    }

    /// A failure from then on is one of the replacements. Times in the API are whole seconds.
    fn end(&self) -> i64 {
        self.at.saturating_add(self.delay.max(FIRST))
    }

    /// A failure after this time begins anew.
    fn expires(&self) -> i64 {
        self.end().saturating_add(2 * MAX)
    }

    fn next_delay(&self) -> i64 {
        self.delay.saturating_mul(2).clamp(FIRST, MAX)
    }
}

fn millis(seconds: i64) -> i64 {
    seconds.saturating_mul(1_000)
}

/// When the pod failed, in seconds since the epoch, if that was soon after it was scheduled. A kubelet that rejects a pod
/// sets `status.startTime` at that moment, and no container has a state. Times in the future are ignored: the clock of the
/// node is ahead, and would delay replacements until we reach its time.
fn failed_at_once(pod: &Pod, now: Timestamp) -> Option<i64> {
    let transitions = pod.conditions.iter().filter_map(|it| it.last_transition);
    let ends = pod.containers.iter().filter_map(|it| match it.state {
        ContainerState::Terminated { finished, .. } => finished,
        ContainerState::Waiting { .. } | ContainerState::Running { .. } => None,
    });
    let scheduled = pod.condition("PodScheduled").and_then(|it| it.last_transition).or(pod.creation)?;
    let times = transitions.chain(ends).chain(pod.start).chain(pod.creation);
    let failed = times.filter(|it| *it <= now.as_second()).max().unwrap_or(now.as_second());
    (pod.phase == PodPhase::Failed && failed.saturating_sub(scheduled) <= AT_ONCE).then_some(failed)
}

/// Whether the pod is ready, also while it is being deleted, or ran for some time.
fn has_succeeded(pod: &Pod, now: Timestamp) -> bool {
    if is_terminal(pod) { failed_at_once(pod, now).is_none() } else { is_ready(pod) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{now, pods};

    /// The rounds, the waiting pods and the remaining seconds, for a set of this many pods. Ages are in seconds.
    fn check(wanted: usize, own: &[&str]) -> (usize, usize, Option<u64>) {
        let Streak { rounds, waiting, remaining } = streak(&pods(own), wanted, now());
        (rounds, waiting, remaining.map(|it| it.as_secs()))
    }

    #[test]
    fn the_first_failure_is_replaced_at_once() {
        assert_eq!(check(1, &["running"]), (0, 0, None));
        assert_eq!(check(1, &["failed:0"]), (1, 0, None));
        assert_eq!(check(3, &["failed:0", "failed:0", "failed:0"]), (1, 0, None), "together");
        assert_eq!(check(1, &["failed:0", "failed:0", "failed:0"]), (3, 1, Some(2)), "one after the other");
    }

    #[test]
    fn the_delay_doubles_with_each_round_up_to_five_minutes() {
        let mut times = vec![0_i64];
        let mut delays = Vec::new();
        for _ in 0..12 {
            let newest = *times.last().unwrap();
            let own: Vec<String> = times.iter().map(|it| format!("failed:{}", newest - it)).collect();
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            let (rounds, waiting, remaining) = check(5, &own);
            assert_eq!((rounds, waiting), (times.len(), usize::from(remaining.is_some())));
            let delay = remaining.unwrap_or_default();
            delays.push(delay);
            // The replacement fails a second later.
            times.push(newest + i64::try_from(delay).unwrap() + 1);
        }
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn pods_that_fail_together_wait_together() {
        assert_eq!(check(3, &["failed:10", "failed:1", "failed:1"]), (2, 0, None), "their delay is over");
        assert_eq!(check(3, &["failed:10", "failed:0", "failed:0"]), (2, 2, Some(1)));
        assert_eq!(check(3, &["failed:10", "failed:5", "failed:1", "failed:0"]), (3, 2, Some(1)));
    }

    #[test]
    fn a_success_and_a_long_pause_start_anew() {
        let streak_with = |other: &str| check(3, &["failed:10", "failed:5", "failed:0", other]);
        assert_eq!(streak_with("pending"), (3, 1, Some(2)));
        assert_eq!(streak_with("ready age:7"), (2, 1, Some(1)), "only the failures after its creation count");
        assert_eq!(streak_with("ready age:20"), (3, 1, Some(2)), "an older pod");
        assert_eq!(streak_with("running age:1"), (3, 1, Some(2)), "not ready");
        assert_eq!(streak_with("ready age:7 deleting"), (2, 1, Some(1)), "it was ready");
        assert_eq!(check(0, &["failed:0", "failed:0"]), (0, 0, None), "no pod is wanted");
        assert_eq!(check(3, &["failed:700", "failed:0"]), (1, 0, None));
        assert_eq!(check(3, &["failed:700"]), (0, 0, None));
    }

    #[test]
    fn a_node_whose_clock_is_ahead_does_not_delay_replacements() {
        // These pods were created 9, 5 and 0 seconds ago.
        let own = ["failed:-3600 age:9", "failed:-3600 age:5", "failed:-3600 age:0"];
        assert_eq!(check(1, &own), (3, 1, Some(2)));
        let just_created = ["failed:9", "failed:5", "failed:-1 age:-1"];
        assert_eq!(check(1, &just_created), (3, 1, Some(2)), "our clock is behind that of the server");
    }

    #[test]
    fn a_pod_that_ran_for_some_time_has_not_failed_at_once() {
        assert_eq!(check(3, &["failed:90", "failed:80", "failed:0 age:120"]), (2, 0, None), "it is older than these");
        assert_eq!(check(3, &["failed:70", "failed:60", "failed:0 age:61"]), (1, 0, None), "it is a success");
        assert_eq!(check(3, &["failed:3", "failed:0 age:60"]), (2, 1, Some(1)));
        assert_eq!(check(3, &["failed:3", "succeeded:0"]), (0, 0, None));
    }
}
