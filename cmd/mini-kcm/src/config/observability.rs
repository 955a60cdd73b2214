//! The configuration of debug pages and metrics.

use std::{collections::BTreeMap, path::Path};

use metrics::MetricsFilter;
use serde_json::Value;

use super::configuration::configuration;
use crate::{
    controllers::Selection,
    flags::{self, FlagValues, Kind, show_duration},
    version,
};

/// The options of debug pages and metrics.
#[derive(Debug, Clone)]
pub struct Options {
    /// The content of `/configz`.
    pub configuration: Value,
    /// Every flag and its value, as shown by `/flagz`.
    pub flags: BTreeMap<String, String>,
    /// `--profiling`
    pub profiling: bool,
    /// The selection of metrics and label values.
    pub filter: MetricsFilter,
}

/// Reads the flags of metrics and `/debug`.
pub fn read(flags: &mut FlagValues, controllers: &Selection) -> Options {
    let hidden = flags.text("show-hidden-metrics-for-version");
    let previous = format!("1.{}", version::MINOR - 1);
    if !hidden.is_empty() && hidden != previous {
        let error = format!(
            "--show-hidden-metrics-for-version: Invalid value: {hidden:?}: must be omitted or have the value \
             '{previous}'; only the previous minor version is allowed"
        );
        flags.add_error(error);
    }
    Options {
        configuration: configuration(flags, controllers),
        flags: shown(flags),
        profiling: flags.bool("profiling"),
        filter: filter(flags),
    }
}

fn filter(flags: &mut FlagValues) -> MetricsFilter {
    let mut filter = MetricsFilter::default();
    let mut errors = Vec::new();
    for name in flags.list("disabled-metrics") {
        let result = filter.disable(&name);
        errors.extend(result.err().map(|it| format!("--disabled-metrics: Invalid value: {name:?}: {it}")));
    }
    // The flag overrides the manifest, so the flag is read last.
    if let Some(path) = flags.path("allow-metric-labels-manifest") {
        let result = manifest(&path).and_then(|it| allow(&mut filter, it));
        let shown = path.display();
        errors
            .extend(result.err().map(|it| format!("--allow-metric-labels-manifest: Invalid value: \"{shown}\": {it}")));
    }
    let result = allow(&mut filter, flags.pairs("allow-metric-labels"));
    errors.extend(result.err().map(|it| format!("--allow-metric-labels: Invalid value: {it}")));
    errors.into_iter().for_each(|it| flags.add_error(it));
    filter
}

fn allow(filter: &mut MetricsFilter, pairs: BTreeMap<String, String>) -> Result<(), String> {
    pairs.iter().try_for_each(|(key, values)| filter.allow(key, values))
}

/// Reads the pairs of `allowListMapping` from a file.
fn manifest(path: &Path) -> Result<BTreeMap<String, String>, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Manifest {
        #[serde(rename = "allowListMapping")]
        allowed: BTreeMap<String, String>,
    }
    let text = std::fs::read_to_string(path).map_err(|err| format!("failed to read allow list manifest: {err}"))?;
    let manifest = serde_saphyr::from_str::<Manifest>(&text);
    // The error must not contain text from the file: with a wrong path it may be a secret.
    manifest.map(|it| it.allowed).map_err(|err| {
        let place = err.location().map(|it| format!("line {}, column {}: ", it.line(), it.column()));
        format!(
            "failed to parse allow list manifest: {}not of the form \
             'allowListMapping: {{\"metric,label\": \"value,value\"}}'",
            place.unwrap_or_default()
        )
    })
}

/// The flags with their values as Go prints them.
fn shown(flags: &FlagValues) -> BTreeMap<String, String> {
    flags::flags().map(|flag| (flag.name.to_owned(), hidden(flag.name, show(flags, flag)))).collect()
}

fn show(flags: &FlagValues, flag: &flags::Flag) -> String {
    let name = flag.name;
    match flag.kind {
        Kind::Bool => flags.bool(name).to_string(),
        Kind::Duration => show_duration(flags.duration(name)),
        Kind::Int | Kind::Int32 => flags.int(name).to_string(),
        Kind::Float | Kind::Float32 => flags.float(name).to_string(),
        Kind::List => format!("[{}]", flags.list(name).join(",")),
        Kind::Map => {
            let pairs = flags.pairs(name).into_iter().map(|(key, value)| format!("{key}={value}"));
            format!("[{}]", pairs.collect::<Vec<_>>().join(","))
        }
        Kind::Numbers | Kind::CertKeys => format!("[{}]", flags.texts(name).join(",")),
        Kind::Gates | Kind::Patterns => flags.texts(name).join(","),
        Kind::Address => flags.address(name).to_string(),
        Kind::Text | Kind::Quantity | Kind::Level | Kind::Version => flags.text(name).to_owned(),
    }
}

