use serde_json::{Value, json};

use super::*;
use crate::testing::{NOW, at, atom, condition};

const SEC: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_secs(50);
const STARTUP: Duration = Duration::from_secs(60);

/// The instant of all scripts at which they start.
fn start() -> BootInstant {
    BootInstant::from_millis(1_000_000_000)
}

/// The time this many seconds after [`NOW`].
fn second(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).unwrap()
}

fn nodes() -> Nodes {
    Nodes::new(GRACE, STARTUP)
}

/// The node `a` with this Ready condition, such as `True`, posted at this second; no condition if the text is empty.
fn a(ready: &str, posted: i64) -> Node {
    node("a", ready, posted, json!({}))
}

fn node(name: &str, ready: &str, posted: i64, labels: Value) -> Node {
    let mut conditions = Vec::new();
    if !ready.is_empty() {
        let mut condition = condition(&format!("Ready={ready}"));
        condition["lastHeartbeatTime"] = json!(at(posted));
        conditions.push(condition);
    }
    crate::testing::decode(&json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "creationTimestamp": at(0),
            "labels": labels },
        "status": { "conditions": conditions },
    }))
}

fn zoned(name: &str, ready: &str, zone: &str) -> Node {
    node(name, ready, 0, json!({ "topology.kubernetes.io/zone": zone }))
}

/// The whole seconds of the grace period that remain; `None` if it is over. The wall clock is at [`NOW`].
fn remaining(nodes: &Nodes, node: &Node, now: BootInstant) -> Option<u64> {
    remaining_with(nodes, node, None, now, 0)
}

/// The same with a Lease that was renewed at this second, and with this second of the wall clock.
fn remaining_with(nodes: &Nodes, node: &Node, renewed: Option<i64>, now: BootInstant, wall: i64) -> Option<u64> {
    match nodes.silence(node, renewed.map(second), now, second(wall)) {
        Silence::Remaining(it) => Some(it.as_secs()),
        Silence::Over => None,
    }
}

fn observe(nodes: &mut Nodes, node: &Node, now: BootInstant) {
    nodes.on_node(node, now);
}

#[test]
fn acceptance_node_001_005_each_renewed_lease_and_each_heartbeat_starts_the_grace_period_anew() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &a("True", 0), t);
    assert_eq!(remaining(&nodes, &a("True", 0), t), Some(50));
    assert_eq!(remaining(&nodes, &a("True", 0), t + 30 * SEC), Some(20));
    nodes.on_renewal("a", t + 40 * SEC);
    assert_eq!(remaining(&nodes, &a("True", 0), t + 40 * SEC), Some(50));
    observe(&mut nodes, &a("True", 45), t + 45 * SEC);
    assert_eq!(
        remaining(&nodes, &a("True", 45), t + 95 * SEC),
        Some(0),
        "at the end of its grace period it is not over"
    );
    assert_eq!(remaining(&nodes, &a("True", 45), t + 95 * SEC + MS), None);
    nodes.on_renewal("b", t);
    assert_eq!(nodes.readiness("b"), None, "a Lease without a node is no node");
}

#[test]
fn remaining_times_end_together_at_most_50_ms_after_the_deadline() {
    let (mut nodes, t) = (nodes(), start());
    for after in [0, 1, 48, 49, 50, 99] {
        let observed = t + after * MS;
        observe(&mut nodes, &a("True", 0), observed);
        nodes.on_renewal("a", observed);
        let Silence::Remaining(wait) = nodes.silence(&a("True", 0), None, observed, second(0)) else {
            panic!("it has just been observed")
        };
        assert!(wait > GRACE && wait <= GRACE + 50 * MS, "{wait:?}");
        let end = observed + wait;
        assert_eq!(end.as_millis() % 50, 0);
        assert_eq!(nodes.silence(&a("True", 0), None, end, second(0)), Silence::Over);
    }
}

#[test]
fn events_without_a_new_heartbeat_are_no_sign_of_life() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &a("True", 0), t);
    observe(&mut nodes, &node("a", "True", 0, json!({ "color": "red" })), t + 49 * SEC);
    assert_eq!(remaining(&nodes, &a("True", 0), t + 51 * SEC), None, "a label changed");
    // A controller has set the condition to Unknown. The heartbeat is kept, and one without Ready gets its creation.
    observe(&mut nodes, &a("Unknown", 0), t + 60 * SEC);
    assert_eq!(remaining(&nodes, &a("Unknown", 0), t + 61 * SEC), None);
    observe(&mut nodes, &a("Unknown", 20), t + 62 * SEC);
    assert_eq!(remaining(&nodes, &a("Unknown", 20), t + 63 * SEC), None, "Unknown with another heartbeat is no life");
}

