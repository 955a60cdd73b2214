//! The metrics of a manager's informers.
//!
//! Upstream's `informer_queued_items` is absent, because there is no queue between reflector and store. The latency
//! metric has upstream's name and help; here it is the time to apply an event and to call the handlers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use api::{Resource, Version};
use metrics::{GaugeVec, Histogram, HistogramVec, IntCounterVec, IntGaugeVec, Metrics};
use parking_lot::Mutex;

use crate::reflector::InformerKind;

/// The name under which upstream's manager registers its informers.
const FACTORY: &str = "kube-controller-manager";
/// A gauge is a 64-bit float and represents this many decimal digits exactly.
const EXACT: u64 = 1_000_000_000_000_000;

const UPSTREAM: &[&str] = &["name", "group", "version", "resource"];
const OURS: &[&str] = &["view", "group", "version", "resource"];

/// `typed` or `metadata`, then group, version, plural. Informers of one resource in several namespaces share one value.
type Labels = [String; 4];

/// The metric families, declared once per manager. There may be hundreds of informers, most of them idle, and a series
/// takes about a kilobyte. So the series of informers exist only during a scrape.
pub(crate) struct Families {
    /// The counts of the running informers, by the labels of their series.
    users: Mutex<BTreeMap<Labels, Weak<Counts>>>,
    store_version: IntGaugeVec,
    latency: HistogramVec,
    silence: GaugeVec,
    unreadable: IntGaugeVec,
    frozen: IntCounterVec,
    relists: IntCounterVec,
    reopened: IntCounterVec,
    failures: IntCounterVec,
    slow_calls: IntCounterVec,
}

/// The counts of all informers with equal labels.
#[derive(Default)]
struct Counts {
    frozen: AtomicU64,
    relists: AtomicU64,
    reopened: AtomicU64,
    failures: AtomicU64,
    unreadable: AtomicI64,
}

/// The metrics of one informer.
pub(crate) struct Meter {
    resource: Resource,
    labels: Labels,
    counts: Arc<Counts>,
    /// Upstream's metrics. Only typed informers have them, so there is at most one per type.
    upstream: Option<(metrics::IntGauge, Histogram)>,
    families: Arc<Families>,
}

impl Families {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let buckets = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        Self {
            users: Mutex::default(),
            store_version: metrics.gauges(
                "informer_store_resource_version",
                "[ALPHA] Resource version of the informer's store, its lowest 15 decimal digits.",
                UPSTREAM,
            ),
            latency: metrics.histograms(
                "informer_processing_latency_seconds",
                "[ALPHA] Time taken to process events after popping from the queue.",
                UPSTREAM,
                buckets,
            ),
            silence: metrics.float_gauges(
                "mini_kcm_informer_silence_seconds",
                "Time since the last response to an informer's watch. Of several informers, the longest time.",
                OURS,
            ),
            unreadable: metrics.gauges(
                "mini_kcm_informer_unreadable_objects",
                "Objects in the store of which only metadata decode.",
                OURS,
            ),
            frozen: metrics.counters(
                "mini_kcm_informer_frozen_watches_total",
                "Watches that got no event although the connection worked.",
                OURS,
            ),
            relists: metrics.counters("mini_kcm_informer_relists_total", "Whole sets fetched after the first.", OURS),
            reopened: metrics.counters(
                "mini_kcm_informer_reopened_watches_total",
                "Watches opened from the last version.",
                OURS,
            ),
            failures: metrics.counters(
                "mini_kcm_informer_failures_total",
                "Lists and watches that failed, and frames that do not decode.",
                OURS,
            ),
            slow_calls: metrics.counters(
                "mini_kcm_slow_handler_calls_total",
                "Calls of event handlers that took more than a millisecond.",
                &["handler"],
            ),
        }
    }

    /// Creates the series of all informers. `silences` has, for each, the time since the server last gave a sign of
    /// life.
    pub(crate) fn create_series<'a>(&self, silences: impl Iterator<Item = (&'a Meter, Duration)>) {
        let mut longest = BTreeMap::<&Labels, Duration>::new();
        for (meter, silence) in silences {
            let longest = longest.entry(&meter.labels).or_default();
            *longest = silence.max(*longest);
        }
        for (labels, silence) in longest {
            self.silence.with_label_values(&words(labels)).set(silence.as_secs_f64());
        }
        let Self { frozen, relists, reopened, failures, .. } = self;
        for (labels, counts) in self.users.lock().iter().filter_map(|(labels, it)| Some((words(labels), it.upgrade()?)))
        {
            let numbers = [&counts.frozen, &counts.relists, &counts.reopened, &counts.failures];
            for (family, number) in [frozen, relists, reopened, failures].into_iter().zip(numbers) {
                // Counters are created before their first increment, so that `rate()` shows it.
                family.with_label_values(&labels).inc_by(number.load(Relaxed));
            }
            self.unreadable.with_label_values(&labels).set(counts.unreadable.load(Relaxed));
        }
    }

    /// Removes the series of all informers.
    pub(crate) fn remove_series(&self) {
        let Self { silence, unreadable, frozen, relists, reopened, failures, .. } = self;
        [frozen, relists, reopened, failures].into_iter().for_each(IntCounterVec::reset);
        unreadable.reset();
        silence.reset();
    }

    /// The counts for these labels: those of a running informer, or new ones.
    fn series_for(&self, labels: &Labels) -> Arc<Counts> {
        let mut users = self.users.lock();
        let known = users.get(labels).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            users.retain(|_, it| it.strong_count() > 0);
            let counts = Arc::default();
            users.insert(labels.clone(), Arc::downgrade(&counts));
            counts
        })
    }
}

