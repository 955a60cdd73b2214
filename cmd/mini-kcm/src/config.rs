//! The validated, typed configuration. All errors are reported at once.

#[cfg(test)]
mod argument_lists;
mod configuration;
pub mod identity;
pub mod interlock;
mod logging;
pub mod observability;
mod ranges;
mod serving;

use std::{path::PathBuf, time::Duration};

use client::Limits;
use controller::{ControllerFlag, FlagKind, FlagValue, Settings};

pub use self::serving::Serving;
use crate::{
    controllers::{Selection, registry::REGISTRATIONS},
    flags::FlagValues,
    gates::Gates,
};

/// The whole configuration, complete before the first request.
#[derive(Debug, Clone)]
pub struct Config {
    /// The enabled controllers.
    pub controllers: Selection,
    /// Feature gates, and the emulated release.
    pub gates: Gates,
    /// The flags and gates of the controllers of this binary.
    pub settings: Settings,
    /// `--kubeconfig`
    pub kubeconfig: Option<PathBuf>,
    /// `--master`
    pub master: Option<String>,
    /// The identity of the controllers at the API server.
    pub identity: identity::Options,
    /// How this manager behaves beside the built-in one.
    pub interlock: interlock::Options,
    /// The rate limit that all clients have in common.
    pub limits: Limits,
    /// `--min-resync-period`
    pub min_resync_period: Duration,
    /// `--controller-start-interval`
    pub start_interval: Duration,
    /// `--controller-shutdown-timeout`; `None` waits without a limit.
    pub shutdown_timeout: Option<Duration>,
    /// Whether informers run on a standby.
    pub standby: Standby,
    /// `None` when leader election is off.
    pub election: Option<Election>,
    /// `None` when no port is served.
    pub serving: Option<Serving>,
    /// The options of the log.
    pub logging: klog::Options,
    /// The options of debug pages and metrics.
    pub observability: observability::Options,
    /// Warnings for the operator, one sentence each.
    pub warnings: Vec<String>,
}

/// Whether informers run on a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standby {
    /// Informers run, so that a new leader can act at once.
    Warm,
    /// No informer runs before the term, as in upstream.
    Cold,
}

