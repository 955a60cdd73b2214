use std::{collections::BTreeMap, time::Duration};

use clock::Instant;
use serde_json::Value;

use super::built_in::BuiltInPod;

/// A pod that is gone counts for this time: the kubelet may be replacing it. Longer than a Lease that is not renewed
/// counts, so that in between the manager is not taken for one that cannot be seen.
const POD_GONE_AFTER: Duration = Duration::from_secs(30);
/// A Lease counts as held for this time after it has expired: its manager may be restarting.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// The default of `--leader-elect-lease-duration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A manager that was seen counts as seen for this time. Longer than its writes are recent for
/// [`preflight`](crate::preflight).
const REMEMBERED: Duration = Duration::from_secs(15 * 60);
/// A read that is refused for this time after it was allowed is refused for good. An API server that has just started
/// refuses everything for a few seconds.
const REFUSED_AFTER: Duration = Duration::from_secs(30);
/// A longer duration in a Lease is reduced to this.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(600);
/// Our own field manager.
const OUR_FIELD_MANAGER: &str = "mini-kcm";

/// The result of one look.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// `None` when reading them is refused.
    pub(super) pods: Option<Vec<BuiltInPod>>,
    /// The Lease of the built-in manager.
    pub(super) built_in_lease: LeaseLook,
    /// True when another program than mini-kcm and kubectl has written our own Lease.
    pub(super) our_lease_is_foreign: bool,
}

/// What a look at the Lease of the built-in manager showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum LeaseLook {
    /// There is none, or it is our own.
    #[default]
    Absent,
    /// Reading it is refused.
    Hidden,
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

/// What all looks together show. A manager that restarts is gone for a moment and comes back with the same flags or
/// with others, so it counts as present for a while. Times in objects are not compared with our clock.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Each pod, and when it was last observed.
    pods: BTreeMap<String, (BuiltInPod, Option<Instant>)>,
    /// The last record of the Lease of the built-in manager.
    lease: Option<ObservedLease>,
    /// When a manager was last observed.
    manager_seen: Option<Instant>,
    /// Pods could be read in an earlier look.
    has_read_pods: bool,
    /// The Lease could be read in an earlier look.
    has_read_lease: bool,
    /// Since when reads are refused that were allowed before.
    refused_since: Option<Instant>,
    /// When the last look began.
    last_begun: Option<Instant>,
}

#[derive(Debug)]
struct ObservedLease {
    record: LeaseRecord,
    /// When this record was first observed.
    since: Instant,
    /// When the last look began that did not find this record. `None` for the first record, which may be a leftover.
    written_after: Option<Instant>,
}

/// When a look took place.
#[derive(Debug, Clone, Copy)]
pub(super) struct LookTime {
    /// When its requests were sent.
    pub(super) begun: Instant,
    /// When its responses had arrived.
    pub(super) ended: Instant,
    /// When the next look ends at the latest.
    pub(super) next_end: Instant,
}

/// The managers that may run now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers {
    /// Pods that exist, or that were there a moment ago.
    pub(super) pods: Vec<BuiltInPod>,
    pub(super) built_in_lease: Hold,
    pub(super) our_lease_is_foreign: bool,
    /// A manager was observed since this process started.
    pub(super) has_seen_manager: bool,
}

/// Whether a manager may lead with the Lease of the built-in manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nobody holds it, or it is our own Lease.
    #[default]
    Free,
    /// This holder renews it, or did so a moment ago.
    Held {
        /// Empty after a release.
        holder: String,
        /// It was renewed so lately that no other manager can acquire it before the next look.
        is_fresh: bool,
    },
    /// It cannot be read.
    Hidden,
}

