//! What the operator disables: `--disabled-metrics`, `--allow-metric-labels` and `--allow-metric-labels-manifest`.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType};

/// Replaces a label value that is not in the allow-list.
const UNEXPECTED: &str = "unexpected";

/// Which families and which label values are exported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsFilter {
    disabled: BTreeSet<String>,
    /// Allowed values, by family and label.
    allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl MetricsFilter {
    /// Disables a family.
    ///
    /// # Errors
    /// If `name` is not a valid name of a family.
    pub fn disable(&mut self, name: &str) -> Result<(), String> {
        if !is_name(name, true) {
            return Err(format!(
                "must be fully qualified metric names matching \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {name:?}"
            ));
        }
        self.disabled.insert(name.to_owned());
        Ok(())
    }

    /// Allows only these values of a label, as a comma-separated list; `key` is `family,label`. Replaces the values
    /// that were allowed before.
    ///
    /// # Errors
    /// If the key has another form.
    pub fn allow(&mut self, key: &str, values: &str) -> Result<(), String> {
        let named = key.split_once(',').filter(|(family, label)| is_name(family, true) && is_name(label, false));
        let Some((family, label)) = named else {
            return Err(format!(
                "{key:?} must have the form metricName,labelName, where metricName matches [a-zA-Z_:][a-zA-Z0-9_:]* \
                 and labelName matches [a-zA-Z_][a-zA-Z0-9_]*"
            ));
        };
        let values = values.split(',').map(str::to_owned).collect();
        self.allowed.entry(family.to_owned()).or_default().insert(label.to_owned(), values);
        Ok(())
    }

    /// True when the family is disabled.
    pub(crate) fn is_disabled(&self, name: &str) -> bool {
        self.disabled.contains(name)
    }

    /// Removes disabled families and replaces label values that are not allowed. `seen` collects each series that was
    /// changed; returns how many of them are new.
    pub(crate) fn apply(&self, families: &mut Vec<MetricFamily>, seen: &mut BTreeSet<Vec<String>>) -> u64 {
        families.retain(|it| !self.is_disabled(it.name()));
        let mut new = 0;
        for family in families {
            let Some(labels) = self.allowed.get(family.name()) else { continue };
            let (name, kind) = (family.name().to_owned(), family.get_field_type());
            let mut series = BTreeMap::<Vec<(String, String)>, Metric>::new();
            for mut metric in family.take_metric() {
                if replace_disallowed(&mut metric, labels, |before| seen.insert(with_name(&name, before))) {
                    new += 1;
                }
                let key = pairs(&metric);
                match series.get_mut(&key) {
                    Some(existing) => merge_into(existing, &metric, kind),
                    None => drop(series.insert(key, metric)),
                }
            }
            family.set_metric(series.into_values().collect());
        }
        new
    }
}

/// Replaces the values that are not allowed. True when it replaced one and `is_new` returns true for the original
/// labels.
fn replace_disallowed(
    metric: &mut Metric,
    labels: &BTreeMap<String, BTreeSet<String>>,
    is_new: impl FnOnce(Vec<(String, String)>) -> bool,
) -> bool {
    let before = pairs(metric);
    let mut changed = false;
    for pair in metric.mut_label() {
        if labels.get(pair.name()).is_some_and(|allowed| !allowed.contains(pair.value())) {
            pair.set_value(UNEXPECTED.to_owned());
            changed = true;
        }
    }
    changed && is_new(before)
}

fn pairs(metric: &Metric) -> Vec<(String, String)> {
    metric.get_label().iter().map(|it| (it.name().to_owned(), it.value().to_owned())).collect()
}

fn with_name(name: &str, pairs: Vec<(String, String)>) -> Vec<String> {
    let pairs = pairs.into_iter().map(|(label, value)| format!("{label}={value}"));
    [name.to_owned()].into_iter().chain(pairs).collect()
}

/// Merges two series that have the same labels after the replacement.
fn merge_into(existing: &mut Metric, other: &Metric, kind: MetricType) {
    match kind {
        MetricType::COUNTER => {
            let mut sum = Counter::default();
            sum.set_value(existing.get_counter().get_value() + other.get_counter().get_value());
            existing.set_counter(sum);
        }
        MetricType::HISTOGRAM => {
            let sum = merged_histogram(existing.get_histogram(), other.get_histogram());
            existing.set_histogram(sum);
        }
        _ => {
            let mut sum = Gauge::default();
            sum.set_value(existing.get_gauge().get_value() + other.get_gauge().get_value());
            existing.set_gauge(sum);
        }
    }
}