fn words(labels: &Labels) -> [&str; 4] {
    labels.each_ref().map(String::as_str)
}

impl Meter {
    pub(crate) fn new(families: Arc<Families>, resource: &Resource, kind: InformerKind) -> Self {
        let Resource { group, version, plural, .. } = resource;
        let view = match kind {
            InformerKind::Typed => "typed",
            InformerKind::Dynamic => "metadata",
        };
        let labels = [view.to_owned(), group.to_string(), version.to_string(), plural.to_string()];
        let upstream = (kind == InformerKind::Typed).then(|| {
            let labels = &[FACTORY, &**group, &**version, &**plural];
            (families.store_version.with_label_values(labels), families.latency.with_label_values(labels))
        });
        let counts = families.series_for(&labels);
        Self { resource: resource.clone(), labels, counts, upstream, families }
    }

    /// Records that the store has applied `events` in `took`, is at `version`, and has `unreadable` objects that do not
    /// decode.
    pub(crate) fn record_applied(&self, events: usize, took: Duration, version: &Version, unreadable: usize) {
        let unreadable = i64::try_from(unreadable).unwrap_or(i64::MAX);
        self.counts.unreadable.store(unreadable, Relaxed);
        let Some((store_version, latency)) = &self.upstream else { return };
        if let Some(number) = version.number() {
            store_version.set(i64::try_from(number % EXACT).unwrap_or(0));
        }
        if let Ok(count) = u32::try_from(events)
            && count > 0
        {
            let each = took.as_secs_f64() / f64::from(count);
            (0..count).for_each(|_| latency.observe(each));
        }
    }

    /// Counts a watch that was silent for longer than its timeout.
    pub(crate) fn count_frozen(&self) {
        self.counts.frozen.fetch_add(1, Relaxed);
        tracing::warn!(resource = %self.resource, "Watch frozen: reopening from its last version on another connection");
    }

    /// Counts a relist.
    pub(crate) fn count_relist(&self) {
        self.counts.relists.fetch_add(1, Relaxed);
    }

    /// Counts a watch that was opened from the last version.
    pub(crate) fn count_reopen(&self) {
        self.counts.reopened.fetch_add(1, Relaxed);
    }

    /// Counts and logs a failure. `what` begins the log line.
    pub(crate) fn report_failure(&self, what: &'static str, why: &dyn std::fmt::Display) {
        self.counts.failures.fetch_add(1, Relaxed);
        tracing::warn!(err = %why, resource = %self.resource, "{what}");
    }

    /// Counts a slow call of a handler.
    pub(crate) fn count_slow_call(&self, handler: &'static str, took: Duration) {
        self.families.slow_calls.with_label_values(&[handler]).inc();
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::warn!(resource = %self.resource, handler, micros, "Slow event handler");
    }
}
