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
    ("concurrent-device-taint-eviction-syncs", Wording::GreaterThanZero),
    ("concurrent-disruption-stalepod-syncs", Wording::Greater),
    ("concurrent-disruption-syncs", Wording::Greater),
    ("concurrent-endpoint-syncs", Wording::Greater),
    ("concurrent-ephemeralvolume-syncs", Wording::Greater),
    ("concurrent-horizontal-pod-autoscaler-syncs", Wording::Greater),
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
    let manager = flags.text(job_controller::MANAGED_BY_FLAG).to_owned();
    if let Err(why) = check_managed_by(&manager) {
        flags.add_error(format!("invalid argument {manager:?} for --{}: {why}", job_controller::MANAGED_BY_FLAG));
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

/// The API server accepts no other value in `spec.managedBy` of a Job (`validation.ValidateJobManagedBy`), so with such
/// a value no Job would ever be processed. The reserved value means the built-in controller, which processes these Jobs.
fn check_managed_by(value: &str) -> Result<(), &'static str> {
    const MAX_LENGTH: usize = 63;
    if value.is_empty() {
        return Ok(());
    }
    if value == "kubernetes.io/job-controller" {
        return Err("this value is reserved for the built-in controller");
    }
    let is_word_end = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_label = |it: &str| {
        it.bytes().all(|it| is_word_end(it) || it == b'-')
            && it.bytes().next().is_some_and(is_word_end)
            && it.bytes().last().is_some_and(is_word_end)
    };
    let is_path_byte = |it: u8| it.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&it);
    match value.split_once('/') {
        _ if value.len() > MAX_LENGTH => Err("more than 63 characters"),
        Some((domain, path)) if domain.split('.').all(is_label) && !path.is_empty() => {
            if path.bytes().all(is_path_byte) { Ok(()) } else { Err("a character that is not allowed in a path") }
        }
        _ => Err("must be a domain-prefixed path, such as \"example.com/controller\""),
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
            ("--concurrent_service_syncs=-1", "concurrent-service-syncs must be greater than 0, but got -1"),
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
    fn managed_by_must_be_a_value_that_a_job_can_have() {
        let long = format!("example.com/{}", "x".repeat(60));
        for (value, good) in [
            ("", true),
            ("example.com/x", true),
            ("mini-kcm.dev/job/a_b", true),
            ("mini-kcm.dev/job/a-b", true),
            ("kubernetes.io/job-controller", false),
            ("job", false),
            ("/x", false),
            ("example.com/", false),
            ("Example.com/x", false),
            ("-a.com/x", false),
            ("a..com/x", false),
            ("example.com/x y", false),
            (long.as_str(), false),
        ] {
            assert_eq!(check_managed_by(value).is_ok(), good, "{value}");
            assert_eq!(errors(&[&format!("--job-managed-by={value}")]).is_empty(), good, "{value}");
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
