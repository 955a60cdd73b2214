//! The table of controllers: canonical name, alias, default, and the start function of each controller in this binary.
//!
//! A new controller is one crate under `controllers/` and its constructor in this table. The table also contains the
//! names of controllers that are not in this binary. So an operator's `--controllers` list is accepted unchanged, with
//! a warning about the absent controllers.

mod idle;
mod missing;

use std::collections::BTreeMap;

use controller::{Builder, Profile};

use crate::{config::Options, flags::FlagValues, gates::Gates};

/// One line of the table.
#[derive(Debug)]
pub struct KnownController {
    /// Canonical name. Its meaning never changes.
    pub name: &'static str,
    /// An older name that still works; empty without one.
    pub alias: &'static str,
    /// Its ServiceAccount in kube-system under `--use-service-account-credentials`, and always the name of its client.
    /// Empty where upstream has none.
    pub service_account: &'static str,
    /// Its permissions and its marks on objects.
    pub profile: Profile,
    /// Whether `*` includes it.
    pub default: ByDefault,
    /// Its start function; `None` when it is not in this binary.
    pub start: Option<StartFn>,
}

impl KnownController {
    /// The ServiceAccount in kube-system that the controller may use.
    #[must_use]
    pub fn identity(&self) -> Option<&'static str> {
        (!self.service_account.is_empty()).then_some(self.service_account)
    }

    /// All feature gates that the controller needs. Gates that are locked on in every known release are left out.
    #[must_use]
    pub fn gates(&self) -> &'static [&'static str] {
        match self.default {
            Gated(gates) => gates,
            On | Off | WithKey | Removed => &[],
        }
    }
}

/// Declares a controller to its builder.
pub type StartFn = fn(&mut Builder, &Options);

/// When a controller runs without an entry of its own in `--controllers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByDefault {
    /// With `*`.
    On,
    /// Only when named.
    Off,
    /// With `*`, if these feature gates are on.
    Gated(&'static [&'static str]),
    /// With a signing key, whatever `--controllers` contains.
    WithKey,
    /// Never: a stub that upstream removed in 1.37.
    Removed,
}

use ByDefault::{Gated, Off, On, Removed, WithKey};

const fn absent(
    name: &'static str,
    alias: &'static str,
    service_account: &'static str,
    default: ByDefault,
) -> KnownController {
    KnownController { name, alias, service_account, profile: Profile::NONE, default, start: None }
}

