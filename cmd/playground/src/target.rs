//! The cluster that the samples run on: one in this process, or a real one.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clock::Clock;
use fake_nodes::{NodeSpec, in_memory};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use serde_json::{Value, json};
use test_cluster::{Served, TestCluster};

use crate::{
    flags::Options,
    samples::{DEDICATED, FAILING, SampleContext},
};

/// On a real cluster, the scheduler name of our pods, followed by an id, so that no other scheduler binds them.
const SCHEDULER: &str = "fake-nodes";
/// On a real cluster, the taint and a label of our nodes, with an id as the value. The taint keeps other pods off our
/// nodes.
const FAKE: &str = "fake-nodes.mini-kcm.dev/fake";
/// The Lease of every manager, in kube-system. Its holder is the active manager.
const LEASE: &str = "kube-controller-manager";
/// How often a Lease is read, and the duration of a Lease that does not specify it.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const DEFAULT_LEASE_SECONDS: u64 = 15;

/// The cluster that the samples run on.
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) context: SampleContext,
    pub(crate) placement: PodPlacement,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) schedulers: Vec<String>,
    /// The kubeconfig for kubectl and mini-kcm.
    pub(crate) kubeconfig: PathBuf,
    /// Shown to the user.
    pub(crate) server: String,
    pub(crate) manager: ManagerPlan,
    pub(crate) cluster: Cluster,
}

pub(crate) enum Cluster {
    /// In this process.
    Embedded { cluster: TestCluster, served: Served, written: WrittenKubeconfig },
    /// The cluster of a kubeconfig.
    Real,
}

/// Which manager runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManagerPlan {
    /// We start ours. `found`: its Lease existed before.
    Ours { found: bool },
    /// The cluster has an active manager; a second one would do the same work twice.
    Theirs { holder: String },
}

/// What is added to pods so that they run on our nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodPlacement {
    /// Nothing: all nodes are ours.
    AnyNode,
    /// The name of our scheduler and a toleration for our nodes, both with this id, because another playground may run
    /// on the same cluster. The pods of a DaemonSet also select our nodes, because it has a pod on each node.
    OwnNodes { id: String },
}

/// A kubeconfig that we wrote. It is removed on drop.
pub(crate) struct WrittenKubeconfig(PathBuf);

impl Drop for WrittenKubeconfig {
    fn drop(&mut self) {
        // It does not matter if the file is removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Target {
    /// A cluster in this process, on a loopback port.
    pub(crate) async fn embedded(options: &Options, seed: u64, clock: Clock, folder: &Path) -> anyhow::Result<Self> {
        let cluster = TestCluster::with_seed(clock, seed);
        // No test reads the recorded requests here, and they would use more and more memory.
        cluster.set_recording(false);
        let served = cluster.serve().await.context("cannot serve on a loopback port")?;
        let kubeconfig = options.write_kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
        let written = write_new(&kubeconfig, &served.kubeconfig())
            .with_context(|| format!("--write-kubeconfig {}", kubeconfig.display()))?;
        let mut nodes = nodes("node", options.nodes, &[]);
        let context = context("playground", "node", options.nodes);
        if options.kill_node {
            nodes[0] = nodes[0].clone().label(FAILING, "false");
            let failing = NodeSpec::new(context.failing_node.clone());
            nodes.push(failing.label(FAILING, "true").taint(FAILING, "", "NoSchedule"));
        }
        Ok(Self {
            client: in_memory(cluster.service()),
            context,
            placement: PodPlacement::AnyNode,
            nodes,
            schedulers: vec!["default-scheduler".to_owned()],
            kubeconfig,
            server: served.url(),
            manager: ManagerPlan::Ours { found: false },
            cluster: Cluster::Embedded { cluster, served, written },
        })
    }

    /// The cluster of a kubeconfig. All objects that we create there have `id` in their names.
    pub(crate) async fn real(options: &Options, path: &Path, id: &str, clock: &Clock) -> anyhow::Result<Self> {
        let mut config = client::load(Some(path), None)?;
        // The client must not retry: a request without an answer may have changed an object, which only the caller can
        // check.
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let failed = || format!("--kubeconfig {}: {server}", path.display());
        let client = Client::try_from(config).with_context(failed)?;
        client.apiserver_version().await.with_context(failed)?;
        let manager = plan_manager(&client, clock).await.with_context(failed)?;
        let prefix = format!("fake-{id}");
        Ok(Self {
            client,
            context: context(&format!("playground-{id}"), &prefix, options.nodes),
            placement: PodPlacement::OwnNodes { id: id.to_owned() },
            nodes: nodes(&prefix, options.nodes, &[(FAKE, id)]),
            schedulers: vec![scheduler(id)],
            kubeconfig: path.to_owned(),
            server,
            manager,
            cluster: Cluster::Real,
        })
    }
}

impl PodPlacement {
    /// Adds to an object what its pods need to run on our nodes.
    pub(crate) fn apply(&self, mut object: Value) -> Value {
        let Self::OwnNodes { id } = self else { return object };
        if object["kind"] == "DaemonSet" {
            object["spec"]["template"]["spec"]["nodeSelector"][FAKE] = json!(id);
        }
        for path in ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
            let spec = object.pointer_mut(path).filter(|it| it["containers"].is_array());
            if let Some(spec) = spec.and_then(Value::as_object_mut) {
                spec.insert("schedulerName".to_owned(), json!(scheduler(id)));
                let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
                if let Some(tolerations) = tolerations.as_array_mut() {
                    tolerations.push(json!({ "key": FAKE, "value": id, "effect": "NoSchedule" }));
                }
            }
        }
        object
    }
}