/// Merges two histograms. Series of one family have the same buckets.
fn merged_histogram(one: &Histogram, other: &Histogram) -> Histogram {
    let buckets = one.get_bucket().iter().zip(other.get_bucket()).map(|(one, other)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(one.upper_bound());
        bucket.set_cumulative_count(one.cumulative_count() + other.cumulative_count());
        bucket
    });
    let mut sum = Histogram::default();
    sum.set_bucket(buckets.collect());
    sum.set_sample_count(one.get_sample_count() + other.get_sample_count());
    sum.set_sample_sum(one.get_sample_sum() + other.get_sample_sum());
    sum
}

/// Letters, digits and `_`, without a leading digit; the name of a family may have colons.
fn is_name(text: &str, colons: bool) -> bool {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || it == '_' || (colons && it == ':');
    text.chars().all(is_allowed) && text.starts_with(|it: char| !it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;

    #[test]
    fn acceptance_shell_046_a_disabled_family_is_missing_and_counted() {
        let mut filter = MetricsFilter::default();
        filter.disable("depth").unwrap();
        let metrics = Metrics::with(filter);
        metrics.gauges("depth", "[BETA] Depth.", &["name"]).with_label_values(&["a"]).set(3);
        metrics.gauges("width", "[BETA] Width.", &["name"]).with_label_values(&["a"]).set(3);
        let text = metrics.encode();
        assert!(!text.contains("depth{") && !text.contains("# HELP depth"), "{text}");
        assert!(text.contains("width{name=\"a\"} 3"));
        assert!(text.contains("disabled_metrics_total 1"), "{text}");
        let registered = "registered_metrics_total{deprecated_version=\"\",stability_level=\"BETA\"} 1";
        assert!(text.contains(registered), "{text}");
    }

    #[test]
    fn values_that_are_not_allowed_become_one_series() {
        let mut filter = MetricsFilter::default();
        filter.allow("requests_total,code", "200,201").unwrap();
        filter.allow("latency_seconds,verb", "GET").unwrap();
        let metrics = Metrics::with(filter);
        let requests = metrics.counters("requests_total", "Requests.", &["code", "verb"]);
        for (code, verb, count) in [("200", "GET", 1), ("404", "GET", 2), ("500", "GET", 4), ("500", "PUT", 8)] {
            requests.with_label_values(&[code, verb]).inc_by(count);
        }
        let latency = metrics.histograms("latency_seconds", "Latency.", &["verb"], &[1.0, 2.0]);
        for (verb, seconds) in [("GET", 0.5), ("PUT", 0.5), ("POST", 1.5)] {
            latency.with_label_values(&[verb]).observe(seconds);
        }
        let _ = metrics.encode();
        let text = metrics.encode();
        for line in [
            "requests_total{code=\"200\",verb=\"GET\"} 1\n",
            "requests_total{code=\"unexpected\",verb=\"GET\"} 6\n",
            "requests_total{code=\"unexpected\",verb=\"PUT\"} 8\n",
            "latency_seconds_bucket{verb=\"unexpected\",le=\"1\"} 1\n",
            "latency_seconds_bucket{verb=\"unexpected\",le=\"+Inf\"} 2\n",
            "latency_seconds_sum{verb=\"unexpected\"} 2\n",
            "cardinality_enforcement_unexpected_categorizations_total 5\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("404"));
    }

    #[test]
    fn a_key_without_family_or_label_is_refused() {
        let mut filter = MetricsFilter::default();
        for bad in ["a b", "", "1a", "a-b"] {
            assert!(filter.disable(bad).is_err(), "{bad}");
            assert!(filter.allow(&format!("{bad},label"), "v").is_err(), "{bad}");
            assert!(filter.allow(&format!("family,{bad}"), "v").is_err(), "{bad}");
        }
        assert!(filter.allow("family", "v").is_err() && filter.allow("family,a:b", "v").is_err());
        assert!(filter.disable("ns:rule").is_ok() && filter.allow("ns:rule,label", "").is_ok());
    }
}
