use std::{collections::BTreeMap, time::Duration};

use clock::Instant;
use serde_json::Value;

use super::built_in::BuiltInPod;

/// A pod that is gone counts for this time: the kubelet may be replacing it. Longer than an expired Lease counts as held.
/// Otherwise there would be seconds with a held Lease and no pod, as with a manager whose pod cannot be seen.
const POD_GONE_AFTER: Duration = Duration::from_secs(30);
/// A Lease counts as held for this time after it has expired: its manager may be restarting.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// The default of `--leader-elect-lease-duration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A manager is remembered for this time after it was last observed. Longer than [`preflight`](crate::preflight) reports
/// its writes.
const REMEMBERED: Duration = Duration::from_secs(20 * 60);
/// A read that is refused for this time after it was allowed is refused for good. An API server that has just started
/// refuses everything for a few seconds.
const REFUSED_AFTER: Duration = Duration::from_secs(30);
/// A longer duration in a Lease is reduced to this.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(600);
/// Our own field manager.
const OUR_FIELD_MANAGER: &str = "mini-kcm";

/// The result of one poll.
#[derive(Debug, Default)]
pub(super) struct PollResult {
    /// `None` when reading them is refused.
    pub(super) pods: Option<Vec<BuiltInPod>>,
    /// The Lease of the built-in manager.
    pub(super) built_in_lease: LeaseRead,
    /// True when another program than mini-kcm and kubectl has written our own Lease.
    pub(super) our_lease_is_foreign: bool,
}

/// The result of reading the Lease of the built-in manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum LeaseRead {
    /// There is none, or it is our own.
    #[default]
    Absent,
    /// Reading it is refused.
    Refused,
    Present(LeaseRecord),
}

/// The parts of a Lease that change while it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    holder: String,
    renewed: String,
    duration: Duration,
}

impl LeaseRecord {
    pub(super) fn of(lease: &Value) -> Self {
        let text = |field: &str| lease["spec"][field].as_str().unwrap_or_default().to_owned();
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64().map(Duration::from_secs);
        Self {
            holder: text("holderIdentity"),
            renewed: text("renewTime"),
            duration: seconds.unwrap_or(LEASE_DURATION).min(MAX_LEASE_DURATION),
        }
    }
}

/// True when a manager other than mini-kcm holds or held this Lease. A user may have changed it with kubectl.
pub(super) fn is_written_by_other_manager(lease: &Value) -> bool {
    let entries = lease["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().any(|it| {
        let manager = it["manager"].as_str().unwrap_or_default();
        let has_written_spec = it["fieldsV1"].get("f:spec").is_some() || it.get("fieldsV1").is_none();
        has_written_spec && manager != OUR_FIELD_MANAGER && !manager.starts_with("kubectl")
    })
}

/// What all polls together show. A manager that restarts is gone for a moment and comes back with the same flags or
/// with others, so it counts as present for a while. Times in objects are not compared with our clock.
#[derive(Debug, Default)]
pub(super) struct ObservedManagers {
    /// Each pod, and since when it is missing; `None` while it exists.
    pods: BTreeMap<String, (BuiltInPod, Option<Instant>)>,
    /// The last record of the Lease of the built-in manager.
    lease: Option<ObservedLease>,
    /// When a manager was last observed.
    manager_seen: Option<Instant>,
    pod_refusals: RefusalHistory,
    lease_refusals: RefusalHistory,
    /// When the last poll began that could read the Lease.
    last_begun: Option<Instant>,
    /// What the last poll showed.
    last: Option<Managers>,
}

/// The refusals of a read, which may last only for a moment: an API server that has just started refuses everything.
#[derive(Debug, Default)]
struct RefusalHistory {
    /// A read was allowed in an earlier poll.
    was_allowed: bool,
    /// Since when it is refused after it was allowed.
    refused_since: Option<Instant>,
}

