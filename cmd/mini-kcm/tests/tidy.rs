//! Checks the rules of `docs/ARCHITECTURE.md`: dependencies between crates, and the allowed imports of pure modules.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Modules with decisions as pure functions over values.
const RULES: &[&str] = &[
    "controllers/cronjob/src/due.rs",
    "controllers/cronjob/src/history.rs",
    "controllers/cronjob/src/job.rs",
    "controllers/cronjob/src/notice.rs",
    "controllers/cronjob/src/plan.rs",
    "controllers/cronjob/src/schedule.rs",
    "controllers/cronjob/src/schedule/field.rs",
    "controllers/cronjob/src/schedule/times.rs",
    "controllers/cronjob/src/snapshot.rs",
    "controllers/cronjob/src/status.rs",
    "controllers/cronjob/src/timing.rs",
    "controllers/garbage-collector/src/dump.rs",
    "controllers/garbage-collector/src/explain.rs",
    "controllers/garbage-collector/src/monitors/plan.rs",
    "controllers/garbage-collector/src/refs.rs",
    "controllers/garbage-collector/src/verdict.rs",
    "controllers/job/src/accounting.rs",
    "controllers/job/src/backoff.rs",
    "controllers/job/src/creation_limit.rs",
    "controllers/job/src/ending.rs",
    "controllers/job/src/failure_policy.rs",
    "controllers/job/src/indexes.rs",
    "controllers/job/src/per_index_backoff.rs",
    "controllers/job/src/plan.rs",
    "controllers/job/src/snapshot.rs",
    "controllers/job/src/status.rs",
    "controllers/job/src/status/check.rs",
    "controllers/job/src/success_policy.rs",
    "controllers/job/src/tally.rs",
    "controllers/namespace/src/conditions.rs",
    "controllers/namespace/src/grace.rs",
    "controllers/namespace/src/kinds.rs",
    "controllers/namespace/src/remains.rs",
    "controllers/ttl-after-finished/src/expiry.rs",
];

/// State machines: events and times are arguments. A random generator may be an argument too.
const MACHINES: &[&str] = &[
    "controllers/garbage-collector/src/delete_limiter.rs",
    "controllers/garbage-collector/src/graph.rs",
    "controllers/garbage-collector/src/graph/absence.rs",
    "controllers/garbage-collector/src/graph/debug_view.rs",
    "controllers/garbage-collector/src/graph/due.rs",
    "controllers/garbage-collector/src/graph/edges.rs",
    "controllers/garbage-collector/src/graph/ids.rs",
    "controllers/garbage-collector/src/graph/node.rs",
    "controllers/garbage-collector/src/graph/observe.rs",
    "controllers/garbage-collector/src/graph/read.rs",
    "controllers/garbage-collector/src/graph/slab.rs",
    "shared/process/clock/src/drift.rs",
    "shared/kube/informer/src/reflector.rs",
    "shared/kube/leader-election/src/machine.rs",
    "shared/controller/runtime/src/workqueue/core.rs",
];

/// Words that neither rules nor machines may contain outside comments.
const IO: &[&str] = &["client::Api", "tokio::", "tracing::", ".await", "async fn", "Clock", "std::fs", "std::net"];

/// Words that rules must not contain either.
const RANDOMNESS: &[&str] = &["fastrand"];

/// Words that no handler may contain. A handler runs in the task of its informer, where all other handlers wait for it.
/// Time zones are read from files.
const BLOCKING: &[&str] = &[".await", "async fn", "std::fs", "std::net", "zones"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Dependencies whose only purpose is a feature that they enable.
const FOR_A_FEATURE: &[&str] = &["k8s-openapi"];

/// A member of the workspace.
struct Package {
    name: String,
    /// Its path below the root.
    folder: String,
    /// The dependencies of the library and the binary.
    normal: Vec<String>,
    /// The dependencies including those of tests and benches.
    all: Vec<String>,
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let dependencies = package["dependencies"].as_array().unwrap();
        let names = |normal: bool| dependencies.iter().filter(move |it| !normal || it["kind"].is_null());
        Package {
            name: text(&package["name"]),
            folder,
            normal: names(true).map(|it| text(&it["name"])).collect(),
            all: names(false).map(|it| text(&it["name"])).collect(),
        }
    });
    packages.collect()
}