/// The Lease and its durations, as given. `leader_election` validates the combination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `--leader-elect-lease-duration`
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`
    pub retry_period: Duration,
    /// `--leader-elect-resource-namespace`
    pub namespace: String,
    /// `--leader-elect-resource-name`
    pub name: String,
}

impl Election {
    /// The configuration of the elector.
    #[must_use]
    pub fn with_identity(&self, identity: String) -> leader_election::Config {
        let Self { lease_duration, renew_deadline, retry_period, namespace, name } = self.clone();
        leader_election::Config { lease_duration, renew_deadline, retry_period, namespace, name, identity }
    }
}

impl Config {
    /// Reads the flags.
    ///
    /// # Errors
    /// All errors, one text each. Each names its flag.
    pub fn new(mut flags: FlagValues) -> Result<Self, Vec<String>> {
        let gates = Gates::read(&mut flags);
        let controllers = selection(&mut flags, &gates);
        let limits = Limits { qps: qps(&flags), burst: flags.count("kube-api-burst") };
        let standby = match flags.text("standby") {
            "warm" => Standby::Warm,
            "cold" => Standby::Cold,
            other => {
                let error = format!("invalid argument {other:?} for --standby: warm or cold");
                flags.add_error(error);
                Standby::Warm
            }
        };
        let settings = settings(&mut flags, &gates);
        let shutdown_timeout = flags.duration("controller-shutdown-timeout");
        flags.reject_refused_flags();
        ranges::check(&mut flags);
        let mut warnings = controllers.warnings();
        warnings.extend(gates.warnings().iter().cloned());
        warnings.extend(without_effect(&flags));
        let logging = logging::read(&mut flags, &gates);
        let observability = observability::read(&mut flags, &controllers);
        let config = Self {
            logging,
            election: election(&mut flags),
            controllers,
            gates,
            settings,
            kubeconfig: flags.optional("kubeconfig").map(PathBuf::from),
            master: flags.optional("master"),
            identity: identity::read(&mut flags),
            interlock: interlock::read(&flags),
            limits,
            min_resync_period: flags.duration("min-resync-period"),
            start_interval: flags.duration("controller-start-interval"),
            shutdown_timeout: (!shutdown_timeout.is_zero()).then_some(shutdown_timeout),
            standby,
            serving: serving::read(&mut flags, &mut warnings),
            observability,
            warnings,
        };
        flags.finish()?;
        Ok(config)
    }
}

/// The values that the controllers declare.
fn settings(flags: &mut FlagValues, gates: &Gates) -> Settings {
    let mut settings = Settings::default();
    for registration in REGISTRATIONS {
        for ControllerFlag { name, kind, .. } in registration.flags {
            let value = match kind {
                FlagKind::Workers => FlagValue::Number(flags.workers(name)),
                FlagKind::Count => FlagValue::Number(flags.count(name)),
                // The table of flags allows 32 bits.
                FlagKind::Integer => FlagValue::Integer(i32::try_from(flags.int(name)).unwrap_or_default()),
                FlagKind::Float => FlagValue::Float(flags.float(name)),
                FlagKind::Duration => FlagValue::Duration(flags.duration(name)),
                FlagKind::Text => FlagValue::Text(flags.text(name).to_owned()),
            };
            settings.set_flag(name, value);
        }
        for gate in registration.gates {
            settings.set_gate(gate, gates.enabled(gate));
        }
    }
    settings
}

fn selection(flags: &mut FlagValues, gates: &Gates) -> Selection {
    let selection = Selection::new(&flags.list("controllers")).unwrap_or_else(|errors| {
        errors.into_iter().for_each(|it| flags.add_error(it));
        Selection::default()
    });
    selection
        .with_gates(gates)
        .without_idle(flags)
        .with_token_key(flags.optional("service-account-private-key-file").is_some())
}

/// An infinite rate means no limit, which is 0 for the client.
fn qps(flags: &FlagValues) -> f64 {
    let qps = flags.float("kube-api-qps");
    if qps.is_finite() { qps } else { 0.0 }
}

fn election(flags: &mut FlagValues) -> Option<Election> {
    if !flags.bool("leader-elect") {
        return None;
    }
    if flags.text("leader-elect-resource-lock") != "leases" {
        flags.add_error("resourceLock value must be \"leases\"; see --leader-elect-resource-lock");
    }
    let election = Election {
        lease_duration: flags.duration("leader-elect-lease-duration"),
        renew_deadline: flags.duration("leader-elect-renew-deadline"),
        retry_period: flags.duration("leader-elect-retry-period"),
        namespace: flags.text("leader-elect-resource-namespace").to_owned(),
        name: flags.text("leader-elect-resource-name").to_owned(),
    };
    // The real identity is created when the process starts. Any identity is enough for this validation.
    if let Err(err) = election.with_identity("unnamed".to_owned()).validate() {
        flags.add_error(err.to_string());
    }
    Some(election)
}

fn without_effect(flags: &FlagValues) -> Option<String> {
    let names: Vec<String> =
        flags.changed_without_effect().iter().map(|(flag, _)| format!("--{}", flag.name)).collect();
    (!names.is_empty()).then(|| format!("accepted without effect, docs/flags.md says why: {}", names.join(", ")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::flags::{Invocation, parse};

    pub(crate) fn typed(args: &[&str]) -> FlagValues {
        match parse(args.iter().map(|it| (*it).to_owned())) {
            Invocation::Run(typed) => typed,
            Invocation::Print(text) => panic!("printed {text}"),
        }
    }

    fn config(args: &[&str]) -> Result<Config, Vec<String>> {
        Config::new(typed(args))
    }

    #[test]
    fn defaults_match_upstream() {
        let config = config(&[]).unwrap();
        let election = config.election.unwrap();
        assert_eq!(election.lease_duration, Duration::from_secs(15));
        assert_eq!(election.renew_deadline, Duration::from_secs(10));
        assert_eq!(election.retry_period, Duration::from_secs(2));
        assert_eq!((election.namespace.as_str(), election.name.as_str()), ("kube-system", "kube-controller-manager"));
        assert_eq!(config.limits, Limits { qps: 20.0, burst: 30 });
        assert_eq!(config.shutdown_timeout, Some(Duration::from_secs(10)));
        assert_eq!(config.min_resync_period, Duration::from_secs(12 * 3600));
        let settings = &config.settings;
        assert_eq!(namespace_controller::Options::from(settings).workers, 10);
        assert_eq!(cronjob_controller::Options::from(settings).workers, 5);
        assert_eq!(ttl_after_finished_controller::Options::from(settings).workers, 5);
        assert_eq!(
            garbage_collector_controller::Options::from(settings),
            garbage_collector_controller::Options::default()
        );
        assert_eq!(job_controller::Options::from(settings), job_controller::Options::default());
        let of_1_37 = statefulset_controller::Options { max_unavailable: true, ..Default::default() };
        assert_eq!(statefulset_controller::Options::from(settings), of_1_37);
        let defaults = daemonset_controller::Options { workers: 2, read_own_writes: true, compare_numbers: false };
        assert_eq!(daemonset_controller::Options::from(settings), defaults);
        assert_eq!(deployment_controller::Options::from(settings), deployment_controller::Options::default());
    }

    #[test]
    fn flags_and_the_gate_of_the_deployment_controller_set_its_options() {
        let options = |flag: &str| deployment_controller::Options::from(&config(&[flag]).unwrap().settings);
        assert_eq!(options("--concurrent-deployment-syncs=7").workers, 7);
        assert!(!options("--feature-gates=DeploymentReplicaSetTerminatingReplicas=false").reports_terminating);
        for name in ["concurrent-deployment-syncs", "concurrent-replicaset-syncs", "concurrent-rc-syncs"] {
            let errors = config(&[&format!("--{name}=0")]).unwrap_err();
            assert_eq!(errors, [format!("{name} must be greater than 0, but got 0")]);
        }
    }

    #[test]
    fn gates_and_the_flag_of_the_daemonset_controller_set_its_options() {
        let options = |flag: &str| daemonset_controller::Options::from(&config(&[flag]).unwrap().settings);
        assert!(!options("--feature-gates=StaleControllerConsistencyDaemonSet=false").read_own_writes);
        assert!(options("--feature-gates=TaintTolerationComparisonOperators=true").compare_numbers);
        assert_eq!(options("--concurrent-daemonset-syncs=7").workers, 7);
        let errors = config(&["--concurrent-daemonset-syncs=0"]).unwrap_err();
        assert_eq!(errors, ["concurrent-daemonset-syncs must be greater than 0, but got 0"]);
    }

    #[test]
    fn gates_of_the_statefulset_controller_set_its_options() {
        let options = |gates: &str| {
            statefulset_controller::Options::from(&config(&[&format!("--feature-gates={gates}")]).unwrap().settings)
        };
        assert!(!options("StaleControllerConsistencyStatefulSet=false").read_own_writes);
        assert!(!options("StatefulSetSemanticRevisionComparison=false").compare_semantically);
        assert!(!options("MaxUnavailableStatefulSet=false").max_unavailable);
        assert!(options("StatefulSetRecreateStrategy=true").recreate);
        let of_1_36 = &config(&["--emulated-version=1.36"]).unwrap().settings;
        assert!(!statefulset_controller::Options::from(of_1_36).max_unavailable);
    }

    #[test]
    fn flags_of_the_node_lifecycle_controller_set_its_options() {
        let options = |args: &[&str]| node_lifecycle_controller::Options::from(&config(args).unwrap().settings);
        assert_eq!(options(&[]), node_lifecycle_controller::Options::default());
        let options = options(&[
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=20s",
            "--node-startup-grace-period=30s",
            "--node-eviction-rate=1e-1",
            "--secondary-node-eviction-rate=-1",
            "--large-cluster-size-threshold=-5",
            "--unhealthy-zone-threshold=2",
        ]);
        let seconds = [options.period, options.grace, options.startup_grace].map(|it| it.as_secs());
        assert_eq!(seconds, [1, 20, 30]);
        // Upstream checks none of these.
        assert_eq!((options.rate, options.secondary_rate, options.unhealthy_zone), (0.1, -1.0, 2.0));
        assert_eq!(options.large_zone, -5);
    }

    #[test]
    fn gates_of_the_job_controller_set_its_options() {
        let job = |gates: &str| {
            job_controller::Options::from(&config(&[&format!("--feature-gates={gates}")]).unwrap().settings)
        };
        assert!(!job("StaleControllerConsistencyJob=false").read_own_writes);
        assert!(!job("MutableSchedulingDirectivesForSuspendedJobs=false").clear_start_time);
    }

    #[test]
    fn every_flag_of_the_comparison_is_accepted() {
        let args = "--kubeconfig=k --controllers=job-controller,resourcequota-controller --leader-elect --leader-elect-resource-name=bench \
            --kube-api-qps=5000 --kube-api-burst=5000 --concurrent-gc-syncs=20 --concurrent-namespace-syncs=10 \
            --node-eviction-rate=1000 --secondary-node-eviction-rate=1000 --secure-port=27448 --bind-address=127.0.0.1";
        let config = config(&args.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(config.limits.burst, 5000);
        let warnings = config.warnings.join("\n");
        let nodes = node_lifecycle_controller::Options::from(&config.settings);
        assert_eq!((nodes.rate, nodes.secondary_rate), (1000.0, 1000.0));
        assert!(!warnings.contains("--concurrent-gc-syncs"), "that is the default: {warnings}");
        assert!(warnings.contains("resourcequota-controller"), "{warnings}");
    }

    #[test]
    fn acceptance_cronjob_052_zero_workers_for_cron_jobs_are_an_error() {
        let errors = config(&["--concurrent-cron-job-syncs=0"]).unwrap_err();
        assert_eq!(errors, ["concurrent-cron-job-syncs must be greater than 0, but got 0"]);
        let config = config(&["--concurrent-cron-job-syncs=7"]).unwrap();
        assert_eq!(cronjob_controller::Options::from(&config.settings).workers, 7);
    }

    #[test]
    fn flags_of_the_garbage_collector_are_checked_and_applied() {
        let errors = config(&["--concurrent-gc-syncs=0", "--gc-max-deletes-per-minute=-1"]).unwrap_err();
        let want = [
            "concurrent-gc-syncs must be greater than 0, but got 0",
            "gc-max-deletes-per-minute must not be less than 0, but got -1",
        ];
        assert_eq!(errors, want);
        let config = config(&["--concurrent-gc-syncs=3", "--gc-max-deletes-per-minute=60"]).unwrap();
        let want = garbage_collector_controller::Options { concurrent_syncs: 3, max_deletes_per_minute: 60 };
        assert_eq!(garbage_collector_controller::Options::from(&config.settings), want);
    }

    #[test]
    fn acceptance_shell_008_a_second_controllers_flag_appends() {
        let config = config(&["--controllers=*", "--controllers=-namespace"]).unwrap();
        assert_eq!(config.controllers.entries(), ["*", "-namespace-controller"]);
        assert!(config.controllers.implemented().all(|it| it.name != "namespace-controller"));
    }

    #[test]
    fn acceptance_shell_012_all_invalid_values_are_reported_before_the_first_request() {
        let errors =
            config(&["--concurrent-namespace-syncs=0", "--standby=hot", "--controllers=foo", "--secure-port=x"])
                .unwrap_err();
        let all = errors.join("\n");
        for part in [
            "concurrent-namespace-syncs must be greater than 0, but got 0",
            "--standby",
            "\"foo\" is not in the list of known controllers",
            "--secure-port",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        assert!(config(&["--no-such-flag"]).is_err() && config(&["positional"]).is_err());
    }

    #[test]
    fn acceptance_shell_013_resource_lock_must_be_leases_when_leader_election_is_on() {
        let errors = config(&["--leader-elect-resource-lock=endpoints"]).unwrap_err();
        assert!(errors[0].contains("resourceLock value must be \"leases\""), "{errors:?}");
        assert!(config(&["--leader-elect-resource-lock=endpoints", "--leader-elect=false"]).is_ok());
    }

    #[test]
    fn flag_that_must_not_be_ignored_is_an_error() {
        let errors = config(&["--leader-migration-config=/etc/migration.yaml"]).unwrap_err();
        assert!(errors[0].contains("\"--leader-migration-config\" flag: not supported"), "{errors:?}");
        assert!(config(&["--leader-migration-config=", "--enable-leader-migration"]).is_ok());
    }

    #[test]
    fn inconsistent_lease_durations_are_an_error_that_names_the_flag() {
        let errors = config(&["--leader-elect-retry-period=10s"]).unwrap_err();
        assert!(errors[0].contains("leader-elect-renew-deadline"), "{errors:?}");
    }
}