#[test]
fn acceptance_node_004_a_node_without_ready_has_the_startup_grace_period() {
    let t = start();
    let mut new = nodes();
    observe(&mut new, &a("", 0), t);
    assert_eq!(remaining_with(&new, &a("", 0), None, t, 45), Some(60), "whatever our clock shows");
    assert_eq!(remaining_with(&new, &a("", 0), None, t + 61 * SEC, -300), None);
    observe(&mut new, &a("True", 50), t + 20 * SEC);
    assert_eq!(remaining(&new, &a("True", 50), t + 20 * SEC), Some(50), "its first status");
    observe(&mut new, &a("", 0), t + 30 * SEC);
    assert_eq!(remaining(&new, &a("", 0), t + 30 * SEC), Some(60), "its condition was removed");
}

#[test]
fn times_in_the_future_delay_the_end_by_one_grace_period_at_most() {
    let (mut nodes, t) = (nodes(), start());
    let unknown = a("Unknown", 0);
    observe(&mut nodes, &unknown, t);
    let at = |after: u32| remaining_with(&nodes, &unknown, Some(9_000), t + SEC * after, -300);
    assert_eq!((at(0), at(50), at(51)), (Some(50), Some(0), None));
    assert_eq!((age(second(9), second(0)), age(second(-9), second(0))), (Duration::ZERO, 9 * SEC));
}

#[test]
fn acceptance_node_006_a_node_that_was_ready_at_the_start_has_a_full_grace_period() {
    for ready in ["True", "False"] {
        let mut nodes = nodes();
        observe(&mut nodes, &a(ready, -3600), start());
        assert_eq!(remaining_with(&nodes, &a(ready, -3600), Some(-3600), start(), 0), Some(50), "{ready}");
    }
}

#[test]
fn acceptance_node_006_a_node_that_was_unknown_at_the_start_is_silent_unless_its_lease_is_recent() {
    let (mut nodes, t) = (nodes(), start());
    let unknown = a("Unknown", -3600);
    observe(&mut nodes, &unknown, t);
    assert_eq!(remaining(&nodes, &unknown, t), None, "the time of its creation does not matter");
    assert_eq!(remaining_with(&nodes, &unknown, Some(-3600), t, 0), None);
    assert_eq!(remaining_with(&nodes, &unknown, Some(-20), t, 0), Some(30), "it may be alive");
    assert_eq!(remaining_with(&nodes, &unknown, Some(-20), t + 31 * SEC, 31), None);
    nodes.on_renewal("a", t);
    assert_eq!(remaining_with(&nodes, &unknown, Some(-3600), t + 30 * SEC, 30), Some(20));
}

#[test]
fn unknown_posted_by_a_kubelet_is_a_sign_of_life() {
    let mut posted = a("Unknown", -10);
    posted.conditions[0].reason = atom("KubeletSays");
    let mut nodes = nodes();
    observe(&mut nodes, &posted, start());
    assert_eq!(remaining(&nodes, &posted, start()), Some(50));
}

#[test]
fn another_node_of_the_same_name_starts_anew() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &a("Unknown", 0), t);
    assert_eq!(nodes.begin_marking("a", t), Marking::Now);
    let mut other = a("Unknown", 0);
    other.meta.uid = Uid::new("uid-other");
    other.conditions[0].reason = atom("KubeletSays");
    assert_eq!(
        remaining(&nodes, &other, t + 70 * SEC),
        Some(50),
        "it is not known yet, so a whole grace period remains"
    );
    observe(&mut nodes, &other, t + 70 * SEC);
    assert_eq!(remaining(&nodes, &other, t + 80 * SEC), Some(40));
    assert_eq!(nodes.begin_marking("a", t), Marking::Now, "its pods are other pods");
    assert_eq!(nodes.remove("a", &a("", 0).meta.uid), None, "the deletion of the first one comes late");
    assert_eq!(nodes.readiness("a"), Some(&ConditionStatus::Unknown));
    assert_eq!(nodes.remove("a", &other.meta.uid), Some(atom("")));
    assert_eq!((nodes.readiness("a"), nodes.zone("a")), (None, None));
    assert_eq!(remaining(&nodes, &other, t + 200 * SEC), Some(50), "a deleted node has a whole grace period");
}

