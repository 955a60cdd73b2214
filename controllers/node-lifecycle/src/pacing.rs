//! The pace at which the nodes of each zone are tainted: a state machine without I/O, which gets the time as an
//! argument. It does what upstream's `RateLimitedTimedQueue` does with a burst of one.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use api::Atom;
use clock::BootInstant;

/// The zones, with the nodes that wait for a taint. A node waits from when a sync finds that it needs a taint until it
/// is tainted, or needs none.
#[derive(Debug)]
pub(crate) struct Pacing {
    zones: BTreeMap<Atom, Zone>,
    /// The interval of a zone that has no mode yet.
    default: Option<Duration>,
}

#[derive(Debug)]
struct Zone {
    /// The nodes that wait. Only the first one may be tainted.
    waiting: VecDeque<Atom>,
    /// When a node of the zone was last tainted, also by another process, or last took its turn without success.
    last: Option<BootInstant>,
    /// The time between two taints; `None` if nothing is tainted.
    interval: Option<Duration>,
}

impl Pacing {
    pub(crate) fn new(default: Option<Duration>) -> Self {
        Self { zones: BTreeMap::new(), default }
    }

    fn zone(&mut self, zone: &Atom) -> &mut Zone {
        let interval = self.default;
        self.zones.entry(zone.clone()).or_insert_with(|| Zone { waiting: VecDeque::new(), last: None, interval })
    }

    /// Sets the time between two taints of a zone. If nothing was tainted before, the first node waits for this time
    /// too: upstream drains the new limiter (`SwapLimiter`).
    pub(crate) fn set_interval(&mut self, zone: &Atom, interval: Option<Duration>, now: BootInstant) {
        self.zone(zone).set_interval(interval, now);
    }

    /// Records that this process or another one tainted a node of the zone. So a new leader keeps the pace.
    pub(crate) fn on_tainted(&mut self, zone: &Atom, at: BootInstant) {
        let zone = self.zone(zone);
        zone.last = zone.last.max(Some(at));
    }

    /// A node needs a taint. It waits behind the others of its zone.
    pub(crate) fn add(&mut self, zone: &Atom, node: &Atom) {
        let zone = self.zone(zone);
        if !zone.waiting.contains(node) {
            zone.waiting.push_back(node.clone());
        }
    }

    /// True if it is the turn of this node now.
    pub(crate) fn is_turn(&self, zone: &Atom, node: &Atom, now: BootInstant) -> bool {
        self.next(zone, now).is_some_and(|(next, wait)| next == *node && wait.is_zero())
    }

    /// The same. If true, the next turn of the zone begins after its interval. The node remains in the queue until it
    /// is withdrawn.
    pub(crate) fn take_turn(&mut self, zone: &Atom, node: &Atom, now: BootInstant) -> bool {
        let is_turn = self.is_turn(zone, node, now);
        if is_turn {
            self.on_tainted(zone, now);
        }
        is_turn
    }

    /// Moves a node that could not be tainted in its turn behind the others, so that it blocks none.
    pub(crate) fn postpone(&mut self, zone: &Atom, node: &Atom) {
        if self.withdraw(zone, node) {
            self.add(zone, node);
        }
    }

    /// Removes a node that is tainted or needs no taint any more. Returns whether it had waited.
    pub(crate) fn withdraw(&mut self, zone: &Atom, node: &Atom) -> bool {
        let Some(zone) = self.zones.get_mut(zone) else { return false };
        let before = zone.waiting.len();
        zone.waiting.retain(|it| it != node);
        zone.waiting.len() != before
    }

    /// The node of a zone that is tainted next, and when.
    pub(crate) fn next(&self, zone: &Atom, now: BootInstant) -> Option<(Atom, Duration)> {
        let zone = self.zones.get(zone)?;
        Some((zone.waiting.front()?.clone(), zone.wait(now)?))
    }

    /// The same of all zones.
    pub(crate) fn all_next(&self, now: BootInstant) -> Vec<(Atom, Duration)> {
        self.zones.keys().filter_map(|zone| self.next(zone, now)).collect()
    }

    /// Removes the zones without nodes. One whose last taint delays the next one is kept, because nodes may come back to it.
    pub(crate) fn retain(&mut self, now: BootInstant, has_nodes: impl Fn(&Atom) -> bool) {
        let default = self.default;
        self.zones.retain(|zone, it| {
            let is_recent = |at: BootInstant| it.interval.or(default).is_some_and(|it| now.saturating_since(at) < it);
            !it.waiting.is_empty() || has_nodes(zone) || it.last.is_some_and(is_recent)
        });
    }

    /// Sets the interval of all zones to that of a zone without a mode.
    pub(crate) fn resume(&mut self, now: BootInstant) {
        let interval = self.default;
        self.zones.values_mut().for_each(|it| it.set_interval(interval, now));
    }

    /// Ends all waits, and taints nothing until [`Pacing::resume`].
    pub(crate) fn stop(&mut self) {
        for zone in self.zones.values_mut() {
            zone.waiting.clear();
            zone.interval = None;
        }
    }
}

impl Zone {
    fn set_interval(&mut self, interval: Option<Duration>, now: BootInstant) {
        if self.interval.is_none() && interval.is_some() {
            self.last = self.last.max(Some(now));
        }
        self.interval = interval;
    }

    /// The time until the next taint; `None` if there is none.
    fn wait(&self, now: BootInstant) -> Option<Duration> {
        let interval = self.interval?;
        Some(self.last.map_or(Duration::ZERO, |it| interval.saturating_sub(now.saturating_since(it))))
    }
}

#[cfg(test)]
mod tests;
