//! Where the samples play: a cluster in this process, or a real one.

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
    samples::{DEDICATED, Scene},
};

/// On a real cluster: with an id, the scheduler's name that our pods ask for, so that nobody else places them.
const SCHEDULER: &str = "fake-nodes";
/// On a real cluster: with an id for its value, keeps the pods of others off our nodes.
const FAKE: &str = "fake-nodes.mini-kcm.dev/fake";
/// The Lease of every manager, in kube-system. Whoever holds it controls, ours too.
const LEASE: &str = "kube-controller-manager";
/// How often a Lease is looked at, and how long one lasts that does not say.
const GLANCE: Duration = Duration::from_millis(500);
const LASTS: u64 = 15;

/// A cluster to play on.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) scene: Scene,
    pub(crate) dress: Dress,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) schedulers: Vec<String>,
    /// What kubectl and mini-kcm use.
    pub(crate) kubeconfig: PathBuf,
    /// For people.
    pub(crate) server: String,
    pub(crate) manager: ManagerPlan,
    pub(crate) cluster: Cluster,
}

pub(crate) enum Cluster {
    /// In this process.
    Embedded { cluster: TestCluster, served: Served, written: Written },
    /// Somebody's.
    Real,
}

/// Who controls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManagerPlan {
    /// We do, while the Lease is ours. `found`: it was there before we came.
    Ours { found: bool },
    /// The cluster has a manager: a second one would do its work twice.
    Theirs { holder: String },
}

/// What pods must wear here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dress {
    /// Nothing: all nodes are ours.
    AtHome,
    /// The name of our scheduler, and a toleration for our nodes, both of this id: neighbours show samples too.
    Abroad { id: String },
}

/// A kubeconfig that we wrote, gone with the playground.
pub(crate) struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        // Removed by somebody already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Place {
    /// A cluster in this process, on a loopback port.
    pub(crate) async fn embedded(options: &Options, seed: u64, clock: Clock, folder: &Path) -> anyhow::Result<Self> {
        let cluster = TestCluster::with_seed(clock, seed);
        // Nobody looks at the requests, and they would pile up.
        cluster.set_recording(false);
        let served = cluster.serve().await.context("cannot serve on a loopback port")?;
        let kubeconfig = options.write_kubeconfig.clone().unwrap_or_else(|| folder.join("kubeconfig"));
        let written = write_new(&kubeconfig, &served.kubeconfig())
            .with_context(|| format!("--write-kubeconfig {}", kubeconfig.display()))?;
        let nodes = nodes("node", options.nodes, &[]);
        Ok(Self {
            client: in_memory(cluster.service()),
            scene: scene("playground", options.nodes),
            dress: Dress::AtHome,
            nodes,
            schedulers: vec!["default-scheduler".to_owned()],
            kubeconfig,
            server: served.url(),
            manager: ManagerPlan::Ours { found: false },
            cluster: Cluster::Embedded { cluster, served, written },
        })
    }

    /// The cluster of a kubeconfig. Everything that is made there has `id` in its name.
    pub(crate) async fn real(options: &Options, path: &Path, id: &str, clock: &Clock) -> anyhow::Result<Self> {
        let mut config = client::load(Some(path), None)?;
        // What fails is tried again by us, where we know what it was.
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let failed = || format!("--kubeconfig {}: {server}", path.display());
        let client = Client::try_from(config).with_context(failed)?;
        client.apiserver_version().await.with_context(failed)?;
        let manager = who_controls(&client, clock).await.with_context(failed)?;
        Ok(Self {
            client,
            scene: scene(&format!("playground-{id}"), options.nodes),
            dress: Dress::Abroad { id: id.to_owned() },
            nodes: nodes(&format!("fake-{id}"), options.nodes, &[(FAKE, id)]),
            schedulers: vec![scheduler(id)],
            kubeconfig: path.to_owned(),
            server,
            manager,
            cluster: Cluster::Real,
        })
    }
}

