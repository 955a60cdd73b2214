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
/// A Lease is fresh for this part of its duration. With the pause between two looks, the rest is enough to stop
/// controllers before another manager acquires it.
const FRESH_PART: u32 = 3;
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
    /// A manager was observed in any look.
    has_seen_manager: bool,
    /// Pods could be read in an earlier look.
    has_read_pods: bool,
    /// The Lease could be read in an earlier look.
    has_read_lease: bool,
}

#[derive(Debug)]
struct ObservedLease {
    record: LeaseRecord,
    /// When this record was first observed.
    since: Instant,
    /// False for the first record, which may be a leftover.
    is_change: bool,
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
    /// Adds a look, and returns what is known now. `None` when a read was refused that was allowed before: an API
    /// server that has just started refuses everything, and that must not stop a controller.
    pub(super) fn observe(&mut self, look: Look, now: Instant) -> Option<Managers> {
        let Look { pods, built_in_lease, our_lease_is_foreign } = look;
        let is_lease_hidden = built_in_lease == LeaseLook::Hidden;
        if pods.is_none() && self.has_read_pods || is_lease_hidden && self.has_read_lease {
            return None;
        }
        self.has_read_pods |= pods.is_some();
        self.has_read_lease |= !is_lease_hidden;
        self.observe_pods(pods.unwrap_or_default(), now);
        let built_in_lease = self.observe_lease(built_in_lease, now);
        self.has_seen_manager |= !self.pods.is_empty() || matches!(built_in_lease, Hold::Held { .. });
        Some(Managers {
            pods: self.pods.values().map(|(pod, _)| pod.clone()).collect(),
            built_in_lease,
            our_lease_is_foreign,
            has_seen_manager: self.has_seen_manager,
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

    fn observe_lease(&mut self, lease: LeaseLook, now: Instant) -> Hold {
        match lease {
            LeaseLook::Hidden => return Hold::Hidden,
            // Deleting a Lease does not stop its holder.
            LeaseLook::Absent => {}
            LeaseLook::Present(record) => match &self.lease {
                Some(known) if known.record == record => {}
                known => self.lease = Some(ObservedLease { record, since: now, is_change: known.is_some() }),
            },
        }
        let Some(ObservedLease { record, since, is_change }) = &self.lease else { return Hold::Free };
        let age = now.saturating_duration_since(*since);
        if age < record.duration + LEASE_MARGIN {
            Hold::Held { holder: record.holder.clone(), is_fresh: *is_change && age < record.duration / FRESH_PART }
        } else {
            Hold::Free
        }
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
            let managers = sight.observe(look, start + Duration::from_secs(seconds)).unwrap();
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
            let managers = sight.observe(Look { pods: Some(pods.clone()), ..Look::default() }, now);
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
            (54, lease("b", "4"), fresh("b")),
            (55, LeaseLook::Absent, held("b")),
            (69, LeaseLook::Absent, held("b")),
            (70, LeaseLook::Absent, Hold::Free),
        ] {
            let look = Look { built_in_lease: look, ..Look::default() };
            let managers = sight.observe(look, start + Duration::from_secs(seconds));
            assert_eq!(managers.unwrap().built_in_lease, want, "{seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn manager_that_was_seen_once_is_remembered() {
        let (mut sight, start) = (Sight::default(), Clock::system().now());
        let mut has_seen = |seconds: u64, look: Look| {
            sight.observe(look, start + Duration::from_secs(seconds)).unwrap().has_seen_manager
        };
        assert!(!has_seen(0, Look { built_in_lease: LeaseLook::Hidden, ..Look::default() }));
        assert!(!has_seen(3, Look::default()));
        assert!(has_seen(6, Look { pods: Some(vec![pod("a")]), ..Look::default() }));
        assert!(has_seen(60, Look { pods: Some(Vec::new()), ..Look::default() }));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_read_says_nothing_after_an_allowed_one() {
        let (mut sight, now) = (Sight::default(), Clock::system().now());
        let hidden = || Look { pods: None, built_in_lease: LeaseLook::Hidden, our_lease_is_foreign: false };
        for _ in 0..2 {
            assert_eq!(sight.observe(hidden(), now).unwrap().built_in_lease, Hold::Hidden, "never allowed");
        }
        assert!(sight.observe(Look { pods: Some(Vec::new()), ..hidden() }, now).is_some());
        assert_eq!(sight.observe(hidden(), now), None, "pods are hidden now");
        let all = || Look { pods: Some(Vec::new()), built_in_lease: LeaseLook::Absent, our_lease_is_foreign: false };
        assert_eq!(sight.observe(all(), now).unwrap().built_in_lease, Hold::Free);
        assert_eq!(sight.observe(Look { built_in_lease: LeaseLook::Hidden, ..all() }, now), None);
        assert!(sight.observe(all(), now).is_some());
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
