//! Feature gates: upstream's names, stages, defaults and locks, and the settings of the operator.
//!
//! Few of them change this binary (`EFFECTIVE`). All are accepted, checked and reported in
//! `kubernetes_feature_enabled`.

mod table;
mod versions;

use std::collections::BTreeMap;

use metrics::Metrics;

use crate::{
    controllers::registry::{KNOWN, REGISTRATIONS},
    flags::{FlagValues, boolean},
    version,
};

pub use versions::{BINARY, KubernetesVersion, Versions};

/// The stage of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off by default; may be removed.
    Alpha,
    /// Usually on by default.
    Beta,
    /// Generally available.
    Stable,
    /// Will be removed.
    Deprecated,
}

impl Stage {
    /// The label value in the metric.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// A gate in one release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The stage.
    pub stage: Stage,
    /// The default.
    pub on: bool,
    /// True when the gate is locked to its default.
    pub locked: bool,
}

/// One gate.
#[derive(Debug)]
pub struct FeatureGate {
    /// Upstream's name.
    pub name: &'static str,
    /// `None` when the release does not have it.
    pub in_1_36: Option<Spec>,
    /// `None` when the release does not have it.
    pub in_1_37: Option<Spec>,
}

impl FeatureGate {
    fn spec(&self, emulated: KubernetesVersion) -> Option<Spec> {
        if emulated < BINARY { self.in_1_36 } else { self.in_1_37 }
    }
}

/// Gates that change the behaviour of this binary, without those of controllers.
const EFFECTIVE: &[&str] =
    &["AllAlpha", "AllBeta", "ComponentFlagz", "ComponentStatusz", "LoggingAlphaOptions", "LoggingBetaOptions"];

/// Gates of controllers of this binary that are not implemented, and the effect that is missing for each.
const UNIMPLEMENTED: &[(&str, &str)] = &[("WorkloadWithJob", "Jobs get neither Workloads nor PodGroups")];

/// All gates with their value in this process.
#[derive(Debug, Clone)]
pub struct Gates {
    versions: Versions,
    all: BTreeMap<&'static str, (Stage, bool)>,
    /// Warnings for the operator, one sentence each.
    warnings: Vec<String>,
}

impl Gates {
    /// Reads `--feature-gates`, `--emulated-version` and `--min-compatibility-version`. Errors are added to `flags`.
    #[must_use]
    pub fn read(flags: &mut FlagValues) -> Self {
        let versions = Versions::read(flags);
        let known: BTreeMap<&'static str, Spec> =
            table::GATES.iter().filter_map(|it| Some((it.name, it.spec(versions.emulated)?))).collect();
        let mut set = BTreeMap::new();
        for text in flags.texts("feature-gates").into_iter().map(str::to_owned).collect::<Vec<_>>() {
            for entry in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
                match parse_setting(entry, &known, versions) {
                    Ok((name, on)) => drop(set.insert(name, on)),
                    Err(why) => flags.add_error(format!("--feature-gates: {why}")),
                }
            }
        }
        let group = |spec: &Spec| match spec.stage {
            Stage::Alpha => set.get("AllAlpha").copied(),
            Stage::Beta => set.get("AllBeta").copied(),
            Stage::Stable | Stage::Deprecated => None,
        };
        let on = |(name, spec): (&&'static str, &Spec)| {
            set.get(name).copied().or_else(|| group(spec).filter(|_| !spec.locked)).unwrap_or(spec.on)
        };
        let all = known.iter().map(|it| (*it.0, (it.1.stage, on(it)))).collect();
        let mut warnings = warnings(&set, &known);
        let is_on = |name: &str| known.get_key_value(name).is_some_and(on);
        for (name, what) in UNIMPLEMENTED.iter().filter(|(name, _)| is_on(name)) {
            warnings.push(format!("feature gate {name} is on, and nothing in this binary implements it: {what}"));
        }
        Self { versions, all, warnings }
    }

    /// The emulated version and the minimum compatibility version.
    #[must_use]
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// True when the gate is on. A gate that the emulated release does not have is off.
    #[must_use]
    pub fn enabled(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|(_, on)| *on)
    }

    /// The same versions in the form for pages and metrics.
    #[must_use]
    pub fn version(&self) -> version::VersionInfo {
        let Versions { emulated, min_compatibility } = self.versions;
        version::VersionInfo { emulation: emulated.minor, min_compatibility: min_compatibility.minor }
    }

    /// Pages that are not served because their gate is off.
    #[must_use]
    pub fn disabled_pages(&self) -> Vec<&'static str> {
        let pages = [("ComponentFlagz", "/flagz"), ("ComponentStatusz", "/statusz")];
        pages.into_iter().filter(|(gate, _)| !self.enabled(gate)).map(|(_, page)| page).collect()
    }

    /// Every gate with its stage and value, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, Stage, bool)> + '_ {
        self.all.iter().map(|(name, (stage, on))| (*name, *stage, *on))
    }

    /// Warnings for the operator, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Registers the metric `kubernetes_feature_enabled`.
    pub fn declare(&self, metrics: &Metrics) {
        let help = "[BETA] This metric records the data about the stage and enablement of a k8s feature.";
        let family = metrics.gauges("kubernetes_feature_enabled", help, &["name", "stage"]);
        for (name, stage, on) in self.all() {
            family.with_label_values(&[name, stage.name()]).set(i64::from(on));
        }
    }
}