/// The node in this version.
fn versioned(ready: &str, posted: i64, version: u64) -> Node {
    let mut node = a(ready, posted);
    node.meta.version = version.into();
    node
}

#[test]
fn own_writes_and_live_reads_count_before_the_cache_shows_them() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &versioned("True", 0, 7), t);
    observe(&mut nodes, &versioned("Unknown", 0, 9), t + 50 * SEC);
    assert_eq!(nodes.zone_counts(t)[&atom("")].ready, 0);
    observe(&mut nodes, &versioned("True", 5, 8), t + 51 * SEC);
    assert_eq!(nodes.readiness("a"), Some(&ConditionStatus::Unknown), "the cache is behind");
    observe(&mut nodes, &versioned("Unknown", 0, 9), t + 52 * SEC);
    assert_eq!(remaining(&nodes, &a("Unknown", 0), t + 53 * SEC), None, "our own write is no sign of life");
    observe(&mut nodes, &versioned("True", 60, 10), t + 60 * SEC);
    assert_eq!(nodes.readiness("a"), Some(&ConditionStatus::True));
}

#[test]
fn pods_are_marked_once_for_each_state_that_is_not_ready() {
    let (mut nodes, t) = (nodes(), start());
    assert_eq!(nodes.begin_marking("a", t), Marking::Done, "an unknown node");
    let script = [
        ("", 0, Marking::Done, "no condition"),
        ("True", 1, Marking::Done, "ready"),
        ("False", 2, Marking::After(10 * SEC), "posted by the kubelet, which may only restart"),
        ("False", 7, Marking::After(5 * SEC), "still"),
        ("False", 12, Marking::Now, "k/k#125618"),
        ("False", 13, Marking::Done, "again"),
        ("Unknown", 50, Marking::Now, "k/k#112733: from False to Unknown"),
        ("Unknown", 51, Marking::Done, "again"),
        ("False", 60, Marking::After(10 * SEC), "from Unknown to False"),
        ("True", 65, Marking::Done, "it is back"),
        ("False", 66, Marking::After(10 * SEC), "not ready again"),
        ("False", 76, Marking::Now, "for longer"),
        ("True", 80, Marking::Done, "it is back, without a sync"),
        ("Unknown", 81, Marking::Now, "silent"),
    ];
    for (ready, after, marking, why) in script {
        let now = t + SEC * after;
        observe(&mut nodes, &a(ready, 0), now);
        assert_eq!(nodes.begin_marking("a", now), marking, "{why}");
    }
    observe(&mut nodes, &zoned("b", "Unknown", "z"), t);
    assert_eq!(nodes.begin_marking("b", t), Marking::Now, "k/k#135205: not ready when it is first observed");
}

#[test]
fn pods_are_marked_again_if_no_sync_found_that_the_node_was_ready_in_between() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &a("Unknown", 0), t);
    assert_eq!(nodes.begin_marking("a", t), Marking::Now);
    observe(&mut nodes, &a("True", 1), t);
    observe(&mut nodes, &a("Unknown", 2), t);
    assert_eq!(nodes.begin_marking("a", t), Marking::Now);
}

#[test]
fn short_interruption_does_not_count_as_silence() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &a("True", 0), t);
    observe(&mut nodes, &node("b", "True", 0, json!({})), t + 28 * SEC);
    observe(&mut nodes, &node("c", "Unknown", 0, json!({})), t);
    nodes.on_missed(5 * SEC, t + 30 * SEC);
    assert_eq!(remaining(&nodes, &a("True", 0), t + 30 * SEC), Some(25));
    let b = node("b", "True", 0, json!({}));
    assert_eq!(remaining(&nodes, &b, t + 30 * SEC), Some(50), "never more than its grace period");
    assert_eq!(remaining(&nodes, &node("c", "Unknown", 0, json!({})), t + 30 * SEC), None);
}

#[test]
fn interruption_starts_all_grace_periods_anew_but_not_of_nodes_that_are_unknown() {
    let (mut nodes, t) = (nodes(), start());
    for (name, ready) in [("true", "True"), ("false", "False"), ("none", ""), ("unknown", "Unknown")] {
        observe(&mut nodes, &node(name, ready, 0, json!({})), t);
    }
    nodes.restart(t + 100 * SEC, None);
    let at = |name, ready| remaining(&nodes, &node(name, ready, 0, json!({})), t + 100 * SEC);
    assert_eq!((at("true", "True"), at("false", "False"), at("none", "")), (Some(50), Some(50), Some(60)));
    assert_eq!(at("unknown", "Unknown"), None);
}

