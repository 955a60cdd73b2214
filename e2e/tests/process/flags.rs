//! Our flags compared with those of the real binary, and argument lists of other installers.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    time::Duration,
};

use e2e::{Build, ControlPlane, Flavour, Identity, Launch, Options, assets_or_skip, binary, eventually, report};
use http::Method;

use crate::support::{On, on_both_servers};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Flags and gates that some builds of kube-controller-manager have in addition to upstream's.
const FOREIGN: &[&str] = &[
    "unsupported-kube-api-over-localhost",
    "MinimumKubeletVersion",
    "RouteExternalCertificate",
    "StoragePerformantSecurityPolicy",
];

/// Flags that 1.36 does not have: those of 1.37, and one of ours under a heading of upstream.
const NOT_IN_1_36: &[&str] = &["concurrent-disruption-syncs", "concurrent-disruption-stalepod-syncs", "job-managed-by"];

on_both_servers! {
    acceptance_shell_047_manager_leads_with_the_argument_list_of_kubeadm
}

/// Name, type, and default of each flag under each heading, in the order of the help.
#[derive(Debug, PartialEq, Eq)]
struct Help(Vec<(String, Vec<Described>)>);

#[derive(Debug, PartialEq, Eq)]
struct Described {
    name: String,
    kind: String,
    default: String,
}