/// Parses one `Gate=true` or `kube:Gate=true`.
fn parse_setting(
    entry: &str,
    known: &BTreeMap<&'static str, Spec>,
    versions: Versions,
) -> Result<(&'static str, bool), String> {
    let (component, pair) = entry.split_once(':').unwrap_or(("kube", entry));
    if component.trim() != "kube" {
        return Err(format!("component not registered: {}", component.trim()));
    }
    let Some((name, value)) = pair.split_once('=') else { return Err(format!("missing bool value for {pair}")) };
    let (name, value) = (name.trim(), value.trim());
    let on = boolean(value).map_err(|why| format!("invalid value of {name}={value}, err: {why}"))?;
    let Some((name, spec)) = known.get_key_value(name) else {
        let Versions { emulated, min_compatibility } = versions;
        let later = table::GATES.iter().any(|it| it.name == name && it.in_1_36.is_none());
        return Err(if later && emulated < BINARY {
            format!(
                "cannot set feature gate {name} to {on}, feature is PreAlpha at emulated version {emulated}, min \
                 compatibility version {min_compatibility}"
            )
        } else {
            format!("unrecognized feature gate: {name}")
        });
    };
    if spec.locked && on != spec.on {
        return Err(format!("cannot set feature gate {name} to {on}, feature is locked to {}", spec.on));
    }
    Ok((*name, on))
}

