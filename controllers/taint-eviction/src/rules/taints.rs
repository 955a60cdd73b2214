//! The `NoExecute` taints of a node, and since when they are observed.

use std::{sync::Arc, time::Duration};

use api::{Node, Taint, TaintEffect};
use clock::{Instant, Timestamp};
use workload::Missed;

/// A `NoExecute` taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedTaint {
    /// The taint.
    pub(crate) taint: Taint,
    /// From when tolerationSeconds count.
    pub(crate) since: Instant,
    /// The taint that this one replaces, see [`PAIR`].
    pub(crate) replaced: Option<Replaced>,
}

/// A taint that another one replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// The taint.
    pub(crate) taint: Taint,
    /// Since when the node has had one of the pair.
    pub(crate) since: Instant,
}

/// The node lifecycle controller replaces one of these by the other one when the status of Ready changes between False and
/// Unknown. In between the node was not ready.
const PAIR: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Whether a taint is one of [`PAIR`].
pub(crate) fn is_of_pair(taint: &Taint) -> bool {
    PAIR.contains(&&*taint.key)
}

/// The time of an observation on two clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// For timers.
    pub(crate) instant: Instant,
    /// For comparison with times of the API.
    pub(crate) wall: Timestamp,
}

/// The taints of a node that evict pods, including `node.kubernetes.io/out-of-service`.
pub(crate) fn no_execute(node: &Node) -> impl Iterator<Item = &Taint> {
    node.taints.iter().filter(|it| it.effect == TaintEffect::NoExecute)
}

/// Returns the `NoExecute` taints of a node that was observed now. `known` is the result of the observation before.
///
/// A taint with another value or timeAdded is another taint, so its tolerationSeconds begin anew. `is_gapless` is false
/// if states of the node between both observations may be missing. A taint may then have been lifted and added again,
/// and only timeAdded shows that. So a taint without timeAdded begins anew.
pub(crate) fn observe(known: &[ObservedTaint], node: &Node, is_gapless: bool, now: Now) -> Arc<[ObservedTaint]> {
    let observed = no_execute(node).map(|taint| {
        let before = known.iter().find(|it| it.taint == *taint).filter(|_| is_gapless || taint.added.is_some());
        before.cloned().unwrap_or_else(|| {
            let replaced = if is_gapless { replaced_by(taint, known, node) } else { None };
            ObservedTaint { taint: taint.clone(), since: counting_start(taint, now), replaced }
        })
    });
    observed.collect()
}

/// The taint that a new one replaces. Both may be on the node: upstream adds the new one before it removes the other one
/// (`SwapNodeControllerTaint`).
fn replaced_by(taint: &Taint, known: &[ObservedTaint], node: &Node) -> Option<Replaced> {
    let before = known.iter().find(|it| is_of_pair(&it.taint) && it.taint.key != taint.key)?;
    let since = before.replaced.as_ref().map_or(before.since, |it| it.since.min(before.since));
    let is_unchanged = no_execute(node).all(|it| it.key != before.taint.key || *it == before.taint);
    (is_of_pair(taint) && is_unchanged).then(|| Replaced { taint: before.taint.clone(), since })
}

/// The same taints after an interruption, in which the nodes could not report that they are ready. It does not count as
/// tolerated time.
pub(crate) fn after_interruption(observed: &[ObservedTaint], missed: Missed, now: Instant) -> Arc<[ObservedTaint]> {
    let later = |since: Instant| later(since, missed, now);
    let delayed = observed.iter().cloned().map(|it| ObservedTaint {
        since: later(it.since),
        replaced: it.replaced.map(|it| Replaced { since: later(it.since), ..it }),
        ..it
    });
    delayed.collect()
}

/// From when a time counts after an interruption.
pub(crate) fn later(since: Instant, missed: Missed, now: Instant) -> Instant {
    match missed {
        Missed::Time(time) => since.max(now.min(since + time)),
        Missed::All => since.max(now),
    }
}

