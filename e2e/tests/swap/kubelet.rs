//! A control-plane node whose pods are real processes: the static pod of the built-in manager with its mirror pod, and
//! the pods of mini-kcm. The rest of the cluster is fake nodes.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock},
    time::Duration,
};

use anyhow::Context;
use clock::{Clock, Instant};
use e2e::{
    Build, ControlPlane, Process, Rest, Signal, binary, eventually,
    fields::{is_deleting, name},
    free_port, host_name,
};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tasks::Spawner;
use tokio::sync::Mutex;

use crate::support::shipped::{KUBEADM, account_for, documents, in_cluster, strings, with_files_of};
/// The only node.
static NODE: LazyLock<String> = LazyLock::new(host_name);
pub(crate) const BUILT_IN: &str = "kube-controller-manager";
const PODS: &str = "/api/v1/namespaces/kube-system/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const POLL: Duration = Duration::from_millis(300);
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A container that exits is started again after this time. One that the test kills is started at once.
const BACK_OFF: Duration = Duration::from_secs(10);
const TO_STOP: Duration = Duration::from_secs(30);

/// Short times for both managers, and a rate limit above the load; kubeadm would write them as `extraArgs`.
const FOR_BOTH: [&str; 5] = [
    "--node-monitor-grace-period=8s",
    "--node-eviction-rate=50",
    "--secondary-node-eviction-rate=50",
    "--kube-api-qps=100",
    "--kube-api-burst=200",
];
const FOR_BUILT_IN: [&str; 3] =
    ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms"];
/// Lease duration and renew deadline of mini-kcm, in seconds.
pub(crate) type Lease = (u32, u32);

/// The node with its kubelet.
pub(crate) struct Kubelet {
    pub(crate) folder: PathBuf,
    pub(crate) plane: Arc<ControlPlane>,
    admin: Rest,
    lease: Lease,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    built_in: Option<BuiltIn>,
    /// When each process of the built-in manager was started.
    starts: Vec<Timestamp>,
    /// The pods of mini-kcm by name.
    pods: BTreeMap<String, Pod>,
}

struct BuiltIn {
    /// The manifest of the running process.
    text: String,
    process: Process,
}

/// A pod of mini-kcm.
struct Pod {
    kubeconfig: PathBuf,
    args: Vec<String>,
    process: Process,
    port: u16,
    started: Instant,
    is_ready: bool,
    is_stopping: bool,
}

impl Kubelet {
    /// Registers the node, with the manifest of kubeadm.
    pub(crate) async fn start(plane: Arc<ControlPlane>, lease: Lease, spawner: &Spawner) -> anyhow::Result<Arc<Self>> {
        let (admin, folder) = (plane.admin().await?, plane.folder().join("kubernetes"));
        let kubelet = Arc::new(Self { folder, plane, admin, lease, state: Mutex::default() });
        kubelet.register().await?;
        std::fs::create_dir_all(kubelet.folder.join("manifests"))?;
        // Added to the manifest as kubeadm adds its extraArgs.
        let more = FOR_BOTH.iter().chain(&FOR_BUILT_IN).map(|it| format!("\n    - {it}")).collect::<String>();
        let text = std::fs::read_to_string(KUBEADM)?;
        let last = "- --use-service-account-credentials=true";
        std::fs::write(kubelet.manifest(), text.replace(last, &format!("{last}{more}")))?;
        let heart = kubelet.clone();
        spawner.spawn("kubelet-heartbeat", async move { heart.beat().await });
        Ok(kubelet)
    }

