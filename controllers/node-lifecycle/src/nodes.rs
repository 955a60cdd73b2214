//! What this process has observed of each node: a state machine without I/O, which gets the time as an argument. A
//! standby observes too, so that a new leader continues with what it has observed itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Atom, ConditionStatus, Node, Uid, Version};
use clock::{BootInstant, Timestamp};

use crate::rules::{
    conditions::{READY, is_written_by_controller},
    zones::{Counts, is_excluded, zone_of},
};

/// A node that is silent for this part of its grace period is suspect. With the default of 50 s that is 37.5 s; a
/// kubelet renews its Lease every 10 s.
const SUSPECT: f64 = 0.75;

/// The wait for the end of a grace period ends at a multiple of this time since boot, so that one timer serves many
/// nodes. A node becomes Unknown at most this much later.
const TICK_MILLIS: u64 = 50;

/// Pods are marked only if Ready is False for longer: a kubelet that restarts reports False for some seconds.
const MARK_DELAY: Duration = Duration::from_secs(10);

/// All known nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    known: BTreeMap<Box<str>, ObservedNode>,
    grace: Duration,
    startup_grace: Duration,
}

#[derive(Debug)]
struct ObservedNode {
    uid: Uid,
    version: Version,
    zone: Atom,
    is_excluded: bool,
    /// The stored status of Ready, also if only our own write or a live read showed it; `None` without the condition.
    ready: Option<ConditionStatus>,
    /// lastHeartbeatTime of Ready.
    heartbeat: Option<i64>,
    /// When this process last observed a sign of life. `None` for a node that was Unknown when it was first observed.
    last_sign_of_life: Option<BootInstant>,
    first_observed: BootInstant,
    /// Since when this process has observed the status of Ready.
    ready_since: BootInstant,
    /// The status of Ready for which its pods were enqueued.
    marked: Option<ConditionStatus>,
}

/// Whether the pods of a node must be marked as not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marking {
    /// No: it is ready, or they are marked.
    Done,
    /// Yes, once.
    Now,
    /// After this time, if the node is still not ready.
    After(Duration),
}

/// Whether a node has been silent for its grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// No; it has this time left.
    Remaining(Duration),
    /// Yes.
    Over,
}

impl Nodes {
    pub(crate) fn new(grace: Duration, startup_grace: Duration) -> Self {
        Self { known: BTreeMap::new(), grace, startup_grace }
    }

    /// Records the present state of a node. Returns the zone that the node has left.
    pub(crate) fn on_node(&mut self, node: &Node, now: BootInstant) -> Option<Atom> {
        self.record(node, now, false)
    }

    /// The same after a relist. Its state counts even if it is older: etcd may have been restored.
    pub(crate) fn on_relisted(&mut self, node: &Node, now: BootInstant) -> Option<Atom> {
        self.record(node, now, true)
    }

    /// Records a state that a live read or our own write returned. A node that was deleted meanwhile is not added
    /// again. Returns the zone that the node has left.
    pub(crate) fn on_live(&mut self, node: &Node, now: BootInstant) -> Option<Atom> {
        self.known.get(&*node.meta.name).filter(|it| it.uid == node.meta.uid)?;
        self.record(node, now, false)
    }

    fn record(&mut self, node: &Node, now: BootInstant, may_be_older: bool) -> Option<Atom> {
        let zone = zone_of(&node.labels);
        let ready = node.condition(READY);
        let by_controller = ready.is_some_and(is_written_by_controller);
        let (status, heartbeat) = (ready.map(|it| it.status.clone()), ready.and_then(|it| it.last_heartbeat));
        let is_excluded = is_excluded(&node.labels);
        if let Some(known) = self.known.get_mut(&*node.meta.name).filter(|it| it.uid == node.meta.uid) {
            // A live read or our own write has shown a newer state.
            if !may_be_older && node.meta.version.is_older_than(&known.version) {
                return None;
            }
            known.version = node.meta.version.clone();
            let has_reported = known.heartbeat != heartbeat || known.ready.is_some() != status.is_some();
            if has_reported && !by_controller {
                known.last_sign_of_life = Some(now);
            }
            known.is_excluded = is_excluded;
            known.heartbeat = heartbeat;
            if status == Some(ConditionStatus::True) {
                known.marked = None;
            }
            if known.ready != status {
                known.ready_since = now;
            }
            known.ready = status;
            let left = std::mem::replace(&mut known.zone, zone);
            return Some(left).filter(|it| *it != known.zone);
        }
        let last_sign_of_life = match ready {
            // The last leader found it silent.
            Some(_) if by_controller => None,
            // Upstream counts from the creation of a node without Ready, by two clocks that may differ.
            _ => Some(now),
        };
        let known = ObservedNode {
            uid: node.meta.uid.clone(),
            version: node.meta.version.clone(),
            zone,
            is_excluded,
            ready: status,
            heartbeat,
            last_sign_of_life,
            first_observed: now,
            ready_since: now,
            marked: None,
        };
        let replaced = self.known.insert(node.meta.name.clone(), known);
        replaced.map(|it| it.zone)
    }

    /// A node is gone. Returns its zone.
    pub(crate) fn remove(&mut self, name: &str, uid: &Uid) -> Option<Atom> {
        self.known.get(name).filter(|it| it.uid == *uid)?;
        self.known.remove(name).map(|it| it.zone)
    }

