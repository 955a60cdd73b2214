use std::sync::Weak;

use metrics::{Collector, Gauge, Histogram, IntCounter, IntGauge, Metrics};
use prometheus::{Opts, core::Desc, proto::MetricFamily};

/// 10 ns to 10 s, the buckets of `k8s.io/component-base/metrics/prometheus/workqueue`.
const BUCKETS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

const NAME: &str = "name";

/// Metrics that are updated with each event.
pub(crate) struct Meters {
    pub(crate) adds: IntCounter,
    pub(crate) retries: IntCounter,
    pub(crate) queue_duration: Histogram,
    pub(crate) work_duration: Histogram,
}

impl Meters {
    pub(crate) fn new(queue: &'static str, metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.counters(name, help, &[NAME]).with_label_values(&[queue]);
        let histogram = |name, help| metrics.histograms(name, help, &[NAME], &BUCKETS).with_label_values(&[queue]);
        Self {
            adds: counter("workqueue_adds_total", "[BETA] Total number of adds handled by workqueue"),
            retries: counter("workqueue_retries_total", "[BETA] Total number of retries handled by workqueue"),
            queue_duration: histogram(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
            ),
            work_duration: histogram(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
            ),
        }
    }
}

/// The state of a queue at one scrape.
pub(crate) struct QueueStatus {
    pub(crate) depth: usize,
    pub(crate) unfinished_seconds: f64,
    pub(crate) longest_seconds: f64,
}

/// A queue whose state can be read.
pub(crate) trait Readable: Send + Sync {
    fn read(&self) -> QueueStatus;
}

/// Metrics that are computed at each scrape, so that they are exact and cost nothing between scrapes.
#[derive(Clone)]
pub(crate) struct Gauges {
    /// Weak, so that the registry does not keep a dropped queue in memory.
    queue: Weak<dyn Readable>,
    depth: IntGauge,
    unfinished: Gauge,
    longest: Gauge,
}

impl Gauges {
    pub(crate) fn register(queue: Weak<dyn Readable>, name: &'static str, metrics: &Metrics) {
        // Each queue registers its own gauges; the registry merges gauges of one name into one family.
        let opts = |family: &str, help: &str| Opts::new(family, help).const_label(NAME, name);
        let depth = IntGauge::with_opts(opts("workqueue_depth", "[BETA] Current depth of workqueue"));
        let unfinished = Gauge::with_opts(opts(
            "workqueue_unfinished_work_seconds",
            "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. \
             Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at \
             which this increases.",
        ));
        let longest = Gauge::with_opts(opts(
            "workqueue_longest_running_processor_seconds",
            "[BETA] How many seconds has the longest running processor for workqueue been running.",
        ));
        // Names and labels are constants of this file and are valid.
        if let (Ok(depth), Ok(unfinished), Ok(longest)) = (depth, unfinished, longest) {
            metrics.replace(Self { queue, depth, unfinished, longest });
        }
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        let Self { queue: _, depth, unfinished, longest } = self;
        [depth.desc(), unfinished.desc(), longest.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(queue) = self.queue.upgrade() else { return Vec::new() };
        let QueueStatus { depth, unfinished_seconds, longest_seconds } = queue.read();
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
        self.unfinished.set(unfinished_seconds);
        self.longest.set(longest_seconds);
        [self.depth.collect(), self.unfinished.collect(), self.longest.collect()].concat()
    }
}
