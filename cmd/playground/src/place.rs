//! Where the samples play: a cluster in this process, or a real one.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clock::Clock;
use fake_nodes::{NodeSpec, in_memory};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use serde_json::{Value, json};
use test_cluster::{Served, TestCluster};

use crate::{
    flags::Options,
    samples::{DEDICATED, Scene},
};

/// On a real cluster: the scheduler's name that our pods ask for, so that nobody else places them.
const SCHEDULER: &str = "fake-nodes";
/// On a real cluster: keeps the pods of others off our nodes.
const FAKE: &str = "fake-nodes.mini-kcm.dev/fake";
/// The Lease of the cluster's own manager.
const THEIR_LEASE: &str = "kube-controller-manager";

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
    /// We do, with this Lease in kube-system.
    Ours { lease: String },
    /// The cluster has a manager: a second one would do its work twice.
    Theirs { holder: String },
}

/// What pods must wear here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dress {
    /// Nothing: all nodes are ours.
    AtHome,
    /// Our scheduler's name, and tolerations for our nodes.
    Abroad,
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
            manager: ManagerPlan::Ours { lease: THEIR_LEASE.to_owned() },
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
        let lease = format!("mini-kcm-playground-{id}");
        let manager = match their_manager(&client, clock).await.with_context(failed)? {
            Some(holder) => ManagerPlan::Theirs { holder },
            None => ManagerPlan::Ours { lease },
        };
        Ok(Self {
            client,
            scene: scene(&format!("playground-{id}"), options.nodes),
            dress: Dress::Abroad,
            nodes: nodes(&format!("fake-{id}"), options.nodes, &[FAKE]),
            schedulers: vec![SCHEDULER.to_owned()],
            kubeconfig: path.to_owned(),
            server,
            manager,
            cluster: Cluster::Real,
        })
    }
}

impl Dress {
    /// The object with what its pods must wear.
    pub(crate) fn up(self, mut object: Value) -> Value {
        if self == Self::AtHome {
            return object;
        }
        for path in ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"] {
            let spec = object.pointer_mut(path).filter(|it| it["containers"].is_array());
            if let Some(spec) = spec.and_then(Value::as_object_mut) {
                spec.insert("schedulerName".to_owned(), json!(SCHEDULER));
                let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
                if let Some(tolerations) = tolerations.as_array_mut() {
                    tolerations.push(json!({ "key": FAKE, "operator": "Exists", "effect": "NoSchedule" }));
                }
            }
        }
        object
    }
}

/// Nodes, the last of several for those only who tolerate it.
fn nodes(prefix: &str, count: usize, taints: &[&str]) -> Vec<NodeSpec> {
    let node = |number: usize| {
        let node = NodeSpec::new(format!("{prefix}-{number}"));
        let node = taints.iter().fold(node, |node, taint| node.taint(taint, "", "NoSchedule"));
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

/// Who leads the cluster's own manager, if anybody does.
async fn their_manager(client: &Client, clock: &Clock) -> anyhow::Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Some(spec) = leases.get_opt(THEIR_LEASE).await?.and_then(|it| it.spec) else { return Ok(None) };
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
    let renewed = spec.renew_time.map_or(0, |it| it.0.as_second());
    let holds = renewed + lasts > clock.wall().as_second();
    Ok(spec.holder_identity.filter(|it| holds && !it.is_empty()))
}

/// Writes a file that was not there: the path may be the user's own kubeconfig.
fn write_new(path: &Path, text: &str) -> anyhow::Result<Written> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
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
        let dressed = Dress::Abroad.up(pod.clone());
        assert_eq!(dressed["spec"]["schedulerName"], "fake-nodes");
        assert_eq!(dressed["spec"]["tolerations"][0]["key"], FAKE);
        let cron = Dress::Abroad.up(json!({ "spec": { "jobTemplate": { "spec": { "template": pod } } } }));
        assert_eq!(cron["spec"]["jobTemplate"]["spec"]["template"], dressed);
        let config_map = json!({ "data": {} });
        assert_eq!(Dress::Abroad.up(config_map.clone()), config_map);
    }

    #[test]
    fn the_last_of_several_nodes_is_not_for_everybody() {
        let tainted = |count| nodes("n", count, &[]).iter().filter(|it| !it.taints.is_empty()).count();
        assert_eq!((tainted(1), tainted(2), tainted(5)), (0, 1, 1));
        assert_eq!((scene("s", 1).open_nodes, scene("s", 3).open_nodes), (1, 2));
        assert!(nodes("n", 2, &[FAKE]).iter().all(|it| it.taints[0].key == FAKE));
    }

    #[test]
    fn a_kubeconfig_is_never_overwritten_and_goes_with_the_playground() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let written = write_new(&path, "ours").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ours");
        assert!(write_new(&path, "other").is_err());
        drop(written);
        assert!(!path.exists());
    }
}
