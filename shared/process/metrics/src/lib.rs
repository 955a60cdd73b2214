//! The metrics registry of one manager.
//!
//! Families are declared where they are used, with the names, labels, buckets and help of upstream. Several queues or
//! clients share one family: a second declaration returns the first. Nothing uses the default registry of the
//! prometheus crate, so two managers in one process do not share metrics.
//!
//! What the operator disabled ([`MetricsFilter`]) is removed when the page is written.

mod filter;
pub mod process;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use filter::MetricsFilter;
pub use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, core::Collector,
};
use prometheus::{HistogramOpts, Opts, Registry, TextEncoder};

/// A registry, cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Registry,
    filter: MetricsFilter,
    /// Metrics of the registry itself, for a manager.
    registry_metrics: Option<RegistryMetrics>,
    /// Names that were declared.
    names: Mutex<BTreeSet<String>>,
    /// Series whose labels were not allowed. Each series counts once.
    unexpected: Mutex<BTreeSet<Vec<String>>>,
    /// Families by name, so that a second declaration returns the first.
    families: Mutex<BTreeMap<String, Box<dyn Any + Send>>>,
    /// Called before each scrape. They update gauges of an age.
    refreshers: Mutex<Vec<Refresher>>,
    /// Called after each scrape. They remove series that exist only during a scrape.
    clearers: Mutex<Vec<Refresher>>,
    /// Only one scrape runs at a time.
    scrape: Mutex<()>,
}

type Refresher = Arc<dyn Fn() + Send + Sync>;

struct RegistryMetrics {
    registered: IntCounterVec,
    disabled: IntCounter,
    unexpected: IntCounter,
}

impl Metrics {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry without what the operator disabled, and with metrics about the registry itself.
    #[must_use]
    pub fn with(filter: MetricsFilter) -> Self {
        let registry = Registry::new();
        let registry_metrics = RegistryMetrics::new(&registry).ok();
        Self(Arc::new(Inner { registry, filter, registry_metrics, ..Inner::default() }))
    }

    /// Declares a counter family. `help` has upstream's prefix `[BETA]` or `[STABLE]`; without a prefix `[ALPHA]` is
    /// added.
    ///
    /// # Panics
    /// If the name is taken by another kind of family, or the name or the labels are not valid: a programming error.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.family(name, || IntCounterVec::new(Opts::new(name, with_stability(help)), labels))
    }

    /// Declares a gauge family of whole numbers. Panics like [`Metrics::counters`].
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.family(name, || IntGaugeVec::new(Opts::new(name, with_stability(help)), labels))
    }

    /// Declares a gauge family of seconds and other fractions. Panics like [`Metrics::counters`].
    pub fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.family(name, || GaugeVec::new(Opts::new(name, with_stability(help)), labels))
    }

    /// Declares a histogram family. Panics like [`Metrics::counters`].
    pub fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        self.family(name, || {
            HistogramVec::new(HistogramOpts::new(name, with_stability(help)).buckets(buckets.to_vec()), labels)
        })
    }

    /// Registers a collector that is no family, such as the process metrics.
    ///
    /// # Panics
    /// If one of its names is taken.
    pub fn register(&self, collector: Box<dyn Collector>) {
        for desc in collector.desc() {
            self.count_declared(&desc.fq_name, &desc.help);
        }
        #[expect(clippy::expect_used, reason = "two collectors of one name are a programming error")]
        self.0.registry.register(collector).expect("metric names are unique");
    }

    /// Registers a collector like [`Metrics::register`], and replaces an earlier one with the same names and labels: a
    /// controller that was stopped may be started again in the same process.
    pub fn replace(&self, collector: impl Collector + Clone + 'static) {
        // Fails for the first one, where there is nothing to remove.
        let _ = self.0.registry.unregister(Box::new(collector.clone()));
        self.register(Box::new(collector));
    }

    /// Calls `refresh` before each [`Metrics::encode`]: for gauges that grow without an event.
    pub fn before_encode(&self, refresh: impl Fn() + Send + Sync + 'static) {
        lock(&self.0.refreshers).push(Arc::new(refresh));
    }

    /// Calls `clear` after each [`Metrics::encode`]: for series that [`Metrics::before_encode`] created for one scrape.
    pub fn after_encode(&self, clear: impl Fn() + Send + Sync + 'static) {
        lock(&self.0.clearers).push(Arc::new(clear));
    }

    /// All metrics in the Prometheus text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let scrape = lock(&self.0.scrape);
        let [refreshers, clearers] = [&self.0.refreshers, &self.0.clearers].map(|it| lock(it).clone());
        refreshers.iter().for_each(|refresh| refresh());
        let mut families = self.0.registry.gather();
        clearers.iter().for_each(|clear| clear());
        drop(scrape);
        let unexpected = self.0.filter.apply(&mut families, &mut lock(&self.0.unexpected));
        if let Some(registry_metrics) = &self.0.registry_metrics {
            // This page is gathered already, so the next page shows the new value.
            registry_metrics.unexpected.inc_by(unexpected);
        }
        let mut text = String::new();
        // Writing into a string fails only for families without a name or samples, and a registry never gathers those.
        let _ = TextEncoder::new().encode_utf8(&families, &mut text);
        text
    }

    /// Counts a name at its first declaration.
    fn count_declared(&self, name: &str, help: &str) {
        let Some(registry_metrics) = &self.0.registry_metrics else { return };
        if !lock(&self.0.names).insert(name.to_owned()) {
            return;
        }
        if self.0.filter.is_disabled(name) {
            registry_metrics.disabled.inc();
        } else if let Some((level, _)) = help.strip_prefix('[').and_then(|it| it.split_once(']')) {
            registry_metrics.registered.with_label_values(&[level, ""]).inc();
        }
    }

    fn family<F>(&self, name: &str, make: impl FnOnce() -> prometheus::Result<F>) -> F
    where
        F: Collector + Clone + 'static,
    {
        let mut families = lock(&self.0.families);
        if let Some(existing) = families.get(name) {
            #[expect(clippy::expect_used, reason = "one name for two kinds of family is a programming error")]
            return existing.downcast_ref::<F>().expect("a family keeps its kind").clone();
        }
        #[expect(clippy::expect_used, reason = "names and labels are constants of ours")]
        let family = make().expect("valid metric name and labels");
        self.register(Box::new(family.clone()));
        families.insert(name.to_owned(), Box::new(family.clone()));
        family
    }
}

