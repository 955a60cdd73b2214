//! When a pod must leave a node with `NoExecute` taints.

use std::time::Duration;

use api::{Taint, Toleration};
use clock::Instant;

use crate::rules::taints::{ObservedTaint, is_of_pair};

/// When a pod must leave its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvictionTime {
    /// It stays, until taints or tolerations change.
    Stay,
    /// It stays until this time, and must then leave.
    At(Instant),
    /// It must leave now, because it does not tolerate a taint.
    Now {
        /// When the taint was first observed with this pod on the node. For the metric.
        since: Instant,
    },
}

/// Decides about a pod on a node with these taints. `arrival` is when the pod was observed on the node, if that is
/// known.
///
/// If several tolerations match a taint, the first one in the list applies (`GetMatchingTolerations`). Its seconds
/// count from the observation of the taint that it tolerates. The pod has to leave when the first of these times is
/// over. An edit of tolerationSeconds or a further taint moves that time (k/k#108982).
///
/// If one of `not-ready` and `unreachable` has replaced the other one, the node was not ready in between. Then the longer one
/// of the two tolerations, counted from the first taint, is a limit too, if both have one. Otherwise a node that changes
/// between both would keep its pods.
///
/// If the node is ready again, the node lifecycle controller lifts these two taints. Until `lifted_by` they evict no pod.
pub(crate) fn decide(
    tolerations: &[Toleration],
    taints: &[ObservedTaint],
    arrival: Option<Instant>,
    lifted_by: Option<Instant>,
    compares_numbers: bool,
) -> EvictionTime {
    let mut first: Option<Instant> = None;
    let toleration = |taint: &Taint| tolerations.iter().find(|it| it.tolerates(taint, compares_numbers));
    let start = |since: Instant| arrival.map_or(since, |it| it.max(since));
    for ObservedTaint { taint, since, replaced } in taints {
        let lifted_by = lifted_by.filter(|_| is_of_pair(taint));
        let not_before = |time: Instant| lifted_by.map_or(time, |it| it.max(time));
        let Some(present) = toleration(taint) else {
            let Some(lifted_by) = lifted_by else { return EvictionTime::Now { since: start(*since) } };
            first = first.into_iter().chain([lifted_by]).min();
            continue;
        };
        let Some(tolerated) = limit(present) else { continue };
        // A time out of range never comes.
        first = first.into_iter().chain(start(*since).checked_add(tolerated).map(not_before)).min();
        if let Some(replaced) = replaced
            && let Some(before) = toleration(&replaced.taint).and_then(limit)
        {
            let both = start(replaced.since).checked_add(tolerated.max(before));
            first = first.into_iter().chain(both.map(not_before)).min();
        }
    }
    first.map_or(EvictionTime::Stay, EvictionTime::At)
}