fn warnings(set: &BTreeMap<&'static str, bool>, known: &BTreeMap<&'static str, Spec>) -> Vec<String> {
    let names = |matches: &dyn Fn(&str, Spec, bool) -> bool| {
        let picked = set.iter().filter(|(name, on)| known.get(*name).is_some_and(|spec| matches(name, *spec, **on)));
        picked.map(|(name, on)| format!("{name}={on}")).collect::<Vec<_>>().join(", ")
    };
    let removed_later = names(&|_, spec, _| matches!(spec.stage, Stage::Stable | Stage::Deprecated));
    let needed = |name: &str| {
        KNOWN.iter().any(|it| it.gates().contains(&name)) || REGISTRATIONS.iter().any(|it| it.gates.contains(&name))
    };
    let missing = |name: &str| UNIMPLEMENTED.iter().any(|it| it.0 == name);
    let without_effect =
        names(&|name, spec, on| on != spec.on && !EFFECTIVE.contains(&name) && !needed(name) && !missing(name));
    let mut warnings = Vec::new();
    if !removed_later.is_empty() {
        warnings.push(format!("feature gates that a future release removes: {removed_later}"));
    }
    if !without_effect.is_empty() {
        warnings.push(format!(
            "feature gates that change nothing in this binary, shown in /metrics only: {without_effect}"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Invocation, parse};

    fn gates(args: &[&str]) -> Result<Gates, Vec<String>> {
        let Invocation::Run(mut flags) = parse(args.iter().map(|it| (*it).to_owned())) else { panic!("{args:?}") };
        let gates = Gates::read(&mut flags);
        flags.finish().map(|()| gates)
    }

    #[test]
    fn the_table_is_sorted_and_each_gate_is_in_a_release() {
        assert!(table::GATES.windows(2).all(|it| it[0].name < it[1].name));
        assert!(table::GATES.iter().all(|it| it.in_1_36.is_some() || it.in_1_37.is_some()));
        for gate in table::GATES {
            for spec in [gate.in_1_36, gate.in_1_37].into_iter().flatten() {
                assert!(spec.stage != Stage::Alpha || !spec.on, "{}: alpha is off", gate.name);
                assert!(!spec.locked || matches!(spec.stage, Stage::Stable | Stage::Deprecated), "{}", gate.name);
            }
        }
        let of_controllers = REGISTRATIONS.iter().flat_map(|it| it.gates);
        for name in EFFECTIVE.iter().chain(UNIMPLEMENTED.iter().map(|(name, _)| name)).chain(of_controllers) {
            assert!(table::GATES.iter().any(|it| it.name == *name), "{name}");
        }
    }

    #[test]
    fn acceptance_shell_043_a_gate_that_is_set_is_in_the_metric() {
        let metrics = Metrics::new();
        gates(&["--feature-gates=AtomicFIFO=false"]).unwrap().declare(&metrics);
        let text = metrics.encode();
        for line in [
            "kubernetes_feature_enabled{name=\"AtomicFIFO\",stage=\"BETA\"} 0",
            "kubernetes_feature_enabled{name=\"ComponentFlagz\",stage=\"BETA\"} 1",
            "kubernetes_feature_enabled{name=\"DynamicResourceAllocation\",stage=\"\"} 1",
            "kubernetes_feature_enabled{name=\"AllAlpha\",stage=\"ALPHA\"} 0",
            "kubernetes_feature_enabled{name=\"KMSv1\",stage=\"DEPRECATED\"} 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn acceptance_shell_044_unknown_and_locked_gates_are_refused_all_at_once() {
        let args = "Unknown=true,DynamicResourceAllocation=false,AtomicFIFO=x,wardle:A=true,foo,GitRepoVolumeDriver=true,kube:AtomicFIFO=false";
        let errors = gates(&[&format!("--feature-gates={args}")]).unwrap_err();
        assert_eq!(
            errors,
            [
                "--feature-gates: unrecognized feature gate: Unknown",
                "--feature-gates: cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
                "--feature-gates: invalid value of AtomicFIFO=x, err: strconv.ParseBool: parsing \"x\": invalid syntax",
                "--feature-gates: component not registered: wardle",
                "--feature-gates: missing bool value for foo",
                "--feature-gates: cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false",
            ]
        );
        assert!(gates(&["--feature-gates=DynamicResourceAllocation=true"]).is_ok(), "its locked value is accepted");
    }

    #[test]
    fn last_setting_of_a_gate_wins() {
        for (args, want) in [
            (vec!["--feature-gates=AtomicFIFO=false,kube:AtomicFIFO=true"], true),
            (vec!["--feature-gates=AtomicFIFO=true", "--feature_gates", " AtomicFIFO = F "], false),
            (vec!["--feature-gates="], true),
        ] {
            assert_eq!(gates(&args).unwrap().enabled("AtomicFIFO"), want, "{args:?}");
        }
    }

    #[test]
    fn all_alpha_and_all_beta_set_gates_without_a_setting_of_their_own() {
        let on = |args: &str, name: &str| gates(&[args]).unwrap().enabled(name);
        assert!(on("--feature-gates=AllAlpha=true", "ClientsAllowCBOR"));
        assert!(!on("--feature-gates=AllAlpha=true,ClientsAllowCBOR=false", "ClientsAllowCBOR"));
        assert!(!on("--feature-gates=AllBeta=false", "AtomicFIFO"));
        assert!(on("--feature-gates=AtomicFIFO=true,AllBeta=false", "AtomicFIFO"));
        assert!(on("--feature-gates=AllBeta=false", "DynamicResourceAllocation"), "stable gates do not change");
    }

    #[test]
    fn emulated_release_sets_stage_and_default() {
        for (version, name, want) in [
            ("1.36", "PodCertificateRequest", Some((Stage::Beta, false))),
            ("1.37", "PodCertificateRequest", Some((Stage::Stable, true))),
            ("1.36", "GangScheduling", Some((Stage::Alpha, false))),
            ("1.37", "GangScheduling", None),
            ("1.36", "CompositePodGroup", None),
        ] {
            let gates = gates(&[&format!("--emulated-version={version}")]).unwrap();
            let found = gates.all().find(|it| it.0 == name).map(|it| (it.1, it.2));
            assert_eq!(found, want, "{name} in {version}");
        }
        let errors = gates(&["--emulated-version=1.36", "--feature-gates=CompositePodGroup=true"]).unwrap_err();
        let want = "cannot set feature gate CompositePodGroup to true, feature is PreAlpha at emulated version 1.36, \
                    min compatibility version 1.35";
        assert!(errors[0].ends_with(want), "{errors:?}");
    }

    #[test]
    fn gate_whose_dependency_is_off_is_accepted() {
        let gates = gates(&["--feature-gates=DRADeviceTaintRules=true,DRADeviceTaints=false"]).unwrap();
        assert!(gates.enabled("DRADeviceTaintRules") && !gates.enabled("DRADeviceTaints"));
    }

    #[test]
    fn page_is_served_only_when_its_gate_is_on() {
        assert!(gates(&[]).unwrap().disabled_pages().is_empty());
        assert_eq!(gates(&["--feature-gates=ComponentStatusz=false"]).unwrap().disabled_pages(), ["/statusz"]);
        assert_eq!(gates(&["--feature-gates=AllBeta=false"]).unwrap().disabled_pages(), ["/flagz", "/statusz"]);
    }

    #[test]
    fn gates_without_effect_give_one_warning() {
        let warnings = |args: &str| gates(&[args]).unwrap().warnings().join("\n");
        assert_eq!(warnings("--feature-gates=AtomicFIFO=true,ComponentFlagz=false"), "");
        assert!(warnings("--feature-gates=AtomicFIFO=false").contains("change nothing in this binary"));
        assert!(warnings("--feature-gates=KMSv1=true").contains("a future release removes: KMSv1=true"));
        assert!(!warnings("--feature-gates=StorageVersionMigrator=true").contains("nothing"), "a controller needs it");
    }

    #[test]
    fn unimplemented_gate_gives_a_warning_however_it_is_enabled() {
        let want = "feature gate WorkloadWithJob is on, and nothing in this binary implements it: Jobs get neither \
                    Workloads nor PodGroups";
        for (args, is_told) in
            [("WorkloadWithJob=true", true), ("AllAlpha=true", true), ("WorkloadWithJob=false", false)]
        {
            let gates = gates(&[&format!("--feature-gates={args}")]).unwrap();
            assert_eq!(gates.warnings(), if is_told { vec![want.to_owned()] } else { vec![] }, "{args}");
        }
    }
}
