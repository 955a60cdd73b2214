//! Compares `manifests/` and the documents about it with the code: controllers, accounts, flags, metrics, version.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use mini_kcm::controllers::Selection;
use serde_json::Value;

/// They create the pods of `manifests/base`, so they stay in the built-in manager there.
const OF_DEPLOYMENTS: [&str; 2] = ["deployment-controller", "replicaset-controller"];
/// Files for the Deployment. The others are for the static pod.
const FOR_DEPLOYMENT: [&str; 5] = [
    "manifests/base/deployment.yaml",
    "manifests/k3s/mini-kcm.yaml",
    "manifests/kubeadm/cluster-configuration.yaml",
    "manifests/kubeadm/patches/kube-controller-manager0+json.yaml",
    "docs/operations.md",
];
/// Controllers of the built-in manager that its operators name beside ours.
const BUILT_IN: [&str; 3] = ["*", "bootstrapsigner", "tokencleaner"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

/// The files below a folder of the repository, with their paths.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort_unstable();
    found
}

fn document(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

/// The names and accounts of the controllers of this binary.
fn controllers() -> (BTreeSet<String>, BTreeSet<String>) {
    let all = Selection::new(&["*".to_owned()]).unwrap();
    let names = all.implemented().map(|it| it.name.to_owned()).collect();
    (names, all.implemented().map(|it| it.service_account.to_owned()).collect())
}

/// The lists of controllers in a text: words with at least three names, one of them that of a controller. A word of prose
/// ends with its comma.
fn lists(text: &str) -> Vec<Vec<&str>> {
    let words = text.split(|it: char| it.is_whitespace() || "\"'`=:".contains(it));
    let lists = words.filter(|it| it.contains("job-controller")).map(|it| it.split(',').collect());
    lists.filter(|it: &Vec<&str>| it.len() > 2).collect()
}

#[test]
fn every_list_of_controllers_names_those_of_this_binary() {
    let (all, _) = controllers();
    let without: BTreeSet<String> = all.iter().filter(|it| !OF_DEPLOYMENTS.contains(&it.as_str())).cloned().collect();
    assert_eq!(all.len(), without.len() + OF_DEPLOYMENTS.len());
    let switched_on = ["manifests/base/deployment.yaml", "manifests/static-pod/mini-kcm.yaml"];
    let switched_off = [
        "manifests/kubeadm/cluster-configuration.yaml",
        "manifests/kubeadm/cluster-configuration-static-pod.yaml",
        "manifests/kubeadm/patches/kube-controller-manager0+json.yaml",
        "manifests/kubeadm/patches-static-pod/kube-controller-manager0+json.yaml",
        "manifests/kind/beside.yaml",
        "manifests/k3s/mini-kcm.yaml",
    ];
    let mut checked = BTreeSet::new();
    for path in files("manifests", "yaml").into_iter().chain(["docs/operations.md".into(), "README.md".into()]) {
        let ours = if FOR_DEPLOYMENT.contains(&path.as_str()) { &without } else { &all };
        for list in lists(&read(&path)) {
            let without_minus = |it: &&str| it.strip_prefix('-').map(str::to_owned);
            let off: BTreeSet<String> = list.iter().filter_map(without_minus).collect();
            let on: BTreeSet<String> =
                list.iter().filter(|it| !it.starts_with('-')).map(|it| (*it).to_owned()).collect();
            if off.is_empty() {
                assert_eq!(on, *ours, "{path}");
            } else {
                assert_eq!(off, *ours, "{path}");
                assert!(on.iter().all(|it| BUILT_IN.contains(&it.as_str())), "{path}: {on:?}");
            }
            assert_eq!(list.len(), on.len() + off.len(), "{path}: a name stands twice");
            checked.insert((path.clone(), off.is_empty()));
        }
    }
    for (paths, is_on) in [(&switched_on[..], true), (&switched_off[..], false)] {
        for path in paths {
            assert!(checked.contains(&((*path).to_owned(), is_on)), "{path} has no list: {checked:?}");
        }
    }
}

#[test]
fn kubeadm_keeps_the_controllers_that_sign_and_clean_bootstrap_tokens() {
    for path in [
        "manifests/kubeadm/cluster-configuration.yaml",
        "manifests/kubeadm/cluster-configuration-static-pod.yaml",
        "manifests/kind/beside.yaml",
    ] {
        let text = read(path);
        let lists = lists(&text);
        assert_eq!(lists.len(), 1, "{path}");
        assert_eq!(lists[0][..3], BUILT_IN, "{path}");
    }
    // The patch adds a second flag to kubeadm's own list.
    for folder in ["patches", "patches-static-pod"] {
        let patch = document(&format!("manifests/kubeadm/{folder}/kube-controller-manager0+json.yaml"));
        assert_eq!(patch[0]["op"], "add");
        assert_eq!(patch[0]["path"], "/spec/containers/0/command/-");
    }
    // Of a patch for another version, kind uses nothing and prints nothing.
    let kind = document("manifests/kind/beside.yaml");
    let patch = kind["nodes"][0]["kubeadmConfigPatches"][0].as_str().unwrap();
    assert!(!patch.contains("apiVersion"), "{patch}");
    let patch: Value = serde_saphyr::from_str(patch).unwrap();
    assert!(patch["controllerManager"]["extraArgs"]["controllers"].is_string(), "{patch}");
}

#[test]
fn rights_are_labelled_with_the_account_whose_role_they_bind() {
    let (_, accounts) = controllers();
    let text = read("manifests/base/rbac.yaml");
    let mut labelled = BTreeSet::new();
    for object in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(object).unwrap();
        let label = object["metadata"]["labels"]["mini-kcm.dev/rights-of"].as_str();
        let role = object["roleRef"]["name"].as_str().and_then(|it| it.strip_prefix("system:controller:"));
        if let Some(role) = role {
            assert_eq!(label, Some(role), "{}", object["metadata"]["name"]);
            labelled.insert(role.to_owned());
        }
    }
    assert_eq!(labelled, accounts);
}