/// Whether these are exactly the `NoExecute` taints of a node.
pub(crate) fn are_taints_of(observed: &[ObservedTaint], node: &Node) -> bool {
    no_execute(node).count() == observed.len()
        && no_execute(node).all(|taint| observed.iter().any(|it| it.taint == *taint))
}

/// Now, or timeAdded if that is later: the clock of the process that added the taint may be ahead (k/k#108268).
fn counting_start(taint: &Taint, now: Now) -> Instant {
    let added = taint.added.and_then(|it| Timestamp::from_second(it).ok());
    let ahead = added.and_then(|it| Duration::try_from(it.duration_since(now.wall)).ok());
    // Times of the API end in the year 9999, so the sum is in range.
    ahead.and_then(|it| now.instant.checked_add(it)).unwrap_or(now.instant)
}

#[cfg(test)]
mod tests {
    use api::Cached;
    use clock::Clock;
    use serde_json::{Value, json};

    use super::*;

    const SEC: Duration = Duration::from_secs(1);
    /// The wall time of the first observation.
    const START: i64 = 1_800_000_000;

    fn node(taints: Value) -> Node {
        let object = json!({ "metadata": { "name": "n1", "uid": "u" }, "spec": { "taints": taints } });
        Node::decode_object(object.to_string().as_bytes()).unwrap()
    }

    fn taint(value: &str, added: Option<i64>) -> Value {
        let added = added.map(|it| Timestamp::from_second(START + it).unwrap().to_string());
        json!({ "key": "k", "value": value, "effect": "NoExecute", "timeAdded": added })
    }

    fn at(seconds: u64) -> Now {
        let start = Now { instant: Clock::system().now(), wall: Timestamp::from_second(START).unwrap() };
        Now { instant: start.instant + SEC * u32::try_from(seconds).unwrap(), wall: start.wall + SEC * 10 }
    }

    #[test]
    fn a_taint_counts_from_its_first_observation() {
        struct Case {
            name: &'static str,
            before: Value,
            after: Value,
            is_gapless: bool,
            /// Whether the time of the first observation is kept.
            keeps: bool,
        }
        for Case { name, before, after, is_gapless, keeps } in [
            Case {
                name: "an unchanged taint",
                before: taint("v", None),
                after: taint("v", None),
                is_gapless: true,
                keeps: true,
            },
            Case {
                name: "another value",
                before: taint("v", None),
                after: taint("w", None),
                is_gapless: true,
                keeps: false,
            },
            Case {
                name: "another timeAdded",
                before: taint("v", Some(1)),
                after: taint("v", Some(2)),
                is_gapless: true,
                keeps: false,
            },
            Case {
                name: "after a gap, without timeAdded",
                before: taint("v", None),
                after: taint("v", None),
                is_gapless: false,
                keeps: false,
            },
            Case {
                name: "after a gap, with the same timeAdded",
                before: taint("v", Some(1)),
                after: taint("v", Some(1)),
                is_gapless: false,
                keeps: true,
            },
        ] {
            let (first, second) = (at(0), at(60));
            let known = observe(&[], &node(json!([before])), true, first);
            assert_eq!(known[0].since, first.instant, "{name}");
            let observed = observe(&known, &node(json!([after])), is_gapless, second);
            assert_eq!(observed[0].since, if keeps { first.instant } else { second.instant }, "{name}");
        }
    }

