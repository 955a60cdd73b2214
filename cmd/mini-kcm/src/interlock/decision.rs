use std::collections::BTreeMap;

use controller::ByDefault::Removed;

use super::{
    built_in::{BuiltInControllers, BuiltInPod, LeaseKey},
    observed_managers::{BuiltInLease, Managers},
};
use crate::controllers::{
    Selection,
    registry::{KNOWN, KnownController},
};

/// What the flags of this manager say.
#[derive(Debug, Clone)]
pub(super) struct OwnSettings {
    /// The controllers that this manager runs.
    pub(super) controllers: Selection,
    /// A controller whose objects the built-in manager leaves alone: the Jobs of `--job-managed-by`.
    pub(super) unaffected: Option<&'static str>,
    /// `None` without leader election.
    pub(super) lease: Option<LeaseKey>,
    /// `--assume-exclusive`
    pub(super) assume_exclusive: bool,
    /// `--partial-takeover`
    pub(super) partial_takeover: bool,
}

impl OwnSettings {
    fn is_running(&self, controller: &KnownController) -> bool {
        controller.registration.is_some() && self.controllers.is_enabled(controller)
    }
}

/// Which controllers are held back, and whether this manager must not lead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterlockDecision {
    /// The controllers that must not run, and why. All others may run.
    pub held_back: BTreeMap<&'static str, HeldBack>,
    /// Why this manager must not lead at all.
    pub refusal: Option<String>,
}

/// Why a controller is held back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldBack {
    /// The other manager: `pod <namespace>/<name>`, `lease <namespace>/<name>` or `manager <name>`.
    pub by: String,
    /// A sentence about this manager.
    pub why: String,
}

/// The managers that were observed to do the work of our controllers, by controller.
pub(super) type ForeignWriters = BTreeMap<&'static str, String>;

/// Decides which of our controllers run.
pub(super) fn decide(
    own_settings: &OwnSettings,
    managers: &Managers,
    foreign_writers: &ForeignWriters,
) -> InterlockDecision {
    let controllers = KNOWN.iter().filter(|it| own_settings.is_running(it) && own_settings.unaffected != Some(it.name));
    let reason = |it: &KnownController| {
        held_back_by_pod(own_settings, managers, it)
            .or_else(|| held_back_by_lease_or_writes(own_settings, managers, foreign_writers.get(it.name)))
    };
    InterlockDecision {
        held_back: controllers.filter_map(|it| Some((it.name, reason(it)?))).collect(),
        refusal: refusal(own_settings, managers),
    }
}

/// A pod that uses another Lease than we, or none, and runs this controller. A pod that competes for our own Lease
/// never runs while we lead.
fn held_back_by_pod(own_settings: &OwnSettings, managers: &Managers, controller: &KnownController) -> Option<HeldBack> {
    let is_rival = |it: &&BuiltInPod| it.lease.is_none() || it.lease != own_settings.lease;
    let mut rivals = managers.pods.iter().filter(is_rival).filter(|it| !is_standby(it, managers));
    let BuiltInPod { pod, controllers, .. } = rivals.find(|it| it.controllers.contains(controller))?;
    let why = match controllers {
        BuiltInControllers::Selected(_) => format!("{pod} runs them, by its --controllers"),
        BuiltInControllers::Unreadable(_) => format!("the command line of {pod} cannot be read"),
    };
    Some(HeldBack { by: format!("pod {pod}"), why })
}

/// True when another pod is observed to lead, and its Lease does not expire soon. Otherwise any pod may lead at any time.
fn is_standby(pod: &BuiltInPod, managers: &Managers) -> bool {
    let BuiltInLease::Held { holder, is_fresh: true } = &managers.built_in_lease else { return false };
    pod.uses_built_in_lease() && !pod.leads_as(holder) && managers.pods.iter().any(|it| it.leads_as(holder))
}