impl Sight {
    /// Adds a look, and returns what is known now. `None` when a read is refused that was allowed a moment ago: an API
    /// server that has just started refuses everything, and that must not stop a controller.
    pub(super) fn observe(&mut self, look: Look, time: LookTime) -> Option<Managers> {
        let Look { pods, built_in_lease, our_lease_is_foreign } = look;
        let now = time.ended;
        let is_lease_hidden = built_in_lease == LeaseLook::Hidden;
        if pods.is_none() && self.has_read_pods || is_lease_hidden && self.has_read_lease {
            let since = *self.refused_since.get_or_insert(now);
            if now.saturating_duration_since(since) < REFUSED_AFTER {
                return None;
            }
        } else {
            self.refused_since = None;
        }
        self.has_read_pods |= pods.is_some();
        self.has_read_lease |= !is_lease_hidden;
        self.observe_pods(pods.unwrap_or_default(), now);
        let built_in_lease = self.observe_lease(built_in_lease, time);
        self.last_begun = Some(time.begun);
        let is_renewed = self.lease.as_ref().is_some_and(|it| it.written_after.is_some());
        if !self.pods.is_empty() || is_renewed && matches!(built_in_lease, Hold::Held { .. }) {
            self.manager_seen = Some(now);
        }
        Some(Managers {
            pods: self.pods.values().map(|(pod, _)| pod.clone()).collect(),
            built_in_lease,
            our_lease_is_foreign,
            has_seen_manager: self.manager_seen.is_some_and(|seen| now.saturating_duration_since(seen) < REMEMBERED),
        })
    }

    fn observe_pods(&mut self, pods: Vec<BuiltInPod>, now: Instant) {
        for (_, last_seen) in self.pods.values_mut() {
            last_seen.get_or_insert(now);
        }
        // A pod with new flags replaces the one of the same name.
        self.pods.extend(pods.into_iter().map(|it| (it.pod.clone(), (it, None))));
        self.pods.retain(|_, (_, gone)| gone.is_none_or(|since| now.saturating_duration_since(since) < POD_GONE_AFTER));
    }