/// Every name that `--controllers` accepts.
pub const KNOWN: &[KnownController] = &[
    KnownController {
        name: namespace_controller::NAME,
        alias: "namespace",
        service_account: "namespace-controller",
        profile: namespace_controller::PROFILE,
        default: On,
        start: Some(start_namespace),
    },
    absent("serviceaccount-token-controller", "serviceaccount-token", "", WithKey),
    absent("endpoints-controller", "endpoint", "endpoint-controller", On),
    absent("endpointslice-controller", "endpointslice", "endpointslice-controller", On),
    absent("endpointslice-mirroring-controller", "endpointslicemirroring", "endpointslicemirroring-controller", On),
    absent("replicationcontroller-controller", "replicationcontroller", "replication-controller", On),
    absent("pod-garbage-collector-controller", "podgc", "pod-garbage-collector", On),
    absent("resourcequota-controller", "resourcequota", "resourcequota-controller", On),
    absent("serviceaccount-controller", "serviceaccount", "service-account-controller", On),
    KnownController {
        name: garbage_collector_controller::NAME,
        alias: "garbagecollector",
        service_account: "generic-garbage-collector",
        profile: garbage_collector_controller::PROFILE,
        default: On,
        start: Some(start_garbage_collector),
    },
    absent("daemonset-controller", "daemonset", "daemon-set-controller", On),
    KnownController {
        name: job_controller::NAME,
        alias: "job",
        service_account: "job-controller",
        profile: job_controller::PROFILE,
        default: On,
        start: Some(start_job),
    },
    absent("podgroup-protection-controller", "", "podgroup-protection-controller", Gated(&["GenericWorkload"])),
    absent("deployment-controller", "deployment", "deployment-controller", On),
    absent("replicaset-controller", "replicaset", "replicaset-controller", On),
    absent("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", "horizontal-pod-autoscaler", On),
    absent("disruption-controller", "disruption", "disruption-controller", On),
    absent("statefulset-controller", "statefulset", "statefulset-controller", On),
    KnownController {
        name: cronjob_controller::NAME,
        alias: "cronjob",
        service_account: "cronjob-controller",
        profile: cronjob_controller::PROFILE,
        default: On,
        start: Some(start_cron_job),
    },
    absent("certificatesigningrequest-signing-controller", "csrsigning", "certificate-controller", On),
    absent("certificatesigningrequest-approving-controller", "csrapproving", "certificate-controller", On),
    absent("certificatesigningrequest-cleaner-controller", "csrcleaner", "certificate-controller", On),
    absent(
        "podcertificaterequest-cleaner-controller",
        "",
        "podcertificaterequestcleaner",
        Gated(&["PodCertificateRequest"]),
    ),
    absent("ttl-controller", "ttl", "ttl-controller", On),
    absent("bootstrap-signer-controller", "bootstrapsigner", "bootstrap-signer", Off),
    absent("token-cleaner-controller", "tokencleaner", "token-cleaner", Off),
    absent("node-ipam-controller", "nodeipam", "node-controller", On),
    absent("node-lifecycle-controller", "nodelifecycle", "node-controller", On),
    absent("taint-eviction-controller", "", "node-controller", On),
    absent("service-lb-controller", "service", "", Removed),
    absent("node-route-controller", "route", "", Removed),
    absent("cloud-node-lifecycle-controller", "cloud-node-lifecycle", "", Removed),
    absent("persistentvolume-binder-controller", "persistentvolume-binder", "persistent-volume-binder", On),
    absent("persistentvolume-attach-detach-controller", "attachdetach", "attachdetach-controller", On),
    absent("persistentvolume-expander-controller", "persistentvolume-expander", "expand-controller", On),
    absent("persistentvolumeclaim-protection-controller", "pvc-protection", "pvc-protection-controller", On),
    absent("persistentvolume-protection-controller", "pv-protection", "pv-protection-controller", On),
    absent("volumeattributesclass-protection-controller", "", "volumeattributesclass-protection-controller", On),
    absent("clusterrole-aggregation-controller", "clusterrole-aggregation", "clusterrole-aggregation-controller", On),
    KnownController {
        name: ttl_after_finished_controller::NAME,
        alias: "ttl-after-finished",
        service_account: "ttl-after-finished-controller",
        profile: ttl_after_finished_controller::PROFILE,
        default: On,
        start: Some(start_ttl_after_finished),
    },
    absent("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", "root-ca-cert-publisher", On),
    absent(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "",
        "kube-apiserver-serving-clustertrustbundle-publisher",
        Gated(&["ClusterTrustBundle"]),
    ),
    absent("ephemeral-volume-controller", "ephemeral-volume", "ephemeral-volume-controller", On),
    absent(
        "storageversion-garbage-collector-controller",
        "storage-version-gc",
        "storage-version-garbage-collector",
        Gated(&["APIServerIdentity", "StorageVersionAPI"]),
    ),
    absent("resourceclaim-controller", "resource-claim-controller", "resource-claim-controller", On),
    absent(
        "resourcepoolstatusrequest-controller",
        "",
        "resourcepoolstatusrequest-controller",
        Gated(&["DRAResourcePoolStatus"]),
    ),
    absent("device-taint-eviction-controller", "", "device-taint-eviction-controller", Gated(&["DRADeviceTaints"])),
    absent(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        "legacy-service-account-token-cleaner",
        On,
    ),
    absent("validatingadmissionpolicy-status-controller", "", "validatingadmissionpolicy-status-controller", On),
    absent("service-cidr-controller", "", "service-cidrs-controller", On),
    absent(
        "storage-version-migrator-controller",
        "svm",
        "storage-version-migrator-controller",
        Gated(&["StorageVersionMigrator"]),
    ),
    absent("selinux-warning-controller", "", "selinux-warning-controller", Off),
];

fn start_cron_job(builder: &mut Builder, options: &Options) {
    cronjob_controller::start(builder, options.cron_job);
}

fn start_garbage_collector(builder: &mut Builder, options: &Options) {
    garbage_collector_controller::start(builder, options.garbage_collector);
}

fn start_job(builder: &mut Builder, options: &Options) {
    job_controller::start(builder, options.job);
}

