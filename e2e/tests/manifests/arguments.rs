//! Every argument list of the manifests starts the manager for which it is, with the controllers that it names.

use std::{collections::BTreeSet, path::Path};

use e2e::{Build, ControlPlane, binary, free_port, go_manager_or_skip, report};
use serde_json::Value;

use super::{Started, account, cluster, document, in_cluster, manifest, strings};
use crate::support::shipped::{KUBEADM, controllers, with_files_of};

/// The controllers in arguments of mini-kcm; another test compares them with the code.
fn named(arguments: &[String]) -> BTreeSet<String> {
    controllers(arguments).into_iter().map(str::to_owned).collect()
}

/// The arguments of the static pod.
fn static_pod() -> Vec<String> {
    strings(&document("static-pod/mini-kcm.yaml")["spec"]["containers"][0]["command"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn argument_lists_start_our_binary_with_the_controllers_that_they_name() {
    let Some((plane, kubectl)) = cluster("arguments of the manifests").await else { return };
    for folder in ["base", "job-managed-by"] {
        kubectl.run(&format!("apply -k {}", manifest(folder).display())).unwrap();
    }
    let admin = plane.admin().await.unwrap();
    let program = binary(Build::Release).unwrap();
    let mut lists = Vec::new();
    for (folder, name) in [("base", "mini-kcm"), ("k3s", "mini-kcm"), ("job-managed-by", "mini-kcm-jobs")] {
        let (kubeconfig, port) = (account(&plane, &admin, name).await, free_port().unwrap());
        lists.push((folder, port, [super::arguments(&kubectl, folder), in_cluster(&kubeconfig, port)].concat()));
    }
    let command = static_pod();
    assert_eq!(command[0], "kube-controller-manager", "the image has this name too");
    let port = free_port().unwrap();
    let mut arguments = with_files_of(&plane, &command[1..]);
    // The port of the manifest may be in use on this machine.
    arguments.push(format!("--secure-port={port}"));
    lists.push(("static-pod", port, arguments));
    for (what, port, arguments) in lists {
        let wanted = named(&arguments);
        let mut manager = Started::leading(&plane, program, &arguments, port).await.unwrap();
        let running: BTreeSet<String> = manager.controllers().await.unwrap().into_iter().collect();
        assert_eq!(running, wanted, "{what}");
        manager.process.signal(e2e::Signal::TERM).unwrap();
        let status = manager.process.exit(super::TIME_LIMIT).await.unwrap();
        assert_eq!(status.code(), Some(0), "{what}");
    }
}

/// Runs the upstream manager with these arguments and compares its controllers.
async fn check_built_in(
    plane: &ControlPlane,
    program: &Path,
    what: &str,
    arguments: &[String],
    off: &BTreeSet<String>,
) {
    let port = free_port().unwrap();
    let mut arguments = with_files_of(plane, arguments);
    arguments.push(format!("--secure-port={port}"));
    arguments.push(format!("--cert-dir={}", plane.folder().join(what).display()));
    let mut manager = Started::leading(plane, program, &arguments, port).await.unwrap();
    let running: BTreeSet<String> = manager.controllers().await.unwrap().into_iter().collect();
    assert!(running.is_disjoint(off), "{what}: {running:?}");
    // One that a list without "*" would lack, and those that create the pods of the Deployment.
    assert!(running.contains("serviceaccount-controller"), "{what}: {running:?}");
    for name in ["deployment-controller", "replicaset-controller"] {
        assert_ne!(running.contains(name), off.contains(name), "{what}: {name} in {running:?}");
    }
    let named = controllers(&arguments);
    for (alias, name) in
        [("bootstrapsigner", "bootstrap-signer-controller"), ("tokencleaner", "token-cleaner-controller")]
    {
        assert_eq!(running.contains(name), named.contains(&alias), "{what}: {name}");
    }
    assert!(named.contains(&"tokencleaner"), "{what}");
    manager.process.kill().unwrap();
    // Its Lease is not released, and the next manager must not wait for it.
    let admin = plane.admin().await.unwrap();
    admin.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_for_the_built_in_manager_start_it_without_our_controllers() {
    let scenario = "arguments of the built-in manager";
    if go_manager_or_skip(scenario).is_none() {
        return;
    }
    let Some((plane, kubectl)) = cluster(scenario).await else { return };
    let program = plane.assets().unwrap().binary("kube-controller-manager").unwrap();
    let (of_deployment, of_static_pod) = (named(&super::arguments(&kubectl, "base")), named(&static_pod()));
    assert!(of_deployment.len() > 10 && of_deployment.len() < of_static_pod.len(), "{of_deployment:?}");
    let before: Value = super::documents(&std::fs::read_to_string(KUBEADM).unwrap()).remove(0);
    let original = strings(&before["spec"]["containers"][0]["command"]);
    // The patches, as the documents apply them.
    let patched = |folder: &str| {
        let patch = manifest(&format!("kubeadm/{folder}/kube-controller-manager0+json.yaml"));
        let patched = kubectl
            .run(&format!("patch --local --type=json -o yaml -f {KUBEADM} --patch-file {}", patch.display()))
            .unwrap();
        let command = strings(&super::documents(&patched).remove(0)["spec"]["containers"][0]["command"]);
        assert_eq!(command[..original.len()], original, "nothing else changes");
        command[1..].to_vec()
    };
    let mut lists = vec![
        ("patches", patched("patches"), &of_deployment),
        ("patches-static-pod", patched("patches-static-pod"), &of_static_pod),
    ];
    // The list that kubeadm and kind write instead of their own.
    let replaced = |value: &str| -> Vec<String> {
        let own = |it: &&String| !it.starts_with("--controllers=");
        original[1..].iter().filter(own).cloned().chain([format!("--controllers={value}")]).collect()
    };
    let configuration = document("kubeadm/cluster-configuration-static-pod.yaml");
    let argument = &configuration["controllerManager"]["extraArgs"][0];
    assert_eq!(argument["name"], "controllers");
    let of_kubeadm = replaced(argument["value"].as_str().unwrap());
    let kind = document("kind/beside.yaml");
    let patch: Value = super::documents(kind["nodes"][0]["kubeadmConfigPatches"][0].as_str().unwrap()).remove(0);
    let value = patch["controllerManager"]["extraArgs"]["controllers"].as_str().unwrap();
    assert_eq!(replaced(value), of_kubeadm, "kind and kubeadm have the same list");
    lists.push(("kubeadm", of_kubeadm, &of_static_pod));
    // k3s adds what follows "controllers+=" to its own list as a second flag.
    let file = document("k3s/mini-kcm.yaml");
    let added = file["kube-controller-manager-arg+"][0].as_str().unwrap().strip_prefix("controllers+=").unwrap();
    let mut arguments = replaced("*,tokencleaner,-service,-route,-cloud-node-lifecycle");
    arguments.push(format!("--controllers={added}"));
    lists.push(("k3s", arguments, &of_deployment));
    for (what, arguments, off) in lists {
        report(&format!("the built-in manager with the list of {what}"));
        check_built_in(&plane, &program, what, &arguments, off).await;
    }
}

#[test]
fn extra_mount_of_kind_is_the_static_pod() {
    let kind = document("kind/beside.yaml");
    let mount = &kind["nodes"][0]["extraMounts"][0];
    let path = mount["hostPath"].as_str().unwrap();
    assert!(manifest("..").join(path).is_file(), "{path} from the root of the repository");
    assert_eq!(mount["containerPath"], "/etc/kubernetes/manifests/mini-kcm.yaml");
}
