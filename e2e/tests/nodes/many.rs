//! Many nodes, of which a third fall silent at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Clock;
use e2e::{
    Assets, ControlPlane, Flavour, Launch, Manager, Options, Signal, assets_or_skip,
    fields::{condition, is_deleting, name, text},
    go_manager_or_skip, report,
};
use fake_nodes::NodeSpec;
use futures::future::try_join;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::setup::{
    NOT_READY, Nodes, TIME_LIMIT, UNREACHABLE, deleted_at, launch, pod, pod_path, seconds, taint, tainted_at,
    toleration,
};

const NODES: usize = 600;
/// A third of each zone.
const SILENT: usize = NODES / 3;
/// Half of the other nodes have a pod, too.
const OTHER_PODS: usize = NODES / 3;
const ZONES: usize = 3;
const GRACE: Duration = Duration::from_secs(20);
/// As kubelets do it by default.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// How long pods tolerate an unreachable node.
const TOLERATED: i64 = 2;
const CONTROLLERS: &str = "node-lifecycle-controller,taint-eviction-controller";
/// Ours checks the health of a node at its own deadline, upstream's at the next pass, which may come at once. The
/// machine runs both.
const LATENESS: Duration = Duration::from_millis(500);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Tests that measure run one after the other.
pub(crate) static PLACE: Mutex<()> = Mutex::const_new(());

/// The nodes with their pods, on a server of their own.
struct ManyNodes {
    // Dropped in this order.
    nodes: Nodes,
    plane: ControlPlane,
}

/// When nodes and pods were in their last state, from the moment of the silence.
#[derive(Debug)]
struct Times {
    tainted: Duration,
    evicted: Duration,
}

fn node_name(number: usize) -> String {
    format!("node-{number:03}")
}

/// Nodes of one zone are not next to each other, so this is a part of each zone.
fn is_silent(number: usize) -> bool {
    number < SILENT
}

fn silent_names() -> impl Iterator<Item = String> {
    (0..NODES).filter(|it| is_silent(*it)).map(node_name)
}

impl ManyNodes {
    async fn start(assets: &'static Assets, options: Options) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(assets, options).await?;
        let spec = |number: usize| {
            let zone = format!("zone-{}", number % ZONES);
            NodeSpec::new(node_name(number)).label("topology.kubernetes.io/zone", &zone)
        };
        let nodes = Nodes::start(&plane, (0..NODES).map(spec).collect(), RENEW_INTERVAL, &[]).await?;
        let tolerations = json!([toleration(UNREACHABLE, Some(TOLERATED)), toleration(NOT_READY, Some(TOLERATED))]);
        let others = (0..NODES).filter(|it| !is_silent(*it)).take(OTHER_PODS);
        let named: Vec<String> = silent_names().chain(others.map(node_name)).collect();
        let pods = named.iter().map(|it| (pod_path(""), pod(it, it, &tolerations)));
        nodes.admin.create_all(pods.collect()).await?;
        nodes.until_running(&named).await?;
        Ok(Self { nodes, plane })
    }

