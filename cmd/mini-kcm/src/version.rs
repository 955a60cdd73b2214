//! Which Kubernetes we are, to those who ask.

use metrics::Metrics;
use serde_json::{Value, json};

/// The release whose behaviour this is, `1.MINOR`.
pub const MINOR: u32 = 37;

/// The release that we report to be.
pub const RELEASE: &str = "v1.37.0";

/// What compiled us.
pub const COMPILER: &str = "rustc";

/// The release, and behind it ourselves: tools that compare the versions of a cluster read its beginning.
#[must_use]
pub fn git_version() -> String {
    format!("{RELEASE}+mini-kcm.{}", env!("CARGO_PKG_VERSION"))
}

/// The system, in Go's words.
#[must_use]
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

/// What we are, and which release we behave as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// `--emulated-version`: the minor of 1.
    pub emulation: u32,
    /// `--min-compatibility-version`: the minor of 1.
    pub min_compatibility: u32,
}

impl Default for Version {
    fn default() -> Self {
        Self { emulation: MINOR, min_compatibility: MINOR - 1 }
    }
}

impl Version {
    /// Our own name and version.
    #[must_use]
    pub fn product(self) -> &'static str {
        concat!("mini-kcm v", env!("CARGO_PKG_VERSION"))
    }

    /// As Kubernetes numbers its binaries.
    #[must_use]
    pub fn binary(self) -> String {
        format!("1.{MINOR}.0")
    }

    /// The release that we behave as.
    #[must_use]
    pub fn emulation(self) -> String {
        format!("1.{}", self.emulation)
    }

    /// What `/version` says.
    #[must_use]
    pub fn page(self) -> Value {
        let Build { git_version, compiler, platform } = Build::this();
        json!({
            "major": "1",
            "minor": MINOR.to_string(),
            "emulationMajor": "1",
            "emulationMinor": self.emulation.to_string(),
            "minCompatibilityMajor": "1",
            "minCompatibilityMinor": self.min_compatibility.to_string(),
            "gitVersion": git_version,
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "",
            "goVersion": "",
            "compiler": compiler,
            "platform": platform,
        })
    }

    /// Declares what `/metrics` says.
    pub fn declare(self, metrics: &Metrics) {
        let Build { git_version, compiler, platform } = Build::this();
        // What we do not have is empty, which is as if it were not there.
        let build = [
            ("major", "1"),
            ("minor", &MINOR.to_string()),
            ("git_version", &git_version),
            ("git_commit", ""),
            ("git_tree_state", ""),
            ("build_date", ""),
            ("go_version", ""),
            ("compiler", compiler),
            ("platform", &platform),
        ];
        let help = "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree \
                    state, build date, Go version, and compiler from which Kubernetes was built, and platform on which \
                    it is running.";
        metrics
            .gauges("kubernetes_build_info", help, &build.map(|it| it.0))
            .with_label_values(&build.map(|it| it.1))
            .set(1);
        let help = "[ALPHA] Provides the compatibility version info of the component. The component label is the name of \
                    the component, usually kube, but is relevant for aggregated-apiservers.";
        let min_compatibility = format!("1.{}", self.min_compatibility);
        let versions = ["kube", &self.binary(), &self.emulation(), &min_compatibility];
        metrics
            .gauges("version_info", help, &["component", "binary", "emulation", "min_compat"])
            .with_label_values(&versions)
            .set(1);
    }
}

struct Build {
    git_version: String,
    compiler: &'static str,
    platform: String,
}

impl Build {
    fn this() -> Self {
        Self { git_version: git_version(), compiler: COMPILER, platform: platform() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_one_whose_behaviour_this_is() {
        assert_eq!(RELEASE, format!("v{}", Version::default().binary()));
    }

    #[test]
    fn acceptance_shell_045_the_build_and_the_releases_are_told() {
        let metrics = Metrics::new();
        Version { emulation: 36, min_compatibility: 35 }.declare(&metrics);
        let text = metrics.encode();
        assert!(text.contains("git_version=\"v1.37.0+mini-kcm."), "{text}");
        let versions = "version_info{binary=\"1.37.0\",component=\"kube\",emulation=\"1.36\",min_compat=\"1.35\"} 1";
        assert!(text.contains(versions), "{text}");
    }
}