fn start_namespace(builder: &mut Builder, options: &Options) {
    namespace_controller::start(builder, options.namespace);
}

fn start_ttl_after_finished(builder: &mut Builder, options: &Options) {
    ttl_after_finished_controller::start(builder, options.ttl_after_finished);
}

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
            let (minus, name) = entry.strip_prefix('-').map_or(("", entry.as_str()), |name| ("-", name));
            match KNOWN.iter().find(|it| it.name == name || (!it.alias.is_empty() && it.alias == name)) {
                Some(known) => canonical.push(format!("{minus}{}", known.name)),
                None => errors.push(format!("\"{name}\" is not in the list of known controllers")),
            }
        }
        if errors.is_empty() { Ok(Self { entries: canonical, ..Self::default() }) } else { Err(errors) }
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
    pub fn is_enabled(&self, known: &KnownController) -> bool {
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
    pub fn implemented(&self) -> impl Iterator<Item = (&'static KnownController, StartFn)> + '_ {
        KNOWN.iter().filter(|it| self.is_enabled(it)).filter_map(|it| Some((it, it.start?)))
    }

    /// Enabled controllers that are not in this binary.
    #[must_use]
    pub fn absent(&self) -> Vec<&'static str> {
        let absent = |it: &&KnownController| self.is_enabled(it) && it.start.is_none() && it.default != Removed;
        KNOWN.iter().filter(absent).map(|it| it.name).collect()
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
        let absent = self.absent();
        if !absent.is_empty() {
            let missing: Vec<String> = absent
                .iter()
                .map(|name| format!("{} ({name})", missing::missing_without(name).unwrap_or("its work")))
                .collect();
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

#[cfg(test)]
mod tests {
    use super::*;
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
        let of = |name: &str| KNOWN.iter().find(|it| it.name == name).unwrap().service_account;
        for (name, account) in [
            ("namespace-controller", "namespace-controller"),
            ("daemonset-controller", "daemon-set-controller"),
            ("garbage-collector-controller", "generic-garbage-collector"),
            ("node-lifecycle-controller", "node-controller"),
            ("taint-eviction-controller", "node-controller"),
            ("service-cidr-controller", "service-cidrs-controller"),
        ] {
            assert_eq!(of(name), account, "{name}");
        }
        let without: Vec<&str> = KNOWN.iter().filter(|it| it.service_account.is_empty()).map(|it| it.name).collect();
        assert_eq!(
            without,
            [
                "serviceaccount-token-controller",
                "service-lb-controller",
                "node-route-controller",
                "cloud-node-lifecycle-controller"
            ]
        );
    }

    #[test]
    fn acceptance_shell_001_star_enables_the_defaults_and_warns_about_absent_controllers() {
        assert!(on("*", NAMESPACE) && on("*", JOB));
        for off in ["bootstrap-signer-controller", "token-cleaner-controller", "selinux-warning-controller"] {
            assert!(!on("*", off), "{off}");
        }
        let warnings = selection("*").warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("endpoints-controller") && warnings[0].contains("daemonset-controller"));
        assert!(!warnings[0].contains("namespace-controller") && !warnings[0].contains("podgroup"));
        assert!(!warnings[0].contains("(job-controller)"), "{warnings:?}");
    }

    #[test]
    fn acceptance_shell_003_a_list_without_star_runs_only_what_it_names() {
        let list = "job-controller,statefulset";
        let running: Vec<&str> = KNOWN.iter().filter(|it| selection(list).is_enabled(it)).map(|it| it.name).collect();
        assert_eq!(running, ["job-controller", "statefulset-controller"]);
        for (list, want) in [
            ("job", vec!["serviceaccount-token-controller", "job-controller"]),
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
            assert!(selection("*").absent().contains(&name) && !idle.absent().contains(&name), "{name}");
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
                let starts = chosen.implemented().any(|(it, _)| it.name == "garbage-collector-controller");
                assert_eq!(starts, want, "{list} {flag}");
            }
        }
        assert!(selection("*").implemented().any(|(it, _)| it.name == "garbage-collector-controller"), "on by default");
    }

    #[test]
    fn acceptance_shell_011_the_removed_cloud_names_are_a_warning() {
        for list in ["*,-service-lb-controller", "*,route"] {
            assert!(selection(list).warnings().iter().any(|it| it.contains("removed in Kubernetes 1.37")), "{list}");
        }
    }
}