impl RefusalHistory {
    /// Adds the result of a read. True if the refusal may be temporary. The result is then not used.
    fn observe(&mut self, is_refused: bool, now: Instant) -> bool {
        self.was_allowed |= !is_refused;
        if !is_refused {
            self.refused_since = None;
        }
        let since = if is_refused && self.was_allowed { Some(*self.refused_since.get_or_insert(now)) } else { None };
        since.is_some_and(|it| now.saturating_duration_since(it) < REFUSED_AFTER)
    }
}

#[derive(Debug)]
struct ObservedLease {
    record: LeaseRecord,
    /// When this record was first observed.
    since: Instant,
    /// When the last poll began that did not find this record. `None` for the first record, which may be a leftover.
    written_after: Option<Instant>,
}

impl ObservedLease {
    /// No other manager can acquire it before the next poll.
    fn is_fresh(&self, time: PollTime) -> bool {
        self.written_after.is_some_and(|it| time.next_end < it + self.record.duration)
    }
}

/// When a poll took place.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollTime {
    /// When its requests were sent.
    pub(super) begun: Instant,
    /// When its responses had arrived.
    pub(super) ended: Instant,
    /// When the next poll ends at the latest.
    pub(super) next_end: Instant,
}

/// The managers that may run now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers {
    /// Pods that exist, or that were there a moment ago.
    pub(super) pods: Vec<BuiltInPod>,
    pub(super) built_in_lease: BuiltInLease,
    pub(super) our_lease_is_foreign: bool,
    /// A manager was observed in the last 20 minutes.
    pub(super) has_recent_manager: bool,
}

/// Whether a manager may lead with the Lease of the built-in manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum BuiltInLease {
    /// It is not held, or it is our own Lease.
    #[default]
    Free,
    /// This holder renews it, or did so a moment ago.
    Held {
        /// Empty after a release.
        holder: String,
        /// It was renewed so lately that no other manager can acquire it before the next poll.
        is_fresh: bool,
    },
    /// It cannot be read.
    Unreadable,
}

impl ObservedManagers {
    /// Adds a poll, and returns what is known now. `None` when a read is refused that was allowed a moment ago: an API
    /// server that has just started refuses everything, and that must not stop a controller.
    pub(super) fn observe(&mut self, poll: PollResult, time: PollTime) -> Option<Managers> {
        let PollResult { pods, built_in_lease, our_lease_is_foreign } = poll;
        let now = time.ended;
        let is_lease_refused = built_in_lease == LeaseRead::Refused;
        let are_pods_in_doubt = self.pod_refusals.observe(pods.is_none(), now);
        let is_lease_in_doubt = self.lease_refusals.observe(is_lease_refused, now);
        if are_pods_in_doubt || is_lease_in_doubt {
            return None;
        }
        self.observe_pods(pods.unwrap_or_default(), now);
        let built_in_lease = self.observe_lease(built_in_lease, time);
        if !is_lease_refused {
            self.last_begun = Some(time.begun);
        }
        let is_renewed = self.lease.as_ref().is_some_and(|it| it.written_after.is_some());
        if !self.pods.is_empty() || is_renewed && matches!(built_in_lease, BuiltInLease::Held { .. }) {
            self.manager_seen = Some(now);
        }
        let has_recent_manager = self.manager_seen.is_some_and(|it| now.saturating_duration_since(it) < REMEMBERED);
        self.last = Some(Managers {
            pods: self.pods.values().map(|(pod, _)| pod.clone()).collect(),
            built_in_lease,
            our_lease_is_foreign,
            has_recent_manager,
        });
        self.last.clone()
    }

    /// After a failed read. Returns the managers if the Lease may have expired since; see
    /// [`ObservedManagers::check_freshness`].
    pub(super) fn on_failed_poll(&mut self, time: PollTime) -> Option<Managers> {
        (self.pod_refusals.refused_since, self.lease_refusals.refused_since) = (None, None);
        self.check_freshness(time)
    }