    /// Starts a manager, and waits until it has removed the taint with which each node was registered.
    async fn start_manager(&self, launch: Launch) -> anyhow::Result<Manager> {
        let manager = launch.started().await?;
        let is_clean = |it: &Value| it["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
        self.nodes.until("all nodes to be without taints", |it| it.all_nodes().iter().all(is_clean)).await?;
        Ok(manager)
    }

    fn launch(&self, flavour: Flavour) -> anyhow::Result<Launch> {
        launch(&self.plane, flavour, CONTROLLERS, GRACE)
    }

    fn make_silent(&self) {
        assert!(silent_names().all(|it| self.nodes.fleet.make_silent(&it)));
    }

    /// The nodes that are tainted for eviction, and when.
    fn tainted(&self) -> BTreeMap<String, i64> {
        let nodes = self.nodes.all_nodes();
        nodes.iter().filter_map(|it| Some((name(it).to_owned(), tainted_at(it, UNREACHABLE)?))).collect()
    }

    async fn until_tainted(&self, count: usize) -> anyhow::Result<()> {
        self.nodes.until(&format!("{count} tainted nodes"), |_| self.tainted().len() >= count).await
    }

    async fn until_evicted(&self) -> anyhow::Result<()> {
        let count = |it: &Nodes| it.all_pods().iter().filter(|it| is_deleting(it)).count();
        self.nodes.until(&format!("{SILENT} evicted pods"), |it| count(it) >= SILENT).await
    }

    /// Makes the nodes silent and waits until all pods are evicted.
    async fn measure(&self) -> anyhow::Result<Times> {
        let clock = Clock::system();
        let begun = clock.now();
        self.make_silent();
        self.until_tainted(SILENT).await?;
        let tainted = clock.now() - begun;
        self.until_evicted().await?;
        Ok(Times { tainted, evicted: clock.now() - begun })
    }

    /// Checks that each silent node was tainted after its grace and each of its pods deleted after its toleration, and
    /// that no other node and no other pod was touched.
    async fn check(&self) -> anyhow::Result<()> {
        let leases = self.nodes.admin.items(LEASES).await?;
        let renewed: BTreeMap<&str, i64> =
            leases.iter().filter_map(|it| Some((name(it), seconds(&it["spec"]["renewTime"])?))).collect();
        let (nodes, pods) =
            (self.nodes.admin.items("/api/v1/nodes").await?, self.nodes.admin.items(&pod_path("")).await?);
        anyhow::ensure!((nodes.len(), pods.len()) == (NODES, SILENT + OTHER_PODS), "{} {}", nodes.len(), pods.len());
        let pods: BTreeMap<&str, &Value> = pods.iter().map(|it| (name(it), it)).collect();
        for (number, node) in (0..NODES).map(|it| (it, node_name(it))) {
            let object = nodes.iter().find(|it| name(it) == node).ok_or_else(|| anyhow::anyhow!("no {node}"))?;
            let ready = text(&condition(object, "Ready")["status"]);
            let taints = object["spec"]["taints"].as_array().map_or(0, Vec::len);
            let pod = pods.get(&*node);
            if is_silent(number) {
                let tainted = tainted_at(object, UNREACHABLE).unwrap_or_default();
                // Both times are cut to seconds.
                let earliest =
                    renewed.get(&*node).copied().unwrap_or(i64::MAX).saturating_add_unsigned(GRACE.as_secs());
                anyhow::ensure!(tainted >= earliest, "{node} is tainted at {tainted}, before {earliest}");
                let deleted = pod.and_then(|it| deleted_at(it)).unwrap_or_default();
                let earliest = tainted + TOLERATED;
                anyhow::ensure!(deleted >= earliest, "{node}: its pod is deleted at {deleted}, before {earliest}");
                anyhow::ensure!(ready == "Unknown" && taints == 2, "{object}");
                anyhow::ensure!(taint(object, UNREACHABLE, "NoSchedule").is_some(), "{object}");
            } else {
                anyhow::ensure!(ready == "True" && taints == 0, "{object}");
                let is_untouched = |it: &&Value| !is_deleting(it) && condition(it, "Ready")["status"] == "True";
                anyhow::ensure!(pod.is_none_or(is_untouched), "{pod:?}");
            }
        }
        Ok(())
    }
}

/// Both managers have the same load at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_silent_nodes_are_tainted_no_later_than_by_the_upstream_manager() {
    let scenario = "200 of 600 nodes fall silent under both managers";
    let Some(assets) = go_manager_or_skip(scenario) else { return };
    let _place = PLACE.lock().await;
    let start = || ManyNodes::start(assets, Options::default());
    let (theirs, ours) = try_join(start(), start()).await.unwrap();
    let launches = (theirs.launch(Flavour::Go).unwrap(), ours.launch(Flavour::from_environment()).unwrap());
    let _managers = try_join(theirs.start_manager(launches.0), ours.start_manager(launches.1)).await.unwrap();
    let (their_times, our_times) = try_join(theirs.measure(), ours.measure()).await.unwrap();
    report(&format!("{scenario}: ours {our_times:.1?}, upstream's {their_times:.1?}"));
    ours.check().await.unwrap();
    assert!(our_times.tainted <= their_times.tainted + LATENESS, "ours {our_times:?}, upstream's {their_times:?}");
    assert!(our_times.evicted <= their_times.evicted + LATENESS, "ours {our_times:?}, upstream's {their_times:?}");
}

/// The leader is killed when a part of the nodes is tainted, and a standby continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_continues_when_the_leader_is_killed_among_silent_nodes() {
    let scenario = "the leader is killed while 200 of 600 nodes are silent";
    let Some(assets) = assets_or_skip(scenario) else { return };
    let _place = PLACE.lock().await;
    let flavour = Flavour::from_environment();
    let all = ManyNodes::start(assets, Options { audit: true, ..Options::default() }).await.unwrap();
    let launch = all.launch(flavour).unwrap().short_lease();
    let mut leader = all.start_manager(launch.clone()).await.unwrap();
    let mut standby = launch.started().await.unwrap();
    if flavour == Flavour::Ours {
        standby.wait_until_ok("/readyz").await.unwrap();
    }

    let mut audit = all.plane.audit();
    let begun = audit.events().unwrap().len();
    all.make_silent();
    all.until_tainted(SILENT / 3).await.unwrap();
    leader.signal(Signal::KILL).unwrap();
    leader.exit(TIME_LIMIT).await.unwrap();
    // Some of its last writes may not be observed yet.
    let before = all.tainted();
    assert!(before.len() < SILENT, "the leader was killed too late: {} are tainted", before.len());

    all.until_tainted(SILENT).await.unwrap();
    all.until_evicted().await.unwrap();
    all.check().await.unwrap();
    let after = all.tainted();
    for (node, time) in &before {
        assert_eq!(after.get(node), Some(time), "{node} is tainted once");
    }
    let silent: BTreeSet<String> = silent_names().collect();
    let mut writes: BTreeMap<(String, String), usize> = BTreeMap::new();
    for event in audit.events().unwrap().iter().skip(begun).filter(|it| it.is_by_controller() && it.is_work()) {
        assert!(silent.contains(event.name()), "not silent: {}", event.summary());
        // A request of the killed leader may be stored and logged as failed.
        *writes.entry((format!("{} {}", event.verb, event.resource()), event.name().to_owned())).or_default() +=
            usize::from(event.succeeded());
    }
    // Of the taints the one that evicts may come later. Of the conditions of a pod, Ready comes before the eviction, and a
    // new leader writes that of an eviction again.
    let calls = [("delete pods", 1), ("patch nodes/status", 1), ("patch nodes", 2), ("patch pods/status", 3)];
    for (call, most) in if flavour == Flavour::Ours { &calls[..] } else { &calls[..1] } {
        let of_call: Vec<_> = writes.iter().filter(|it| it.0.0 == *call).collect();
        let doubled: Vec<_> = of_call.iter().filter(|it| it.1 > most).collect();
        assert!(of_call.len() == SILENT && doubled.is_empty(), "{call}: {} objects, {doubled:?}", of_call.len());
    }
    report(&format!("{scenario}: killed at {} tainted nodes; every pod is deleted once", before.len()));
}
