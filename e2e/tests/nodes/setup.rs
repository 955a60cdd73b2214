//! Nodes with their pods on one API server.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use e2e::{
    Flavour, Launch, Rest, Site, eventually, namespaces,
    workloads::{Kind, ObservedObjects},
};
use fake_nodes::{Environment, Fleet, NodeSpec, PREFIX};
use serde_json::{Value, json};
use tasks::Scope;

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(90);
pub(crate) const NAMESPACE: &str = "nodes";
/// How long a deleted pod may take to end.
pub(crate) const POD_GRACE: i64 = 3;

/// The taints of the node lifecycle controller.
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A cluster with fake nodes.
pub(crate) struct Nodes {
    pub(crate) admin: Rest,
    pub(crate) fleet: Fleet,
    observed: Arc<ObservedObjects>,
    _scope: Scope,
}

impl Nodes {
    /// Starts the nodes and waits until they are registered.
    pub(crate) async fn start(
        site: &Site,
        specs: Vec<NodeSpec>,
        renew_interval: Duration,
        schedulers: &[&str],
    ) -> anyhow::Result<Self> {
        let (scope, admin) = (Scope::new(), site.admin().await?);
        let environment =
            Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
        let schedulers = schedulers.iter().map(|it| (*it).to_owned()).collect();
        let options =
            fake_nodes::Options { nodes: specs, renew_interval, schedulers, ..fake_nodes::Options::with_nodes(0) };
        let observed = ObservedObjects::start(&admin, &scope.spawner());
        let fleet = Fleet::start(options, environment);
        tokio::time::timeout(TIME_LIMIT, fleet.registered()).await?;
        namespaces::create(&admin, NAMESPACE).await?;
        Ok(Self { admin, fleet, observed, _scope: scope })
    }

    /// A node as it was observed last, if it exists.
    pub(crate) fn node(&self, name: &str) -> Option<Value> {
        self.observed.in_namespace("").find(Kind::Node, name)
    }

    /// A pod as it was observed last, if it exists.
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.observed.in_namespace(NAMESPACE).find(Kind::Pod, name)
    }

    pub(crate) fn all_nodes(&self) -> Vec<Value> {
        self.observed.in_namespace("").existing(Kind::Node)
    }

    pub(crate) fn all_pods(&self) -> Vec<Value> {
        self.observed.in_namespace(NAMESPACE).existing(Kind::Pod)
    }

    /// The events of nodes and pods. Those of nodes are in the namespace `default`.
    pub(crate) fn all_events(&self) -> Vec<Value> {
        let of = |namespace: &str| self.observed.in_namespace(namespace).existing(Kind::Event);
        let mut events = of("default");
        events.extend(of(NAMESPACE));
        events.retain(|it| it["involvedObject"]["kind"] == "Node" || it["involvedObject"]["kind"] == "Pod");
        events
    }

    pub(crate) async fn create_pod(&self, pod: &Value) -> anyhow::Result<()> {
        self.admin.create(&pod_path(""), pod).await.map(drop)
    }

    /// Waits until the observed objects are as wanted.
    pub(crate) async fn until(&self, what: &str, is_reached: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        eventually(what, TIME_LIMIT, async || Ok(is_reached(self).then_some(()))).await
    }

    /// Waits until these pods run.
    pub(crate) async fn until_running(&self, pods: &[String]) -> anyhow::Result<()> {
        let runs = |pod: &String| self.pod(pod).is_some_and(|it| it["status"]["phase"] == "Running");
        eventually("the pods to run", TIME_LIMIT, async || {
            let waiting = pods.iter().filter(|it| !runs(it)).count();
            anyhow::ensure!(waiting == 0, "{waiting} of {} do not run yet", pods.len());
            Ok(Some(()))
        })
        .await
    }

    /// Reads an object, changes it and writes it, again if another client has written it meanwhile.
    pub(crate) async fn edit(&self, path: &str, change: impl Fn(&mut Value)) -> anyhow::Result<()> {
        eventually(&format!("a change of {path}"), TIME_LIMIT, async || {
            let mut object = self.admin.get(path).await?;
            change(&mut object);
            self.admin.put(path, &object).await.map(|_| Some(()))
        })
        .await
    }

    /// Adds taints to a node, as `kubectl taint` does.
    pub(crate) async fn add_taints(&self, node: &str, taints: &[Value]) -> anyhow::Result<()> {
        self.edit(&node_path(node), |it| {
            let known = it["spec"]["taints"].as_array().cloned().unwrap_or_default();
            it["spec"]["taints"] = known.into_iter().chain(taints.iter().cloned()).collect();
        })
        .await
    }

    /// Removes the taints of a key from a node.
    pub(crate) async fn remove_taints(&self, node: &str, key: &str) -> anyhow::Result<()> {
        self.edit(&node_path(node), |it| {
            if let Some(taints) = it["spec"]["taints"].as_array_mut() {
                taints.retain(|taint| taint["key"] != key);
            }
        })
        .await
    }
}

/// With short times, and without a limit of evictions that a test would notice.
pub(crate) fn launch(site: &Site, flavour: Flavour, controllers: &str, grace: Duration) -> anyhow::Result<Launch> {
    Ok(Launch::as_kubeadm(site, flavour, controllers, "nodes")?
        .flag("node-monitor-grace-period", &format!("{}s", grace.as_secs()))
        .flag("node-eviction-rate", "50")
        .flag("secondary-node-eviction-rate", "50"))
}

pub(crate) fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

/// The path of a pod, or of all pods.
pub(crate) fn pod_path(name: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("/api/v1/namespaces/{NAMESPACE}/pods{name}")
}

/// A pod on a node that runs for ever and ends soon when it is deleted.
pub(crate) fn pod(name: &str, node: &str, tolerations: &Value) -> Value {
    json!({
        "metadata": { "name": name, "annotations": { format!("{PREFIX}stop-after"): "100ms" } },
        "spec": { "nodeName": node, "terminationGracePeriodSeconds": POD_GRACE, "tolerations": tolerations,
            "containers": [{ "name": "main", "image": "example.com/main:1" }] },
    })
}

/// A toleration of a NoExecute taint of the node lifecycle controller; without seconds it is infinite.
pub(crate) fn toleration(key: &str, seconds: Option<i64>) -> Value {
    let mut toleration = json!({ "key": key, "operator": "Exists", "effect": "NoExecute" });
    if let Some(seconds) = seconds {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    toleration
}

/// A taint of a node, if it has it.
pub(crate) fn taint<'a>(node: &'a Value, key: &str, effect: &str) -> Option<&'a Value> {
    let all = node["spec"]["taints"].as_array();
    all.into_iter().flatten().find(|it| it["key"] == key && it["effect"] == effect)
}

/// When the taint was added, in seconds.
pub(crate) fn tainted_at(node: &Value, key: &str) -> Option<i64> {
    seconds(&taint(node, key, "NoExecute")?["timeAdded"])
}

/// When the deletion of a pod was requested, in seconds.
pub(crate) fn deleted_at(pod: &Value) -> Option<i64> {
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64()?;
    Some(seconds(&pod["metadata"]["deletionTimestamp"])? - grace)
}

/// A time of the API in seconds, without its fraction.
pub(crate) fn seconds(time: &Value) -> Option<i64> {
    Some(time.as_str()?.parse::<jiff::Timestamp>().ok()?.as_second())
}
