//! Measures the cost of the test cluster: `cargo run --release -p test-cluster --example load [clusters|writes|pods]`.
#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use clock::{Clock, Timestamp};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use test_cluster::{BoxError, ResponseBody, Service, TestCluster};
use tower::ServiceExt;

const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCHERS: usize = 10;
/// Placeholder for the name in a body.
const NAME: &str = "name-of-the-pod-0";

type Outcome<T> = Result<T, BoxError>;

fn main() -> Outcome<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    // One thread, as in a simulation, so that all work is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if matches!(&*wanted, "" | "clusters") {
        measure_cluster_creation()?;
    }
    if matches!(&*wanted, "" | "writes") {
        runtime.block_on(measure_writes(10_000))?;
    }
    if matches!(&*wanted, "" | "pods") {
        runtime.block_on(measure_pods(100_000))?;
    }
    Ok(())
}

/// Measures how long it takes to create a cluster.
fn measure_cluster_creation() -> Outcome<()> {
    let clock = Clock::virtual_from(Timestamp::from_second(1_767_323_045)?);
    drop(TestCluster::new(clock.clone()));
    let start = Instant::now();
    for seed in 0..2_000 {
        drop(TestCluster::with_seed(clock.clone(), seed));
    }
    println!("a new cluster: {:.0} µs", start.elapsed().as_secs_f64() / 2_000.0 * 1e6);
    Ok(())
}

/// Measures creates, status updates and deletes in equal parts, with ten watches that are read to the end.
async fn measure_writes(count: usize) -> Outcome<()> {
    let cluster = TestCluster::new(Clock::system());
    cluster.set_recording(false);
    let service = cluster.service();
    let seen = Arc::new(AtomicUsize::new(0));
    for _ in 0..WATCHERS {
        let mut body = send(&service, "GET", &format!("{PODS}?watch=1&resourceVersion=0"), None).await?;
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                // One frame is one event, because lines are never split.
                seen.fetch_add(frame.data_ref().map_or(0, |it| usize::from(!it.is_empty())), Ordering::Relaxed);
            }
        });
    }
    // Bodies are prepared as text with a placeholder for the name, so that the client's work is not measured.
    let new = pod(NAME).to_string();
    let mut running = pod(NAME);
    running["status"] = status();
    let running = running.to_string();
    let (start, cpu, first) = (Instant::now(), cpu_seconds(), cluster.version());
    for at in 0..count / 3 {
        let name = format!("pod-{at}");
        send(&service, "POST", PODS, Some(new.replace(NAME, &name))).await?;
        send(&service, "PUT", &format!("{PODS}/{name}/status"), Some(running.replace(NAME, &name))).await?;
        send(&service, "DELETE", &format!("{PODS}/{name}?gracePeriodSeconds=0"), None).await?;
        tokio::task::yield_now().await;
    }
    let written = usize::try_from(cluster.version() - first)?;
    while seen.load(Ordering::Relaxed) < written * WATCHERS {
        tokio::task::yield_now().await;
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!(
        "{written} stored writes with {WATCHERS} watchers: {wall:.2} s, {cpu:.2} s of CPU: {:.0} writes for each of those",
        f64::from(u32::try_from(written)?) / cpu
    );
    Ok(())
}

