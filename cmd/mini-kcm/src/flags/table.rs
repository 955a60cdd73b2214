//! The flags as data.

/// One flag.
#[derive(Debug)]
pub struct Flag {
    /// Without dashes, `_` written as `-`.
    pub name: &'static str,
    /// Heading in the help.
    pub group: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// As text.
    pub default: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// Whether it does anything yet.
    pub effect: Effect,
}

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `--flag`, `--flag=false`
    Bool,
    /// Any text.
    Text,
    /// Go's duration.
    Duration,
    /// A number.
    Number,
    /// Comma list, may be repeated.
    List,
}

impl Kind {
    /// As the help names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Duration => "duration",
            Self::Number => "number",
            Self::List => "strings",
        }
    }
}

/// Whether a flag does anything yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does what it says.
    Acts,
    /// Accepted so that a command line made for kube-controller-manager starts us; its controller is not in this binary.
    Waits,
}

use Effect::{Acts, Waits};
use Kind::{Bool, Duration, List, Number, Text};

const GENERIC: &str = "Generic flags";
const ELECTION: &str = "Leader election flags";
const SERVING: &str = "Secure serving flags";
const LOGS: &str = "Logs flags";
const NAMESPACE: &str = "Namespace controller flags";
const GC: &str = "Garbage collector controller flags";
const NODE: &str = "Node lifecycle controller flags";
const GLOBAL: &str = "Global flags";

const fn flag(name: &'static str, group: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, group, kind, default, help, effect: Acts }
}

const fn waits(name: &'static str, group: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, group, kind, default, help, effect: Waits }
}

/// Every flag.
pub const FLAGS: &[Flag] = &[
    flag(
        "controllers",
        GENERIC,
        List,
        "*",
        "Controllers to run: '*' all that are on by default, 'foo' the controller foo, '-foo' not foo. The first entry that names a controller wins.",
    ),
    flag(
        "kubeconfig",
        GENERIC,
        Text,
        "",
        "Path to a kubeconfig file. Without it and --master the in-cluster configuration is used.",
    ),
    flag("master", GENERIC, Text, "", "Address of the API server; overrides the one in the kubeconfig."),
    flag(
        "kube-api-qps",
        GENERIC,
        Number,
        "20",
        "Requests a second of each controller's own budget; 0 or less: no limit.",
    ),
    flag("kube-api-burst", GENERIC, Number, "30", "Requests at once of each controller's own budget."),
    flag(
        "min-resync-period",
        GENERIC,
        Duration,
        "12h0m0s",
        "Resync period of informers' handlers, times a random factor between 1 and 2.",
    ),
    flag(
        "controller-start-interval",
        GENERIC,
        Duration,
        "0s",
        "Each controller starts between one and two times this long after the term began.",
    ),
    flag(
        "controller-shutdown-timeout",
        GENERIC,
        Duration,
        "10s",
        "How long controllers may take to stop; 0 waits for ever.",
    ),
    flag(
        "standby",
        GENERIC,
        Text,
        "warm",
        "What a standby keeps ready: 'warm' keeps informers running, so that it acts at once; 'cold' starts them with the term, as kube-controller-manager does.",
    ),
    flag("leader-elect", ELECTION, Bool, "true", "Lead by a Lease before acting."),
    flag(
        "leader-elect-lease-duration",
        ELECTION,
        Duration,
        "15s",
        "Others wait this long after the last renewal that they saw.",
    ),
    flag(
        "leader-elect-renew-deadline",
        ELECTION,
        Duration,
        "10s",
        "The leader stops acting this long after its last renewal. Less than the lease duration.",
    ),
    flag("leader-elect-retry-period", ELECTION, Duration, "2s", "Time between two tries to take or renew the Lease."),
    flag("leader-elect-resource-lock", ELECTION, Text, "leases", "Kind of the lock; only 'leases'."),
    flag("leader-elect-resource-name", ELECTION, Text, "kube-controller-manager", "Name of the Lease."),
    flag("leader-elect-resource-namespace", ELECTION, Text, "kube-system", "Namespace of the Lease."),
    flag("secure-port", SERVING, Number, "10257", "HTTPS port; 0 serves nothing."),
    flag(
        "bind-address",
        SERVING,
        Text,
        "0.0.0.0",
        "Address to serve on. Until requests are authorized, any other than a loopback address is served on loopback.",
    ),
    flag("concurrent-namespace-syncs", NAMESPACE, Number, "10", "Namespaces that are worked on at once."),
    flag(
        "namespace-sync-period",
        NAMESPACE,
        Duration,
        "5m0s",
        "Every terminating namespace is looked at again this often.",
    ),
    waits(
        "enable-garbage-collector",
        GC,
        Bool,
        "true",
        "Runs the garbage collector; must match the API server's flag.",
    ),
    waits("concurrent-gc-syncs", GC, Number, "20", "Workers of the garbage collector."),
    waits("node-eviction-rate", NODE, Number, "0.1", "Nodes a second that are tainted in a healthy zone."),
    waits(
        "secondary-node-eviction-rate",
        NODE,
        Number,
        "0.01",
        "Nodes a second that are tainted in an unhealthy zone.",
    ),
    waits("use-service-account-credentials", GENERIC, Bool, "false", "An identity of its own for each controller."),
    flag("v", LOGS, Number, "0", "Verbosity of the log."),
    flag("version", GLOBAL, Bool, "false", "Prints the version and ends."),
];