impl Help {
    fn of(program: &Path) -> Self {
        let output = Command::new(program).arg("--help").output().unwrap();
        assert!(output.status.success(), "{program:?} --help: {}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        let mut groups: Vec<(String, Vec<Described>)> = Vec::new();
        // The text of a flag so far, because a help text may have several lines.
        let mut words = String::new();
        for line in text.lines() {
            if let Some(group) = line.strip_suffix(" flags:").filter(|it| !it.starts_with(' ')) {
                groups.push((group.to_owned(), Vec::new()));
            } else if let Some((_, flags)) = groups.last_mut() {
                match described(line) {
                    Some((flag, help)) => {
                        flags.push(flag);
                        help.clone_into(&mut words);
                    }
                    None => words += line,
                }
                if let (Some(last), Some((_, default))) = (flags.last_mut(), words.rsplit_once("(default ")) {
                    last.default = default.strip_suffix(')').unwrap_or_default().replace("[]", "");
                }
            }
        }
        Self(groups)
    }

    /// Without flags that the other binary does not have, and without headings that are empty then.
    fn without(mut self, ignored: impl Fn(&str) -> bool) -> Self {
        for (_, flags) in &mut self.0 {
            flags.retain(|it| !ignored(&it.name));
        }
        self.0.retain(|(_, flags)| !flags.is_empty());
        self
    }
}

/// `  -v, --v Level   help`. The type may be missing, and three spaces separate it from the help.
fn described(line: &str) -> Option<(Described, &str)> {
    let at = line.find("--").filter(|at| line[..*at].trim().len() <= 3 && *at <= 6)?;
    let (flag, help) = line[at + 2..].split_once("   ").unwrap_or((&line[at + 2..], ""));
    let (name, kind) = flag.trim().split_once(' ').unwrap_or((flag.trim(), ""));
    Some((Described { name: name.to_owned(), kind: kind.to_owned(), default: String::new() }, help))
}

#[test]
fn names_types_defaults_and_groups_are_those_of_the_real_binary() {
    let scenario = "our --help beside kube-controller-manager's";
    let Some(assets) = assets_or_skip(scenario) else { return };
    let Some(theirs) = assets.binary("kube-controller-manager") else {
        report(&format!("NOT RUN: {scenario}: no kube-controller-manager in {}", assets.folder().display()));
        return;
    };
    let theirs = Help::of(&theirs).without(|name| FOREIGN.contains(&name));
    let names: BTreeSet<&str> = theirs.0.iter().flat_map(|(_, flags)| flags).map(|it| it.name.as_str()).collect();
    assert!(names.len() > 140, "the help was read: {names:?}");

    let ours = Help::of(binary(Build::Debug).unwrap());
    let alone = |group: &str| group == "Mini-kcm";
    let ours = Help(ours.0.into_iter().filter(|(group, _)| !alone(group)).collect());
    let ours = ours.without(|name| NOT_IN_1_36.contains(&name));
    for (mine, other) in ours.0.iter().zip(&theirs.0) {
        assert_eq!(mine, other, "{}", mine.0);
    }
    assert_eq!(ours.0.len(), theirs.0.len());
}

/// The arguments in kubeadm's manifest, with other paths and ports.
async fn acceptance_shell_047_manager_leads_with_the_argument_list_of_kubeadm(on: On) {
    let Some(plane) = on.server("kubeadm's argument list", Options::default()).await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    // kubeadm's controller-manager.conf has a client certificate; the embedded server supports only tokens.
    let identity = if plane.is_real() { Identity::ControllerManager } else { Identity::Admin };
    let kubeconfig = plane.kubeconfig(identity).unwrap().display().to_string();
    // Two authorities as in kubeadm: with only one, every client would be a front proxy.
    let clients = plane.certificate("ca.crt").display().to_string();
    let proxies = plane.certificate("front-proxy-ca.crt").display().to_string();
    let mut launch = Launch::new(&plane, Flavour::Ours).unwrap();
    for (name, value) in [
        ("allocate-node-cidrs", "true"),
        ("authentication-kubeconfig", &kubeconfig),
        ("authorization-kubeconfig", &kubeconfig),
        ("bind-address", "127.0.0.1"),
        ("client-ca-file", &clients),
        ("cluster-cidr", "10.244.0.0/16"),
        ("cluster-name", "kubernetes"),
        // Files for controllers that are not in this binary need not exist.
        ("cluster-signing-cert-file", "/etc/kubernetes/pki/ca.crt"),
        ("cluster-signing-key-file", "/etc/kubernetes/pki/ca.key"),
        ("controllers", "*,bootstrapsigner,tokencleaner"),
        ("kubeconfig", &kubeconfig),
        ("leader-elect", "true"),
        ("leader-elect-resource-name", "kube-controller-manager"),
        ("requestheader-client-ca-file", &proxies),
        ("root-ca-file", "/etc/kubernetes/pki/ca.crt"),
        ("service-account-private-key-file", "/etc/kubernetes/pki/sa.key"),
        ("service-cluster-ip-range", "10.96.0.0/12"),
        ("use-service-account-credentials", "true"),
    ] {
        launch = launch.flag(name, value);
    }
    let manager = launch.started().await.unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    eventually("the manager to lead", TIME_LIMIT, async || {
        let holder = admin.find(lease).await?.and_then(|it| it["spec"]["holderIdentity"].as_str().map(str::to_owned));
        Ok(holder.filter(|it| !it.is_empty()))
    })
    .await
    .unwrap();
    let log = manager.log().unwrap();
    for words in [
        "EndpointSlices, so traffic to Services goes nowhere (endpointslice-controller)",
        "kubeadm join by token fails (bootstrap-signer-controller)",
    ] {
        assert_eq!(log.matches(words).count(), 1, "{words} once in {log}");
    }
}

/// The feature gates in a manager's metrics, by name: stage and value.
async fn gates(plane: &ControlPlane, launch: Launch) -> anyhow::Result<BTreeMap<String, String>> {
    let admin = plane.kubeconfig(Identity::Admin)?.display().to_string();
    let manager = launch
        .flag("authentication-kubeconfig", &admin)
        .flag("authorization-kubeconfig", &admin)
        .flag("authorization-always-allow-paths", "/healthz,/metrics")
        .started()
        .await?;
    let text = manager.endpoints()?.send(Method::GET, "/metrics", None).await?.text;
    let lines = text.lines().filter_map(|it| it.strip_prefix("kubernetes_feature_enabled{name=\""));
    Ok(lines.filter_map(|it| it.split_once('"')).map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_shell_043_feature_gates_of_1_36_are_those_of_the_real_binary() {
    let scenario = "our feature gates beside kube-controller-manager's";
    let Some(assets) = assets_or_skip(scenario) else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let Ok(go) = Launch::new(&plane, Flavour::Go) else {
        report(&format!("NOT RUN: {scenario}: no kube-controller-manager in {}", assets.folder().display()));
        return;
    };
    let mut theirs = gates(&plane, go).await.unwrap();
    theirs.retain(|name, _| !FOREIGN.contains(&name.as_str()));
    assert!(theirs.len() > 200, "{theirs:?}");
    let ours = Launch::new(&plane, Flavour::Ours).unwrap().flag("emulated-version", "1.36");
    assert_eq!(gates(&plane, ours).await.unwrap(), theirs);
}
