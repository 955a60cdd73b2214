use serde_json::{Value, json};

use super::*;
use crate::testing::{atom, node_with};

const DEFAULT: Pace = Pace { rate: 0.1, reduced_rate: 0.01, large: 50, threshold: 0.55 };

fn labels(labels: Value) -> Labels {
    node_with(&[], labels, json!({})).labels
}

#[test]
fn acceptance_node_023_the_legacy_labels_of_a_zone_win() {
    const OLD: [&str; 2] = ["failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"];
    const NEW: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];
    for (name, given, want) in [
        ("no labels", json!({}), ""),
        ("other labels", json!({ "zone": "z" }), ""),
        ("present labels", json!({ NEW[0]: "r", NEW[1]: "z" }), "r:\0:z"),
        ("only a zone", json!({ NEW[1]: "z" }), ":\0:z"),
        ("only a region", json!({ NEW[0]: "r" }), "r:\0:"),
        ("legacy labels", json!({ OLD[0]: "r", OLD[1]: "z" }), "r:\0:z"),
        ("both", json!({ OLD[0]: "old-r", OLD[1]: "old-z", NEW[0]: "r", NEW[1]: "z" }), "old-r:\0:old-z"),
        ("each label by itself", json!({ OLD[1]: "old-z", NEW[0]: "r", NEW[1]: "z" }), "r:\0:old-z"),
        ("empty values", json!({ NEW[0]: "", NEW[1]: "" }), ""),
        ("an empty legacy value wins", json!({ OLD[1]: "", NEW[0]: "r", NEW[1]: "z" }), "r:\0:"),
    ] {
        assert_eq!(&*zone_of(&labels(given)), want, "{name}");
    }
}

#[test]
fn acceptance_node_022_the_label_excludes_a_node_whatever_its_value() {
    const KEY: &str = "node.kubernetes.io/exclude-disruption";
    for value in ["", "true", "false"] {
        assert!(is_excluded(&labels(json!({ KEY: value }))), "{value}");
    }
    assert!(!is_excluded(&labels(json!({}))) && !is_excluded(&labels(json!({ "exclude-disruption": "true" }))));
}

fn counts(size: usize, ready: usize, suspect: usize) -> Counts {
    Counts { size, ready, suspect }
}

#[test]
fn acceptance_node_016_017_018_the_mode_of_a_zone_by_its_nodes() {
    for (name, counts, want) in [
        ("no node", counts(0, 0, 0), Mode::Normal),
        ("one ready node", counts(1, 1, 0), Mode::Normal),
        ("the only node is not ready", counts(1, 0, 0), Mode::Full),
        ("1 of 2", counts(2, 1, 0), Mode::Normal),
        ("2 of 3: fewer than three", counts(3, 1, 0), Mode::Normal),
        ("3 of 3", counts(3, 0, 0), Mode::Full),
        ("3 of 5: 60 %", counts(5, 2, 0), Mode::Partial),
        ("3 of 6: 50 %", counts(6, 3, 0), Mode::Normal),
        ("11 of 20: exactly 55 %", counts(20, 9, 0), Mode::Partial),
        ("33 of 60: exactly 55 %", counts(60, 27, 0), Mode::Partial),
        ("32 of 60", counts(60, 28, 0), Mode::Normal),
        ("28 of 50: 56 %", counts(50, 22, 0), Mode::Partial),
        ("27 of 50: 54 %", counts(50, 23, 0), Mode::Normal),
        ("all but one", counts(100, 1, 0), Mode::Partial),
        ("a suspect node is still ready", counts(4, 4, 4), Mode::Normal),
    ] {
        assert_eq!(DEFAULT.mode(counts), want, "{name}");
    }
}

#[test]
fn threshold_of_the_user_decides() {
    let with = |threshold| Pace { threshold, ..DEFAULT };
    assert_eq!(with(0.0).mode(counts(100, 97, 0)), Mode::Partial);
    assert_eq!(with(0.0).mode(counts(100, 98, 0)), Mode::Normal, "at least three are needed");
    assert_eq!(with(1.5).mode(counts(100, 1, 0)), Mode::Normal, "upstream accepts any threshold");
    assert_eq!(with(1.5).mode(counts(100, 0, 0)), Mode::Full);
    assert_eq!(with(-1.0).mode(counts(100, 97, 0)), Mode::Partial);
}

