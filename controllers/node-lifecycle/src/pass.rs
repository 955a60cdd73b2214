//! The modes of all zones, and the pace that follows from them.

use std::collections::BTreeMap;

use api::Atom;
use controller::{Lane, Outcome};

use crate::{
    Ctx, Key, State,
    rules::zones::{Counts, Mode, Transition, transition},
};

/// Determines the modes, sets the gauges, and enqueues the next node of each zone. It runs every
/// `--node-monitor-period`. A sync determines the modes too, before it taints a node.
pub(crate) fn pass(ctx: &Ctx) -> Outcome {
    let started = ctx.clock.now();
    let next = {
        let (mut state, now) = (ctx.state.lock(), ctx.clock.boot());
        let counts = update_modes(ctx, &mut state);
        for (zone, counts) in &counts {
            ctx.meters.set_zone(zone, *counts);
        }
        let zones = state.nodes.zones();
        state.pacing.retain(now, |zone| zones.contains(zone));
        if state.disrupted_since.is_none() {
            // A zone that has only nodes that do not count has no mode, and must not keep the pace of an earlier one.
            for zone in zones.iter().filter(|it| !counts.contains_key(*it)) {
                state.pacing.set_interval(zone, ctx.pace.interval(Mode::Normal, 0), now);
            }
        }
        state.pacing.all_next(now)
    };
    for (node, wait) in next {
        ctx.queue.add_after(Key::Node(node), wait);
    }
    ctx.meters.record_pass(ctx.clock.now().saturating_duration_since(started));
    Outcome::After(ctx.period)
}

/// Determines the modes of all zones and the pace that follows from them (`handleDisruption`). Returns the counts.
pub(crate) fn update_modes(ctx: &Ctx, state: &mut State) -> BTreeMap<Atom, Counts> {
    let now = ctx.clock.boot();
    let counts = state.nodes.zone_counts(now);
    if state.observation.is_interrupted(now) {
        // All nodes seem silent now, so the modes stay as they are.
        return counts;
    }
    let modes: BTreeMap<Atom, Mode> = counts.iter().map(|(zone, it)| (zone.clone(), ctx.pace.mode(*it))).collect();
    for (zone, mode) in &modes {
        if state.modes.get(zone) != Some(mode) {
            tracing::info!(zone = &**zone, ?mode, "Controller detected that zone is now in new state");
        }
    }
    let transition = transition(state.disrupted_since.is_some(), &modes);
    match transition {
        Transition::Enter => {
            tracing::info!("Controller detected that all Nodes are not-Ready. Entering master disruption mode");
            state.pacing.stop();
            state.disrupted_since = Some(now);
        }
        Transition::Leave => {
            tracing::info!("Controller detected that some Nodes are Ready. Exiting master disruption mode");
            state.nodes.restart(now, state.disrupted_since.take());
            state.pacing.resume(now);
        }
        Transition::None => {}
    }
    if state.disrupted_since.is_none() {
        for (zone, interval) in ctx.pace.intervals(&counts) {
            state.pacing.set_interval(&zone, interval, now);
        }
    }
    for gone in state.modes.keys().filter(|it| !modes.contains_key(*it)) {
        ctx.meters.clear_zone(gone);
    }
    state.modes = modes;
    if transition != Transition::None {
        for entry in ctx.nodes.store().entries() {
            ctx.queue.add_to(Key::Node(entry.meta().name.into()), Lane::Now);
        }
    }
    counts
}
