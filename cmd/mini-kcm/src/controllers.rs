//! `--controllers`: which controllers run.

mod idle;
pub(crate) mod registry;

use std::collections::BTreeMap;

use controller::{
    ByDefault::{Gated, On, Removed, WithKey},
    Registration,
};

use self::registry::{KNOWN, KnownController};
use crate::{flags::FlagValues, gates::Gates};

/// `--controllers`, with aliases replaced by canonical names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    entries: Vec<String>,
    /// Controllers with disabled feature gates, and these gates.
    gated: BTreeMap<&'static str, Vec<&'static str>>,
    /// Controllers without work because of other flags, and the flag that each needs.
    idle: BTreeMap<&'static str, &'static str>,
    token_key: bool,
}

impl Selection {
    /// Checks every entry.
    ///
    /// # Errors
    /// One text for each unknown name.
    pub fn new(entries: &[String]) -> Result<Self, Vec<String>> {
        let mut canonical = Vec::new();
        let mut errors = Vec::new();
        for entry in entries {
            if entry == "*" {
                canonical.push(entry.clone());
                continue;
            }
            canonical_entry(entry).map_or_else(
                |name| errors.push(format!("\"{name}\" is not in the list of known controllers")),
                |it| canonical.push(it),
            );
        }
        if errors.is_empty() { Ok(Self { entries: canonical, ..Self::default() }) } else { Err(errors) }
    }

    /// The list of another manager, which may be of another release. Names that are not known are left out, because
    /// they name none of the known controllers.
    #[must_use]
    pub(crate) fn of_other(entries: &[String]) -> Self {
        let known = |entry: &String| if entry == "*" { Some(entry.clone()) } else { canonical_entry(entry).ok() };
        Self { entries: entries.iter().filter_map(known).collect(), ..Self::default() }
    }

    /// Disables controllers that need a disabled gate.
    #[must_use]
    pub fn with_gates(self, gates: &Gates) -> Self {
        let off =
            |it: &KnownController| it.gates().iter().copied().filter(|gate| !gates.enabled(gate)).collect::<Vec<_>>();
        let gated = KNOWN.iter().map(|it| (it.name, off(it))).filter(|(_, off)| !off.is_empty());
        Self { gated: gated.collect(), ..self }
    }

    /// Disables controllers that have no work because of other flags.
    #[must_use]
    pub fn without_idle(self, flags: &FlagValues) -> Self {
        Self { idle: idle::idle(flags), ..self }
    }

    /// Sets whether `--service-account-private-key-file` is given.
    #[must_use]
    pub fn with_token_key(self, token_key: bool) -> Self {
        Self { token_key, ..self }
    }

    /// The entries with canonical names.
    #[must_use]
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// True when the controller is enabled. The first entry that names it wins; without one, `*` and its default
    /// decide.
    #[must_use]
    pub(crate) fn is_enabled(&self, known: &KnownController) -> bool {
        if known.default == WithKey {
            return self.token_key;
        }
        if self.gated.contains_key(known.name) || self.idle.contains_key(known.name) {
            return false;
        }
        for entry in &self.entries {
            if entry == known.name {
                return true;
            }
            if entry.strip_prefix('-') == Some(known.name) {
                return false;
            }
        }
        matches!(known.default, On | Gated(_)) && self.entries.iter().any(|it| it == "*")
    }

    /// The enabled controllers of this binary.
    pub fn implemented(&self) -> impl Iterator<Item = &'static Registration> + '_ {
        KNOWN.iter().filter(|it| self.is_enabled(it)).filter_map(|it| it.registration)
    }

    /// Enabled controllers that are not in this binary.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &'static KnownController> + '_ {
        KNOWN.iter().filter(|it| self.is_enabled(it) && it.registration.is_none() && it.default != Removed)
    }

    /// Warnings for the operator about this selection, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let names = |matches: &dyn Fn(&KnownController) -> bool| {
            let picked: Vec<&str> = KNOWN.iter().filter(|it| matches(it)).map(|it| it.name).collect();
            picked.join(", ")
        };
        let named = |known: &KnownController| self.entries.iter().any(|it| it == known.name);
        let missing: Vec<String> = self.absent().map(|it| format!("{} ({})", it.purpose, it.name)).collect();
        if !missing.is_empty() {
            warnings.push(format!(
                "not in this binary; unless another manager runs them, the cluster gets no {}",
                missing.join("; no ")
            ));
        }
        for known in KNOWN.iter().filter(|it| named(it)) {
            if let Some(gates) = self.gated.get(known.name) {
                warnings.push(format!("{} does not run, as feature gates are off: {}", known.name, gates.join(", ")));
            }
            if let Some(need) = self.idle.get(known.name) {
                warnings.push(format!("{} does not run without {need}", known.name));
            }
        }
        let mentioned =
            |known: &KnownController| self.entries.iter().any(|it| it.trim_start_matches('-') == known.name);
        let removed = names(&|it| it.default == Removed && mentioned(it));
        if !removed.is_empty() {
            warnings.push(format!("removed in Kubernetes 1.37, ignored: {removed}"));
        }
        let contradicted =
            names(&|it| named(it) && self.entries.iter().any(|entry| entry.strip_prefix('-') == Some(it.name)));
        if !contradicted.is_empty() {
            warnings.push(format!("named both with and without '-', the first counts: {contradicted}"));
        }
        warnings
    }
}

