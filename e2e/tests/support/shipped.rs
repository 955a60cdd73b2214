//! The files of `manifests/`, and what the kubelet adds to their arguments.

use std::path::{Path, PathBuf};

use e2e::{ControlPlane, Identity, Rest};
use serde_json::Value;

/// A file or folder of the repository.
pub(crate) fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(path)
}

/// The manifest of the built-in manager that kubeadm writes.
pub(crate) const KUBEADM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifests/kubeadm.yaml");

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// The only document of a file.
pub(crate) fn document(path: &str) -> Value {
    let text = std::fs::read_to_string(manifest(path)).unwrap();
    documents(&text).remove(0)
}

pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// The list of a flag `--controllers` in arguments, all occurrences together.
pub(crate) fn controllers(arguments: &[String]) -> Vec<&str> {
    arguments.iter().filter_map(|it| it.strip_prefix("--controllers=")).flat_map(|it| it.split(',')).collect()
}

/// A kubeconfig, with this file name, of a ServiceAccount in `kube-system`, which exists. `request` is the TokenRequest.
pub(crate) async fn account_for(
    plane: &ControlPlane,
    admin: &Rest,
    (account, request): (&str, &Value),
    name: &str,
) -> anyhow::Result<PathBuf> {
    let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token");
    let token = admin.create(&path, request).await?;
    let text = std::fs::read_to_string(plane.kubeconfig(Identity::Admin)?)?;
    let path = plane.folder().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, text.replace(&Identity::Admin.token(), token["status"]["token"].as_str().unwrap()))?;
    Ok(path)
}

/// The arguments that a pod has from its environment: its credentials, and here also a free port.
pub(crate) fn in_cluster(kubeconfig: &Path, port: u16) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
    ]
}

/// Arguments with the files of this cluster instead of those of kubeadm.
pub(crate) fn with_files_of(plane: &ControlPlane, arguments: &[String]) -> Vec<String> {
    let kubeconfig = plane.kubeconfig(Identity::ControllerManager).unwrap().display().to_string();
    let with_file = |argument: &String| match argument.split_once("/etc/kubernetes/pki/") {
        // The key of the authority is not kept. The signer needs any pair.
        Some((flag @ "--cluster-signing-cert-file=", _)) => {
            format!("{flag}{}", plane.certificate("server.crt").display())
        }
        Some((flag @ "--cluster-signing-key-file=", _)) => {
            format!("{flag}{}", plane.certificate("server.key").display())
        }
        Some((flag, file)) => format!("{flag}{}", plane.certificate(file).display()),
        None => argument.replace("/etc/kubernetes/controller-manager.conf", &kubeconfig),
    };
    arguments.iter().map(with_file).collect()
}