    #[test]
    fn of_two_taints_that_replace_each_other_the_first_time_is_kept() {
        let taints = |keys: &[&str]| node(keys.iter().map(|it| json!({ "key": it, "effect": "NoExecute" })).collect());
        let [not_ready, unreachable] = PAIR;
        let first = observe(&[], &taints(&[not_ready]), true, at(0));
        let second = observe(&first, &taints(&[unreachable]), true, at(60));
        let third = observe(&second, &taints(&[not_ready]), true, at(90));
        for (observed, before) in [(&second, not_ready), (&third, unreachable)] {
            let replaced = observed[0].replaced.as_ref().unwrap();
            assert_eq!((&*replaced.taint.key, replaced.since), (before, first[0].since));
        }
        assert_eq!(observe(&third, &taints(&[not_ready]), true, at(99)), third, "nothing has changed");
        let both = observe(&first, &taints(&[not_ready, unreachable]), true, at(60));
        let [old, new] = &both[..] else { panic!("{both:?}") };
        assert_eq!((old, new.replaced.as_ref().map(|it| it.since)), (&first[0], Some(first[0].since)));
        let after = observe(&both, &taints(&[unreachable]), true, at(61));
        assert_eq!(*after, *std::slice::from_ref(new), "upstream's second write");
        for (name, key, is_gapless) in [("after a gap", unreachable, false), ("another taint", "k", true)] {
            assert_eq!(observe(&first, &taints(&[key]), is_gapless, at(60))[0].replaced, None, "{name}");
        }
        let newer = json!([
            { "key": not_ready, "effect": "NoExecute", "timeAdded": "2027-01-15T08:00:50Z" },
            { "key": unreachable, "effect": "NoExecute" },
        ]);
        let newer = observe(&first, &node(newer), true, at(60));
        assert!(newer.iter().all(|it| it.replaced.is_none()), "both are new");
        let ready = observe(&first, &taints(&[]), true, at(30));
        assert_eq!(observe(&ready, &taints(&[unreachable]), true, at(60))[0].replaced, None, "it was ready in between");
    }

    #[test]
    fn an_interruption_does_not_count() {
        let start = at(0);
        let at = |seconds: u32| Now { instant: start.instant + SEC * seconds, ..start };
        let taints = |key: &str| node(json!([{ "key": key, "effect": "NoExecute" }]));
        let first = observe(&[], &taints(PAIR[0]), true, at(0));
        let observed = observe(&first, &taints(PAIR[1]), true, at(60));
        for (missed, now, first, second) in
            [(Missed::Time(SEC * 5), 100, 5, 65), (Missed::Time(SEC * 9), 63, 9, 63), (Missed::All, 100, 100, 100)]
        {
            let after = after_interruption(&observed, missed, at(now).instant);
            let replaced = after[0].replaced.as_ref().unwrap();
            assert_eq!((replaced.since, after[0].since), (at(first).instant, at(second).instant), "{missed:?} {now}");
        }
        let future = observe(&[], &node(json!([taint("v", Some(40))])), true, at(0));
        assert_eq!(after_interruption(&future, Missed::All, at(0).instant), future, "timeAdded is later");
    }

    #[test]
    fn a_taint_added_in_the_future_counts_from_then() {
        let now = at(0);
        for (added, ahead) in [(0, 0), (10, 0), (40, 30)] {
            let observed = observe(&[], &node(json!([taint("v", Some(added))])), true, now);
            assert_eq!(observed[0].since, now.instant + SEC * ahead, "{added}");
        }
    }

    #[test]
    fn acceptance_node_041_other_effects_are_not_observed() {
        let others = ["NoSchedule", "PreferNoSchedule", "Other"].map(|it| json!({ "key": "k", "effect": it }));
        assert!(observe(&[], &node(json!(others)), true, at(0)).is_empty());
    }

    #[test]
    fn taints_are_compared_as_sets() {
        let (a, b) = (taint("a", None), json!({ "key": "other", "effect": "NoExecute" }));
        let no_schedule = json!({ "key": "k", "effect": "NoSchedule" });
        let observed = observe(&[], &node(json!([a, b])), true, at(0));
        for (taints, want) in [
            (json!([a, b]), true),
            (json!([no_schedule, b, a]), true),
            (json!([a]), false),
            (json!([]), false),
            (json!([a, taint("c", None)]), false),
            (json!([a, b, { "key": "third", "effect": "NoExecute" }]), false),
        ] {
            assert_eq!(are_taints_of(&observed, &node(taints.clone())), want, "{taints}");
        }
    }
}