/// Decides by the Lease of the built-in manager and the writes of another manager, if no pod shows the flags of the one
/// that leads.
fn held_back_by_lease_or_writes(
    own_settings: &OwnSettings,
    managers: &Managers,
    foreign_writer: Option<&String>,
) -> Option<HeldBack> {
    let lease = LeaseKey::of_built_in();
    if is_visible(managers) || own_settings.lease.as_ref() == Some(&lease) {
        return None;
    }
    let is_free = managers.built_in_lease == BuiltInLease::Free;
    if is_free && managers.has_recent_manager {
        // It is gone. Its last writes may still be recent.
        return None;
    }
    if is_free || own_settings.assume_exclusive {
        let manager = foreign_writer?;
        let why = format!("{manager} does their work, as its writes show, although no pod shows its --controllers");
        return Some(HeldBack { by: format!("manager {manager}"), why });
    }
    let LeaseKey { namespace, name } = &lease;
    let why = match &managers.built_in_lease {
        BuiltInLease::Held { holder, .. } if holder.is_empty() => {
            format!("the Lease {namespace}/{name} was released a moment ago, and its manager may come back")
        }
        BuiltInLease::Held { holder, .. } => format!(
            "{holder} holds the Lease {namespace}/{name} and has no pod that shows its --controllers; \
             if it does not run them, give --assume-exclusive"
        ),
        BuiltInLease::Unreadable | BuiltInLease::Free => format!(
            "the Lease {namespace}/{name} cannot be read, so another manager may run them; if none does, give --assume-exclusive"
        ),
    };
    Some(HeldBack { by: format!("lease {namespace}/{name}"), why })
}

/// True if the leader has a pod, or, if no leader is known, any pod exists. A leader run by systemd has none.
fn is_visible(managers: &Managers) -> bool {
    match &managers.built_in_lease {
        BuiltInLease::Held { holder, .. } if !holder.is_empty() => managers.pods.iter().any(|it| it.leads_as(holder)),
        BuiltInLease::Held { .. } | BuiltInLease::Free | BuiltInLease::Unreadable => !managers.pods.is_empty(),
    }
}