fn collect_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "target" {
            collect_sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// The groups of the workspace. A crate depends on its own group and on those after it.
const GROUPS: &[&str] = &["cmd/", "controllers/", "shared/controller/", "shared/kube/", "shared/process/"];

/// The index of a folder in [`GROUPS`]; `None` for `shared/testing` and `e2e`.
fn group(folder: &str) -> Option<usize> {
    GROUPS.iter().position(|it| folder.starts_with(it))
}

#[test]
fn crate_depends_only_on_its_own_group_and_those_after_it() {
    let packages = packages();
    let folder_of = |name: &str| packages.iter().find(|it| it.name == name).map(|it| it.folder.clone());
    assert!(packages.len() > 15, "metadata lists the workspace");
    for Package { name, folder, normal, .. } in &packages {
        for dependency in normal {
            let Some(target) = folder_of(dependency) else { continue };
            let (from, to) = (group(folder), group(&target));
            let allowed = match from {
                // Tests may depend on every shared crate, but on no controller.
                None => target.starts_with("shared/"),
                Some(from) if folder.starts_with("controllers/") => to.is_none_or(|to| from < to),
                Some(from) => to.is_none_or(|to| from <= to),
            };
            // `serving` sends TokenReviews and SubjectAccessReviews to the API server.
            let is_delegated_auth = (name.as_str(), dependency.as_str()) == ("serving", "client");
            assert!(allowed || is_delegated_auth, "{name} must not depend on {dependency}");
            let is_for_tests = matches!(dependency.as_str(), "test-cluster" | "fake-nodes" | "testing");
            // The playground is a complete cluster, and no crate depends on it. The simulation contains a test cluster,
            // and only tests use it. The scenarios of e2e are tests too, and need pods that run and end.
            let is_permitted = match name.as_str() {
                "playground" => dependency != "testing",
                "testing" => dependency == "test-cluster",
                "e2e" => dependency == "fake-nodes",
                _ => false,
            };
            assert!(!is_for_tests || is_permitted, "{name} depends on {dependency} outside its tests");
        }
    }
}

#[test]
fn only_our_crates_log_below_warnings() {
    let mut ours: Vec<String> = packages().iter().map(|it| it.name.replace('-', "_")).collect();
    // The test and the bench of klog itself.
    ours.extend(["cost".to_owned(), "lines".to_owned()]);
    ours.sort_unstable();
    assert_eq!(klog::OUR_CRATES, ours);
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let others = lock.split("[[package]]").filter(|it| it.contains("\nsource = "));
    let names: Vec<String> = others.filter_map(|it| Some(it.split('"').nth(1)?.replace('-', "_"))).collect();
    assert!(names.len() > 100, "the lock file is read");
    for name in names {
        assert!(!klog::OUR_CRATES.contains(&name.as_str()), "{name} is not ours, and its lines may contain secrets");
    }
}

#[test]
fn every_dependency_is_used() {
    for Package { name, folder, all, .. } in packages() {
        let mut files = Vec::new();
        collect_sources(&root().join(folder), &mut files);
        let code: String = files.iter().map(|it| fs::read_to_string(it).unwrap()).collect();
        for dependency in all.iter().filter(|it| !FOR_A_FEATURE.contains(&it.as_str())) {
            let path = format!("{}::", dependency.replace('-', "_"));
            assert!(code.contains(&path), "{name} does not use {dependency}");
        }
    }
}

#[test]
fn rules_and_machines_do_no_io() {
    let rules = RULES.iter().map(|file| (file, [IO, RANDOMNESS].concat()));
    for (file, forbidden) in rules.chain(MACHINES.iter().map(|file| (file, IO.to_vec()))) {
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|err| panic!("{file}: {err}"));
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in &forbidden {
                assert!(!line.contains(word), "{file}:{}: a rule or machine mentions {word}: {line}", number + 1);
            }
        }
    }
}

#[test]
fn handlers_only_translate() {
    let mut files = Vec::new();
    collect_sources(&root().join("controllers"), &mut files);
    files.retain(|it| it.ends_with("src/handlers.rs"));
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in BLOCKING {
            assert!(!text.contains(word), "{}: a handler mentions {word}", file.display());
        }
    }
}

#[test]
fn no_file_contains_unfinished_work() {
    let mut files = Vec::new();
    for top in ["cmd", "controllers", "shared", "e2e"] {
        collect_sources(&root().join(top), &mut files);
    }
    assert!(files.len() > 60);
    // Built from parts, so that this file does not match.
    let unfinished = [["todo", "!("].concat(), ["unimplemented", "!("].concat(), ["#[ig", "nore"].concat()];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in &unfinished {
            assert!(!text.contains(word), "{} contains {word}", file.display());
        }
    }
}