fn scheduler(id: &str) -> String {
    format!("{SCHEDULER}-{id}")
}

/// The nodes. If there are several, the last one has an additional taint.
fn nodes(prefix: &str, count: usize, taints: &[(&str, &str)]) -> Vec<NodeSpec> {
    let node = |number: usize| {
        let node = NodeSpec::new(format!("{prefix}-{number}"));
        let node =
            taints.iter().fold(node, |node, (key, value)| node.label(key, value).taint(key, value, "NoSchedule"));
        let dedicated = count > 1 && number == count;
        if dedicated { node.label(DEDICATED, "true").taint(DEDICATED, "", "NoSchedule") } else { node }
    };
    (1..=count).map(node).collect()
}

fn context(home: &str, prefix: &str, nodes: usize) -> SampleContext {
    SampleContext {
        home: home.to_owned(),
        deleted_namespace: format!("{home}-deleted"),
        nodes,
        open_nodes: nodes.saturating_sub(1).max(1),
        failing_node: format!("{prefix}-{}", nodes + 1),
    }
}

/// Decides which manager runs. A held Lease is watched for its whole duration, as leader election does it, because
/// whether it is renewed does not depend on the clocks of the machines.
async fn plan_manager(client: &Client, clock: &Clock) -> kube::Result<ManagerPlan> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Some(first) = leases.get_opt(LEASE).await? else { return Ok(ManagerPlan::Ours { found: false }) };
    let lasts = first.spec.as_ref().and_then(|it| it.lease_duration_seconds).and_then(|it| it.try_into().ok());
    let until = clock.now() + Duration::from_secs(lasts.unwrap_or(DEFAULT_LEASE_SECONDS));
    while holder(&first).is_some() && clock.now() < until {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(now) = leases.get_opt(LEASE).await? else { return Ok(ManagerPlan::Ours { found: false }) };
        if now.spec != first.spec {
            // A Lease that was released just now is free.
            return Ok(holder(&now).map_or(ManagerPlan::Ours { found: true }, |holder| ManagerPlan::Theirs { holder }));
        }
    }
    Ok(ManagerPlan::Ours { found: true })
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|it| !it.is_empty())
}

/// Removes the Lease that our manager created and released. If it is held again, it is left alone.
pub(crate) async fn remove_lease(client: &Client) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Some(lease) = leases.get_opt(LEASE).await?.filter(|it| holder(it).is_none()) else { return Ok(()) };
    let Lease { metadata: ObjectMeta { uid, resource_version, .. }, .. } = lease;
    let unchanged = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
    match leases.delete(LEASE, &unchanged).await {
        // Deleted, or acquired by another process at this moment.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        done => done.map(drop),
    }
}

