//! The files of `manifests/` on a real API server: they are accepted, their argument lists start the managers, their
//! rights are enough, and a real Prometheus finds what they select.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod arguments;
mod monitoring;
mod objects;
mod rights;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use e2e::{ControlPlane, Identity, Kubectl, Options, Process, Rest, assets_or_skip, eventually, kubectl_or_skip};
use http::Method;
use serde_json::{Value, json};

use crate::support::shipped::{account_for, document, documents, in_cluster, manifest, strings};

/// The limit for everything that works without a fault, on a machine that compiles at the same time.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// An API server with an audit log and a kubectl as admin; `None` after printing that `scenario` does not run.
async fn cluster(scenario: &str) -> Option<(ControlPlane, Kubectl)> {
    let assets = assets_or_skip(scenario)?;
    let program = kubectl_or_skip(scenario)?;
    let plane = ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap();
    let kubectl = Kubectl::new(program, &plane.kubeconfig(Identity::Admin).unwrap());
    Some((plane, kubectl))
}

/// The objects of a kustomization.
fn kustomize(kubectl: &Kubectl, folder: &str) -> Vec<Value> {
    documents(&kubectl.run(&format!("kustomize {}", manifest(folder).display())).unwrap())
}

/// The object of a kind whose name begins with `mini-kcm`.
fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|it| it["kind"] == kind).unwrap()
}

/// The arguments of the Deployment in a kustomization.
fn arguments(kubectl: &Kubectl, folder: &str) -> Vec<String> {
    let objects = kustomize(kubectl, folder);
    strings(&find(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"])
}

/// A kubeconfig of this ServiceAccount in `kube-system`, which exists.
async fn account(plane: &ControlPlane, admin: &Rest, name: &str) -> PathBuf {
    account_for(plane, admin, (name, &json!({})), name).await.unwrap()
}

/// A manager that was started with exactly these arguments.
struct Started {
    process: Process,
    port: u16,
}

impl Started {
    /// Starts it and waits until it leads and all its controllers run.
    async fn leading(plane: &ControlPlane, program: &Path, arguments: &[String], port: u16) -> anyhow::Result<Self> {
        let mut started = Self::start(plane, program, arguments, port)?;
        let rest = Rest::unverified(port)?;
        eventually("the manager to lead", TIME_LIMIT, async || {
            if let Some(status) = started.process.status()? {
                return Ok(Some(Err(anyhow::anyhow!("ended with {status}:\n{}", started.process.log()?))));
            }
            let report = rest.send(Method::GET, "/healthz?verbose", None).await?;
            anyhow::ensure!(report.code == 200 && report.text.contains("-controller ok"), "{}", report.text);
            Ok(Some(Ok(())))
        })
        .await??;
        Ok(started)
    }

    /// Starts it without waiting.
    fn start(plane: &ControlPlane, program: &Path, arguments: &[String], port: u16) -> anyhow::Result<Self> {
        let log = plane.folder().join(format!("manager-{port}.log"));
        let mut command = Command::new(program);
        command.args(arguments);
        let process = Process::start("manager", &mut command, log).context("manager")?;
        Ok(Self { process, port })
    }

    /// The names of its running controllers.
    async fn controllers(&self) -> anyhow::Result<Vec<String>> {
        let report = Rest::unverified(self.port)?.send(Method::GET, "/healthz?verbose", None).await?;
        let checks = report.text.lines().filter_map(|it| it.strip_prefix("[+]")?.strip_suffix(" ok"));
        Ok(checks.filter(|it| it.ends_with("-controller")).map(str::to_owned).collect())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.process.show_log();
        }
    }
}