#[test]
fn port_of_each_manifest_is_the_one_that_its_arguments_set() {
    let pod = document("manifests/static-pod/mini-kcm.yaml");
    let container = &pod["spec"]["containers"][0];
    let arguments: Vec<&str> = container["command"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let port = arguments.iter().find_map(|it| it.strip_prefix("--secure-port=")).unwrap();
    assert_eq!(container["ports"][0]["containerPort"].to_string(), port);
    assert_eq!(port, "10357", "the built-in manager of the same host uses 10257");
    let deployment = document("manifests/base/deployment.yaml");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert!(!container["args"].to_string().contains("--secure-port"));
    assert_eq!(container["ports"][0]["containerPort"], 10257);
    assert_eq!(document("manifests/base/service.yaml")["spec"]["ports"][0]["port"], 10257);
}

#[test]
fn manifests_use_the_image_of_this_version() {
    let image = format!("ghcr.io/mini-kcm/mini-kcm:v{}", env!("CARGO_PKG_VERSION"));
    let pod = document("manifests/static-pod/mini-kcm.yaml");
    assert_eq!(pod["spec"]["containers"][0]["image"], image);
    let images = &document("manifests/base/kustomization.yaml")["images"][0];
    assert_eq!(format!("{}:{}", images["newName"].as_str().unwrap(), images["newTag"].as_str().unwrap()), image);
    for path in ["docs/operations.md", "SECURITY.md", "Containerfile", "manifests/kind/beside.yaml"] {
        for rest in read(path).split("ghcr.io/mini-kcm/mini-kcm:").skip(1) {
            let tag = rest.split(|it: char| !(it.is_alphanumeric() || it == '.')).next().unwrap();
            assert_eq!(tag.trim_end_matches('.'), format!("v{}", env!("CARGO_PKG_VERSION")), "{path}");
        }
    }
}

/// The names of metrics in a query.
fn metrics(query: &str) -> BTreeSet<String> {
    let prefixes = ["mini_kcm_", "workqueue_", "leader_election_", "process_", "rest_client_", "kubernetes_"];
    let words = query.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    words
        .filter(|word| prefixes.iter().any(|it| word.starts_with(it)))
        .map(|it| it.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// The prefix of a family that upstream has for its other workloads.
const SUBSYSTEM: &str = "mini_kcm_replicationcontroller";

/// The source text of the product without tests.
fn source() -> String {
    let folders = ["cmd/mini-kcm/src", "controllers", "shared/controller", "shared/kube", "shared/process"];
    let files = folders.into_iter().flat_map(|it| files(it, "rs"));
    files.filter(|it| !it.contains("/tests") && !it.contains("/benches/")).map(|it| read(&it)).collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_of_this_binary() {
    let source = source();
    // Names of one controller are composed of a prefix and the rest.
    let composed = "mini_kcm_garbage_collector_";
    let is_declared = |metric: &str| {
        source.contains(&format!("\"{metric}\""))
            || metric.strip_prefix(composed).is_some_and(|rest| {
                source.contains(&format!("\"{composed}{{name}}\"")) && source.contains(&format!("name(\"{rest}\")"))
            })
    };
    let rules = document("manifests/components/prometheus-operator/prometheusrule.yaml");
    let dashboard: Value = serde_json::from_str(&read("manifests/dashboards/mini-kcm.json")).unwrap();
    let mut used = BTreeSet::new();
    let rules = rules["spec"]["groups"].as_array().unwrap().iter().flat_map(|it| it["rules"].as_array().unwrap());
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|it| it["targets"].as_array().into_iter().flatten());
    for expression in rules.chain(targets).map(|it| it["expr"].as_str().unwrap()) {
        let metrics = metrics(expression);
        assert!(!metrics.is_empty(), "{expression}");
        used.extend(metrics);
    }
    let missing: Vec<&String> = used.iter().filter(|it| !is_declared(it)).collect();
    assert!(missing.is_empty(), "not in the source: {missing:?}");
    // What we export beside upstream's metrics is on the dashboard.
    let ours =
        source.split('"').filter(|it| it.starts_with("mini_kcm_") && !it.contains(['{', ' ']) && !it.ends_with('_'));
    let unused: BTreeSet<&str> = ours.filter(|it| !used.contains(*it) && *it != SUBSYSTEM).collect();
    assert!(unused.is_empty(), "not on the dashboard: {unused:?}");
}

#[test]
fn operations_explain_each_alert_and_name_only_flags_that_exist() {
    let text = read("docs/operations.md");
    let rules = document("manifests/components/prometheus-operator/prometheusrule.yaml");
    let mut headings: BTreeSet<&str> = text.lines().filter_map(|it| it.strip_prefix("#### MiniKcm")).collect();
    for rule in rules["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let alert = rule["alert"].as_str().unwrap();
        assert!(headings.remove(alert.strip_prefix("MiniKcm").unwrap()), "{alert} is not explained");
        let link = format!("docs/operations.md#{}", alert.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"], link, "{alert}");
    }
    assert!(headings.is_empty(), "no such alerts: {headings:?}");

    let flags = read("docs/flags.md");
    let manifests = files("manifests", "yaml").into_iter().map(|it| (read(&it), it));
    let documents = ["docs/operations.md", "README.md", "SECURITY.md"].map(|it| (read(it), it.to_owned()));
    for (text, path) in manifests.chain(documents) {
        // Flags of other programs stand in shell commands, some of which take several lines.
        let text = text.replace("\\\n", " ");
        let lines = text.lines().filter(|it| !OTHER_PROGRAMS.iter().any(|program| it.contains(program)));
        for word in lines.flat_map(|it| it.split(|it: char| !(it.is_ascii_alphanumeric() || it == '-'))) {
            let Some(flag) = word.strip_prefix("--").filter(|it| it.starts_with(|it: char| it.is_ascii_lowercase()))
            else {
                continue;
            };
            assert!(flags.contains(&format!("`--{flag}`")), "{path}: --{flag} is in no table of docs/flags.md");
        }
    }
}

/// Programs whose flags are not ours.
const OTHER_PROGRAMS: [&str; 9] =
    ["kubectl", "kubeadm", "kind ", "cargo", "cosign", "gh ", "docker", "podman", "promtool"];
