//! The first thing to see: a real control plane, our manager, and a namespace that is deleted.
//!
//! `cargo run -p e2e --bin demo` needs etcd and kube-apiserver in `KUBEBUILDER_ASSETS`
//! (`/usr/local/kubebuilder/bin` unless set), and says so when they are missing.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "telling what happens is its purpose")]

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use clock::Clock;
use e2e::{
    Assets, Build, ControlPlane, Flavour, Launch, Options, Rest, Usage, binary, eventually, namespaces, objects,
};

const NAME: &str = "demo";
const FINALIZER: &str = "demo.mini-kcm.dev/backup";
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("demo: {err:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    let clock = Clock::system();
    // The demo lives as long as its process.
    let assets: &'static Assets = Box::leak(Box::new(Assets::find().context("no control plane to show anything on")?));
    println!("building mini-kcm (a release build takes some minutes the first time) ...");
    println!("mini-kcm is {}", binary(Build::Release)?.display());
    println!("starting etcd and kube-apiserver ({}) from {} ...", assets.version(), assets.folder().display());
    let plane = ControlPlane::start(assets, Options::default()).await?;
    let admin = plane.admin().await?;
    println!("the control plane is ready on https://127.0.0.1:{} in {}", plane.port(), plane.folder().display());

    let manager = Launch::new(&plane, Flavour::Ours)?.started().await?;
    println!("mini-kcm runs (process {}, https://127.0.0.1:{}/metrics)", manager.pid(), manager.port());

    fill(&admin).await?;
    println!("namespace {NAME} has 240 objects of 12 kinds, and a pod that finalizer {FINALIZER} holds");
    let began = clock.now();
    namespaces::delete(&admin, NAME).await?;
    println!("$ kubectl delete namespace {NAME}");

    watch_until_only_the_pod_is_left(&admin).await?;
    println!("the backup is done: lifting {FINALIZER} from the pod");
    admin.merge(&format!("{}/pods/held", namespaces::path(NAME)), &objects::released()).await?;
    namespaces::gone(&admin, NAME, PATIENCE).await?;
    let usage = Usage::of(manager.pid())?;
    println!(
        "namespace {NAME} is gone, {:.1} s after its deletion; mini-kcm used {:?} of CPU and holds {:.1} MiB",
        (clock.now() - began).as_secs_f64(),
        usage.cpu,
        usage.resident_kib as f64 / 1024.0
    );
    Ok(())
}

async fn fill(admin: &Rest) -> anyhow::Result<()> {
    namespaces::create(admin, NAME).await?;
    let mut content = objects::dozen(NAME, 240);
    content.push(objects::held_by(FINALIZER, objects::pod(NAME, "held")));
    admin.create_all(content).await
}

/// Shows the true conditions whenever they change, until they name the finalizer.
async fn watch_until_only_the_pod_is_left(admin: &Rest) -> anyhow::Result<()> {
    let mut shown = Vec::new();
    eventually("the conditions to name the finalizer", PATIENCE, async || {
        let namespace = admin.get(&namespaces::path(NAME)).await?;
        let conditions = namespaces::true_conditions(&namespace);
        if conditions != shown {
            for of in &conditions {
                let condition = namespaces::condition(&namespace, of).context("a condition that was there")?;
                println!("  {of}: {}", condition.message);
            }
            shown = conditions;
        }
        Ok(shown.iter().any(|it| it == "NamespaceFinalizersRemaining").then_some(()))
    })
    .await
}