/// Writes a new file that only the user can read. It must not exist, because the path may be the user's own kubeconfig.
fn write_new(path: &Path, text: &str) -> anyhow::Result<WrittenKubeconfig> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file {
        Ok(mut file) => {
            let written = WrittenKubeconfig(path.to_owned());
            file.write_all(text.as_bytes())?;
            Ok(written)
        }
        Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("the file exists already and is not overwritten")
        }
        Err(err) => Err(err.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_real_cluster_pods_run_only_on_our_nodes() {
        let pod = json!({ "spec": { "containers": [] } });
        assert_eq!(PodPlacement::AnyNode.apply(pod.clone()), pod);
        let abroad = PodPlacement::OwnNodes { id: "abc".to_owned() };
        let dressed = abroad.apply(pod.clone());
        assert_eq!(dressed["spec"]["schedulerName"], "fake-nodes-abc");
        let toleration = json!({ "key": FAKE, "value": "abc", "effect": "NoSchedule" });
        assert_eq!(
            dressed["spec"]["tolerations"],
            json!([toleration]),
            "no toleration for the nodes of another playground"
        );
        let cron = abroad.apply(json!({ "spec": { "jobTemplate": { "spec": { "template": pod } } } }));
        assert_eq!(cron["spec"]["jobTemplate"]["spec"]["template"], dressed);
        let daemons = json!({ "kind": "DaemonSet", "spec": { "template": pod } });
        let daemons = abroad.apply(daemons);
        assert_eq!(daemons["spec"]["template"]["spec"]["nodeSelector"], json!({ FAKE: "abc" }));
        let config_map = json!({ "data": {} });
        assert_eq!(abroad.apply(config_map.clone()), config_map);
    }

    #[test]
    fn last_of_several_nodes_has_a_taint() {
        let tainted = |count| nodes("n", count, &[]).iter().filter(|it| !it.taints.is_empty()).count();
        assert_eq!((tainted(1), tainted(2), tainted(5)), (0, 1, 1));
        assert_eq!((context("s", "n", 1).open_nodes, context("s", "n", 3).open_nodes), (1, 2));
        assert_eq!(context("s", "n", 3).failing_node, "n-4");
        let ours = nodes("n", 2, &[(FAKE, "abc")]);
        assert!(ours.iter().all(|it| it.taints[0].value.as_deref() == Some("abc") && it.labels[FAKE] == "abc"));
    }

    #[test]
    fn kubeconfig_is_never_overwritten_and_is_removed_at_exit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let written = write_new(&path, "ours").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ours");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert!(write_new(&path, "other").is_err());
        drop(written);
        assert!(!path.exists());
    }

    /// The plan for a cluster with such a Lease, which is renewed every two seconds or not at all, and the time in
    /// seconds until the decision.
    async fn controls(lease: Option<Value>, renewed: bool) -> (ManagerPlan, u64) {
        let clock = Clock::virtual_from("2027-01-15T08:00:00Z".parse().unwrap());
        let cluster = TestCluster::with_seed(clock.clone(), 1);
        if let Some(spec) = lease {
            let metadata = json!({ "name": LEASE, "namespace": "kube-system" });
            let api_version = "coordination.k8s.io/v1";
            cluster.create(json!({ "apiVersion": api_version, "kind": "Lease", "metadata": metadata, "spec": spec }));
        }
        let client = in_memory(cluster.service());
        let began = clock.now();
        let renews = async {
            for second in 2.. {
                tokio::time::sleep(Duration::from_secs(2)).await;
                if renewed {
                    let time = format!("2026-12-31T23:00:{second:02}.000000Z");
                    cluster.update("leases", "kube-system", LEASE, |it| it["spec"]["renewTime"] = json!(time));
                }
            }
        };
        tokio::select! {
            plan = plan_manager(&client, &clock) => (plan.unwrap(), (clock.now() - began).as_secs()),
            () = renews => unreachable!("renewals end before the plan"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn active_manager_is_recognised_by_renewals_not_by_clocks() {
        let held = |time: &str| json!({ "holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": time });
        let (behind, ahead) = (held("2026-12-31T23:00:00.000000Z"), held("2027-06-01T00:00:00.000000Z"));
        let theirs = ManagerPlan::Theirs { holder: "them".to_owned() };
        assert_eq!(controls(Some(behind.clone()), true).await, (theirs, 2));
        let ours = |found| ManagerPlan::Ours { found };
        assert_eq!(controls(Some(ahead), false).await, (ours(true), 15), "its holder does not renew it");
        assert_eq!(controls(Some(behind), false).await, (ours(true), 15));
        assert_eq!(controls(Some(json!({ "holderIdentity": "" })), false).await, (ours(true), 0), "it was released");
        assert_eq!(controls(None, false).await, (ours(false), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_removed_only_without_a_holder() {
        let cluster = TestCluster::with_seed(Clock::virtual_from("2027-01-15T08:00:00Z".parse().unwrap()), 1);
        let client = in_memory(cluster.service());
        let metadata = json!({ "name": LEASE, "namespace": "kube-system" });
        let spec = json!({ "holderIdentity": "them" });
        let api_version = "coordination.k8s.io/v1";
        cluster.create(json!({ "apiVersion": api_version, "kind": "Lease", "metadata": metadata, "spec": spec }));
        remove_lease(&client).await.unwrap();
        assert!(cluster.get("leases", "kube-system", LEASE).is_some());
        cluster.update("leases", "kube-system", LEASE, |it| it["spec"]["holderIdentity"] = json!(""));
        remove_lease(&client).await.unwrap();
        assert!(cluster.get("leases", "kube-system", LEASE).is_none());
        remove_lease(&client).await.unwrap();
    }
}
