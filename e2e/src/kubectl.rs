use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use crate::{Process, report};

/// A real kubectl with a kubeconfig.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// kubectl from `KUBEBUILDER_ASSETS` (or its default folder) or from the path, or `None` after printing that `scenario`
/// does not run.
///
/// # Panics
/// If there is none and `MINI_KCM_E2E` is `required`.
#[must_use]
pub fn kubectl_or_skip(scenario: &str) -> Option<PathBuf> {
    let assets =
        std::env::var_os("KUBEBUILDER_ASSETS").map_or_else(|| crate::assets::DEFAULT_FOLDER.into(), PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(assets).chain(std::env::split_paths(&path));
    let found = folders.map(|it| it.join("kubectl")).find(|it| it.is_file());
    if found.is_none() {
        let required = std::env::var("MINI_KCM_E2E").is_ok_and(|it| it == "required");
        assert!(!required, "{scenario}: MINI_KCM_E2E=required, but there is no kubectl");
        report(&format!("NOT RUN with a real kubectl: {scenario}: none in KUBEBUILDER_ASSETS or PATH"));
    }
    found
}

impl Kubectl {
    /// Uses this kubeconfig, with its cache in the same folder.
    #[must_use]
    pub fn new(program: PathBuf, kubeconfig: &Path) -> Self {
        Self { program, kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs a command line, split at spaces, and returns its output.
    ///
    /// # Errors
    /// Unless the exit code is 0; the message has the output.
    pub fn run(&self, line: &str) -> anyhow::Result<String> {
        let output = self.command(line).stdin(Stdio::null()).output().context("cannot run kubectl")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            bail!("kubectl {line}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
        }
        Ok(text(&output.stdout))
    }

    /// Starts a command that keeps running, such as a watch; its output goes to `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, line: &str, log: PathBuf) -> anyhow::Result<Process> {
        Process::start("kubectl", &mut self.command(line), log)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        // In the folder of the kubeconfig, so that it has no data of another cluster on the same port, and is removed
        // with the folder.
        let cache = self.kubeconfig.parent().map(|it| it.join("kubectl-cache")).unwrap_or_default();
        command.arg("--cache-dir").arg(cache);
        command.args(line.split_whitespace());
        command
    }
}