impl Dress {
    /// The object with what its pods must wear.
    pub(crate) fn up(&self, mut object: Value) -> Value {
        let Self::Abroad { id } = self else { return object };
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

/// Nodes, the last of several for those only who tolerate it.
fn nodes(prefix: &str, count: usize, taints: &[(&str, &str)]) -> Vec<NodeSpec> {
    let node = |number: usize| {
        let node = NodeSpec::new(format!("{prefix}-{number}"));
        let node = taints.iter().fold(node, |node, (key, value)| node.taint(key, value, "NoSchedule"));
        let dedicated = count > 1 && number == count;
        if dedicated { node.label(DEDICATED, "true").taint(DEDICATED, "", "NoSchedule") } else { node }
    };
    (1..=count).map(node).collect()
}

fn scene(home: &str, nodes: usize) -> Scene {
    Scene {
        home: home.to_owned(),
        farewell: format!("{home}-farewell"),
        nodes,
        open_nodes: nodes.saturating_sub(1).max(1),
    }
}

/// Who controls here. A Lease that somebody holds is watched for as long as it lasts, as every candidate does it: whether
/// it is renewed does not depend on whose clock is right.
async fn who_controls(client: &Client, clock: &Clock) -> kube::Result<ManagerPlan> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Some(first) = leases.get_opt(LEASE).await? else { return Ok(ManagerPlan::Ours { found: false }) };
    let lasts = first.spec.as_ref().and_then(|it| it.lease_duration_seconds).and_then(|it| it.try_into().ok());
    let until = clock.now() + Duration::from_secs(lasts.unwrap_or(LASTS));
    while holder(&first).is_some() && clock.now() < until {
        tokio::time::sleep(GLANCE).await;
        let Some(now) = leases.get_opt(LEASE).await? else { return Ok(ManagerPlan::Ours { found: false }) };
        if now.spec != first.spec {
            // A Lease that was let go just now is free.
            return Ok(holder(&now).map_or(ManagerPlan::Ours { found: true }, |holder| ManagerPlan::Theirs { holder }));
        }
    }
    Ok(ManagerPlan::Ours { found: true })
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|it| !it.is_empty())
}

/// Removes the Lease that our manager made and let go. One that somebody holds meanwhile is theirs.
pub(crate) async fn remove_lease(client: &Client) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Some(lease) = leases.get_opt(LEASE).await?.filter(|it| holder(it).is_none()) else { return Ok(()) };
    let Lease { metadata: ObjectMeta { uid, resource_version, .. }, .. } = lease;
    let unchanged = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
    match leases.delete(LEASE, &unchanged).await {
        // Gone, or taken by another at this very moment.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        done => done.map(drop),
    }
}

/// Writes a file that was not there: the path may be the user's own kubeconfig. Nobody else may read it.
fn write_new(path: &Path, text: &str) -> anyhow::Result<Written> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file {
        Ok(mut file) => {
            let written = Written(path.to_owned());
            file.write_all(text.as_bytes())?;
            Ok(written)
        }
        Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("is there already, and is not overwritten")
        }
        Err(err) => Err(err.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abroad_pods_wear_what_keeps_them_on_our_nodes() {
        let pod = json!({ "spec": { "containers": [] } });
        assert_eq!(Dress::AtHome.up(pod.clone()), pod);
        let abroad = Dress::Abroad { id: "abc".to_owned() };
        let dressed = abroad.up(pod.clone());
        assert_eq!(dressed["spec"]["schedulerName"], "fake-nodes-abc");
        let toleration = json!({ "key": FAKE, "value": "abc", "effect": "NoSchedule" });
        assert_eq!(dressed["spec"]["tolerations"], json!([toleration]), "not for the nodes of a neighbour");
        let cron = abroad.up(json!({ "spec": { "jobTemplate": { "spec": { "template": pod } } } }));
        assert_eq!(cron["spec"]["jobTemplate"]["spec"]["template"], dressed);
        let config_map = json!({ "data": {} });
        assert_eq!(abroad.up(config_map.clone()), config_map);
    }

    #[test]
    fn the_last_of_several_nodes_is_not_for_everybody() {
        let tainted = |count| nodes("n", count, &[]).iter().filter(|it| !it.taints.is_empty()).count();
        assert_eq!((tainted(1), tainted(2), tainted(5)), (0, 1, 1));
        assert_eq!((scene("s", 1).open_nodes, scene("s", 3).open_nodes), (1, 2));
        assert!(nodes("n", 2, &[(FAKE, "abc")]).iter().all(|it| it.taints[0].value.as_deref() == Some("abc")));
    }

    #[test]
    fn a_kubeconfig_is_never_overwritten_and_goes_with_the_playground() {
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

    /// Who controls a cluster with such a Lease, which is renewed every two seconds or not at all, and after how long
    /// that is known.
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
            plan = who_controls(&client, &clock) => (plan.unwrap(), (clock.now() - began).as_secs()),
            () = renews => unreachable!("renewals do not end"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_is_known_by_its_renewals_whatever_its_clock_says() {
        let held = |time: &str| json!({ "holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": time });
        let (behind, ahead) = (held("2026-12-31T23:00:00.000000Z"), held("2027-06-01T00:00:00.000000Z"));
        let theirs = ManagerPlan::Theirs { holder: "them".to_owned() };
        assert_eq!(controls(Some(behind.clone()), true).await, (theirs, 2));
        let ours = |found| ManagerPlan::Ours { found };
        assert_eq!(controls(Some(ahead), false).await, (ours(true), 15), "its holder is dead");
        assert_eq!(controls(Some(behind), false).await, (ours(true), 15));
        assert_eq!(controls(Some(json!({ "holderIdentity": "" })), false).await, (ours(true), 0), "let go");
        assert_eq!(controls(None, false).await, (ours(false), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_removed_only_when_nobody_holds_it() {
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