/// A flag contains the name of a file, never its content. An address may contain a password, and `--master` needs no
/// scheme.
fn hidden(name: &str, value: String) -> String {
    let address = name == "master" || value.contains("://");
    if address && client::redacted(&value) != value { "CLASSIFIED".to_owned() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::typed;

    fn options(args: &[&str]) -> Result<Options, Vec<String>> {
        let mut typed = typed(args);
        let options = read(&mut typed, &Selection::default());
        typed.finish().map(|()| options)
    }

    #[test]
    fn acceptance_shell_030_every_flag_is_shown_as_go_prints_it_and_passwords_are_not() {
        let shown = options(&[
            "--leader-elect-renew-deadline=80s",
            "--authorization-always-allow-paths=/healthz,/metrics",
            "--leader-elect=F",
            "--vmodule=a=1",
            "--vmodule=b*=2",
            "--bind-address=",
            "--master=https://user:password@host:6443/path",
        ]);
        let shown = shown.unwrap().flags;
        assert_eq!(shown.len(), flags::flags().count());
        for (name, want) in [
            ("leader-elect-renew-deadline", "1m20s"),
            ("authorization-always-allow-paths", "[/healthz,/metrics]"),
            ("leader-elect", "false"),
            ("master", "CLASSIFIED"),
            ("min-resync-period", "12h0m0s"),
            ("allow-metric-labels", "[]"),
            ("feature-gates", ""),
            ("node-eviction-rate", "0.1"),
            ("bind-address", "0.0.0.0"),
            ("vmodule", "a=1,b*=2"),
        ] {
            assert_eq!(shown[name], want, "{name}");
        }
        for (name, value, open) in [
            ("master", "", true),
            ("master", "host:6443", true),
            ("master", "https://host:6443/path", true),
            ("master", "user:canary@host:6443", false),
            ("master", "https://user:can/ary@host", false),
            ("cluster-name", "user@host", true),
            ("cluster-name", "a,https://user:canary@host", false),
        ] {
            let shown = if open { value } else { "CLASSIFIED" };
            assert_eq!(hidden(name, value.to_owned()), shown, "{value}");
        }
    }

    #[test]
    fn acceptance_shell_046_metrics_filter_comes_from_flags_and_manifest_and_the_flag_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest.yaml");
        let text = "allowListMapping:\n  \"m,code\": \"200\"\n  \"m,verb\": \"GET,PUT\"\n";
        std::fs::write(&path, text).unwrap();
        let manifest = format!("--allow-metric-labels-manifest={}", path.display());
        let options = options(&["--disabled-metrics=a,b", &manifest, "--allow-metric-labels=m,code=404"]).unwrap();
        let mut want = MetricsFilter::default();
        want.disable("a").unwrap();
        want.disable("b").unwrap();
        want.allow("m,code", "404").unwrap();
        want.allow("m,verb", "GET,PUT").unwrap();
        assert_eq!(options.filter, want);
    }

    #[test]
    fn invalid_values_are_errors_with_their_flag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest.yaml");
        std::fs::write(&path, "allowed: [a]").unwrap();
        let manifest = format!("--allow-metric-labels-manifest={}", path.display());
        for (args, want) in [
            (["--disabled-metrics=a b"], vec!["--disabled-metrics", "a b"]),
            (["--allow-metric-labels=foo=bar"], vec!["--allow-metric-labels", "foo"]),
            (
                ["--allow-metric-labels-manifest=/nope"],
                vec!["--allow-metric-labels-manifest", "/nope", "failed to read"],
            ),
            ([&*manifest], vec!["--allow-metric-labels-manifest", "failed to parse"]),
            (["--show-hidden-metrics-for-version=1.5"], vec!["--show-hidden-metrics-for-version", "'1.36'"]),
        ] {
            let errors = options(&args).unwrap_err().join("\n");
            assert!(want.iter().all(|it| errors.contains(it)), "{want:?} in {errors}");
        }
        assert!(options(&["--show-hidden-metrics-for-version=1.36"]).is_ok());
        for other in
            ["canary", "allowListMapping: canary", "allowListMapping: {a: [canary]}", "users: [canary", "canary: a"]
        {
            std::fs::write(&path, other).unwrap();
            let errors = options(&[&*manifest]).unwrap_err().join("\n");
            assert!(errors.contains("failed to parse") && !errors.contains("canary"), "{other}: {errors}");
        }
    }
}