#[test]
fn acceptance_node_016_017_021_the_interval_by_mode_and_size() {
    let secs = |secs| Some(Duration::from_secs(secs));
    for (name, mode, size, want) in [
        ("a healthy zone", Mode::Normal, 3, secs(10)),
        ("a large healthy zone", Mode::Normal, 5000, secs(10)),
        ("a zone that is down while others are not", Mode::Full, 3, secs(10)),
        ("a large one", Mode::Full, 5000, secs(10)),
        ("an unhealthy zone that is not large", Mode::Partial, 50, None),
        ("an unhealthy zone that is just large", Mode::Partial, 51, secs(100)),
    ] {
        assert_eq!(DEFAULT.interval(mode, size), want, "{name}");
    }
}

/// The intervals in seconds of zones with these sizes, ready and suspect nodes.
fn intervals(zones: &[(usize, usize, usize)]) -> Vec<Option<u64>> {
    let zone = |(number, it): (usize, &(usize, usize, usize))| (atom(&number.to_string()), counts(it.0, it.1, it.2));
    let intervals = DEFAULT.intervals(&zones.iter().enumerate().map(zone).collect());
    intervals.into_values().map(|it| it.map(|it| it.as_secs())).collect()
}

#[test]
fn suspect_nodes_can_only_slow_a_zone_down() {
    for (name, zones, want) in [
        ("no zone", &[][..], &[][..]),
        ("a healthy zone", &[(5, 5, 0)], &[Some(10)]),
        ("few suspect", &[(5, 5, 2)], &[Some(10)]),
        ("3 of 5 suspect", &[(5, 5, 3)], &[None]),
        ("2 suspect and 1 not ready of 5", &[(5, 4, 2)], &[None]),
        ("33 of 60 suspect", &[(60, 60, 33)], &[Some(100)]),
        ("an unhealthy zone stays slow", &[(60, 20, 0)], &[Some(100)]),
        ("an unhealthy zone whose last nodes are suspect", &[(60, 20, 20), (1, 1, 0)], &[Some(100), Some(10)]),
        ("a small one", &[(10, 2, 2), (1, 1, 0)], &[None, Some(10)]),
        ("all of one zone are suspect", &[(4, 4, 4), (1, 1, 0)], &[Some(10), Some(10)]),
        ("all of all zones are suspect", &[(4, 4, 4), (1, 1, 1)], &[None, None]),
        ("all are suspect or not ready", &[(4, 3, 3), (2, 0, 0)], &[None, None]),
    ] {
        assert_eq!(intervals(zones), want, "{name}");
    }
}

#[test]
fn rates_that_are_zero_negative_or_extreme() {
    let normal = |rate| Pace { rate, ..DEFAULT }.interval(Mode::Normal, 1);
    let partial = |reduced_rate, large| Pace { reduced_rate, large, ..DEFAULT }.interval(Mode::Partial, 60);
    for never in [0.0, -0.0, -0.1, f64::NAN, f64::NEG_INFINITY, 1e-300] {
        assert_eq!(normal(never), None, "{never}");
        assert_eq!(partial(never, 50), None, "{never}");
    }
    assert_eq!((normal(2.0), normal(f64::INFINITY)), (Some(Duration::from_millis(500)), Some(Duration::ZERO)));
    assert_eq!(partial(0.1, 60), None);
    assert_eq!(partial(0.1, -1), Some(Duration::from_secs(10)), "every zone is large");
    assert_eq!(Pace { large: 0, ..DEFAULT }.interval(Mode::Partial, 0), None);
}

/// Modes as `a=F b=N`.
fn modes(text: &str) -> BTreeMap<Atom, Mode> {
    let zone = |it: &str| {
        let (zone, mode) = it.split_once('=').unwrap();
        let mode = match mode {
            "N" => Mode::Normal,
            "P" => Mode::Partial,
            _ => Mode::Full,
        };
        (atom(zone), mode)
    };
    text.split_whitespace().map(zone).collect()
}

#[test]
fn acceptance_node_019_020_full_disruption_begins_when_all_zones_are_down_and_ends_when_one_is_not() {
    for (name, is_disrupted, now, want) in [
        ("no nodes", false, "", Transition::None),
        ("one healthy zone", false, "a=N", Transition::None),
        ("the only zone is down", false, "a=F", Transition::Enter),
        ("one of two zones is down", false, "a=F b=N", Transition::None),
        ("one of two zones is unhealthy", false, "a=F b=P", Transition::None),
        ("both are down", false, "a=F b=F", Transition::Enter),
        ("still down", true, "a=F b=F", Transition::None),
        ("a new zone is down too", true, "a=F b=F c=F", Transition::None),
        ("one zone recovers", true, "a=F b=N", Transition::Leave),
        ("one zone recovers partly", true, "a=F b=P", Transition::Leave),
        ("all recover", true, "a=N b=N", Transition::Leave),
        ("all nodes were deleted", true, "", Transition::Leave),
    ] {
        assert_eq!(transition(is_disrupted, &modes(now)), want, "{name}");
    }
}
