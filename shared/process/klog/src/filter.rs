use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::layer::{Context, Layer};

use crate::{Verbosity, Vmodule};

/// The target of the lines that log the flags at start: verbosity 1, and the text is written without quotes.
pub const FLAG: &str = "FLAG";

/// The crates that log at every verbosity: those of this workspace, and the test and the bench of this crate. A
/// callsite is identified by its crate and not by its file, because the path of the file depends on the build flags.
pub const OUR_CRATES: &[&str] = &[
    "api",
    "client",
    "clock",
    "controller",
    "cost",
    "cronjob_controller",
    "daemonset_controller",
    "deployment_controller",
    "e2e",
    "events",
    "fake_nodes",
    "garbage_collector_controller",
    "harness",
    "informer",
    "job_controller",
    "klog",
    "leader_election",
    "lines",
    "metrics",
    "mini_kcm",
    "namespace_controller",
    "node_lifecycle_controller",
    "node_ttl_controller",
    "playground",
    "pod_garbage_collector_controller",
    "replicaset_controller",
    "revisions",
    "serving",
    "statefulset_controller",
    "taint_eviction_controller",
    "tasks",
    "test_cluster",
    "testing",
    "ttl_after_finished_controller",
    "workload",
];

/// Decides which lines are written. It is evaluated once for each callsite, and again after each change.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) verbosity: Verbosity,
    pub(crate) vmodule: Vmodule,
}

impl Filter {
    fn is_enabled(&self, metadata: &Metadata<'_>) -> bool {
        match verbosity_of(metadata) {
            None => false,
            Some(needed) => needed <= self.verbosity || needed <= self.vmodule.verbosity(metadata),
        }
    }
}

impl<S: Subscriber> Layer<S> for Filter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.is_enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let quiet = self.verbosity == 0 && self.vmodule.is_empty();
        Some(if quiet { LevelFilter::INFO } else { LevelFilter::TRACE })
    }
}

/// The verbosity from which on a callsite logs; `None` if it never does.
pub(crate) fn verbosity_of(metadata: &Metadata<'_>) -> Option<Verbosity> {
    if !is_our_crate(metadata) {
        return (metadata.is_event() && *metadata.level() <= Level::WARN).then_some(0);
    }
    // A span is not a line: its fields belong to the lines inside it, at any verbosity.
    if metadata.is_span() {
        return Some(0);
    }
    let named = metadata.target().strip_prefix('v').and_then(|it| it.parse().ok());
    Some(match (named, *metadata.level()) {
        (Some(verbosity), _) => verbosity,
        _ if metadata.target() == FLAG => 1,
        (None, Level::ERROR | Level::WARN | Level::INFO) => 0,
        (None, Level::DEBUG) => 4,
        (None, Level::TRACE) => 6,
    })
}

fn is_our_crate(metadata: &Metadata<'_>) -> bool {
    let module = metadata.module_path().unwrap_or_default();
    OUR_CRATES.contains(&module.split("::").next().unwrap_or_default())
}
