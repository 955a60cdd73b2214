//! Values that upstream refuses, or should refuse, with upstream's messages. They are also checked for controllers that
//! are not in this binary, so that a wrong command line is reported now and not when they are added.

use crate::flags::FlagValues;

/// Upstream's messages for too few workers.
#[derive(Clone, Copy)]
enum Wording {
    /// Most flags. Also used for those that upstream does not check: without workers a controller would do nothing, and
    /// log nothing.
    Greater,
    Larger,
    GreaterThanZero,
}

const WORKERS: &[(&str, Wording)] = &[
    ("concurrent-deployment-syncs", Wording::Greater),
    ("concurrent-device-taint-eviction-syncs", Wording::GreaterThanZero),
    ("concurrent-disruption-stalepod-syncs", Wording::Greater),
    ("concurrent-disruption-syncs", Wording::Greater),
    ("concurrent-endpoint-syncs", Wording::Greater),
    ("concurrent-ephemeralvolume-syncs", Wording::Greater),
    ("concurrent-horizontal-pod-autoscaler-syncs", Wording::Greater),
    ("concurrent-rc-syncs", Wording::Greater),
    ("concurrent-replicaset-syncs", Wording::Greater),
    ("concurrent-resource-quota-syncs", Wording::Greater),
    ("concurrent-resourceclaim-syncs", Wording::Larger),
    ("concurrent-service-syncs", Wording::Greater),
    ("concurrent-serviceaccount-token-syncs", Wording::Greater),
    ("concurrent-validating-admission-policy-status-syncs", Wording::Greater),
];

/// The lowest and the highest value.
const RANGES: &[(&str, i64, i64)] = &[
    ("concurrent-service-endpoint-syncs", 1, 50),
    ("max-endpoints-per-slice", 1, 1000),
    ("mirroring-concurrent-service-endpoint-syncs", 1, 50),
    ("mirroring-max-endpoints-per-subset", 1, 1000),
];

pub(super) fn check(flags: &mut FlagValues) {
    for (name, wording) in WORKERS {
        let count = flags.int(name);
        if count < 1 {
            flags.add_error(match wording {
                Wording::Greater => format!("{name} must be greater than 0, but got {count}"),
                Wording::Larger => format!("{name} must be larger than 0, got {count}"),
                Wording::GreaterThanZero => format!("{name} must be greater than zero, got {count}"),
            });
        }
    }
    for (name, low, high) in RANGES {
        let value = flags.int(name);
        if value < *low {
            flags.add_error(format!("{name} must not be less than {low}, but got {value}"));
        } else if value > *high {
            flags.add_error(format!("{name} must not be more than {high}, but got {value}"));
        }
    }
    let provider = flags.text("cloud-provider").to_owned();
    if !matches!(provider.as_str(), "" | "external") {
        flags.add_error(format!(
            "cloud provider {provider:?} was specified, but built-in cloud providers are disabled. Please set \
             --cloud-provider=external and migrate to an external cloud provider"
        ));
    }
    let allocator = flags.text("cidr-allocator-type").to_owned();
    if allocator != "RangeAllocator" {
        flags.add_error(format!(
            "--cidr-allocator-type: built-in cloud providers are disabled. The ipam {allocator} is not available"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::registry::REGISTRATIONS;
    use crate::flags::{Invocation, Kind, flags, parse};

    fn errors(args: &[&str]) -> Vec<String> {
        let Invocation::Run(mut flags) = parse(args.iter().map(|it| (*it).to_owned())) else { panic!("{args:?}") };
        check(&mut flags);
        flags.finish().err().unwrap_or_default()
    }

    #[test]
    fn acceptance_shell_012_numbers_of_workers_are_checked_for_every_controller() {
        for (args, want) in [
            ("--concurrent-endpoint-syncs=0", "concurrent-endpoint-syncs must be greater than 0, but got 0"),
            ("--concurrent_rc_syncs=-1", "concurrent-rc-syncs must be greater than 0, but got -1"),
            ("--concurrent-resourceclaim-syncs=0", "concurrent-resourceclaim-syncs must be larger than 0, got 0"),
            (
                "--concurrent-device-taint-eviction-syncs=0",
                "concurrent-device-taint-eviction-syncs must be greater than zero, got 0",
            ),
            (
                "--concurrent-service-endpoint-syncs=51",
                "concurrent-service-endpoint-syncs must not be more than 50, but got 51",
            ),
            ("--max-endpoints-per-slice=0", "max-endpoints-per-slice must not be less than 1, but got 0"),
            (
                "--mirroring-max-endpoints-per-subset=1001",
                "mirroring-max-endpoints-per-subset must not be more than 1000, but got 1001",
            ),
        ] {
            assert_eq!(errors(&[args]), [want]);
        }
        // The flags of controllers in this binary are checked where they are read.
        let elsewhere: Vec<&str> = REGISTRATIONS.iter().flat_map(|it| it.flags).map(|it| it.name).collect();
        for (name, _) in WORKERS {
            assert!(!elsewhere.contains(name), "{name} would be reported twice");
        }
        let concurrent = flags().filter(|it| it.kind == Kind::Int32 && it.name.contains("concurrent-"));
        for flag in concurrent.filter(|it| !elsewhere.contains(&it.name)) {
            assert_eq!(errors(&[&format!("--{}=0", flag.name)]).len(), 1, "{}", flag.name);
            assert!(errors(&[&format!("--{}=1", flag.name)]).is_empty(), "{}", flag.name);
        }
    }

    #[test]
    fn acceptance_shell_014_only_the_external_cloud_provider_is_accepted() {
        for good in ["--cloud-provider=", "--cloud-provider=external"] {
            assert!(errors(&[good]).is_empty(), "{good}");
        }
        assert!(errors(&["--cloud-provider=aws"])[0].contains("cloud provider \"aws\" was specified"));
        assert!(errors(&["--cidr-allocator-type=CloudAllocator"])[0].ends_with("ipam CloudAllocator is not available"));
    }
}