#[test]
fn end_of_full_disruption_starts_only_grace_periods_anew_that_were_not_over_when_it_began() {
    let (mut nodes, t) = (nodes(), start());
    let disrupted = t + 100 * SEC;
    observe(&mut nodes, &node("dead", "True", 0, json!({})), disrupted - 51 * SEC);
    observe(&mut nodes, &node("silent", "True", 0, json!({})), disrupted - 40 * SEC);
    observe(&mut nodes, &node("starting", "", 0, json!({})), disrupted - 55 * SEC);
    observe(&mut nodes, &node("never", "", 0, json!({})), disrupted - 61 * SEC);
    let end = disrupted + 300 * SEC;
    nodes.restart(end, Some(disrupted));
    let at = |name, ready| remaining(&nodes, &node(name, ready, 0, json!({})), end);
    assert_eq!((at("silent", "True"), at("starting", "")), (Some(50), Some(60)));
    assert_eq!((at("dead", "True"), at("never", "")), (None, None), "openyurt#2713");
}

#[test]
fn node_that_moves_returns_the_zone_that_it_left() {
    let (mut nodes, t) = (nodes(), start());
    let moved = |nodes: &mut Nodes, zone| nodes.on_node(&zoned("a", "True", zone), t);
    assert_eq!(moved(&mut nodes, "x"), None);
    assert_eq!(moved(&mut nodes, "x"), None);
    assert_eq!(moved(&mut nodes, "y").as_deref(), Some(":\0:x"));
    assert_eq!(nodes.zone("a").map(|it| &**it), Some(":\0:y"));
    let mut other = zoned("a", "True", "z");
    other.meta.uid = Uid::new("uid-other");
    assert_eq!(nodes.on_node(&other, t).as_deref(), Some(":\0:y"), "the zone of the one before");
    assert_eq!(nodes.remove("a", &other.meta.uid).as_deref(), Some(":\0:z"));
}

#[test]
fn acceptance_node_022_zones_are_counted_without_excluded_nodes() {
    let (mut nodes, t) = (nodes(), start());
    for (name, ready, zone) in
        [("a", "True", "x"), ("b", "False", "x"), ("c", "Unknown", "x"), ("d", "", "x"), ("e", "True", "y")]
    {
        observe(&mut nodes, &zoned(name, ready, zone), t);
    }
    let labels = json!({ "node.kubernetes.io/exclude-disruption": "", "topology.kubernetes.io/zone": "y" });
    observe(&mut nodes, &node("f", "False", 0, labels.clone()), t);
    observe(&mut nodes, &node("g", "True", 0, json!({ "node.kubernetes.io/exclude-disruption": "false" })), t);
    let counts = nodes.zone_counts(t);
    let x = Counts { size: 4, ready: 1, suspect: 0 };
    let y = Counts { size: 1, ready: 1, suspect: 0 };
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(atom(":\0:x"), x), (atom(":\0:y"), y)]);
    assert_eq!(nodes.zones().into_iter().collect::<Vec<_>>(), [atom(""), atom(":\0:x"), atom(":\0:y")]);
    observe(&mut nodes, &zoned("f", "False", "y"), t);
    assert_eq!(nodes.zone_counts(t)[&atom(":\0:y")].size, 2, "the label was removed");
    observe(&mut nodes, &node("e", "True", 0, labels), t);
    assert_eq!(nodes.zone_counts(t)[&atom(":\0:y")], Counts { size: 1, ready: 0, suspect: 0 });
}

#[test]
fn ready_node_is_suspect_after_three_quarters_of_its_grace_period() {
    let (mut nodes, t) = (nodes(), start());
    observe(&mut nodes, &zoned("a", "True", "x"), t);
    observe(&mut nodes, &zoned("b", "False", "x"), t);
    let suspect = |nodes: &Nodes, after| nodes.zone_counts(t + after)[&atom(":\0:x")];
    assert_eq!(suspect(&nodes, 37_500 * MS).suspect, 0);
    assert_eq!(suspect(&nodes, 37_501 * MS), Counts { size: 2, ready: 1, suspect: 1 });
    nodes.on_renewal("a", t + 40 * SEC);
    assert_eq!(suspect(&nodes, 41 * SEC).suspect, 0);
}

#[test]
fn unknown_node_has_no_counts_and_no_zone() {
    let nodes = nodes();
    assert!(nodes.zone_counts(start()).is_empty());
    assert_eq!((nodes.zone("a"), nodes.readiness("a")), (None, None));
}
