//! `bench sync`: 20,000 pods of 9 kB, synced from a real API server over TLS and HTTP/2 by the binary `sync_pods` in
//! the same folder. Prints the figures and fails when they exceed the limits of the project.
//!
//! `cargo build --release -p e2e --bins && target/release/bench sync`

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the figures are its output")]

use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use e2e::{Assets, ControlPlane, Identity, Options, Rest, namespaces};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

const PODS: usize = 20_000;
const POD_BYTES: usize = 9_000;
const AT_ONCE: usize = 32;

const MOST_CPU_MS: u64 = 900;
const MOST_RESIDENT_KIB: u64 = 40 * 1024;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("bench: {err:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("sync") => sync().await,
        _ => bail!("usage: bench sync"),
    }
}

async fn sync() -> anyhow::Result<()> {
    let assets: &'static Assets = Box::leak(Box::new(Assets::find()?));
    let plane = ControlPlane::start(assets, Options::default()).await?;
    let admin = plane.admin().await?;
    namespaces::create(&admin, "bench").await?;
    let padding = padding(&admin).await?;
    let numbers = stream::iter(0..PODS).map(anyhow::Ok);
    numbers.try_for_each_concurrent(AT_ONCE, |number| create(&admin, number, padding)).await?;
    println!("{PODS} pods of {} bytes", bytes(&admin, 0).await?);

    let program = std::env::current_exe()?.with_file_name("sync_pods");
    ensure!(program.is_file(), "no {}: build with --bins", program.display());
    let output = Command::new(program).arg(plane.kubeconfig(Identity::Admin)?).output()?;
    ensure!(output.status.success(), "sync_pods: {}", String::from_utf8_lossy(&output.stderr));
    let line = String::from_utf8_lossy(&output.stdout);
    println!("{}", line.trim());
    let figures: Value = serde_json::from_str(&line)?;
    let figure = |name: &str| figures[name].as_u64().with_context(|| format!("no {name}"));
    ensure!(figure("pods")? == u64::try_from(PODS)?, "not all pods were synced");
    ensure!(figure("cpu_ms")? <= MOST_CPU_MS, "more than {MOST_CPU_MS} ms of CPU");
    ensure!(figure("resident_kib")? <= MOST_RESIDENT_KIB, "more than {MOST_RESIDENT_KIB} KiB resident");
    println!("within {MOST_CPU_MS} ms of CPU and {MOST_RESIDENT_KIB} KiB");
    Ok(())
}

/// The length of an annotation that gives a pod the wanted size.
async fn padding(admin: &Rest) -> anyhow::Result<usize> {
    create(admin, 0, 0).await?;
    let size = bytes(admin, 0).await?;
    admin.delete_now("/api/v1/namespaces/bench/pods/pod-00000").await?;
    Ok(POD_BYTES.saturating_sub(size))
}

async fn bytes(admin: &Rest, number: usize) -> anyhow::Result<usize> {
    let path = format!("/api/v1/namespaces/bench/pods/pod-{number:05}");
    Ok(admin.send(http::Method::GET, &path, None).await?.text.len())
}

/// Creates a pod as a ReplicaSet would, and writes its status as a kubelet would.
async fn create(admin: &Rest, number: usize, padding: usize) -> anyhow::Result<()> {
    let name = format!("pod-{number:05}");
    let owner = format!("00000000-0000-4000-8000-{:012}", number / 20);
    let variables: Vec<Value> =
        (0..8).map(|it| json!({ "name": format!("SETTING_{it}"), "value": format!("value-{it}") })).collect();
    let container = |name: &str| {
        json!({
            "name": name,
            "image": format!("registry.example.com/team/{name}:v1.2.3"),
            "env": variables,
            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
            "livenessProbe": { "httpGet": { "path": "/healthz", "port": "http" }, "periodSeconds": 10 },
            "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http" }, "periodSeconds": 5 },
            "volumeMounts": [{ "name": "config", "mountPath": "/etc/config" }],
        })
    };
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": { "app": format!("app-{}", number / 20), "pod-template-hash": "5d4f8c7b9", "team": "platform" },
            "annotations": { "e2e.mini-kcm.dev/padding": "x".repeat(padding) },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{}", number / 20),
                "uid": owner, "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": {
            "nodeName": format!("node-{:04}", number % 500),
            "containers": [container("main"), container("proxy")],
            "volumes": [{ "name": "config", "configMap": { "name": "config" } }],
            "tolerations": [{ "key": "dedicated", "operator": "Exists", "effect": "NoSchedule" }],
        },
    });
    let path = "/api/v1/namespaces/bench/pods";
    admin.create(path, &pod).await?;
    let at = "2026-01-01T00:00:00Z";
    let condition = |of: &str| json!({ "type": of, "status": "True", "lastTransitionTime": at });
    let ran = |name: &str| {
        json!({ "name": name, "image": format!("registry.example.com/team/{name}:v1.2.3"), "imageID": "sha256:0",
            "containerID": format!("containerd://{number}"), "ready": true, "started": true, "restartCount": 0,
            "state": { "running": { "startedAt": at } } })
    };
    let address = format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let status = json!({ "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
        "hostIP": "192.0.2.1", "startTime": at, "conditions": conditions,
        "containerStatuses": [ran("main"), ran("proxy")] } });
    admin.merge(&format!("{path}/{name}/status"), &status).await.map(drop)
}
