//! The version of this binary, for pages and metrics.

use metrics::Metrics;
use serde_json::{Value, json};

/// The minor version of the Kubernetes release of this binary, `1.MINOR`.
pub const MINOR: u32 = 37;

/// The reported Kubernetes version.
pub const RELEASE: &str = "v1.37.0";

/// The reported compiler.
pub const COMPILER: &str = "rustc";

/// The Kubernetes release, followed by our own version. Tools that compare the versions of a cluster read the first
/// part.
#[must_use]
pub fn git_version() -> String {
    format!("{RELEASE}+mini-kcm.{}", env!("CARGO_PKG_VERSION"))
}

/// Operating system and architecture, with Go's names.
#[must_use]
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

/// The emulated versions of this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionInfo {
    /// `--emulated-version`: the minor version.
    pub emulation: u32,
    /// `--min-compatibility-version`: the minor version.
    pub min_compatibility: u32,
}

impl Default for VersionInfo {
    fn default() -> Self {
        Self { emulation: MINOR, min_compatibility: MINOR - 1 }
    }
}

impl VersionInfo {
    /// Our own name and version.
    #[must_use]
    pub fn product(self) -> &'static str {
        concat!("mini-kcm v", env!("CARGO_PKG_VERSION"))
    }

    /// The Kubernetes version of the binary, in the form of Kubernetes.
    #[must_use]
    pub fn binary(self) -> String {
        format!("1.{MINOR}.0")
    }

    /// The emulated release.
    #[must_use]
    pub fn emulation(self) -> String {
        format!("1.{}", self.emulation)
    }

    /// The content of `/version`.
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

    /// Registers the version metrics.
    pub fn declare(self, metrics: &Metrics) {
        let Build { git_version, compiler, platform } = Build::this();
        // A label without a value is empty, which Prometheus treats as absent.
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
    fn release_matches_the_binary_version() {
        assert_eq!(RELEASE, format!("v{}", VersionInfo::default().binary()));
    }

    #[test]
    fn acceptance_shell_045_build_and_versions_are_in_the_metrics() {
        let metrics = Metrics::new();
        VersionInfo { emulation: 36, min_compatibility: 35 }.declare(&metrics);
        let text = metrics.encode();
        assert!(text.contains("git_version=\"v1.37.0+mini-kcm."), "{text}");
        let versions = "version_info{binary=\"1.37.0\",component=\"kube\",emulation=\"1.36\",min_compat=\"1.35\"} 1";
        assert!(text.contains(versions), "{text}");
    }
}