    fn observe_lease(&mut self, lease: LeaseLook, time: LookTime) -> Hold {
        match lease {
            LeaseLook::Hidden => return Hold::Hidden,
            // Deleting a Lease does not stop its holder.
            LeaseLook::Absent => {}
            LeaseLook::Present(record) => match &self.lease {
                Some(known) if known.record == record => {}
                known => {
                    let written_after = self.last_begun.filter(|_| known.is_some());
                    self.lease = Some(ObservedLease { record, since: time.ended, written_after });
                }
            },
        }
        let Some(ObservedLease { record, since, written_after }) = &self.lease else { return Hold::Free };
        if time.ended.saturating_duration_since(*since) >= record.duration + LEASE_MARGIN {
            return Hold::Free;
        }
        let is_fresh = written_after.is_some_and(|it| time.next_end < it + record.duration);
        Hold::Held { holder: record.holder.clone(), is_fresh }
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

    fn lease(holder: &str, renewed: &str) -> LeaseLook {
        LeaseLook::Present(LeaseRecord::of(&json!({ "spec": { "holderIdentity": holder, "renewTime": renewed } })))
    }

    /// A look that takes no time; the next one ends seven seconds later.
    fn at(now: Instant) -> LookTime {
        LookTime { begun: now, ended: now, next_end: now + Duration::from_secs(7) }
    }

    fn held(holder: &str) -> Hold {
        Hold::Held { holder: holder.to_owned(), is_fresh: false }
    }

    fn fresh(holder: &str) -> Hold {
        Hold::Held { holder: holder.to_owned(), is_fresh: true }
    }

    #[tokio::test(start_paused = true)]
    async fn pod_that_is_gone_counts_for_a_while() {
        let (mut sight, start) = (Sight::default(), Clock::system().now());
        let mut names = |seconds: u64, pods: &[&str]| {
            let look = Look { pods: Some(pods.iter().map(|it| pod(it)).collect()), ..Look::default() };
            let managers = sight.observe(look, at(start + Duration::from_secs(seconds))).unwrap();
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
        let (mut sight, now) = (Sight::default(), Clock::system().now());
        let other = BuiltInPod { lease: None, ..pod("a") };
        for pods in [vec![pod("a")], vec![other.clone()]] {
            let managers = sight.observe(Look { pods: Some(pods.clone()), ..Look::default() }, at(now));
            assert_eq!(managers.unwrap().pods, pods);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lease_counts_until_it_was_not_renewed_for_its_duration_and_a_while() {
        let (mut sight, start) = (Sight::default(), Clock::system().now());
        for (seconds, look, want) in [
            (0, LeaseLook::Absent, Hold::Free),
            (3, lease("a", "1"), held("a")),
            (22, lease("a", "1"), held("a")),
            (23, lease("a", "1"), Hold::Free),
            (26, lease("a", "2"), fresh("a")),
            (29, lease("", "3"), fresh("")),
            (48, lease("", "3"), held("")),
            (49, lease("", "3"), Hold::Free),
            (50, lease("b", "4"), fresh("b")),
            (56, LeaseLook::Absent, fresh("b")),
            // It was perhaps renewed at 49 s, and the next look may end at 64 s.
            (57, lease("b", "4"), held("b")),
            (69, LeaseLook::Absent, held("b")),
            (70, LeaseLook::Absent, Hold::Free),
        ] {
            let look = Look { built_in_lease: look, ..Look::default() };
            let managers = sight.observe(look, at(start + Duration::from_secs(seconds)));
            assert_eq!(managers.unwrap().built_in_lease, want, "{seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn manager_that_was_seen_is_remembered_for_a_while() {
        let (mut sight, start) = (Sight::default(), Clock::system().now());
        let mut has_seen = |seconds: u64, look: Look| {
            sight.observe(look, at(start + Duration::from_secs(seconds))).unwrap().has_seen_manager
        };
        let with = |built_in_lease: LeaseLook| Look { built_in_lease, ..Look::default() };
        assert!(!has_seen(0, with(LeaseLook::Hidden)));
        assert!(!has_seen(3, with(lease("a", "1"))), "it may be a leftover");
        assert!(has_seen(6, with(lease("a", "2"))));
        assert!(has_seen(900, with(lease("a", "2"))) && !has_seen(910, with(lease("a", "2"))));
        assert!(has_seen(950, Look { pods: Some(vec![pod("a")]), ..Look::default() }));
        assert!(has_seen(1000, Look { pods: Some(Vec::new()), ..Look::default() }));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_read_says_nothing_for_a_while_after_an_allowed_one() {
        let (mut sight, start) = (Sight::default(), Clock::system().now());
        let mut lease_at = |seconds: u64, pods: Option<Vec<BuiltInPod>>, built_in_lease: LeaseLook| {
            let look = Look { pods, built_in_lease, our_lease_is_foreign: false };
            sight.observe(look, at(start + Duration::from_secs(seconds))).map(|it| it.built_in_lease)
        };
        let (hidden, absent, all) = (LeaseLook::Hidden, LeaseLook::Absent, || Some(Vec::new()));
        assert_eq!(lease_at(0, None, hidden.clone()), Some(Hold::Hidden), "never allowed");
        assert_eq!(lease_at(3, None, hidden.clone()), Some(Hold::Hidden), "never allowed");
        assert_eq!(lease_at(6, all(), hidden.clone()), Some(Hold::Hidden));
        assert_eq!(lease_at(9, None, hidden.clone()), None, "pods are hidden now");
        assert_eq!(lease_at(12, all(), absent.clone()), Some(Hold::Free));
        assert_eq!(lease_at(15, all(), hidden.clone()), None, "the Lease is hidden now");
        assert_eq!(lease_at(44, all(), hidden.clone()), None);
        assert_eq!(lease_at(45, all(), hidden.clone()), Some(Hold::Hidden), "the right was taken away");
        assert_eq!(lease_at(48, None, hidden), Some(Hold::Hidden));
        assert_eq!(lease_at(51, all(), absent), Some(Hold::Free));
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