/// The entry with the canonical name; the name as an error when it is not known.
fn canonical_entry(entry: &str) -> Result<String, &str> {
    let (minus, name) = entry.strip_prefix('-').map_or(("", entry), |name| ("-", name));
    let known = KNOWN.iter().find(|it| it.name == name || (!it.alias.is_empty() && it.alias == name));
    known.map(|it| format!("{minus}{}", it.name)).ok_or(name)
}

#[cfg(test)]
mod tests {
    use super::{registry::REGISTRATIONS, *};
    use crate::flags::{Invocation, parse};

    fn selection(list: &str) -> Selection {
        let entries: Vec<String> = list.split(',').filter(|_| !list.is_empty()).map(str::to_owned).collect();
        let Invocation::Run(mut flags) = parse([]) else { panic!("no flags") };
        Selection::new(&entries).unwrap().with_gates(&Gates::read(&mut flags))
    }

    fn on(list: &str, name: &str) -> bool {
        selection(list).is_enabled(KNOWN.iter().find(|it| it.name == name).unwrap())
    }

    const NAMESPACE: &str = "namespace-controller";
    const JOB: &str = "job-controller";

    #[test]
    fn controller_names_are_unique_and_match_upstream() {
        let mut names: Vec<&str> =
            KNOWN.iter().flat_map(|it| [it.name, it.alias]).filter(|it| !it.is_empty()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(KNOWN.len(), 52);
    }

    #[test]
    fn service_accounts_match_upstreams_roles() {
        let account = |name: &str| REGISTRATIONS.iter().find(|it| it.name == name).unwrap().service_account;
        for (name, want) in [
            ("namespace-controller", "namespace-controller"),
            ("garbage-collector-controller", "generic-garbage-collector"),
            ("job-controller", "job-controller"),
            ("cronjob-controller", "cronjob-controller"),
            ("ttl-after-finished-controller", "ttl-after-finished-controller"),
            ("statefulset-controller", "statefulset-controller"),
            ("daemonset-controller", "daemon-set-controller"),
            ("replicaset-controller", "replicaset-controller"),
            ("replicationcontroller-controller", "replication-controller"),
            ("deployment-controller", "deployment-controller"),
            ("node-lifecycle-controller", "node-controller"),
            ("taint-eviction-controller", "node-controller"),
            ("pod-garbage-collector-controller", "pod-garbage-collector"),
            ("ttl-controller", "ttl-controller"),
        ] {
            assert_eq!(account(name), want, "{name}");
        }
    }

    #[test]
    fn acceptance_shell_001_star_enables_the_defaults_and_warns_about_absent_controllers() {
        assert!(on("*", NAMESPACE) && on("*", JOB));
        for off in ["bootstrap-signer-controller", "token-cleaner-controller", "selinux-warning-controller"] {
            assert!(!on("*", off), "{off}");
        }
        let warnings = selection("*").warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("endpoints-controller") && warnings[0].contains("resourcequota-controller"));
        assert!(!warnings[0].contains("namespace-controller") && !warnings[0].contains("podgroup"));
        assert!(!warnings[0].contains("(job-controller)"), "{warnings:?}");
    }

    #[test]
    fn acceptance_shell_003_a_list_without_star_runs_only_what_it_names() {
        let list = "job-controller,statefulset";
        let running: Vec<&str> = KNOWN.iter().filter(|it| selection(list).is_enabled(it)).map(|it| it.name).collect();
        assert_eq!(running, ["job-controller", "statefulset-controller"]);
        for (list, want) in [
            ("job", vec!["job-controller", "serviceaccount-token-controller"]),
            ("", vec!["serviceaccount-token-controller"]),
        ] {
            let with_key = selection(list).with_token_key(true);
            let running: Vec<&str> = KNOWN.iter().filter(|it| with_key.is_enabled(it)).map(|it| it.name).collect();
            assert_eq!(running, want, "{list}, and a key to sign tokens with");
        }
        assert!(selection("").implemented().next().is_none(), "an empty list is valid and runs nothing");
        assert!(selection("-job").implemented().next().is_none());
    }