/// Measures the resident memory per pod for many pods that were created, bound and set running, and the cost of a list
/// of all of them.
async fn measure_pods(count: usize) -> Outcome<()> {
    let cluster = TestCluster::new(Clock::system());
    cluster.set_recording(false);
    let service = cluster.service();
    let before = resident()?;
    for at in 0..count {
        send(&service, "POST", PODS, Some(pod(&format!("pod-{at}")).to_string())).await?;
    }
    let created = resident()? - before;
    let size = send(&service, "GET", &format!("{PODS}/pod-0"), None).await?.collect().await?.to_bytes().len();
    println!("{count} pods of {size} bytes: {} MiB resident, {} bytes each", created >> 20, created / count);
    for at in 0..count {
        let body = Some(json!({ "status": status() }).to_string());
        send(&service, "PATCH", &format!("{PODS}/pod-{at}/status"), body).await?;
    }
    let updated = resident()? - before;
    let size = send(&service, "GET", &format!("{PODS}/pod-0"), None).await?.collect().await?.to_bytes().len();
    println!("each updated to {size} bytes: {} MiB resident, {} bytes each", updated >> 20, updated / count);
    let start = Instant::now();
    let mut body = send(&service, "GET", &format!("{PODS}?resourceVersion=0"), None).await?;
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
    }
    println!("a list of all, {} MiB: {:.0} ms", length >> 20, start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let path = format!("{PODS}?labelSelector=job-name%3Dreindex,pod-index%3D7");
    let found = send(&service, "GET", &path, None).await?.collect().await?.to_bytes().len();
    println!("a list by label, {found} bytes: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

async fn send(service: &Service, method: &str, path: &str, body: Option<String>) -> Outcome<ResponseBody> {
    let mut request = Request::builder().method(method).uri(path).header("user-agent", "load/1");
    if method == "PATCH" {
        request = request.header("content-type", "application/merge-patch+json");
    }
    let body = Bytes::from(body.unwrap_or_default());
    let answer = service.clone().oneshot(request.body(Full::new(body))?).await?;
    if !answer.status().is_success() {
        let status = answer.status();
        let text = answer.into_body().collect().await?.to_bytes();
        return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&text)).into());
    }
    Ok(answer.into_body())
}

/// A pod of a Job, as the job controller creates it and the API server stores it.
fn pod(name: &str) -> Value {
    let index = name.rsplit('-').next().unwrap_or_default();
    let probe = |path: &str| {
        json!({ "httpGet": { "path": path, "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10,
        "failureThreshold": 3, "successThreshold": 1, "timeoutSeconds": 1, "initialDelaySeconds": 5 })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "generateName": "reindex-",
            "labels": {
                "app": "search", "batch.kubernetes.io/job-name": "reindex", "job-name": "reindex", "pod-index": index,
                "batch.kubernetes.io/controller-uid": "5e2b8f4c-0d52-4f9a-9d4c-1f2f3a4b5c6d", "team": "platform",
            },
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "8080" },
            "finalizers": [],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "reindex", "controller": true,
                "uid": "5e2b8f4c-0d52-4f9a-9d4c-1f2f3a4b5c6d", "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": format!("node-{}", name.len() % 7), "serviceAccountName": "search", "serviceAccount": "search",
            "restartPolicy": "Never", "securityContext": {}, "enableServiceLinks": true, "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ],
            "containers": [{
                "name": "main", "image": "registry.example.com/search/reindex:2026-01-02", "imagePullPolicy": "IfNotPresent",
                "args": ["--shard", index, "--of", "100000", "--verbose"],
                "env": [
                    { "name": "SHARD", "value": index }, { "name": "LOG_LEVEL", "value": "info" },
                    { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "spec.nodeName" } } },
                ],
                "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
                "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m", "memory": "512Mi" } },
                "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{ "name": "config", "mountPath": "/etc/search", "readOnly": true }],
            }],
            "volumes": [{ "name": "config", "configMap": { "name": "search-config", "defaultMode": 420 } }],
        },
    })
}

fn status() -> Value {
    let condition = |of: &str| {
        json!({ "type": of, "status": "True", "lastProbeTime": null,
        "lastTransitionTime": "2026-01-02T03:04:05Z" })
    };
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({
        "phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.7", "podIP": "10.1.2.3",
        "podIPs": [{ "ip": "10.1.2.3" }], "startTime": "2026-01-02T03:04:05Z",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "main", "ready": true, "started": true, "restartCount": 0,
            "image": "registry.example.com/search/reindex:2026-01-02",
            "imageID": "registry.example.com/search/reindex@sha256:9b74c9897bac770ffc029102a200c5de9b74c9897bac770ffc029102a200c5de",
            "containerID": "containerd://5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
            "state": { "running": { "startedAt": "2026-01-02T03:04:05Z" } }, "lastState": {},
        }],
    })
}

/// Resident memory of this process in bytes.
fn resident() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}

/// CPU time of this process in seconds, with a resolution of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}
