use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context, bail};

use crate::report;

/// The default folder with the binaries of a control plane; `KUBEBUILDER_ASSETS` overrides it.
pub(crate) const DEFAULT_FOLDER: &str = "/usr/local/kubebuilder/bin";

/// The program of the upstream manager.
pub(crate) const GO_MANAGER: &str = "kube-controller-manager";

/// The folder with the binaries of a control plane.
#[derive(Debug)]
pub struct Assets {
    folder: PathBuf,
    version: String,
}

impl Assets {
    /// Finds etcd and kube-apiserver in `KUBEBUILDER_ASSETS`.
    ///
    /// # Errors
    /// If one of them is missing or does not run; the message names the folder.
    pub fn find() -> anyhow::Result<Self> {
        let folder = std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_else(|| DEFAULT_FOLDER.into());
        let folder = PathBuf::from(folder);
        for name in ["etcd", "kube-apiserver"] {
            if !folder.join(name).is_file() {
                bail!("no {name} in {} (set KUBEBUILDER_ASSETS to a folder that has it)", folder.display());
            }
        }
        let version = version(&folder.join("kube-apiserver"))?;
        Ok(Self { folder, version })
    }

    /// The path of a binary, if it exists.
    #[must_use]
    pub fn binary(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name)).filter(|it| it.is_file())
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version that the API server prints, such as `Kubernetes v1.36.2`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The binaries, or `None` after printing that `scenario` does not run.
///
/// # Panics
/// If they are missing and `MINI_KCM_E2E` is `required`.
pub fn assets_or_skip(scenario: &str) -> Option<&'static Assets> {
    static FOUND: OnceLock<Result<Assets, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = Assets::find().map_err(|err| format!("{err:#}"));
        if let Ok(assets) = &found {
            report(&format!("running on the real kube-apiserver {} from {}", assets.version, assets.folder.display()));
        }
        found
    });
    match found {
        Ok(assets) => Some(assets),
        Err(why) => {
            let required = std::env::var("MINI_KCM_E2E").is_ok_and(|it| it == "required");
            assert!(!required, "{scenario}: MINI_KCM_E2E=required, but {why}");
            report(&format!("NOT RUN on a real API server: {scenario}: {why}"));
            None
        }
    }
}

/// The binaries with the upstream manager among them, or `None` after printing that `scenario` does not run.
///
/// # Panics
/// If there is no API server and `MINI_KCM_E2E` is `required`.
pub fn go_manager_or_skip(scenario: &str) -> Option<&'static Assets> {
    let assets = assets_or_skip(scenario)?;
    if assets.binary(GO_MANAGER).is_none() {
        report(&format!("NOT RUN, there is no {GO_MANAGER} in {}: {scenario}", assets.folder.display()));
        return None;
    }
    Some(assets)
}

fn version(kube_apiserver: &Path) -> anyhow::Result<String> {
    let output = Command::new(kube_apiserver).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", kube_apiserver.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