/// Another manager waits for our Lease. Controllers that only that one has run nowhere while we lead, so we must not lead.
fn refusal(own_settings: &OwnSettings, managers: &Managers) -> Option<String> {
    let lease = own_settings.lease.as_ref().filter(|_| !own_settings.partial_takeover)?;
    let of_pods = managers.pods.iter().filter(|it| it.lease.as_ref() == Some(lease));
    let mut others: Vec<(&str, BuiltInControllers)> =
        of_pods.map(|it| (it.pod.as_str(), it.controllers.clone())).collect();
    if others.is_empty() && managers.our_lease_is_foreign {
        others.push(("its last holder", BuiltInControllers::unreadable()));
    }
    let missing = |controllers: &BuiltInControllers| -> Vec<&str> {
        let is_missing =
            |it: &&KnownController| it.default != Removed && controllers.contains(it) && !own_settings.is_running(it);
        KNOWN.iter().filter(is_missing).map(|it| it.name).collect()
    };
    let (manager, missing) =
        others.iter().map(|(manager, it)| (manager, missing(it))).find(|(_, it)| !it.is_empty())?;
    let LeaseKey { namespace, name } = lease;
    Some(format!(
        "refusing to lead with the Lease {namespace}/{name}: then no manager would run controllers that {manager} runs: {}; \
         --partial-takeover leads without them. If that manager does not exist any more, delete the Lease",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "job-controller";
    const CRONJOB: &str = "cronjob-controller";

    fn list(entries: &str) -> Selection {
        let entries: Vec<String> = entries.split(',').map(str::to_owned).collect();
        Selection::of_other(&entries)
    }

    fn key(name: &str) -> LeaseKey {
        LeaseKey { name: name.to_owned(), ..LeaseKey::of_built_in() }
    }

    /// A manager with two controllers and a Lease of its own.
    fn own_settings() -> OwnSettings {
        OwnSettings {
            controllers: list("job,cronjob"),
            unaffected: None,
            lease: Some(key("mini-kcm")),
            assume_exclusive: false,
            partial_takeover: false,
        }
    }

    fn pod(name: &str, controllers: &str, lease: Option<&str>) -> BuiltInPod {
        let controllers = BuiltInControllers::Selected(list(controllers));
        BuiltInPod {
            pod: format!("kube-system/{name}"),
            node: Some(name.to_owned()),
            controllers,
            lease: lease.map(key),
        }
    }

    fn built_in(name: &str, controllers: &str) -> BuiltInPod {
        pod(name, controllers, Some("kube-controller-manager"))
    }

    fn managers(pods: Vec<BuiltInPod>, built_in_lease: BuiltInLease) -> Managers {
        Managers { pods, built_in_lease, our_lease_is_foreign: false, has_recent_manager: true }
    }

    /// Held by a manager that has no pod.
    fn held() -> BuiltInLease {
        held_by("cp1", true)
    }

    fn held_by(host: &str, is_fresh: bool) -> BuiltInLease {
        BuiltInLease::Held { holder: format!("{host}_1"), is_fresh }
    }

    /// Managers of which none was ever seen.
    fn never_seen(built_in_lease: BuiltInLease) -> Managers {
        Managers { has_recent_manager: false, ..managers(vec![], built_in_lease) }
    }

    #[test]
    fn controllers_that_another_manager_runs_are_held_back() {
        let (pod_a, pod_b) = ("pod kube-system/a", "pod kube-system/b");
        let lease = "lease kube-system/kube-controller-manager";
        let exclusive = OwnSettings { assume_exclusive: true, ..own_settings() };
        let without_election = OwnSettings { lease: None, ..own_settings() };
        let managed_by = OwnSettings { unaffected: Some(JOB), ..own_settings() };
        let shared =
            OwnSettings { lease: Some(key("kube-controller-manager")), partial_takeover: true, ..own_settings() };
        let unreadable = || BuiltInPod { controllers: BuiltInControllers::unreadable(), ..built_in("a", "") };
        let none = ForeignWriters::new();
        let of_jobs = ForeignWriters::from([(JOB, "kube-controller-manager".to_owned())]);
        let writer = "manager kube-controller-manager";
        // Of two control-plane nodes only one is patched.
        let two = || vec![built_in("a", "*,-job,-cronjob"), built_in("b", "job")];
        for (name, own_settings, managers, foreign, want) in [
            ("no other manager", own_settings(), managers(vec![], BuiltInLease::Free), &none, vec![]),
            (
                "all are off",
                own_settings(),
                managers(vec![built_in("a", "*,-job,-cronjob")], held_by("a", true)),
                &none,
                vec![],
            ),
            (
                "one is on",
                own_settings(),
                managers(vec![built_in("a", "*,-job")], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a)],
            ),
            (
                "all are on, as after a forgotten patch",
                own_settings(),
                managers(vec![built_in("a", "*")], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a), (JOB, pod_a)],
            ),
            (
                "on in one of two, and the Lease cannot be read",
                own_settings(),
                managers(two(), BuiltInLease::Unreadable),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "on in one of two, and a third one leads",
                own_settings(),
                managers(two(), held()),
                &none,
                vec![(CRONJOB, lease), (JOB, pod_b)],
            ),
            (
                "a third one leads, as the user knows",
                exclusive.clone(),
                managers(two(), held()),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "the leader has a pod that uses another Lease",
                own_settings(),
                managers(vec![pod("cp1", "", Some("x"))], held()),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            ("on in the standby", own_settings(), managers(two(), held_by("a", true)), &none, vec![]),
            ("on in the leader", own_settings(), managers(two(), held_by("b", true)), &none, vec![(JOB, pod_b)]),
            (
                "on in the standby, which may lead soon",
                own_settings(),
                managers(two(), held_by("a", false)),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "on in one of two, and none leads",
                own_settings(),
                managers(two(), BuiltInLease::Free),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "on in a pod with another Lease",
                own_settings(),
                managers(vec![built_in("a", "*,-job,-cronjob"), pod("b", "job", Some("x"))], held_by("a", true)),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "a visible manager that does not lead yet",
                own_settings(),
                managers(vec![built_in("a", "job")], BuiltInLease::Free),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "its flags cannot be read",
                own_settings(),
                managers(vec![unreadable()], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a), (JOB, pod_a)],
            ),
            (
                "without leader election",
                without_election.clone(),
                managers(vec![pod("a", "job", None)], BuiltInLease::Free),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "only we are without leader election",
                without_election,
                managers(vec![built_in("a", "job")], BuiltInLease::Free),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "it competes for our Lease",
                own_settings(),
                managers(vec![pod("a", "job", Some("mini-kcm"))], BuiltInLease::Free),
                &none,
                vec![],
            ),
            (
                "it cannot be seen",
                own_settings(),
                managers(vec![], held()),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            (
                "it was released a moment ago",
                own_settings(),
                managers(vec![], BuiltInLease::Held { holder: String::new(), is_fresh: true }),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            (
                "the Lease is unreadable",
                own_settings(),
                managers(vec![], BuiltInLease::Unreadable),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            ("the user knows better", exclusive.clone(), managers(vec![], held()), &none, vec![]),
            (
                "the user knows better, unreadable",
                exclusive.clone(),
                managers(vec![], BuiltInLease::Unreadable),
                &none,
                vec![],
            ),
            ("the user is wrong", exclusive.clone(), managers(vec![], held()), &of_jobs, vec![(JOB, writer)]),
            (
                "the user is wrong, unreadable",
                exclusive.clone(),
                never_seen(BuiltInLease::Unreadable),
                &of_jobs,
                vec![(JOB, writer)],
            ),
            (
                "the user is wrong, as a pod shows",
                exclusive,
                managers(vec![built_in("a", "job")], held_by("a", true)),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "nothing but its writes shows it",
                own_settings(),
                never_seen(BuiltInLease::Free),
                &of_jobs,
                vec![(JOB, writer)],
            ),
            (
                "its writes are left, and it is gone",
                own_settings(),
                managers(vec![], BuiltInLease::Free),
                &of_jobs,
                vec![],
            ),
            ("its Lease is ours", shared.clone(), managers(vec![], held()), &none, vec![]),
            (
                "its Lease is ours, and it is seen",
                shared,
                managers(vec![built_in("a", "*")], held_by("a", true)),
                &none,
                vec![],
            ),
            (
                "our Jobs are not its Jobs",
                managed_by.clone(),
                managers(vec![built_in("a", "*")], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a)],
            ),
            ("our Jobs, unseen", managed_by, managers(vec![], held()), &none, vec![(CRONJOB, lease)]),
        ] {
            let decision = decide(&own_settings, &managers, foreign);
            let got: Vec<(&str, &str)> = decision.held_back.iter().map(|(name, it)| (*name, it.by.as_str())).collect();
            assert_eq!(got, want, "{name}");
            assert_eq!(decision.refusal, None, "{name}");
        }
    }

    #[test]
    fn manager_that_lacks_controllers_of_its_lease_refuses_to_lead() {
        let foreign =
            |pods: Vec<BuiltInPod>| Managers { our_lease_is_foreign: true, ..managers(pods, BuiltInLease::Free) };
        let shared = OwnSettings { lease: Some(key("kube-controller-manager")), ..own_settings() };
        let partial = OwnSettings { partial_takeover: true, ..shared.clone() };
        for (name, own_settings, managers, missing) in [
            ("a new Lease", shared.clone(), managers(vec![], BuiltInLease::Free), None),
            ("Go held it", shared.clone(), foreign(vec![]), Some("endpoints-controller")),
            ("Go held a Lease of another name", own_settings(), foreign(vec![]), Some("endpoints-controller")),
            ("Go runs what we run", shared.clone(), foreign(vec![built_in("a", "job,cronjob")]), None),
            ("Go runs less", shared.clone(), foreign(vec![built_in("a", "cronjob")]), None),
            (
                "Go runs more",
                shared.clone(),
                foreign(vec![built_in("a", "job,deployment")]),
                Some("deployment-controller"),
            ),
            (
                "Go waits for our Lease",
                shared.clone(),
                managers(vec![built_in("a", "*,bootstrapsigner")], BuiltInLease::Free),
                Some("bootstrap-signer-controller"),
            ),
            (
                "one of two runs more",
                shared.clone(),
                foreign(vec![built_in("a", "job"), built_in("b", "namespace")]),
                Some("namespace-controller"),
            ),
            ("the user wants it", partial, foreign(vec![built_in("a", "*")]), None),
            (
                "Go has a Lease of its own",
                own_settings(),
                managers(vec![built_in("a", "*,-job,-cronjob")], held_by("a", true)),
                None,
            ),
            (
                "no leader election",
                OwnSettings { lease: None, ..own_settings() },
                foreign(vec![built_in("a", "*")]),
                None,
            ),
        ] {
            let refusal = decide(&own_settings, &managers, &ForeignWriters::new()).refusal;
            match (missing, &refusal) {
                (None, None) => {}
                (Some(missing), Some(text)) => {
                    assert!(text.contains(missing) && text.contains("--partial-takeover"), "{name}: {text}");
                }
                other => panic!("{name}: {other:?}"),
            }
            assert!(refusal.is_none_or(|it| !it.contains("job-controller,")), "{name}: we run it");
        }
    }
}
