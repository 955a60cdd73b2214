//! The commands of `docs/operations.md`, as they are written there.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, ensure};
use e2e::{Identity, Process};

use crate::kubelet::Kubelet;

/// The command blocks of the section about kubeadm.
pub(crate) struct Steps {
    /// Switches the controllers of mini-kcm off in the built-in manager of a node.
    patch: String,
    /// Starts mini-kcm.
    apply: String,
    /// The first part of the undo: on a control-plane node.
    restore: String,
    /// The second part: in the cluster.
    delete: String,
}

/// The limit for a step, on a machine that compiles at the same time.
const TIME_LIMIT: Duration = Duration::from_secs(180);

impl Steps {
    /// Reads the document.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let root = root();
        let text = std::fs::read_to_string(root.join("docs/operations.md"))?;
        let section = text.split("\n## ").find(|it| it.starts_with("Swap on kubeadm")).context("no such section")?;
        let mut blocks = section.split("```sh\n").skip(1).filter_map(|it| it.split("```").next()).map(str::to_owned);
        let mut next = || blocks.next().context("a block of commands is missing");
        let (apply, patch, restore, delete) = (next()?, next()?, next()?, next()?);
        for (block, command) in [
            (&apply, "kubectl apply -k"),
            (&patch, "kubectl patch"),
            (&restore, "sed "),
            (&delete, "kubectl delete -k"),
        ] {
            ensure!(block.contains(command), "{command} is expected in {block}");
        }
        Ok(Self { patch, apply, restore, delete })
    }

    pub(crate) async fn patch(&self, kubelet: &Kubelet) -> anyhow::Result<()> {
        run(&self.patch, kubelet).await
    }

    pub(crate) async fn apply(&self, kubelet: &Kubelet) -> anyhow::Result<()> {
        run(&self.apply, kubelet).await
    }

    pub(crate) async fn restore(&self, kubelet: &Kubelet) -> anyhow::Result<()> {
        run(&self.restore, kubelet).await
    }

    pub(crate) async fn delete(&self, kubelet: &Kubelet) -> anyhow::Result<()> {
        run(&self.delete, kubelet).await
    }
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs commands in the root of the repository, with the folder of this cluster instead of `/etc/kubernetes`.
async fn run(commands: &str, kubelet: &Kubelet) -> anyhow::Result<()> {
    let plane = &kubelet.plane;
    let commands = commands.replace("/etc/kubernetes", &kubelet.folder.display().to_string());
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-ec", &commands]).current_dir(root());
    command.env("PATH", format!("{}:{path}", plane.assets()?.folder().display()));
    command.env("KUBECONFIG", plane.kubeconfig(Identity::Admin)?).env("HOME", plane.folder());
    let mut process = Process::start("the documented commands", &mut command, plane.folder().join("commands.log"))?;
    let status = process.exit(TIME_LIMIT).await?;
    ensure!(status.success(), "{commands}\n{status}: {}", process.log()?);
    Ok(())
}
