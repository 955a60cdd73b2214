use std::collections::BTreeMap as Map;

use fastrand::Rng;

use super::*;
use crate::testing::atom;

const SEC: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const TEN: Duration = Duration::from_secs(10);

fn start() -> BootInstant {
    BootInstant::from_millis(1_000_000_000)
}

/// A zone `z` in which a node is tainted every ten seconds.
struct Script {
    pacing: Pacing,
    now: BootInstant,
}

impl Script {
    /// These nodes wait in this order.
    fn waiting(nodes: &[&str]) -> Self {
        let mut script = Self { pacing: Pacing::new(Some(TEN)), now: start() };
        nodes.iter().for_each(|it| script.add(it));
        script
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn add(&mut self, node: &str) {
        self.pacing.add(&atom("z"), &atom(node));
    }

    fn take(&mut self, node: &str) -> bool {
        let is_turn = self.pacing.is_turn(&atom("z"), &atom(node), self.now);
        assert_eq!(self.pacing.take_turn(&atom("z"), &atom(node), self.now), is_turn);
        is_turn
    }

    fn withdraw(&mut self, node: &str) -> bool {
        self.pacing.withdraw(&atom("z"), &atom(node))
    }

    /// The node takes its turn and is tainted.
    fn taint(&mut self, node: &str) {
        assert!(self.take(node), "{node}");
        self.pacing.on_tainted(&atom("z"), self.now);
        assert!(self.withdraw(node));
    }

    fn set_interval(&mut self, interval: Option<Duration>) {
        self.pacing.set_interval(&atom("z"), interval, self.now);
    }

    /// The next node, and in how many seconds it may be tainted.
    fn next(&self) -> Option<(String, u64)> {
        self.pacing.next(&atom("z"), self.now).map(|(node, wait)| (node.to_string(), wait.as_secs()))
    }
}

fn turn(node: &str, seconds: u64) -> Option<(String, u64)> {
    Some((node.to_owned(), seconds))
}

#[test]
fn acceptance_node_012_the_first_node_at_once_and_then_one_for_each_interval() {
    let mut zone = Script::waiting(&["a", "b", "c"]);
    assert_eq!(zone.next(), turn("a", 0));
    assert!(!zone.take("b"), "the order is kept");
    zone.taint("a");
    assert_eq!(zone.next(), turn("b", 10));
    zone.pass(TEN - MS);
    assert!(!zone.take("b"));
    zone.pass(MS);
    assert!(!zone.take("c"));
    zone.taint("b");
    zone.pass(25 * SEC);
    zone.taint("c");
    assert_eq!(zone.next(), None);
    zone.add("d");
    assert_eq!(zone.next(), turn("d", 10), "a long pause saves no turns");
    assert!(!zone.take("unknown"));
}

#[test]
fn a_node_waits_only_once() {
    let mut zone = Script::waiting(&["a", "b", "a"]);
    zone.taint("a");
    assert!(!zone.withdraw("a"), "it did not wait any more");
    assert_eq!(zone.next(), turn("b", 10));
    zone.add("b");
    zone.add("c");
    zone.pass(TEN);
    zone.taint("b");
    assert_eq!(zone.next(), turn("c", 10));
}

#[test]
fn a_withdrawn_node_blocks_no_other() {
    for gone in ["a", "b", "c"] {
        let mut zone = Script::waiting(&["first", "a", "b", "c"]);
        zone.taint("first");
        assert!(zone.withdraw(gone));
        for left in ["a", "b", "c"].iter().filter(|it| **it != gone) {
            zone.pass(TEN);
            assert_eq!(zone.next(), turn(left, 0), "without {gone}");
            zone.taint(left);
        }
        assert_eq!(zone.next(), None);
    }
    assert!(!Pacing::new(None).withdraw(&atom("z"), &atom("a")), "an unknown zone");
}

#[test]
fn a_turn_is_used_up_when_it_is_taken() {
    let mut zone = Script::waiting(&["a", "b"]);
    assert!(zone.take("a"));
    assert!(!zone.take("a"), "two nodes could be tainted in one interval otherwise");
    assert_eq!(zone.next(), turn("a", 10), "until it is postponed or withdrawn it is the next one");
    zone.pass(9 * SEC);
    zone.pacing.on_tainted(&atom("z"), zone.now);
    assert!(zone.withdraw("a"));
    assert_eq!(zone.next(), turn("b", 10), "the write took nine seconds");
}

#[test]
fn a_node_that_could_not_be_tainted_waits_behind_the_others() {
    let mut zone = Script::waiting(&["a", "b"]);
    assert!(zone.take("a"));
    zone.pacing.postpone(&atom("z"), &atom("a"));
    assert_eq!(zone.next(), turn("b", 10));
    zone.pass(TEN);
    zone.taint("b");
    assert_eq!(zone.next(), turn("a", 10));
    zone.pacing.postpone(&atom("z"), &atom("gone"));
    assert!(!zone.withdraw("gone"), "a node that does not wait is not added");
}

#[test]
fn taints_of_another_leader_count() {
    let mut zone = Script::waiting(&[]);
    zone.pacing.on_tainted(&atom("z"), start() - 4 * SEC);
    zone.pacing.on_tainted(&atom("z"), start() - 7 * SEC);
    zone.add("a");
    assert_eq!(zone.next(), turn("a", 6));
    zone.pass(6 * SEC);
    zone.taint("a");
}

#[test]
fn acceptance_node_017_a_zone_without_an_interval_taints_nothing_and_continues_with_its_order() {
    let mut zone = Script::waiting(&["a", "b"]);
    zone.set_interval(None);
    assert!(!zone.take("a"));
    assert_eq!(zone.next(), None);
    zone.pass(3600 * SEC);
    assert!(zone.pacing.all_next(zone.now).is_empty());
    zone.set_interval(Some(100 * SEC));
    assert_eq!(zone.next(), turn("a", 100), "the first one waits too");
    zone.pass(100 * SEC);
    zone.taint("a");
    assert_eq!(zone.next(), turn("b", 100));
}

#[test]
fn a_new_interval_counts_from_the_last_taint() {
    let mut zone = Script::waiting(&["a", "b"]);
    zone.taint("a");
    zone.set_interval(Some(100 * SEC));
    zone.pass(TEN);
    assert_eq!(zone.next(), turn("b", 90));
    zone.set_interval(Some(SEC));
    assert_eq!(zone.next(), turn("b", 0));
    zone.set_interval(Some(SEC));
    assert_eq!(zone.next(), turn("b", 0), "the same interval again changes nothing");
}

#[test]
fn acceptance_node_019_full_disruption_ends_all_waits_until_it_is_over() {
    let mut zone = Script::waiting(&["a", "b"]);
    assert!(zone.take("a"));
    zone.pacing.stop();
    assert_eq!(zone.next(), None);
    zone.add("c");
    assert!(!zone.take("c"), "k/k#111385");
    zone.pacing.stop();
    zone.pass(500 * SEC);
    zone.pacing.resume(zone.now);
    assert!(zone.pacing.all_next(zone.now).is_empty());
    zone.add("b");
    assert_eq!(zone.next(), turn("b", 10));
}

#[test]
fn zones_are_independent_and_are_forgotten_without_nodes_after_their_interval() {
    let mut pacing = Pacing::new(Some(TEN));
    for (zone, node) in [("x", "a"), ("y", "b"), ("x", "c"), ("y", "d")] {
        pacing.add(&atom(zone), &atom(node));
    }
    assert!(pacing.take_turn(&atom("x"), &atom("a"), start()) && pacing.take_turn(&atom("y"), &atom("b"), start()));
    pacing.withdraw(&atom("x"), &atom("a"));
    pacing.withdraw(&atom("y"), &atom("b"));
    let next = |pacing: &Pacing, after| -> Vec<(String, Duration)> {
        pacing.all_next(start() + after).into_iter().map(|(node, wait)| (node.to_string(), wait)).collect()
    };
    assert_eq!(next(&pacing, SEC), [("c".to_owned(), 9 * SEC), ("d".to_owned(), 9 * SEC)]);
    pacing.set_interval(&atom("x"), None, start());
    assert_eq!(next(&pacing, SEC), [("d".to_owned(), 9 * SEC)]);
    pacing.withdraw(&atom("x"), &atom("c"));
    let mut zones_at = |after| {
        pacing.retain(start() + after, |_| false);
        pacing.zones.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(zones_at(9 * SEC), ["x", "y"], "a node that comes back must wait");
    assert_eq!(zones_at(TEN), ["y"], "a node waits in it");
}

/// A zone as the list of all its turns and taints, and of the times at which its taints were allowed again.
struct Model {
    waiting: Vec<u8>,
    /// Before these times no node may be tainted in the interval.
    marks: Vec<BootInstant>,
    interval: Option<Duration>,
}

impl Model {
    fn may_take_turn(&self, now: BootInstant) -> bool {
        self.interval.is_some_and(|interval| self.marks.iter().all(|it| *it + interval <= now))
    }

    fn take_turn(&mut self, node: u8, now: BootInstant) -> bool {
        let takes = self.waiting.first() == Some(&node) && self.may_take_turn(now);
        if takes {
            self.marks.push(now);
        }
        takes
    }

    fn set_interval(&mut self, interval: Option<Duration>, now: BootInstant) {
        if self.interval.is_none() && interval.is_some() {
            self.marks.push(now);
        }
        self.interval = interval;
    }
}

/// Random turns, withdrawals, taints, intervals and disruptions in two zones.
#[test]
fn random_operations_agree_with_a_naive_model() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut pacing = Pacing::new(Some(TEN));
        let mut models: Map<&str, Model> = Map::new();
        let mut now = start();
        for zone in ["x", "y"] {
            // `stop` and `resume` apply to the zones that are known.
            pacing.set_interval(&atom(zone), Some(TEN), now);
            models.insert(zone, Model { waiting: Vec::new(), marks: Vec::new(), interval: Some(TEN) });
        }
        for step in 0..400 {
            let zone = if rng.bool() { "x" } else { "y" };
            let model = models.get_mut(zone).unwrap();
            let node = rng.u8(0..6);
            let (zone, name) = (atom(zone), atom(&node.to_string()));
            match rng.u8(0..14) {
                0..=2 => {
                    pacing.add(&zone, &name);
                    if !model.waiting.contains(&node) {
                        model.waiting.push(node);
                    }
                }
                3..=6 => {
                    let takes = pacing.take_turn(&zone, &name, now);
                    assert_eq!(takes, model.take_turn(node, now), "seed {seed}, step {step}");
                }
                7 | 8 => {
                    let had_waited = pacing.withdraw(&zone, &name);
                    assert_eq!(had_waited, model.waiting.contains(&node), "seed {seed}, step {step}");
                    model.waiting.retain(|it| *it != node);
                }
                9 => {
                    pacing.postpone(&zone, &name);
                    if model.waiting.contains(&node) {
                        model.waiting.retain(|it| *it != node);
                        model.waiting.push(node);
                    }
                }
                10 => {
                    let at = now - SEC * rng.u32(0..30);
                    pacing.on_tainted(&zone, at);
                    model.marks.push(at);
                }
                11 => {
                    let interval = [None, Some(SEC), Some(TEN), Some(100 * SEC)][rng.usize(0..4)];
                    pacing.set_interval(&zone, interval, now);
                    model.set_interval(interval, now);
                }
                12 if rng.u8(0..8) == 0 => {
                    pacing.stop();
                    models.values_mut().for_each(|it| (it.waiting, it.interval) = (Vec::new(), None));
                }
                12 if rng.bool() => {
                    pacing.resume(now);
                    models.values_mut().for_each(|it| it.set_interval(Some(TEN), now));
                }
                _ => now = now + SEC * rng.u32(0..8),
            }
            for (zone, model) in &models {
                let next = pacing.next(&atom(zone), now);
                let waits = !model.waiting.is_empty() && model.interval.is_some();
                assert_eq!(next.is_some(), waits, "seed {seed}, step {step}: a waiting node always has a turn");
                if let Some((node, wait)) = next {
                    assert_eq!(*node, *model.waiting[0].to_string(), "seed {seed}, step {step}: the order is kept");
                    assert_eq!(wait.is_zero(), model.may_take_turn(now), "seed {seed}, step {step}");
                    assert!(model.may_take_turn(now + wait), "seed {seed}, step {step}");
                }
            }
        }
    }
}
