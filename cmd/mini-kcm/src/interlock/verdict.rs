use std::collections::BTreeMap;

use controller::ByDefault::Removed;

use super::{
    built_in::{BuiltInControllers, BuiltInPod, LeaseKey},
    sight::{Hold, Managers},
};
use crate::controllers::{
    Selection,
    registry::{KNOWN, KnownController},
};

/// What the flags of this manager say.
#[derive(Debug, Clone)]
pub(super) struct Ours {
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

impl Ours {
    fn is_running(&self, controller: &KnownController) -> bool {
        controller.registration.is_some() && self.controllers.is_enabled(controller)
    }
}

/// What this manager may do now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
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
pub(super) fn decide(ours: &Ours, managers: &Managers, foreign_writers: &ForeignWriters) -> Verdict {
    let controllers = KNOWN.iter().filter(|it| ours.is_running(it) && ours.unaffected != Some(it.name));
    let reason = |it: &KnownController| {
        held_back_by_pod(ours, managers, it)
            .or_else(|| held_back_by_traces(ours, managers, foreign_writers.get(it.name)))
    };
    Verdict {
        held_back: controllers.filter_map(|it| Some((it.name, reason(it)?))).collect(),
        refusal: refusal(ours, managers),
    }
}

/// A pod that uses another Lease than we, or none, and runs this controller. A pod that competes for our own Lease
/// never runs while we lead.
fn held_back_by_pod(ours: &Ours, managers: &Managers, controller: &KnownController) -> Option<HeldBack> {
    let is_rival = |it: &&BuiltInPod| it.lease.is_none() || it.lease != ours.lease;
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
    let Hold::Held { holder, is_fresh: true } = &managers.built_in_lease else { return false };
    pod.uses_built_in_lease() && !pod.leads_as(holder) && managers.pods.iter().any(|it| it.leads_as(holder))
}

/// Decides by the Lease of the built-in manager and the writes of another manager, if no pod shows the flags of the one
/// that leads.
fn held_back_by_traces(ours: &Ours, managers: &Managers, foreign_writer: Option<&String>) -> Option<HeldBack> {
    let lease = LeaseKey::of_built_in();
    if is_visible(managers) || ours.lease.as_ref() == Some(&lease) {
        return None;
    }
    let is_free = managers.built_in_lease == Hold::Free;
    if is_free && managers.has_recent_manager {
        // It is gone. Its last writes may still be recent.
        return None;
    }
    if is_free || ours.assume_exclusive {
        let manager = foreign_writer?;
        let why = format!("{manager} does their work, as its writes show, although no pod shows its --controllers");
        return Some(HeldBack { by: format!("manager {manager}"), why });
    }
    let LeaseKey { namespace, name } = &lease;
    let why = match &managers.built_in_lease {
        Hold::Held { holder, .. } if holder.is_empty() => {
            format!("the Lease {namespace}/{name} was released a moment ago, and its manager may come back")
        }
        Hold::Held { holder, .. } => format!(
            "{holder} holds the Lease {namespace}/{name} and has no pod that shows its --controllers; \
             if it does not run them, give --assume-exclusive"
        ),
        Hold::Hidden | Hold::Free => format!(
            "the Lease {namespace}/{name} cannot be read, so another manager may run them; if none does, give --assume-exclusive"
        ),
    };
    Some(HeldBack { by: format!("lease {namespace}/{name}"), why })
}

/// True if the leader has a pod, or, if no leader is known, any pod exists. A leader run by systemd has none.
fn is_visible(managers: &Managers) -> bool {
    match &managers.built_in_lease {
        Hold::Held { holder, .. } if !holder.is_empty() => managers.pods.iter().any(|it| it.leads_as(holder)),
        Hold::Held { .. } | Hold::Free | Hold::Hidden => !managers.pods.is_empty(),
    }
}

/// Another manager waits for our Lease. Controllers that only that one has run nowhere while we lead, so we must not lead.
fn refusal(ours: &Ours, managers: &Managers) -> Option<String> {
    let lease = ours.lease.as_ref().filter(|_| !ours.partial_takeover)?;
    let of_pods = managers.pods.iter().filter(|it| it.lease.as_ref() == Some(lease));
    let mut others: Vec<(&str, BuiltInControllers)> =
        of_pods.map(|it| (it.pod.as_str(), it.controllers.clone())).collect();
    if others.is_empty() && managers.our_lease_is_foreign {
        others.push(("its last holder", BuiltInControllers::unreadable()));
    }
    let missing = |controllers: &BuiltInControllers| -> Vec<&str> {
        let is_missing =
            |it: &&KnownController| it.default != Removed && controllers.contains(it) && !ours.is_running(it);
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
    fn ours() -> Ours {
        Ours {
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

    fn managers(pods: Vec<BuiltInPod>, built_in_lease: Hold) -> Managers {
        Managers { pods, built_in_lease, our_lease_is_foreign: false, has_recent_manager: true }
    }

    /// Held by a manager that has no pod.
    fn held() -> Hold {
        held_by("cp1", true)
    }

    fn held_by(host: &str, is_fresh: bool) -> Hold {
        Hold::Held { holder: format!("{host}_1"), is_fresh }
    }

    /// Managers of which none was ever seen.
    fn never_seen(built_in_lease: Hold) -> Managers {
        Managers { has_recent_manager: false, ..managers(vec![], built_in_lease) }
    }

    #[test]
    fn controllers_that_another_manager_runs_are_held_back() {
        let (pod_a, pod_b) = ("pod kube-system/a", "pod kube-system/b");
        let lease = "lease kube-system/kube-controller-manager";
        let exclusive = Ours { assume_exclusive: true, ..ours() };
        let without_election = Ours { lease: None, ..ours() };
        let managed_by = Ours { unaffected: Some(JOB), ..ours() };
        let shared = Ours { lease: Some(key("kube-controller-manager")), partial_takeover: true, ..ours() };
        let unreadable = || BuiltInPod { controllers: BuiltInControllers::unreadable(), ..built_in("a", "") };
        let none = ForeignWriters::new();
        let of_jobs = ForeignWriters::from([(JOB, "kube-controller-manager".to_owned())]);
        let writer = "manager kube-controller-manager";
        // Of two control-plane nodes only one is patched.
        let two = || vec![built_in("a", "*,-job,-cronjob"), built_in("b", "job")];
        for (name, ours, managers, foreign, want) in [
            ("no other manager", ours(), managers(vec![], Hold::Free), &none, vec![]),
            (
                "all are off",
                ours(),
                managers(vec![built_in("a", "*,-job,-cronjob")], held_by("a", true)),
                &none,
                vec![],
            ),
            (
                "one is on",
                ours(),
                managers(vec![built_in("a", "*,-job")], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a)],
            ),
            (
                "all are on, as after a forgotten patch",
                ours(),
                managers(vec![built_in("a", "*")], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a), (JOB, pod_a)],
            ),
            (
                "on in one of two, and the Lease cannot be read",
                ours(),
                managers(two(), Hold::Hidden),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "on in one of two, and a third one leads",
                ours(),
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
                ours(),
                managers(vec![pod("cp1", "", Some("x"))], held()),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            ("on in the standby", ours(), managers(two(), held_by("a", true)), &none, vec![]),
            ("on in the leader", ours(), managers(two(), held_by("b", true)), &none, vec![(JOB, pod_b)]),
            (
                "on in the standby, which may lead soon",
                ours(),
                managers(two(), held_by("a", false)),
                &none,
                vec![(JOB, pod_b)],
            ),
            ("on in one of two, and none leads", ours(), managers(two(), Hold::Free), &none, vec![(JOB, pod_b)]),
            (
                "on in a pod with another Lease",
                ours(),
                managers(vec![built_in("a", "*,-job,-cronjob"), pod("b", "job", Some("x"))], held_by("a", true)),
                &none,
                vec![(JOB, pod_b)],
            ),
            (
                "a visible manager that does not lead yet",
                ours(),
                managers(vec![built_in("a", "job")], Hold::Free),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "its flags cannot be read",
                ours(),
                managers(vec![unreadable()], held_by("a", true)),
                &none,
                vec![(CRONJOB, pod_a), (JOB, pod_a)],
            ),
            (
                "without leader election",
                without_election.clone(),
                managers(vec![pod("a", "job", None)], Hold::Free),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "only we are without leader election",
                without_election,
                managers(vec![built_in("a", "job")], Hold::Free),
                &none,
                vec![(JOB, pod_a)],
            ),
            (
                "it competes for our Lease",
                ours(),
                managers(vec![pod("a", "job", Some("mini-kcm"))], Hold::Free),
                &none,
                vec![],
            ),
            ("it cannot be seen", ours(), managers(vec![], held()), &none, vec![(CRONJOB, lease), (JOB, lease)]),
            (
                "it was released a moment ago",
                ours(),
                managers(vec![], Hold::Held { holder: String::new(), is_fresh: true }),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            (
                "the Lease is hidden",
                ours(),
                managers(vec![], Hold::Hidden),
                &none,
                vec![(CRONJOB, lease), (JOB, lease)],
            ),
            ("the user knows better", exclusive.clone(), managers(vec![], held()), &none, vec![]),
            ("the user knows better, hidden", exclusive.clone(), managers(vec![], Hold::Hidden), &none, vec![]),
            ("the user is wrong", exclusive.clone(), managers(vec![], held()), &of_jobs, vec![(JOB, writer)]),
            ("the user is wrong, hidden", exclusive.clone(), never_seen(Hold::Hidden), &of_jobs, vec![(JOB, writer)]),
            (
                "the user is wrong, as a pod shows",
                exclusive,
                managers(vec![built_in("a", "job")], held_by("a", true)),
                &none,
                vec![(JOB, pod_a)],
            ),
            ("nothing but its writes shows it", ours(), never_seen(Hold::Free), &of_jobs, vec![(JOB, writer)]),
            ("its writes are left, and it is gone", ours(), managers(vec![], Hold::Free), &of_jobs, vec![]),
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
            let verdict = decide(&ours, &managers, foreign);
            let got: Vec<(&str, &str)> = verdict.held_back.iter().map(|(name, it)| (*name, it.by.as_str())).collect();
            assert_eq!(got, want, "{name}");
            assert_eq!(verdict.refusal, None, "{name}");
        }
    }

    #[test]
    fn manager_that_lacks_controllers_of_its_lease_refuses_to_lead() {
        let foreign = |pods: Vec<BuiltInPod>| Managers { our_lease_is_foreign: true, ..managers(pods, Hold::Free) };
        let shared = Ours { lease: Some(key("kube-controller-manager")), ..ours() };
        let partial = Ours { partial_takeover: true, ..shared.clone() };
        for (name, ours, managers, missing) in [
            ("a new Lease", shared.clone(), managers(vec![], Hold::Free), None),
            ("Go held it", shared.clone(), foreign(vec![]), Some("endpoints-controller")),
            ("Go held a Lease of another name", ours(), foreign(vec![]), Some("endpoints-controller")),
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
                managers(vec![built_in("a", "*,bootstrapsigner")], Hold::Free),
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
                ours(),
                managers(vec![built_in("a", "*,-job,-cronjob")], held_by("a", true)),
                None,
            ),
            ("no leader election", Ours { lease: None, ..ours() }, foreign(vec![built_in("a", "*")]), None),
        ] {
            let refusal = decide(&ours, &managers, &ForeignWriters::new()).refusal;
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
