use serde_json::Value;

use crate::{
    controllers::{Selection, registry::KnownController},
    flags::{FlagValues, Invocation, parse},
    gates::Gates,
};

/// The program of the built-in manager, and the beginning of its pods' names.
pub(super) const PROGRAM: &str = "kube-controller-manager";

/// The namespace and the name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl LeaseKey {
    /// The Lease of a manager without flags.
    pub(super) fn of_built_in() -> Self {
        Self { namespace: "kube-system".to_owned(), name: PROGRAM.to_owned() }
    }
}

/// A pod of the built-in manager. There is one on each control-plane node, and one of them leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuiltInPod {
    /// Namespace and name.
    pub(super) pod: String,
    /// Its node.
    pub(super) node: Option<String>,
    /// What it runs while it leads.
    pub(super) controllers: BuiltInControllers,
    /// `None` without leader election.
    pub(super) lease: Option<LeaseKey>,
}

/// What a manager runs, by its `--controllers` and the flags that switch controllers off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BuiltInControllers {
    /// By its command line.
    Selected(Selection),
    /// Its command line cannot be read, so it is assumed to run what `*` selects.
    Unreadable(Selection),
}

impl BuiltInPod {
    /// True when this identity, `<host name>_<uuid>`, is that of a manager on the node of this pod. The name of a node is
    /// its host name in lower case. In some clouds only one of the two contains the domain.
    fn has_identity(&self, holder: &str) -> bool {
        let Some(((host, _), node)) = holder.rsplit_once('_').zip(self.node.as_deref()) else { return false };
        let (host, node) = match (host.split_once('.'), node.split_once('.')) {
            (Some((host, _)), None) => (host, node),
            (None, Some((node, _))) => (host, node),
            _ => (host, node),
        };
        !host.is_empty() && host.eq_ignore_ascii_case(node)
    }

    /// True when its manager holds the Lease of the built-in manager with this identity.
    pub(super) fn leads_as(&self, holder: &str) -> bool {
        self.uses_built_in_lease() && self.has_identity(holder)
    }

    /// True when it competes for the Lease of the built-in manager.
    pub(super) fn uses_built_in_lease(&self) -> bool {
        self.lease == Some(LeaseKey::of_built_in())
    }
}

impl BuiltInControllers {
    /// The controllers of a manager whose flags are not known.
    pub(super) fn unreadable() -> Self {
        Self::Unreadable(selection(flags_of(Vec::new())).unwrap_or_default())
    }

    pub(super) fn contains(&self, controller: &KnownController) -> bool {
        let (Self::Selected(selection) | Self::Unreadable(selection)) = self;
        selection.is_enabled(controller)
    }
}