    /// The Lease of a node was renewed.
    pub(crate) fn on_renewal(&mut self, name: &str, now: BootInstant) {
        if let Some(known) = self.known.get_mut(name) {
            known.last_sign_of_life = Some(now);
        }
    }

    /// Whether a node has been silent for its grace period. If this process has observed no sign of life, the time of
    /// the cached Lease counts. It is from another clock, so it delays the end by one grace period at most.
    pub(crate) fn silence(
        &self,
        node: &Node,
        renewed: Option<Timestamp>,
        now: BootInstant,
        wall: Timestamp,
    ) -> Silence {
        let Some(known) = self.known.get(&*node.meta.name).filter(|it| it.uid == node.meta.uid) else {
            return Silence::Remaining(self.grace);
        };
        let grace = self.grace_of(known);
        let silent_for = match known.last_sign_of_life {
            Some(last_sign_of_life) => now.saturating_since(last_sign_of_life),
            None => {
                let unrenewed_for = renewed.map_or(Duration::MAX, |it| age(it, wall));
                unrenewed_for.max(now.saturating_since(known.first_observed))
            }
        };
        match grace.checked_sub(silent_for) {
            Some(remaining) => {
                let end = (now + remaining).as_millis() + 1;
                let end = BootInstant::from_millis(end.next_multiple_of(TICK_MILLIS));
                Silence::Remaining(end.saturating_since(now))
            }
            None => Silence::Over,
        }
    }

    fn grace_of(&self, known: &ObservedNode) -> Duration {
        if known.ready.is_none() { self.startup_grace } else { self.grace }
    }

    /// This time does not count as silence, because we could not observe the nodes.
    pub(crate) fn on_missed(&mut self, missed: Duration, now: BootInstant) {
        for last_sign_of_life in self.known.values_mut().filter_map(|it| it.last_sign_of_life.as_mut()) {
            *last_sign_of_life = now.min(*last_sign_of_life + missed);
        }
    }

    /// Starts the grace periods of nodes anew, because their silence so far does not count. Nodes that are Unknown
    /// already are left out, and with `unless_over_at` those whose grace period was over at that time.
    pub(crate) fn restart(&mut self, now: BootInstant, unless_over_at: Option<BootInstant>) {
        let (grace, startup_grace) = (self.grace, self.startup_grace);
        for known in self.known.values_mut().filter(|it| it.ready != Some(ConditionStatus::Unknown)) {
            let grace = if known.ready.is_none() { startup_grace } else { grace };
            let was_over = known
                .last_sign_of_life
                .zip(unless_over_at)
                .is_some_and(|(last_sign_of_life, at)| at.saturating_since(last_sign_of_life) > grace);
            if !was_over {
                known.last_sign_of_life = Some(now);
            }
        }
    }

    /// The stored status of Ready; `None` if this process does not know the node or the node has no such condition.
    pub(crate) fn readiness(&self, name: &str) -> Option<&ConditionStatus> {
        self.known.get(name)?.ready.as_ref()
    }

    /// Whether the pods of a node must be marked as not ready. [`Marking::Now`] is returned once for each status that
    /// is not True.
    pub(crate) fn begin_marking(&mut self, name: &str, now: BootInstant) -> Marking {
        let Some(known) = self.known.get_mut(name) else { return Marking::Done };
        if known.ready.is_none() || known.ready == Some(ConditionStatus::True) || known.marked == known.ready {
            return Marking::Done;
        }
        let delay = if known.ready == Some(ConditionStatus::False) { MARK_DELAY } else { Duration::ZERO };
        let remaining = delay.saturating_sub(now.saturating_since(known.ready_since));
        if !remaining.is_zero() {
            return Marking::After(remaining);
        }
        known.marked.clone_from(&known.ready);
        Marking::Now
    }

    /// The zone of a node.
    pub(crate) fn zone(&self, name: &str) -> Option<&Atom> {
        self.known.get(name).map(|it| &it.zone)
    }

    /// The zones that have nodes.
    pub(crate) fn zones(&self) -> BTreeSet<Atom> {
        self.known.values().map(|it| it.zone.clone()).collect()
    }

    /// The nodes of each zone that count for its mode.
    pub(crate) fn zone_counts(&self, now: BootInstant) -> BTreeMap<Atom, Counts> {
        let mut zones: BTreeMap<Atom, Counts> = BTreeMap::new();
        for known in self.known.values().filter(|it| !it.is_excluded) {
            let counts = match zones.get_mut(&known.zone) {
                Some(counts) => counts,
                None => zones.entry(known.zone.clone()).or_default(),
            };
            counts.size += 1;
            if known.ready == Some(ConditionStatus::True) {
                counts.ready += 1;
                let limit = self.grace_of(known).mul_f64(SUSPECT);
                counts.suspect +=
                    usize::from(known.last_sign_of_life.is_some_and(|it| now.saturating_since(it) > limit));
            }
        }
        zones
    }
}

/// The time since a time of the API; zero if it is in the future.
pub(crate) fn age(time: Timestamp, wall: Timestamp) -> Duration {
    wall.duration_since(time).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests;
