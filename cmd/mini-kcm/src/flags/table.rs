//! The table of flags: every flag of kube-controller-manager 1.36 and 1.37, in the groups and the order of its help.

mod cloud;
mod generic;
mod jobs;
mod nodes;
mod observability;
mod security;
mod services;
mod serving;
mod storage;
mod workloads;

use std::sync::LazyLock;

use controller::{ControllerFlag, FlagKind, Registration};

use crate::controllers::registry::REGISTRATIONS;

/// The flags of one section of the help.
#[derive(Debug)]
pub struct Group {
    /// The title of the section.
    pub name: &'static str,
    /// The flags of the manager, and those of controllers that are not in this binary.
    flags: &'static [Flag],
}

impl Group {
    /// All flags of the section in alphabetical order.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        FLAGS.iter().filter(|it| it.0 == self.name).map(|it| &it.1)
    }
}

/// Every flag with the title of its section, in the order of the help.
static FLAGS: LazyLock<Vec<(&'static str, Flag)>> = LazyLock::new(|| flags_with(REGISTRATIONS));

/// The same with the flags of these controllers.
fn flags_with(registrations: &[&Registration]) -> Vec<(&'static str, Flag)> {
    let of_controllers = |section: &'static str| {
        let all = registrations.iter().flat_map(|it| it.flags);
        all.filter(move |it| it.section == section).map(Flag::from)
    };
    let mut flags = Vec::new();
    for group in GROUPS {
        let mut of_group: Vec<Flag> = group.flags.iter().copied().chain(of_controllers(group.name)).collect();
        of_group.sort_by_key(|it| it.name);
        flags.extend(of_group.into_iter().map(|it| (group.name, it)));
    }
    flags
}

impl From<&ControllerFlag> for Flag {
    fn from(flag: &ControllerFlag) -> Self {
        let ControllerFlag { section: _, name, kind, default, help, is_upstream } = *flag;
        let kind = match kind {
            FlagKind::Workers | FlagKind::Count | FlagKind::Integer => Kind::Int32,
            FlagKind::Float => Kind::Float32,
            FlagKind::Duration => Kind::Duration,
            FlagKind::Text => Kind::Text,
        };
        let history = if is_upstream { History::Both } else { History::Ours };
        Self { name, kind, default, help, effect: Effect::Implemented, history }
    }
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The name without dashes, with `_` written as `-`.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The default as text; empty without one.
    pub default: &'static str,
    /// One line for the help.
    pub help: &'static str,
    /// Its effect in this binary.
    pub effect: Effect,
    /// The releases that have it.
    pub history: History,
}

/// The kind of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `--flag`, `--flag=false`
    Bool,
    /// Any text.
    Text,
    /// Go's duration.
    Duration,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int,
    /// A 32-bit float.
    Float32,
    /// A 64-bit float.
    Float,
    /// Comma-separated list, may be repeated.
    List,
    /// Comma-separated list of integers, may be repeated.
    Numbers,
    /// An IP address.
    Address,
    /// Comma-separated list of `name=value`, may be repeated.
    Map,
    /// Comma-separated list of `Gate=true` or `component:Gate=true`, may be repeated.
    Gates,
    /// `certificate,key` or `certificate,key:name,name`, may be repeated.
    CertKeys,
    /// A number of bytes in the syntax of Kubernetes quantities.
    Quantity,
    /// Log verbosity.
    Level,
    /// Comma-separated list of `file=level`.
    Patterns,
    /// `true`, `false`, `raw`, or a version to report.
    Version,
}

impl Kind {
    /// The name in the help of kube-controller-manager; empty for a boolean.
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

/// The effect of a flag in this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It has its documented effect.
    Implemented,
    /// It is accepted and has no effect, so that a command line of kube-controller-manager works unchanged. Contains
    /// the reason.
    Ignored(&'static str),
    /// A value other than the default is an error, because ignoring it would do harm. Contains the harm.
    Refused(&'static str),
}

/// The releases that have a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// 1.36 and 1.37.
    Both,
    /// 1.36 and 1.37, where it is deprecated and not in the help.
    Deprecated,
    /// Only 1.36.
    Until136,
    /// Only 1.37.
    Since137,
    /// Only mini-kcm.
    Ours,
}

/// The reason why most flags have no effect.
const ABSENT: &str = "its controller is not in this binary";

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help, effect: Effect::Implemented, history: History::Both }
}

const fn absent(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    flag(name, kind, default, help).ignored(ABSENT)
}

impl Flag {
    const fn ignored(self, why: &'static str) -> Self {
        Self { effect: Effect::Ignored(why), ..self }
    }

    const fn refused(self, why: &'static str) -> Self {
        Self { effect: Effect::Refused(why), ..self }
    }

    const fn of(self, history: History) -> Self {
        Self { history, ..self }
    }
}

/// Every flag, in the groups of kube-controller-manager's help.
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
    observability::METRICS,
    observability::LOGS,
    generic::MISC,
    generic::OURS,
    generic::GLOBAL,
];

/// Every flag, in the order of the help.
pub fn flags() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().map(|it| &it.1)
}

/// The flag with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    flags().find(|it| it.name == name)
}

#[cfg(test)]
mod tests {
    use controller::{ByDefault, Profile};

    use super::*;

    const NEW: Registration = Registration {
        name: "new-controller",
        alias: "",
        service_account: "new-controller",
        profile: Profile::NONE,
        default: ByDefault::On,
        flags: &[ControllerFlag {
            section: "Namespace-controller flags",
            name: "new-period",
            kind: FlagKind::Duration,
            default: "1m0s",
            help: "A period.",
            is_upstream: true,
        }],
        gates: &[],
        start: |_, _| {},
    };

    #[test]
    fn flags_of_a_registration_are_in_their_section_and_have_an_effect() {
        let registrations: Vec<&Registration> = REGISTRATIONS.iter().copied().chain([&NEW]).collect();
        let all = flags_with(&registrations);
        let of_section = all.iter().filter(|it| it.0 == "Namespace-controller flags");
        let names: Vec<&str> = of_section.map(|it| it.1.name).collect();
        assert_eq!(names, ["concurrent-namespace-syncs", "namespace-sync-period", "new-period"]);
        let new = &all.iter().find(|it| it.1.name == "new-period").unwrap().1;
        assert_eq!((new.kind, new.default, new.effect), (Kind::Duration, "1m0s", Effect::Implemented));
    }

    #[test]
    fn flag_names_are_unique() {
        let mut names: Vec<&str> = flags().map(|it| it.name).collect();
        names.sort_unstable();
        assert_eq!(names.windows(2).find(|it| it[0] == it[1]), None);
    }

    #[test]
    fn every_section_of_a_registration_exists() {
        let sections = REGISTRATIONS.iter().flat_map(|it| it.flags).map(|it| it.section);
        for section in sections {
            assert!(GROUPS.iter().any(|it| it.name == section), "{section}");
        }
    }
}