/// How long a taint is tolerated; `None` if without limit. A negative number counts as zero.
fn limit(toleration: &Toleration) -> Option<Duration> {
    toleration.seconds.map(|it| Duration::from_secs(u64::try_from(it).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use clock::Clock;
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::taints::Replaced;

    const SEC: Duration = Duration::from_secs(1);

    /// The decision for these tolerations, as seconds after the first taint. A taint is its key, its value, and the
    /// second of its observation.
    #[derive(Debug, PartialEq, Eq)]
    enum Seconds {
        Stay,
        At(u64),
        Now,
    }

    fn check(name: &str, tolerations: &Value, taints: &[(&str, &str, u64)], arrival: Option<u64>, want: &Seconds) {
        check_with(name, tolerations, taints, arrival, false, want);
    }

    fn check_with(
        name: &str,
        tolerations: &Value,
        taints: &[(&str, &str, u64)],
        arrival: Option<u64>,
        compares_numbers: bool,
        want: &Seconds,
    ) {
        let start = Clock::system().now();
        let at = |second: u64| start + Duration::from_secs(second);
        let taints: Vec<ObservedTaint> = taints
            .iter()
            .map(|(key, value, second)| ObservedTaint {
                taint: serde_json::from_value(json!({ "key": key, "value": value, "effect": "NoExecute" })).unwrap(),
                since: at(*second),
                replaced: None,
            })
            .collect();
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations.clone()).unwrap();
        let decision = match decide(&tolerations, &taints, arrival.map(at), None, compares_numbers) {
            EvictionTime::Stay => Seconds::Stay,
            EvictionTime::At(time) => Seconds::At((time - start).as_secs()),
            EvictionTime::Now { .. } => Seconds::Now,
        };
        assert_eq!(decision, *want, "{name}");
    }

    fn exists(key: &str, seconds: Option<i64>) -> Value {
        json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds })
    }

    #[test]
    fn acceptance_node_033_034_a_pod_stays_only_if_each_taint_is_tolerated() {
        let a = &[("a", "v", 0)][..];
        for (tolerations, taints, want) in [
            (json!([]), &[][..], Seconds::Stay),
            (json!([]), a, Seconds::Now),
            (json!([exists("b", None)]), a, Seconds::Now),
            (json!([exists("a", None)]), a, Seconds::Stay),
            (json!([{ "key": "a", "value": "v" }]), a, Seconds::Stay),
            (json!([{ "key": "a", "value": "other" }]), a, Seconds::Now),
            (json!([{ "key": "a", "operator": "Exists", "effect": "NoSchedule" }]), a, Seconds::Now),
            (json!([exists("a", None)]), &[("a", "v", 0), ("b", "", 0)], Seconds::Now),
            (json!([exists("a", Some(60))]), &[("a", "v", 0), ("b", "", 0)], Seconds::Now),
        ] {
            check(&format!("{tolerations} {taints:?}"), &tolerations, taints, None, &want);
        }
    }

    #[test]
    fn acceptance_node_037_the_toleration_that_ends_first_counts() {
        let both = json!([exists("a", Some(10)), exists("b", Some(60))]);
        for (name, tolerations, taints, want) in [
            ("observed together", both.clone(), [("a", "", 0), ("b", "", 0)], 10),
            ("each counts from its own taint", both.clone(), [("a", "", 100), ("b", "", 0)], 60),
            ("the later taint ends first", both, [("a", "", 20), ("b", "", 0)], 30),
            ("one without limit", json!([exists("a", Some(10)), exists("b", None)]), [("b", "", 0), ("a", "", 5)], 15),
        ] {
            check(name, &tolerations, &taints, None, &Seconds::At(want));
        }
    }

    #[test]
    fn taints_of_an_outage_evict_no_pod_until_they_are_probably_lifted() {
        let start = Clock::system().now();
        let (at, outage) = (|second: u32| start + second * SEC, "node.kubernetes.io/unreachable");
        let now = EvictionTime::Now { since: start };
        for (key, tolerations, lifted_by, want) in [
            (outage, json!([exists(outage, Some(300))]), None, EvictionTime::At(at(300))),
            (outage, json!([exists(outage, Some(300))]), Some(350), EvictionTime::At(at(350))),
            (outage, json!([exists(outage, Some(300))]), Some(250), EvictionTime::At(at(300))),
            (outage, json!([exists(outage, None)]), Some(350), EvictionTime::Stay),
            (outage, json!([]), None, now),
            (outage, json!([]), Some(350), EvictionTime::At(at(350))),
            ("evict", json!([]), Some(350), now),
            ("evict", json!([exists("evict", Some(300))]), Some(350), EvictionTime::At(at(300))),
        ] {
            let taint = serde_json::from_value(json!({ "key": key, "effect": "NoExecute" })).unwrap();
            let taints = [ObservedTaint { taint, since: start, replaced: None }];
            let name = format!("{key} {tolerations} {lifted_by:?}");
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            assert_eq!(decide(&tolerations, &taints, None, lifted_by.map(at), false), want, "{name}");
        }
    }

    #[test]
    fn after_a_replacement_the_longer_toleration_counts_from_the_first_taint() {
        let start = Clock::system().now();
        let taint =
            |key: &str| -> Taint { serde_json::from_value(json!({ "key": key, "effect": "NoExecute" })).unwrap() };
        for (before, present, arrival, want) in [
            (Some(300), Some(300), None, Some(300)),
            (Some(300), Some(30), None, Some(230)),
            (Some(300), Some(250), None, Some(300)),
            (Some(30), Some(300), None, Some(300)),
            (None, Some(30), None, Some(230)),
            (Some(30), None, None, None),
            (Some(300), Some(300), Some(100), Some(400)),
        ] {
            let replaced = Some(Replaced { taint: taint("a"), since: start });
            let taints = [ObservedTaint { taint: taint("b"), since: start + 200 * SEC, replaced }];
            let tolerations = serde_json::from_value::<Vec<_>>(json!([exists("a", before), exists("b", present)]));
            let arrival: Option<Instant> = arrival.map(|it| start + it * SEC);
            let decision = decide(&tolerations.unwrap(), &taints, arrival, None, false);
            let want = want.map_or(EvictionTime::Stay, |it: u32| EvictionTime::At(start + it * SEC));
            assert_eq!(decision, want, "{before:?} {present:?}");
        }
    }

    #[test]
    fn of_the_tolerations_of_a_taint_the_first_counts() {
        for (tolerations, want) in [
            (json!([exists("a", Some(60)), exists("a", Some(5))]), Seconds::At(60)),
            (json!([exists("", None), exists("a", Some(5))]), Seconds::Stay),
            (json!([exists("b", Some(1)), exists("a", Some(5))]), Seconds::At(5)),
        ] {
            check(&tolerations.to_string(), &tolerations, &[("a", "", 0)], None, &want);
        }
    }

    #[test]
    fn acceptance_node_039_zero_and_negative_seconds_end_at_once() {
        for seconds in [0, -1, i64::MIN] {
            check(&seconds.to_string(), &json!([exists("a", Some(seconds))]), &[("a", "", 7)], None, &Seconds::At(7));
        }
    }

    #[test]
    fn a_toleration_beyond_all_times_does_not_end() {
        check("i64::MAX", &json!([exists("a", Some(i64::MAX))]), &[("a", "", 0)], None, &Seconds::Stay);
    }

    #[test]
    fn acceptance_node_040_043_an_empty_key_tolerates_all_taints() {
        let taints = [("a", "v", 0), ("node.kubernetes.io/out-of-service", "nodeshutdown", 0)];
        check("with the effect", &json!([exists("", None)]), &taints, None, &Seconds::Stay);
        check("all effects", &json!([{ "operator": "Exists" }]), &taints, None, &Seconds::Stay);
        check("equal has no empty key", &json!([{ "value": "v" }]), &taints, None, &Seconds::Now);
    }

    #[test]
    fn seconds_do_not_count_before_the_pod_is_on_the_node() {
        let tolerations = json!([exists("a", Some(10))]);
        for (arrival, want) in [(None, 10), (Some(0), 10), (Some(500), 510)] {
            check(&format!("{arrival:?}"), &tolerations, &[("a", "", 0)], arrival, &Seconds::At(want));
        }
    }

    #[test]
    fn numbers_are_compared_only_with_the_feature_gate() {
        for (operator, value, is_tolerated) in [("Gt", "3", true), ("Gt", "5", false), ("Lt", "9", true)] {
            let tolerations = json!([{ "key": "a", "operator": operator, "value": value, "effect": "NoExecute" }]);
            let with = if is_tolerated { Seconds::Stay } else { Seconds::Now };
            check_with(operator, &tolerations, &[("a", "5", 0)], None, true, &with);
            check_with(operator, &tolerations, &[("a", "5", 0)], None, false, &Seconds::Now);
        }
    }

    #[test]
    fn an_intolerable_taint_counts_since_its_observation() {
        let since = Clock::system().now();
        let taint = serde_json::from_value(json!({ "key": "a", "effect": "NoExecute" })).unwrap();
        let taints = [ObservedTaint { taint, since, replaced: None }];
        assert_eq!(decide(&[], &taints, None, None, false), EvictionTime::Now { since });
        assert_eq!(decide(&[], &taints, Some(since + SEC), None, false), EvictionTime::Now { since: since + SEC });
    }
}