    /// The file that the documents change.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.folder.join("manifests/kube-controller-manager.yaml")
    }

    /// Kills the process of the built-in manager. The kubelet starts its container again.
    pub(crate) async fn kill_built_in(&self) -> anyhow::Result<()> {
        self.state.lock().await.built_in.as_mut().context("no built-in manager")?.process.kill()
    }

    /// Kills the process of a pod of mini-kcm. The kubelet starts its container again.
    pub(crate) async fn kill(&self, pod: &str) -> anyhow::Result<()> {
        self.state.lock().await.pods.get_mut(pod).with_context(|| format!("no pod {pod}"))?.process.kill()
    }

    /// When each process of the built-in manager was started.
    pub(crate) async fn starts(&self) -> Vec<Timestamp> {
        self.state.lock().await.starts.clone()
    }

    /// The ports of the pods of mini-kcm.
    pub(crate) async fn ports(&self) -> Vec<u16> {
        self.state.lock().await.pods.values().map(|it| it.port).collect()
    }

    /// Waits until no pod of mini-kcm is left.
    pub(crate) async fn until_without_ours(&self, within: Duration) -> anyhow::Result<()> {
        let what = "the pods of mini-kcm to be removed";
        eventually(what, within, async || Ok(self.state.lock().await.pods.is_empty().then_some(()))).await
    }

    /// Prints the ends of the logs of all managers.
    pub(crate) async fn show_logs(&self) {
        let state = self.state.lock().await;
        state.built_in.iter().for_each(|it| it.process.show_log());
        state.pods.values().for_each(|it| it.process.show_log());
    }

    async fn register(&self) -> anyhow::Result<()> {
        let taint = json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" });
        let labels = json!({ "node-role.kubernetes.io/control-plane": "", "kubernetes.io/hostname": *NODE,
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64" });
        let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
        let now = Clock::system().wall();
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
            "lastHeartbeatTime": now, "lastTransitionTime": now });
        let node = json!({ "metadata": { "name": *NODE, "labels": labels }, "spec": { "taints": [taint] },
            "status": { "capacity": resources, "allocatable": resources, "conditions": [ready] } });
        self.admin.create("/api/v1/nodes", &node).await?;
        let spec = json!({ "holderIdentity": *NODE, "leaseDurationSeconds": 40, "renewTime": micro(now) });
        eventually("the namespace of node Leases", TO_STOP, async || {
            self.admin.create(LEASES, &json!({ "metadata": { "name": *NODE }, "spec": spec })).await.map(Some)
        })
        .await?;
        Ok(())
    }

    async fn beat(&self) {
        loop {
            let renewal = json!({ "spec": { "renewTime": micro(Clock::system().wall()) } });
            // A heartbeat that fails is followed by the next one.
            let _ = self.admin.merge(&format!("{LEASES}/{}", *NODE), &renewal).await;
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    /// Runs the pods of the node for ever.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            for result in [self.sync_built_in().await, self.sync_pods().await] {
                if let Err(err) = result {
                    e2e::report(&format!("kubelet: {err:#}; retrying"));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Replaces the static pod when its file has changed, and starts its container again when it has ended.
    async fn sync_built_in(&self) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(self.manifest())?;
        let mut state = self.state.lock().await;
        let state = &mut *state;
        if let Some(running) = &mut state.built_in {
            if running.text == text && running.process.status()?.is_none() {
                return Ok(());
            }
            if running.text != text {
                running.process.signal(Signal::TERM)?;
                running.process.exit(TO_STOP).await?;
            }
        }
        let pod = documents(&text).remove(0);
        if state.built_in.as_ref().is_none_or(|it| it.text != text) {
            // The kubelet replaces the mirror pod before it starts the containers.
            self.create_mirror_pod(&pod).await?;
        }
        let command = strings(&pod["spec"]["containers"][0]["command"]);
        let mut arguments = with_files_of(&self.plane, &command[1..]);
        arguments.push(format!("--secure-port={}", free_port()?));
        arguments.push(format!("--cert-dir={}", self.plane.folder().join("built-in").display()));
        let program = self.plane.assets()?.binary(BUILT_IN).context("no kube-controller-manager")?;
        let process = self.run_process(BUILT_IN, &program, &arguments)?;
        state.starts.push(Clock::system().wall());
        state.built_in = Some(BuiltIn { text, process });
        Ok(())
    }

    async fn create_mirror_pod(&self, manifest: &Value) -> anyhow::Result<()> {
        let name = format!("{BUILT_IN}-{}", *NODE);
        let path = format!("{PODS}/{name}");
        if self.admin.find(&path).await?.is_some() {
            self.admin.delete_now(&path).await?;
        }
        let hash = manifest.to_string().len().to_string();
        let mut pod = manifest.clone();
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash,
            "kubernetes.io/config.source": "file" });
        pod["spec"]["nodeName"] = json!(*NODE);
        pod["spec"]["tolerations"] = json!([{ "effect": "NoExecute", "operator": "Exists" }]);
        self.admin.create(PODS, &pod).await?;
        self.admin.merge(&format!("{path}/status"), &json!({ "status": { "phase": "Running" } })).await?;
        Ok(())
    }

    /// Binds, starts, probes and stops the pods of mini-kcm.
    async fn sync_pods(&self) -> anyhow::Result<()> {
        let selector = "labelSelector=app.kubernetes.io%2Finstance%3Dmini-kcm";
        let objects = self.admin.items(&format!("{PODS}?{selector}")).await?;
        let mut state = self.state.lock().await;
        for object in &objects {
            let name = name(object);
            if !object["spec"]["nodeName"].is_string() {
                // The scheduler of the fake nodes knows only those.
                let target = json!({ "kind": "Node", "name": *NODE });
                let binding = json!({ "metadata": { "name": name }, "target": target });
                self.admin.create(&format!("{PODS}/{name}/binding"), &binding).await?;
            }
            if !state.pods.contains_key(name) {
                let pod = self.start_pod(name, object).await?;
                state.pods.insert(name.to_owned(), pod);
            }
            if let Some(pod) = state.pods.get_mut(name)
                && is_deleting(object)
                && !pod.is_stopping
            {
                pod.process.signal(Signal::TERM)?;
                pod.is_stopping = true;
            }
        }
        let mut ended = Vec::new();
        for (name, pod) in &mut state.pods {
            match pod.process.status()? {
                Some(_) if pod.is_stopping => ended.push(name.clone()),
                Some(ended) if ended.code().is_none() || pod.started.elapsed() >= BACK_OFF => {
                    (pod.process, pod.port) = self.start_process(&pod.kubeconfig, &pod.args)?;
                    pod.started = Clock::system().now();
                }
                Some(_) | None => {}
            }
            let answer = Rest::unverified(pod.port)?.send(Method::GET, "/readyz", None).await;
            let is_ready = answer.is_ok_and(|it| it.code == 200);
            if is_ready != pod.is_ready && !pod.is_stopping {
                self.write_status(name, is_ready).await?;
                pod.is_ready = is_ready;
            }
        }
        for name in ended {
            // Pods that were deleted without grace are gone already.
            if self.admin.find(&format!("{PODS}/{name}")).await?.is_some() {
                self.admin.delete_now(&format!("{PODS}/{name}")).await?;
            }
            state.pods.remove(&name);
        }
        Ok(())
    }

    async fn start_pod(&self, name: &str, object: &Value) -> anyhow::Result<Pod> {
        let reference = json!({ "kind": "Pod", "apiVersion": "v1", "name": name, "uid": object["metadata"]["uid"] });
        let request = json!({ "spec": { "boundObjectRef": reference } });
        let kubeconfig = account_for(&self.plane, &self.admin, ("mini-kcm", &request), name).await?;
        let args = strings(&object["spec"]["containers"][0]["args"]);
        let (process, port) = self.start_process(&kubeconfig, &args)?;
        self.write_status(name, false).await?;
        let started = Clock::system().now();
        Ok(Pod { kubeconfig, args, process, port, started, is_ready: false, is_stopping: false })
    }

    fn start_process(&self, kubeconfig: &Path, args: &[String]) -> anyhow::Result<(Process, u16)> {
        let port = free_port()?;
        Ok((self.start_ours(kubeconfig, args, port)?, port))
    }

    /// Starts mini-kcm with the arguments of a manifest.
    pub(crate) fn start_ours(&self, kubeconfig: &Path, args: &[String], port: u16) -> anyhow::Result<Process> {
        let mut arguments = [args, &in_cluster(kubeconfig, port)].concat();
        let (duration, deadline) = self.lease;
        arguments.extend(FOR_BOTH.map(str::to_owned));
        arguments.push(format!("--leader-elect-lease-duration={duration}s"));
        arguments.push(format!("--leader-elect-renew-deadline={deadline}s"));
        arguments.push("--leader-elect-retry-period=500ms".to_owned());
        self.run_process("mini-kcm", binary(Build::Release)?, &arguments)
    }

    fn run_process(&self, name: &str, program: &Path, arguments: &[String]) -> anyhow::Result<Process> {
        let log = self.plane.folder().join(format!("{name}-{}.log", Clock::system().wall().as_microsecond()));
        Process::start(name, Command::new(program).args(arguments), log)
    }

    async fn write_status(&self, name: &str, is_ready: bool) -> anyhow::Result<()> {
        let status = if is_ready { "True" } else { "False" };
        let conditions: Vec<Value> = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
            .into_iter()
            .map(|kind| {
                json!({ "type": kind, "status": if kind.ends_with("Ready") { status } else { "True" },
                "lastTransitionTime": Clock::system().wall() })
            })
            .collect();
        let status = json!({ "status": { "phase": "Running", "conditions": conditions } });
        self.admin.merge(&format!("{PODS}/{name}/status"), &status).await.map(drop)
    }
}

/// A MicroTime of the API.
fn micro(time: Timestamp) -> String {
    format!("{time:.6}")
}
