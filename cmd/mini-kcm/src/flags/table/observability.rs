//! Flags of metrics and logs.

use super::{
    Group,
    Kind::{Bool, Duration, Level, List, Map, Patterns, Quantity, Text},
    flag,
};

pub(super) const METRICS: Group = Group {
    name: "Metrics flags",
    flags: &[
        flag(
            "allow-metric-labels",
            Map,
            "",
            "Values that a metric's label may have, as metric,label='v1,v2'; others become 'unexpected'.",
        ),
        flag(
            "allow-metric-labels-manifest",
            Text,
            "",
            "YAML file with the values of --allow-metric-labels below 'allowListMapping'; the flag has priority.",
        ),
        flag("disabled-metrics", List, "", "Metrics that are not served."),
        flag(
            "show-hidden-metrics-for-version",
            Text,
            "",
            "Show metrics that were hidden in this release; only the previous minor one. mini-kcm hides none.",
        ),
    ],
};

pub(super) const LOGS: Group = Group {
    name: "Logs flags",
    flags: &[
        flag("log-flush-frequency", Duration, "5s", "Longest time between two flushes of the log."),
        flag("log-json-info-buffer-size", Quantity, "0", "Buffer of info lines in JSON with split streams."),
        flag("log-json-split-stream", Bool, "false", "JSON: errors to stderr, the rest to stdout."),
        flag("log-text-info-buffer-size", Quantity, "0", "Buffer of info lines in text with split streams."),
        flag("log-text-split-stream", Bool, "false", "Text: errors to stderr, the rest to stdout."),
        flag("logging-format", Text, "text", "'text' or 'json'."),
        flag("v", Level, "0", "Verbosity of the log."),
        flag("vmodule", Patterns, "", "Verbosity of single source files, as 'file=4,other*=2'; text format only."),
    ],
};
