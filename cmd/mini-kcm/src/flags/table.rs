//! The flags as data: every flag of kube-controller-manager 1.36 and 1.37, in the groups and the order of its help.

mod cloud;
mod generic;
mod jobs;
mod nodes;
mod observing;
mod security;
mod services;
mod serving;
mod storage;
mod workloads;

/// Flags under one heading of the help.
#[derive(Debug)]
pub struct Group {
    /// The heading.
    pub name: &'static str,
    /// In alphabetical order.
    pub flags: &'static [Flag],
}

/// One flag.
#[derive(Debug)]
pub struct Flag {
    /// Without dashes, `_` written as `-`.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// As text; empty where nothing is the default.
    pub default: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// What it does here.
    pub effect: Effect,
    /// Which releases have it.
    pub history: History,
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
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int,
    /// A fraction of 32 bits.
    Float32,
    /// A fraction of 64 bits.
    Float,
    /// Comma list, may be repeated.
    List,
    /// Comma list of whole numbers, may be repeated.
    Numbers,
    /// An IP address.
    Address,
    /// Comma list of `name=value`, may be repeated.
    Map,
    /// Comma list of `Gate=true`, or `component:Gate=true`; may be repeated.
    Gates,
    /// `certificate,key` or `certificate,key:name,name`; may be repeated.
    CertKeys,
    /// A number of bytes as Kubernetes writes quantities.
    Quantity,
    /// Verbosity of the log.
    Level,
    /// Comma list of `file=level`.
    Patterns,
    /// `true`, `false`, `raw`, or a version to report.
    Version,
}

impl Kind {
    /// As kube-controller-manager's help names it; empty for a boolean.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Text => "string",
            Self::Duration => "duration",
            Self::Int32 => "int32",
            Self::Int => "int",
            Self::Float32 => "float32",
            Self::Float => "float",
            Self::List => "strings",
            Self::Numbers => "int32Slice",
            Self::Address => "ip",
            Self::Map => "stringToString",
            Self::Gates => "colonSeparatedMultimapStringString",
            Self::CertKeys => "namedCertKey",
            Self::Quantity => "quantity",
            Self::Level => "Level",
            Self::Patterns => "pattern=N,...",
            Self::Version => "version[=true]",
        }
    }
}

/// What a flag does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does what it says.
    Acts,
    /// Accepted so that a command line made for kube-controller-manager starts us, and why it does nothing.
    Waits(&'static str),
    /// Any other value than the default is an error, as ignoring it would do harm; and which.
    Refused(&'static str),
}

/// Which releases have a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// 1.36 and 1.37.
    Both,
    /// 1.36 and 1.37, deprecated there and not in their help.
    Deprecated,
    /// 1.37 does not have it any more.
    Until136,
    /// 1.36 does not have it yet.
    Since137,
    /// Ours alone.
    Ours,
}

/// Why most flags wait.
const ABSENT: &str = "its controller is not in this binary";

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help, effect: Effect::Acts, history: History::Both }
}

const fn waits(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    flag(name, kind, default, help).ignored(ABSENT)
}

impl Flag {
    const fn ignored(self, why: &'static str) -> Self {
        Self { effect: Effect::Waits(why), ..self }
    }

    const fn refused(self, why: &'static str) -> Self {
        Self { effect: Effect::Refused(why), ..self }
    }

    const fn of(self, history: History) -> Self {
        Self { history, ..self }
    }
}

/// Every flag, grouped as the help of kube-controller-manager.
pub const GROUPS: &[Group] = &[
    serving::DEBUGGING,
    cloud::MIGRATION,
    generic::GENERIC,
    cloud::SERVICE_LB,
    serving::SERVING,
    security::AUTHENTICATION,
    security::AUTHORIZATION,
    storage::ATTACH_DETACH,
    security::SIGNING,
    workloads::DEPLOYMENT,
    nodes::DEVICE_TAINTS,
    workloads::CLAIMS,
    workloads::STATEFULSET,
    workloads::DAEMONSET,
    workloads::DISRUPTION,
    services::ENDPOINTS,
    services::SLICES,
    services::MIRRORING,
    storage::EPHEMERAL,
    workloads::GARBAGE,
    workloads::AUTOSCALER,
    jobs::JOB,
    jobs::CRONJOB,
    jobs::LEGACY_TOKENS,
    jobs::NAMESPACE,
    nodes::IPAM,
    nodes::LIFECYCLE,
    storage::BINDER,
    jobs::POD_GARBAGE,
    workloads::REPLICASET,
    workloads::REPLICATION,
    jobs::QUOTA,
    jobs::ACCOUNTS,
    jobs::FINISHED,
    jobs::POLICIES,
    observing::METRICS,
    observing::LOGS,
    generic::MISC,
    generic::OURS,
    generic::GLOBAL,
];

/// Every flag, in the order of the help.
pub fn flags() -> impl Iterator<Item = &'static Flag> {
    GROUPS.iter().flat_map(|it| it.flags)
}

/// The flag of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    flags().find(|it| it.name == name)
}
