//! Metrics of the monitors and the graph.

use std::sync::Weak;

use metrics::{IntGaugeVec, Metrics};

use super::{Monitor, Monitors};

/// Families that are updated on each scrape.
struct Gauges {
    nodes: IntGaugeVec,
    monitors: IntGaugeVec,
    unsynced: IntGaugeVec,
}

/// Registers the metrics of `monitors`, as long as it exists.
pub(super) fn register(metrics: &Metrics, monitors: Weak<Monitors>) {
    let name = |name: &str| format!("mini_kcm_garbage_collector_{name}");
    let gauges = Gauges {
        nodes: metrics.gauges(
            &name("graph_nodes"),
            "Objects in the graph: observed, or known only from references.",
            &["state"],
        ),
        monitors: metrics.gauges(&name("monitors"), "Types that are watched.", &["state"]),
        unsynced: metrics.gauges(
            &name("unsynced_monitor"),
            "1 for each type whose first set has not come, whose lists or watches fail, or which discovery lacks, and, \
             as resource *, for each group version whose types were never known.",
            &["group", "version", "resource"],
        ),
    };
    metrics.before_encode(move || {
        match monitors.upgrade() {
            Some(monitors) => gauges.refresh(&monitors),
            // The controller was stopped. If it was started again, its own gauges are set after these.
            None => gauges.reset(),
        }
    });
}

impl Gauges {
    fn reset(&self) {
        let Self { nodes, monitors, unsynced } = self;
        [nodes, monitors, unsynced].into_iter().for_each(IntGaugeVec::reset);
    }

    fn refresh(&self, monitors: &Monitors) {
        let set = |of: &IntGaugeVec, state: &str, count: usize| {
            of.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let (seen, named) = monitors.graph.read(|graph| graph.size());
        set(&self.nodes, "observed", seen);
        set(&self.nodes, "virtual", named);
        self.unsynced.reset();
        for it in monitors.unsynced() {
            if let Some(labels) = it.reason.labels() {
                self.unsynced.with_label_values(&labels).set(1);
            }
        }
        let states: Vec<bool> = monitors.state.lock().running.values().map(Monitor::has_synced).collect();
        let synced = states.iter().filter(|it| **it).count();
        set(&self.monitors, "synced", synced);
        set(&self.monitors, "unsynced", states.len() - synced);
    }
}
