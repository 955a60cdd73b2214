//! Checks the rules of `docs/ARCHITECTURE.md`: dependencies between crates, and the imports of their files.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

#[path = "tidy/imports.rs"]
mod imports;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use self::imports::Crate;

/// State machines: events and times are arguments. A random generator may be an argument too. A folder counts with all
/// its files.
const MACHINES: &[&str] = &[
    "controllers/garbage-collector/src/delete/delete_limiter.rs",
    "controllers/garbage-collector/src/graph",
    "controllers/garbage-collector/src/monitors/plan.rs",
    "shared/process/clock/src/drift.rs",
    "shared/kube/informer/src/reflector.rs",
    "shared/kube/leader-election/src/machine.rs",
    "shared/controller/runtime/src/workqueue/core.rs",
    "shared/controller/workload/src/creation_limit.rs",
];

/// What the files of `rules` may import besides their own crate: values, and functions of values.
const VALUES: &[&str] = &[
    "api",
    "client::ApiError",
    "client::Propagation",
    "client::discovery::Discovery",
    "client::discovery::ServedResource",
    "clock::Instant",
    "clock::Timestamp",
    "core",
    "events::EventType",
    "jiff",
    "revisions::REVISION_LABEL",
    "revisions::find_equal",
    "revisions::is_same_data",
    "revisions::next_number",
    "serde",
    "serde_json",
    "std",
    "thiserror",
    "workload::BLOCKED_AFTER",
    "workload::Missed",
    "workload::StatusChange",
    "workload::StatusWrite",
    "workload::WaitCause",
    "workload::deletion_key",
    "workload::deletion_keys_around_rank",
    "workload::deletion_requested",
    "workload::has_finalizer",
    "workload::is_active",
    "workload::is_available",
    "workload::is_ready",
    "workload::is_terminal",
];

/// What machines may import in addition.
const OF_MACHINES: &[&str] = &["client::TermLimits", "client::Written", "clock", "fastrand", "foldhash", "hashbrown"];

/// The parts of those that do I/O, or read the clock or the environment.
const EFFECTS: &[&str] = &[
    "clock::Clock",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

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
            let is_for_tests = matches!(dependency.as_str(), "test-cluster" | "fake-nodes" | "testing" | "harness");
            // The playground is a complete cluster, and no crate depends on it. The simulation contains a test cluster,
            // and only tests use it. The scenarios of e2e are tests too, and need pods that run and end.
            let is_permitted = match name.as_str() {
                "playground" => !matches!(dependency.as_str(), "testing" | "harness"),
                "testing" => matches!(dependency.as_str(), "test-cluster" | "harness"),
                "harness" => dependency == "test-cluster",
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

/// The folders `src` of the product: the binary, the controllers and the shared crates except those for tests.
fn crates() -> Vec<PathBuf> {
    let folders = packages().into_iter().map(|it| it.folder).filter(|it| group(it).is_some());
    let folders: Vec<PathBuf> = folders.map(|it| root().join(it).join("src")).collect();
    assert!(folders.len() > 15, "{folders:?}");
    folders
}

fn is_below(path: &str, prefix: &str) -> bool {
    path == prefix || path.strip_prefix(prefix).is_some_and(|it| it.starts_with("::"))
}

#[test]
fn rules_and_machines_import_values_only() {
    let machines: Vec<PathBuf> = MACHINES.iter().map(|it| root().join(it)).collect();
    for machine in &machines {
        assert!(machine.exists(), "{}", machine.display());
    }
    let (mut rules_found, externs) = (0, externs());
    for src in crates() {
        for (file, code) in Crate::read(&src).files() {
            let is_rule = file.starts_with(src.join("rules"));
            let is_machine = machines.iter().any(|it| file.starts_with(it) || file == it.with_extension("rs"));
            if !is_rule && !is_machine {
                continue;
            }
            rules_found += usize::from(is_rule);
            assert!(!code.is_async, "{}: decisions are not async", file.display());
            for path in &code.paths {
                let name = path.split("::").next().unwrap_or_default();
                let allowed = VALUES.iter().chain(OF_MACHINES.iter().filter(|_| is_machine));
                // Other paths begin with a type or a module of this crate.
                let is_allowed = !externs.contains(name) || allowed.into_iter().any(|it| is_below(path, it));
                let has_effect = EFFECTS.iter().any(|it| is_below(path, it));
                assert!(is_allowed && !has_effect, "{}: a decision must not use {path}", file.display());
            }
            if is_rule {
                let mut own = code.paths.iter().filter_map(|it| it.strip_prefix("crate::"));
                let other = own.find(|it| !is_below(it, "rules") && !is_below(it, "graph"));
                assert_eq!(other, None, "{}: a rule must not use this", file.display());
            }
        }
    }
    assert!(rules_found > 25, "{rules_found}");
}

/// The names of all crates that a file of the workspace may import.
fn externs() -> BTreeSet<String> {
    let all = packages().into_iter().flat_map(|it| it.all.into_iter().chain([it.name]));
    all.chain(["std", "core", "alloc"].map(str::to_owned)).map(|it| it.replace('-', "_")).collect()
}

#[test]
fn no_file_imports_one_that_imports_it() {
    for src in crates() {
        let circles = Crate::read(&src).circles();
        assert!(circles.is_empty(), "{}: {circles:#?}", src.display());
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