/// The managers among these pods. A pod that has ended is none; one that is being deleted may still run.
pub(super) fn built_in_pods(pods: &Value) -> Vec<BuiltInPod> {
    let items = pods["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(built_in_pod).collect()
}

fn built_in_pod(pod: &Value) -> Option<BuiltInPod> {
    let text = |field: &str| pod["metadata"][field].as_str();
    let (namespace, name) = (text("namespace")?, text("name").filter(|it| it.starts_with(PROGRAM))?);
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let flags = command_line(pod).and_then(flags_of);
    let lease = match &flags {
        Some(flags) if !flags.bool("leader-elect") => None,
        Some(flags) => Some(LeaseKey {
            namespace: flags.text("leader-elect-resource-namespace").to_owned(),
            name: flags.text("leader-elect-resource-name").to_owned(),
        }),
        None => Some(LeaseKey::of_built_in()),
    };
    let controllers = selection(flags).map_or_else(BuiltInControllers::unreadable, BuiltInControllers::Selected);
    let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
    Some(BuiltInPod { pod: format!("{namespace}/{name}"), node, controllers, lease })
}

/// The arguments of the manager in this pod. `None` when another program starts it in a way that is not known, such as
/// a shell.
fn command_line(pod: &Value) -> Option<Vec<String>> {
    let containers = pod["spec"]["containers"].as_array()?;
    let named = |it: &&Value| it["name"] == PROGRAM;
    let container = containers.iter().find(named).or_else(|| containers.first().filter(|_| containers.len() == 1))?;
    let words =
        |field: &str| container[field].as_array().into_iter().flatten().map(|it| it.as_str().map(str::to_owned));
    let line: Vec<String> = words("command").chain(words("args")).collect::<Option<_>>()?;
    // The kubelet replaces `$(NAME)` by variables that are not known here.
    if line.iter().any(|it| it.contains("$(")) {
        return None;
    }
    // A wrapper such as go-runner has flags of its own before the program.
    match line.iter().position(|it| it.rsplit('/').next() == Some(PROGRAM)) {
        Some(program) => Some(line.into_iter().skip(program + 1).collect()),
        // The image names the program.
        None if line.iter().all(|it| it.starts_with("--")) => Some(line),
        None => None,
    }
}

/// The flags of a command line. Those that this release does not have are left out.
fn flags_of(args: Vec<String>) -> Option<FlagValues> {
    match parse(args) {
        Invocation::Run(flags) => Some(flags),
        Invocation::Print(_) => None,
    }
}

fn selection(flags: Option<FlagValues>) -> Option<Selection> {
    let mut flags = flags?;
    let gates = Gates::read(&mut flags);
    Some(
        Selection::of_other(&flags.list("controllers"))
            .with_gates(&gates)
            .without_idle(&flags)
            .with_token_key(flags.optional("service-account-private-key-file").is_some()),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::registry::KNOWN;

    fn pod(container: Value) -> Value {
        json!({
            "metadata": { "namespace": "kube-system", "name": "kube-controller-manager-cp1" },
            "spec": { "containers": [container] }, "status": { "phase": "Running" },
        })
    }

    fn kubeadm(args: &[&str]) -> Value {
        let mut command = vec![PROGRAM];
        command.extend(args);
        pod(json!({ "name": PROGRAM, "command": command }))
    }

    fn has_controller(pod: &Value, controller: &str) -> bool {
        let known = KNOWN.iter().find(|it| it.name == controller).unwrap();
        built_in_pod(pod).unwrap().controllers.contains(known)
    }

    #[test]
    fn controllers_are_those_of_the_command_line() {
        let (job, gc, token) = ("job-controller", "garbage-collector-controller", "token-cleaner-controller");
        for (name, args, controller, want) in [
            ("the default", &[][..], job, true),
            ("kubeadm's default", &["--controllers=*,bootstrapsigner,tokencleaner"], token, true),
            ("off by default", &["--controllers=*"], token, false),
            ("switched off", &["--controllers=*,-job-controller"], job, false),
            ("by its alias", &["--controllers=*,-job"], job, false),
            ("another one is off", &["--controllers=*,-cronjob"], job, true),
            ("the first entry wins", &["--controllers=-job,*,job"], job, false),
            ("the first entry wins", &["--controllers=job,-job"], job, true),
            ("without a star", &["--controllers=cronjob"], job, false),
            ("an empty list", &["--controllers="], job, false),
            ("a second list is added", &["--controllers=*", "--controllers=-job-controller"], job, false),
            ("a value of its own word", &["--controllers", "*,-job"], job, false),
            ("a name of a later release", &["--controllers=*,new-controller,-job"], job, false),
            ("a flag of a later release", &["--new-flag=1", "--controllers=*,-job"], job, false),
            ("another flag switches it off", &["--enable-garbage-collector=false"], gc, false),
            ("a gate of a later release", &["--feature-gates=New=true", "--controllers=*,-job"], job, false),
        ] {
            assert_eq!(has_controller(&kubeadm(args), controller), want, "{name}");
        }
    }

    #[test]
    fn programs_that_start_the_manager_are_known_or_its_controllers_are_assumed_to_run() {
        let off = "--controllers=*,-job-controller";
        for (name, container, readable) in [
            ("command and args", json!({ "name": PROGRAM, "command": [PROGRAM], "args": [off] }), true),
            ("a path", json!({ "name": PROGRAM, "command": ["/usr/local/bin/kube-controller-manager", off] }), true),
            ("only args", json!({ "name": PROGRAM, "args": [off] }), true),
            (
                "a wrapper",
                json!({ "name": PROGRAM, "command": ["/go-runner", "--log-file=/l", "/kube-controller-manager", off] }),
                true,
            ),
            ("the only container", json!({ "name": "main", "command": [PROGRAM, off] }), true),
            ("a shell", json!({ "name": PROGRAM, "command": ["/bin/sh", "-c", format!("{PROGRAM} {off}")] }), false),
            ("a variable", json!({ "name": PROGRAM, "command": [PROGRAM, "--controllers=$(LIST)"] }), false),
            ("no words", json!({ "name": PROGRAM, "command": [7] }), false),
            ("prints its help", json!({ "name": PROGRAM, "command": [PROGRAM, off, "--help"] }), false),
        ] {
            let pod = pod(container);
            let selected = matches!(built_in_pod(&pod).unwrap().controllers, BuiltInControllers::Selected(_));
            assert_eq!((selected, has_controller(&pod, "job-controller")), (readable, !readable), "{name}");
        }
    }

    #[test]
    fn lease_is_that_of_the_command_line() {
        let of = |args: &[&str]| built_in_pod(&kubeadm(args)).unwrap().lease;
        let own = LeaseKey { namespace: "n".to_owned(), name: "l".to_owned() };
        let args = ["--leader-elect-resource-namespace=n", "--leader_elect_resource_name=l"];
        assert_eq!(of(&[]), Some(LeaseKey::of_built_in()));
        assert_eq!(of(&args), Some(own));
        assert_eq!(of(&["--leader-elect=false"]), None);
        assert_eq!(built_in_pod(&pod(json!({}))).unwrap().lease, Some(LeaseKey::of_built_in()), "unreadable");
    }

    #[test]
    fn holder_of_a_lease_is_the_pod_on_its_host() {
        let mut pod = kubeadm(&[]);
        assert!(!built_in_pod(&pod).unwrap().has_identity("cp1_0-1"), "not on a node");
        for (node, holder, want) in [
            ("cp1", "cp1_0-1", true),
            ("cp1", "CP1_0-1", true),
            ("cp1.zone.internal", "cp1_0-1", true),
            ("cp1", "cp1.zone.internal_0-1", true),
            ("cp1.one", "CP1.one_0-1", true),
            ("cp1.one", "cp1.two_0-1", false),
            ("cp10", "cp1_0-1", false),
            ("cp1", "cp10_0-1", false),
            ("cp1", "cp1", false),
            ("cp1", "", false),
            ("cp1", "_0-1", false),
        ] {
            pod["spec"]["nodeName"] = json!(node);
            assert_eq!(built_in_pod(&pod).unwrap().has_identity(holder), want, "{node} {holder}");
        }
    }

    #[test]
    fn pods_of_other_programs_and_ended_ones_are_left_out() {
        let named = |name: &str, phase: &str| {
            let mut pod = kubeadm(&[]);
            pod["metadata"]["name"] = json!(name);
            pod["status"]["phase"] = json!(phase);
            pod
        };
        for (pod, want) in [
            (named("kube-controller-manager-cp1", "Pending"), 1),
            (named("kube-controller-manager", "Unknown"), 1),
            (named("kube-controller-manager-cp1", "Failed"), 0),
            (named("kube-controller-manager-cp1", "Succeeded"), 0),
            (named("mini-kcm-cp1", "Running"), 0),
            (json!({}), 0),
        ] {
            assert_eq!(built_in_pods(&json!({ "items": [pod] })).len(), want, "{pod}");
        }
        assert!(built_in_pods(&json!(7)).is_empty());
    }
}