    #[test]
    fn acceptance_shell_004_a_controller_that_is_off_by_default_runs_when_named() {
        assert!(on("*,bootstrapsigner", "bootstrap-signer-controller"));
    }

    #[test]
    fn acceptance_shell_005_the_first_entry_that_names_a_controller_wins() {
        for (list, want) in [
            ("-namespace,*,namespace", false),
            ("namespace,-namespace", true),
            ("-namespace,namespace", false),
            ("namespace,*", true),
            ("*,-namespace", false),
            ("-job,*", true),
        ] {
            assert_eq!(on(list, NAMESPACE), want, "{list}");
        }
        assert!(selection("-job,*,job").warnings().iter().any(|it| it.contains("the first counts: job-controller")));
    }

    #[test]
    fn acceptance_shell_006_007_every_unknown_name_is_reported_in_one_run() {
        let unknown = |list: &[&str]| {
            let entries: Vec<String> = list.iter().map(|it| (*it).to_owned()).collect();
            Selection::new(&entries).unwrap_err()
        };
        assert_eq!(unknown(&["foo"]), ["\"foo\" is not in the list of known controllers"]);
        assert_eq!(
            unknown(&["-foo", "bar"]),
            ["\"foo\" is not in the list of known controllers", "\"bar\" is not in the list of known controllers"]
        );
        for bad in ["-*", "", " job", "Job"] {
            assert_eq!(unknown(&[bad]).len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn acceptance_shell_009_aliases_become_canonical() {
        assert_eq!(selection("*,-job,namespace").entries(), ["*", "-job-controller", "namespace-controller"]);
    }

    #[test]
    fn acceptance_shell_010_a_gated_controller_may_be_named_and_a_warning_lists_its_gates() {
        let named = |known: &KnownController, on: bool| {
            // No gate of the table is locked in 1.36.
            let gates: Vec<String> = known.gates().iter().map(|it| format!("{it}={on}")).collect();
            let args = ["--emulated-version=1.36".to_owned(), format!("--feature-gates={}", gates.join(","))];
            let Invocation::Run(mut flags) = parse(args) else { panic!("no flags") };
            let gates = Gates::read(&mut flags);
            flags.finish().unwrap();
            Selection::new(&["*".to_owned(), known.name.to_owned()]).unwrap().with_gates(&gates)
        };
        let gated: Vec<&KnownController> = KNOWN.iter().filter(|it| !it.gates().is_empty()).collect();
        assert_eq!(gated.len(), 7);
        for known in gated {
            let (off, on) = (named(known, false), named(known, true));
            assert!(on.is_enabled(known) && !off.is_enabled(known), "{}", known.name);
            let want = format!("{} does not run, as feature gates are off: {}", known.name, known.gates().join(", "));
            assert!(off.warnings().contains(&want), "{:?}", off.warnings());
            assert!(!on.warnings().iter().any(|it| it.contains("feature gates")), "{:?}", on.warnings());
        }
        assert!(!on("*", "storage-version-migrator-controller"));
        assert!(on("*", "device-taint-eviction-controller"), "on by default");
    }

    #[test]
    fn controller_without_work_is_not_reported_as_absent() {
        let Invocation::Run(flags) = parse(Vec::new()) else { panic!("no flags") };
        let idle = selection("*,csrsigning").without_idle(&flags);
        for name in ["node-ipam-controller", "certificatesigningrequest-signing-controller"] {
            assert!(
                selection("*").absent().any(|it| it.name == name) && idle.absent().all(|it| it.name != name),
                "{name}"
            );
        }
        let shown: Vec<String> = idle.warnings().into_iter().filter(|it| it.contains("does not run")).collect();
        assert_eq!(
            shown,
            [
                "certificatesigningrequest-signing-controller does not run without --cluster-signing-cert-file and its key"
            ]
        );
    }

    #[test]
    fn acceptance_gc_050_without_its_flag_the_garbage_collector_does_not_start() {
        for (flag, want) in [("--enable-garbage-collector=false", false), ("--enable-garbage-collector=true", true)] {
            let Invocation::Run(flags) = parse([flag.to_owned()]) else { panic!("no flags") };
            for list in ["*", "garbagecollector", "*,garbage-collector-controller"] {
                let chosen = selection(list).without_idle(&flags);
                let starts = chosen.implemented().any(|it| it.name == "garbage-collector-controller");
                assert_eq!(starts, want, "{list} {flag}");
            }
        }
        assert!(selection("*").implemented().any(|it| it.name == "garbage-collector-controller"), "on by default");
    }

    #[test]
    fn acceptance_shell_011_the_removed_cloud_names_are_a_warning() {
        for list in ["*,-service-lb-controller", "*,route"] {
            assert!(selection(list).warnings().iter().any(|it| it.contains("removed in Kubernetes 1.37")), "{list}");
        }
    }
}
