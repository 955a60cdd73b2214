//! The mode of each zone, from the stored conditions of its nodes.

use std::collections::BTreeMap;

use super::{
    model::{NodeState, Ready},
    settings::Settings,
};

/// How many nodes of a zone are ready.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Normal,
    Partial,
    Full,
}

/// The modes of all zones.
#[derive(Clone, PartialEq, Default)]
pub(super) struct Modes {
    /// With its number of nodes.
    zones: BTreeMap<String, (Mode, usize)>,
}

impl Modes {
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a NodeState>, settings: &Settings) -> Self {
        let mut counts: BTreeMap<&str, (u16, u16)> = BTreeMap::new();
        for node in nodes.filter(|it| it.exists() && !it.is_excluded) {
            let (ready, unready) = counts.entry(&node.zone).or_default();
            *if node.ready == Some(Ready::True) { ready } else { unready } += 1;
        }
        let mode = |(ready, unready): (u16, u16)| {
            let share = f32::from(unready) / f32::from(ready + unready);
            let mode = match () {
                () if ready == 0 && unready > 0 => Mode::Full,
                () if unready > 2 && share >= settings.unhealthy_share => Mode::Partial,
                () => Mode::Normal,
            };
            (mode, usize::from(ready + unready))
        };
        Self { zones: counts.into_iter().map(|(zone, counts)| (zone.to_owned(), mode(counts))).collect() }
    }

    /// True if no zone has a ready node. Then the manager itself seems to be cut off. A cluster in which no node counts
    /// says nothing.
    pub(super) fn are_all_full(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|it| it.0 == Mode::Full)
    }

    /// How many nodes of a zone may be tainted per second. A zone in which no node counts may have any mode.
    pub(super) fn rate(&self, zone: &str, settings: &Settings) -> f64 {
        if self.are_all_full() {
            return 0.0;
        }
        match self.zones.get(zone) {
            None => settings.rate.max(settings.secondary_rate),
            Some((Mode::Normal | Mode::Full, _)) => settings.rate,
            Some((Mode::Partial, size)) if *size > settings.large_zone => settings.secondary_rate,
            Some((Mode::Partial, _)) => 0.0,
        }
    }
}
