//! The release of this binary, and the release that it emulates.

use std::{fmt, str::FromStr};

use crate::{flags::FlagValues, version};

/// A release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    /// The 1 of 1.37.
    pub major: u32,
    /// The 37 of 1.37.
    pub minor: u32,
}

/// The Kubernetes release of this binary.
pub const BINARY: KubernetesVersion = KubernetesVersion { major: 1, minor: version::MINOR };

/// The oldest release that can be emulated.
const OLDEST: KubernetesVersion = KubernetesVersion { major: 1, minor: 36 };

/// The lowest `--min-compatibility-version` of 1.36. The flag has no effect here.
const OLDEST_COMPATIBLE: KubernetesVersion = KubernetesVersion { major: 1, minor: 33 };

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for KubernetesVersion {
    type Err = String;

    /// Parses `1.37` or `v1.37`.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let parts: Vec<&str> = numbers.split('.').collect();
        let is_number = |it: &&str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
        match parts.as_slice() {
            [_, _, _, ..] if parts.iter().all(is_number) => Err(format!("patch version not allowed, got: kube={text}")),
            [major, minor] if is_number(major) && is_number(minor) => match (major.parse(), minor.parse()) {
                (Ok(major), Ok(minor)) => Ok(Self { major, minor }),
                _ => Err(format!("could not parse {text:?} as version")),
            },
            [number] if is_number(number) => Err(format!("illegal version string {text:?}")),
            _ => Err(format!("could not parse {text:?} as version")),
        }
    }
}

/// The emulated release, and the oldest release of other components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// `--emulated-version`
    pub emulated: KubernetesVersion,
    /// `--min-compatibility-version`
    pub min_compatibility: KubernetesVersion,
}

impl Versions {
    pub(super) fn read(flags: &mut FlagValues) -> Self {
        let emulated = version_flag(flags, "emulated-version");
        if let Some(emulated) = emulated
            && !(OLDEST..=BINARY).contains(&emulated)
        {
            flags.add_error(format!(
                "--emulated-version: emulation version {emulated} is not between [{OLDEST}, {BINARY}.0]"
            ));
        }
        let emulated = emulated.unwrap_or(BINARY);
        let before = KubernetesVersion { minor: emulated.minor.saturating_sub(1), ..emulated };
        let min_compatibility = version_flag(flags, "min-compatibility-version").unwrap_or(before);
        if flags.is_given("min-compatibility-version") && !(OLDEST_COMPATIBLE..=emulated).contains(&min_compatibility) {
            flags.add_error(format!(
                "--min-compatibility-version: minCompatibilityVersion version {min_compatibility} is not between \
                 [{OLDEST_COMPATIBLE}, {emulated}]"
            ));
        }
        Self { emulated, min_compatibility }
    }
}

/// The version of the component `kube` in a flag.
fn version_flag(flags: &mut FlagValues, name: &str) -> Option<KubernetesVersion> {
    let mut found: Option<KubernetesVersion> = None;
    for entry in flags.list(name) {
        let (component, text) = entry.split_once('=').unwrap_or(("kube", &entry));
        let version = match component.trim() {
            "kube" => text.trim().parse(),
            other => Err(format!("component not registered: {other}")),
        };
        match (version, found) {
            (Err(why), _) => flags.add_error(format!("--{name}: {why}")),
            (Ok(version), None) => found = Some(version),
            (Ok(version), Some(first)) => {
                flags.add_error(format!("--{name}: duplicate version flag, kube={first} and kube={version}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Invocation, parse};

    fn read(args: &[&str]) -> Result<Versions, Vec<String>> {
        let Invocation::Run(mut flags) = parse(args.iter().map(|it| (*it).to_owned())) else { panic!("{args:?}") };
        let versions = Versions::read(&mut flags);
        flags.finish().map(|()| versions)
    }

    #[test]
    fn known_release_may_be_emulated() {
        for (args, emulated, compatible) in [
            (vec![], (1, 37), (1, 36)),
            (vec!["--emulated-version=1.36"], (1, 36), (1, 35)),
            (vec!["--emulated-version=kube=v1.37"], (1, 37), (1, 36)),
            (vec!["--emulated-version=1.36", "--min-compatibility-version=1.34"], (1, 36), (1, 34)),
        ] {
            let versions = read(&args).unwrap();
            let pair = |it: KubernetesVersion| (it.major, it.minor);
            assert_eq!((pair(versions.emulated), pair(versions.min_compatibility)), (emulated, compatible), "{args:?}");
        }
    }

    #[test]
    fn other_releases_are_refused_with_upstreams_message() {
        for (args, want) in [
            (vec!["--emulated-version=1.35"], "emulation version 1.35 is not between [1.36, 1.37.0]"),
            (vec!["--emulated-version=1.38"], "emulation version 1.38 is not between [1.36, 1.37.0]"),
            (vec!["--emulated-version=1.36.1"], "patch version not allowed, got: kube=1.36.1"),
            (vec!["--emulated-version=foo"], "could not parse \"foo\" as version"),
            (vec!["--emulated-version=1"], "illegal version string \"1\""),
            (vec!["--emulated-version=1.99999999999999"], "could not parse \"1.99999999999999\" as version"),
            (vec!["--emulated-version=wardle=1.2"], "component not registered: wardle"),
            (
                vec!["--emulated-version=1.36", "--emulated-version=1.37"],
                "duplicate version flag, kube=1.36 and kube=1.37",
            ),
            (
                vec!["--min-compatibility-version=1.38"],
                "minCompatibilityVersion version 1.38 is not between [1.33, 1.37]",
            ),
            (
                vec!["--emulated-version=1.36", "--min-compatibility-version=1.37"],
                "minCompatibilityVersion version 1.37 is not between [1.33, 1.36]",
            ),
        ] {
            let errors = read(&args).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].starts_with("--") && errors[0].ends_with(want), "{errors:?}");
        }
    }
}
