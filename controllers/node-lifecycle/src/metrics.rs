//! The metrics of this controller.

use std::time::Duration;

use metrics::{Gauge, GaugeVec, Histogram, IntCounterVec, IntGauge, IntGaugeVec, Metrics};

use crate::rules::zones::Counts;

/// The metrics of nodes and zones, with upstream's names and help. Only `mini_kcm_node_lifecycle_suspended` also
/// changes on a standby: the others follow from passes and syncs, which run on the leader only.
pub(crate) struct Meters {
    zone_health: GaugeVec,
    zone_size: IntGaugeVec,
    unhealthy: IntGaugeVec,
    evictions: IntCounterVec,
    node_duration: Histogram,
    pass_duration: Histogram,
    suspended: IntGauge,
    failed_reads: metrics::IntCounter,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let buckets = |first: f64| (0..8).map(|power| first * f64::from(4u32.pow(power))).collect::<Vec<_>>();
        let histogram =
            |name, help, first| metrics.histograms(name, help, &[], &buckets(first)).with_label_values::<&str>(&[]);
        let none: &[&str] = &[];
        Self {
            zone_health: metrics.float_gauges(
                "node_collector_zone_health",
                "Gauge measuring percentage of healthy nodes per zone.",
                &["zone"],
            ),
            zone_size: metrics.gauges(
                "node_collector_zone_size",
                "Gauge measuring number of registered Nodes per zones.",
                &["zone"],
            ),
            unhealthy: metrics.gauges(
                "node_collector_unhealthy_nodes_in_zone",
                "Gauge measuring number of not Ready Nodes per zones.",
                &["zone"],
            ),
            evictions: metrics.counters(
                "node_collector_evictions_total",
                "[STABLE] Number of Node evictions that happened since current instance of NodeController started.",
                &["zone"],
            ),
            node_duration: histogram(
                "node_collector_update_node_health_duration_seconds",
                "Duration in seconds for NodeController to update the health of a single node.",
                0.001,
            ),
            pass_duration: histogram(
                "node_collector_update_all_nodes_health_duration_seconds",
                "Duration in seconds for NodeController to update the health of all nodes.",
                0.01,
            ),
            suspended: metrics
                .gauges(
                    "mini_kcm_node_lifecycle_suspended",
                    "1 while no node becomes Unknown, because a watch of nodes or Leases is interrupted or stale. A \
                     standby sets it too.",
                    none,
                )
                .with_label_values(none),
            failed_reads: metrics
                .counters(
                    "mini_kcm_node_lifecycle_failed_lease_reads_total",
                    "Live reads of Leases that failed, so the silence of the node was not confirmed. Only the leader \
                     reads Leases.",
                    none,
                )
                .with_label_values(none),
        }
    }

    /// Sets the gauges of a zone. A suspect node still counts as ready.
    pub(crate) fn set_zone(&self, zone: &str, counts: Counts) {
        let Counts { size, ready, suspect: _ } = counts;
        self.zone_size.with_label_values(&[zone]).set(whole(size));
        self.unhealthy.with_label_values(&[zone]).set(whole(size.saturating_sub(ready)));
        self.health(zone).set(percent(ready, size));
        // The series exists from the first pass on.
        self.evictions.with_label_values(&[zone]).inc_by(0);
    }

    fn health(&self, zone: &str) -> Gauge {
        self.zone_health.with_label_values(&[zone])
    }

    /// Clears the gauges of a zone that has no nodes any more.
    pub(crate) fn clear_zone(&self, zone: &str) {
        self.set_zone(zone, Counts::default());
    }

    /// A node of the zone was tainted NoExecute.
    pub(crate) fn record_eviction(&self, zone: &str) {
        self.evictions.with_label_values(&[zone]).inc();
    }

    pub(crate) fn record_node(&self, took: Duration) {
        self.node_duration.observe(took.as_secs_f64());
    }

    pub(crate) fn record_pass(&self, took: Duration) {
        self.pass_duration.observe(took.as_secs_f64());
    }

    /// Sets whether watches of nodes or Leases are interrupted or stale.
    pub(crate) fn set_suspended(&self, is_suspended: bool) {
        self.suspended.set(i64::from(is_suspended));
    }

    pub(crate) fn record_failed_read(&self) {
        self.failed_reads.inc();
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An empty zone is healthy, as in upstream.
fn percent(part: usize, all: usize) -> f64 {
    if all == 0 { 100.0 } else { 100.0 * part as f64 / all as f64 }
}
