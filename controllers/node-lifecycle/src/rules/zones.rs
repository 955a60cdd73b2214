//! The zones, their disruption modes, and the rates at which their nodes are tainted.

use std::{collections::BTreeMap, time::Duration};

use api::{Atom, Labels};

const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const REGION: [&str; 2] = ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
/// A node with this label, whatever its value, does not count for the mode of its zone.
const EXCLUDE: &str = "node.kubernetes.io/exclude-disruption";

/// With fewer nodes that are not ready, a zone is not partially disrupted (`ComputeZoneState`).
const MIN_NOT_READY: usize = 3;

/// The key of a node's zone (`GetZoneKey`). Nodes without zone and region are in one zone without a name.
pub(crate) fn zone_of(labels: &Labels) -> Atom {
    let value = |keys: [&str; 2]| keys.into_iter().find_map(|it| labels.get(it)).unwrap_or_default();
    match (value(REGION), value(ZONE)) {
        ("", "") => Atom::default(),
        (region, zone) => format!("{region}:\0:{zone}").into(),
    }
}

/// Whether the node is left out of the mode of its zone.
pub(crate) fn is_excluded(labels: &Labels) -> bool {
    labels.get(EXCLUDE).is_some()
}

/// The nodes of a zone that count for its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// All of them.
    pub(crate) size: usize,
    /// Those whose stored Ready is True.
    pub(crate) ready: usize,
    /// Those of `ready` that have been silent for most of their grace period.
    pub(crate) suspect: usize,
}

/// The mode of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Normal,
    Partial,
    Full,
}

/// The options for the pace of tainting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pace {
    /// `--node-eviction-rate`, in nodes a second.
    pub(crate) rate: f64,
    /// `--secondary-node-eviction-rate`, in nodes a second.
    pub(crate) reduced_rate: f64,
    /// `--large-cluster-size-threshold`
    pub(crate) large: i32,
    /// `--unhealthy-zone-threshold`
    pub(crate) threshold: f64,
}

impl Pace {
    /// The mode of a zone with `size` nodes, of which `ready` are ready (`ComputeZoneState`).
    fn mode_of(&self, size: usize, ready: usize) -> Mode {
        let not_ready = size.saturating_sub(ready);
        if ready == 0 && not_ready > 0 {
            Mode::Full
        } else if not_ready >= MIN_NOT_READY && not_ready as f64 / size as f64 >= self.threshold {
            Mode::Partial
        } else {
            Mode::Normal
        }
    }

    /// The mode of a zone.
    pub(crate) fn mode(&self, counts: Counts) -> Mode {
        self.mode_of(counts.size, counts.ready)
    }

    /// The mode that the zone will have if all suspect nodes are silent until their grace period is over.
    fn expected_mode(&self, counts: Counts) -> Mode {
        self.mode_of(counts.size, counts.ready.saturating_sub(counts.suspect))
    }

    /// The time between two taints in each zone; `None` if nothing is tainted. Of the present and the expected mode,
    /// the slower pace applies. So a zone whose nodes all become silent at once is not tainted before its mode is
    /// known.
    pub(crate) fn intervals(&self, zones: &BTreeMap<Atom, Counts>) -> BTreeMap<Atom, Option<Duration>> {
        let is_cluster_silent = zones.values().all(|it| self.expected_mode(*it) == Mode::Full);
        let interval = |counts: Counts| {
            let [now, expected] =
                [self.mode(counts), self.expected_mode(counts)].map(|it| self.interval(it, counts.size));
            now.zip(expected).filter(|_| !is_cluster_silent).map(|(now, expected)| now.max(expected))
        };
        zones.iter().map(|(zone, counts)| (zone.clone(), interval(*counts))).collect()
    }

    /// The time between two taints in a zone of this mode and size; `None` if nothing is tainted (`setLimiterInZone`).
    pub(crate) fn interval(&self, mode: Mode, size: usize) -> Option<Duration> {
        let is_large = i64::try_from(size).is_ok_and(|it| it > i64::from(self.large));
        let rate = match mode {
            Mode::Normal | Mode::Full => self.rate,
            Mode::Partial if is_large => self.reduced_rate,
            Mode::Partial => 0.0,
        };
        // Nothing is tainted at a rate that is not positive, nor at one so low that the time is out of range.
        if rate > 0.0 { Duration::try_from_secs_f64(1.0 / rate).ok() } else { None }
    }
}

/// What changes with the modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Nothing, or only the pace of zones.
    None,
    /// Now all zones are fully disrupted.
    Enter,
    /// All zones were fully disrupted, and now at least one is not.
    Leave,
}

/// Whether full disruption begins or ends with these modes (`handleDisruption`).
pub(crate) fn transition(is_disrupted: bool, modes: &BTreeMap<Atom, Mode>) -> Transition {
    let all_are_full = !modes.is_empty() && modes.values().all(|it| *it == Mode::Full);
    match (is_disrupted, all_are_full) {
        (false, true) => Transition::Enter,
        (true, false) => Transition::Leave,
        (true, true) | (false, false) => Transition::None,
    }
}

#[cfg(test)]
mod tests;