impl RegistryMetrics {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let registered = IntCounterVec::new(
            Opts::new(
                "registered_metrics_total",
                "[BETA] The count of registered metrics broken by stability level and deprecation version.",
            ),
            &["stability_level", "deprecated_version"],
        )?;
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        registry.register(Box::new(registered.clone()))?;
        let disabled = counter("disabled_metrics_total", "[BETA] The count of disabled metrics.")?;
        // No metric of ours is deprecated, so none is hidden.
        counter("hidden_metrics_total", "[BETA] The count of hidden metrics.")?;
        let unexpected = counter(
            "cardinality_enforcement_unexpected_categorizations_total",
            "[ALPHA] The count of unexpected categorizations during cardinality enforcement.",
        )?;
        Ok(Self { registered, disabled, unexpected })
    }
}

/// A panic while the lock was held does not corrupt a counter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds `[ALPHA]` to a help text without a stability level, as component-base's `StabilityLevel` defaults to it.
fn with_stability(help: &str) -> String {
    if help.starts_with('[') { help.to_owned() } else { format!("[ALPHA] {help}") }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_declared_twice_is_one_family() {
        let metrics = Metrics::new();
        metrics.counters("requests_total", "Requests.", &["code"]).with_label_values(&["200"]).inc();
        metrics.counters("requests_total", "Requests.", &["code"]).with_label_values(&["200"]).inc();
        assert!(metrics.encode().contains("requests_total{code=\"200\"} 2"), "{}", metrics.encode());
    }

    #[test]
    fn gauges_of_an_age_are_refreshed_before_they_are_read() {
        let metrics = Metrics::new();
        let age = metrics.gauges("age", "Age.", &["name"]);
        metrics.before_encode(move || age.with_label_values(&["a"]).inc());
        assert!(metrics.encode().contains("age{name=\"a\"} 1"));
        assert!(metrics.encode().contains("age{name=\"a\"} 2"));
    }

    #[test]
    fn registries_are_independent() {
        let (one, two) = (Metrics::new(), Metrics::new());
        one.gauges("depth", "Depth.", &["name"]).with_label_values(&["a"]).set(3);
        assert!(!two.encode().contains("depth"));
    }
}