    /// After a poll whose result is not used. Returns the managers if the Lease was fresh and may now expire before the
    /// next poll ends, so that another manager leads. Otherwise nothing has changed.
    pub(super) fn check_freshness(&mut self, time: PollTime) -> Option<Managers> {
        let is_fresh_now = self.lease.as_ref().is_some_and(|it| it.is_fresh(time));
        let last = self.last.as_mut()?;
        match &mut last.built_in_lease {
            BuiltInLease::Held { is_fresh, .. } if *is_fresh && !is_fresh_now => *is_fresh = false,
            BuiltInLease::Held { .. } | BuiltInLease::Free | BuiltInLease::Unreadable => return None,
        }
        Some(last.clone())
    }

    fn observe_pods(&mut self, pods: Vec<BuiltInPod>, now: Instant) {
        for (_, missing_since) in self.pods.values_mut() {
            missing_since.get_or_insert(now);
        }
        // A pod with new flags replaces the one of the same name.
        self.pods.extend(pods.into_iter().map(|it| (it.pod.clone(), (it, None))));
        self.pods.retain(|_, (_, gone)| gone.is_none_or(|since| now.saturating_duration_since(since) < POD_GONE_AFTER));
    }

    fn observe_lease(&mut self, lease: LeaseRead, time: PollTime) -> BuiltInLease {
        match lease {
            LeaseRead::Refused => return BuiltInLease::Unreadable,
            // Deleting a Lease does not stop its holder.
            LeaseRead::Absent => {}
            LeaseRead::Present(record) => match &self.lease {
                Some(known) if known.record == record => {}
                known => {
                    let written_after = self.last_begun.filter(|_| known.is_some());
                    self.lease = Some(ObservedLease { record, since: time.ended, written_after });
                }
            },
        }
        let Some(lease) = &self.lease else { return BuiltInLease::Free };
        let ObservedLease { record, since, .. } = lease;
        if time.ended.saturating_duration_since(*since) >= record.duration + LEASE_MARGIN {
            return BuiltInLease::Free;
        }
        BuiltInLease::Held { holder: record.holder.clone(), is_fresh: lease.is_fresh(time) }
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;
    use serde_json::json;

    use super::*;
    use crate::interlock::built_in::{BuiltInControllers, LeaseKey};

    fn pod(name: &str) -> BuiltInPod {
        let controllers = BuiltInControllers::unreadable();
        BuiltInPod { pod: name.to_owned(), node: None, controllers, lease: Some(LeaseKey::of_built_in()) }
    }

    fn lease(holder: &str, renewed: &str) -> LeaseRead {
        LeaseRead::Present(LeaseRecord::of(&json!({ "spec": { "holderIdentity": holder, "renewTime": renewed } })))
    }

    /// A poll that takes no time; the next one ends seven seconds later.
    fn at(now: Instant) -> PollTime {
        PollTime { begun: now, ended: now, next_end: now + Duration::from_secs(7) }
    }

    fn held(holder: &str) -> BuiltInLease {
        BuiltInLease::Held { holder: holder.to_owned(), is_fresh: false }
    }

    fn fresh(holder: &str) -> BuiltInLease {
        BuiltInLease::Held { holder: holder.to_owned(), is_fresh: true }
    }

    #[tokio::test(start_paused = true)]
    async fn pod_that_is_gone_counts_for_a_while() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        let mut names = |seconds: u64, pods: &[&str]| {
            let poll = PollResult { pods: Some(pods.iter().map(|it| pod(it)).collect()), ..PollResult::default() };
            let managers = observed_managers.observe(poll, at(start + Duration::from_secs(seconds))).unwrap();
            managers.pods.into_iter().map(|it| it.pod).collect::<Vec<_>>()
        };
        assert_eq!(names(0, &[]), [""; 0]);
        assert_eq!(names(3, &["a", "b"]), ["a", "b"]);
        assert_eq!(names(6, &["b"]), ["a", "b"]);
        assert_eq!(names(9, &["a", "b"]), ["a", "b"], "it is back");
        assert_eq!(names(12, &["b"]), ["a", "b"]);
        assert_eq!(names(41, &["b"]), ["a", "b"]);
        assert_eq!(names(42, &["b"]), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_with_new_flags_replaces_the_old_one() {
        let (mut observed_managers, now) = (ObservedManagers::default(), Clock::system().now());
        let other = BuiltInPod { lease: None, ..pod("a") };
        for pods in [vec![pod("a")], vec![other.clone()]] {
            let managers =
                observed_managers.observe(PollResult { pods: Some(pods.clone()), ..PollResult::default() }, at(now));
            assert_eq!(managers.unwrap().pods, pods);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lease_counts_until_it_was_not_renewed_for_its_duration_and_a_while() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        for (seconds, read, want) in [
            (0, LeaseRead::Absent, BuiltInLease::Free),
            (3, lease("a", "1"), held("a")),
            (22, lease("a", "1"), held("a")),
            (23, lease("a", "1"), BuiltInLease::Free),
            (26, lease("a", "2"), fresh("a")),
            (29, lease("", "3"), fresh("")),
            (48, lease("", "3"), held("")),
            (49, lease("", "3"), BuiltInLease::Free),
            (50, lease("b", "4"), fresh("b")),
            (56, LeaseRead::Absent, fresh("b")),
            // It was perhaps renewed at 49 s, and the next poll may end at 64 s.
            (57, lease("b", "4"), held("b")),
            (69, LeaseRead::Absent, held("b")),
            (70, LeaseRead::Absent, BuiltInLease::Free),
        ] {
            let poll = PollResult { built_in_lease: read, ..PollResult::default() };
            let managers = observed_managers.observe(poll, at(start + Duration::from_secs(seconds)));
            assert_eq!(managers.unwrap().built_in_lease, want, "{seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn manager_that_was_seen_is_remembered_for_a_while() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        let mut has_seen = |seconds: u64, poll: PollResult| {
            observed_managers.observe(poll, at(start + Duration::from_secs(seconds))).unwrap().has_recent_manager
        };
        let with = |built_in_lease: LeaseRead| PollResult { built_in_lease, ..PollResult::default() };
        assert!(!has_seen(0, with(LeaseRead::Refused)));
        assert!(!has_seen(3, with(lease("a", "1"))), "it may be a leftover");
        assert!(has_seen(6, with(lease("a", "2"))));
        assert!(has_seen(1200, with(lease("a", "2"))) && !has_seen(1210, with(lease("a", "2"))));
        assert!(has_seen(1250, PollResult { pods: Some(vec![pod("a")]), ..PollResult::default() }));
        assert!(has_seen(1300, PollResult { pods: Some(Vec::new()), ..PollResult::default() }));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_read_says_nothing_for_a_while_after_an_allowed_one() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        let mut lease_at = |seconds: u64, pods: Option<Vec<BuiltInPod>>, built_in_lease: LeaseRead| {
            let poll = PollResult { pods, built_in_lease, our_lease_is_foreign: false };
            observed_managers.observe(poll, at(start + Duration::from_secs(seconds))).map(|it| it.built_in_lease)
        };
        let (refused, absent, all) = (LeaseRead::Refused, LeaseRead::Absent, || Some(Vec::new()));
        assert_eq!(lease_at(0, None, refused.clone()), Some(BuiltInLease::Unreadable), "never allowed");
        assert_eq!(lease_at(3, None, refused.clone()), Some(BuiltInLease::Unreadable), "never allowed");
        assert_eq!(lease_at(6, all(), refused.clone()), Some(BuiltInLease::Unreadable));
        assert_eq!(lease_at(9, None, refused.clone()), None, "the read of the pods is refused now");
        assert_eq!(lease_at(12, all(), absent.clone()), Some(BuiltInLease::Free));
        assert_eq!(lease_at(15, all(), refused.clone()), None, "the read of the Lease is refused now");
        assert_eq!(lease_at(44, all(), refused.clone()), None);
        assert_eq!(lease_at(45, all(), refused.clone()), Some(BuiltInLease::Unreadable), "the right was taken away");
        assert_eq!(lease_at(48, None, refused.clone()), None, "the read of the pods is refused too now");
        assert_eq!(lease_at(78, None, refused), Some(BuiltInLease::Unreadable));
        assert_eq!(lease_at(81, all(), absent), Some(BuiltInLease::Free));
    }

    #[tokio::test(start_paused = true)]
    async fn lease_does_not_stay_fresh_while_polls_fail() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        let time = |seconds: u64| at(start + Duration::from_secs(seconds));
        assert_eq!(observed_managers.on_failed_poll(time(0)), None);
        for (seconds, renewed) in [(1, "1"), (4, "2")] {
            let _ = observed_managers
                .observe(PollResult { built_in_lease: lease("a", renewed), ..PollResult::default() }, time(seconds));
        }
        assert_eq!(observed_managers.on_failed_poll(time(8)), None);
        assert_eq!(
            observed_managers.on_failed_poll(time(9)).unwrap().built_in_lease,
            held("a"),
            "at 16 s it may be another's"
        );
        assert_eq!(observed_managers.on_failed_poll(time(60)), None, "it does not become free");
    }

    #[tokio::test(start_paused = true)]
    async fn lease_does_not_stay_fresh_while_polls_are_refused() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        let time = |seconds: u64| at(start + Duration::from_secs(seconds));
        for (seconds, renewed) in [(1, "1"), (4, "2")] {
            let poll =
                PollResult { pods: Some(Vec::new()), built_in_lease: lease("a", renewed), ..PollResult::default() };
            let _ = observed_managers.observe(poll, time(seconds));
        }
        let refused = || PollResult { pods: None, built_in_lease: LeaseRead::Refused, ..PollResult::default() };
        for (seconds, want) in [(7, None), (10, Some(held("a"))), (13, None)] {
            assert_eq!(observed_managers.observe(refused(), time(seconds)), None);
            assert_eq!(observed_managers.check_freshness(time(seconds)).map(|it| it.built_in_lease), want, "{seconds}");
        }
        assert!(observed_managers.observe(refused(), time(37)).is_some(), "it is refused for good");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_poll_between_two_refused_ones_begins_the_wait_anew() {
        let (mut observed_managers, start) = (ObservedManagers::default(), Clock::system().now());
        let time = |seconds: u64| at(start + Duration::from_secs(seconds));
        let refused = || PollResult { pods: None, ..PollResult::default() };
        assert!(
            observed_managers
                .observe(PollResult { pods: Some(Vec::new()), ..PollResult::default() }, time(0))
                .is_some()
        );
        assert_eq!(observed_managers.observe(refused(), time(3)), None);
        assert_eq!(observed_managers.on_failed_poll(time(20)), None);
        assert_eq!(observed_managers.observe(refused(), time(40)), None);
        assert!(observed_managers.observe(refused(), time(70)).is_some());
    }

    #[test]
    fn lease_with_fields_of_another_manager_is_foreign() {
        let entry = |manager: &str, field: &str| json!({ "manager": manager, "fieldsV1": { field: {} } });
        for (name, entries, want) in [
            ("ours", json!([entry("mini-kcm", "f:spec")]), false),
            ("upstream's", json!([entry("kube-controller-manager", "f:spec")]), true),
            (
                "upstream's before ours",
                json!([entry("kube-controller-manager", "f:spec"), entry("mini-kcm", "f:spec")]),
                true,
            ),
            ("inside another program", json!([entry("k3s", "f:spec")]), true),
            ("a label by another program", json!([entry("operator", "f:metadata")]), false),
            ("released by a user", json!([entry("kubectl-edit", "f:spec"), entry("mini-kcm", "f:spec")]), false),
            ("without details", json!([{ "manager": "kube-controller-manager" }]), true),
            ("nothing", json!(null), false),
        ] {
            assert_eq!(
                is_written_by_other_manager(&json!({ "metadata": { "managedFields": entries } })),
                want,
                "{name}"
            );
        }
    }
}
