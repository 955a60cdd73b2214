use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{Api, Client, api::DeleteParams};
use tasks::{Spawner, Task};
use tokio::sync::watch;

use crate::{
    agent::Agent,
    calls::with_time_limit,
    cluster_state::ClusterState,
    heartbeat::{Heartbeat, LEASES},
    kubelet::Kubelet,
    list_watch::list_and_watch,
    node::{NodeSpec, host_ip, pod_network},
    scheduler::Scheduler,
};

/// The interval of a kubelet with its default configuration.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);

/// The parameters of a fleet.
#[derive(Debug, Clone)]
pub struct Options {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The scheduler names that are served. Empty: nothing is bound, and pods must be created with a node.
    pub schedulers: Vec<String>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Kubelets and scheduler write events, which cost one call each.
    pub events: bool,
    /// After this time the containers of a pod without a script exit with 0, unless the pod is always restarted. `None`
    /// lets them run for ever.
    pub unscripted: Option<Duration>,
    /// The interval at which kubelets renew their Leases.
    pub renew_interval: Duration,
}

impl Options {
    /// Nodes `node-1` to `node-<count>`, the default scheduler, no events.
    #[must_use]
    pub fn with_nodes(count: usize) -> Self {
        Self {
            nodes: (1..=count).map(|it| NodeSpec::new(format!("node-{it}"))).collect(),
            schedulers: vec!["default-scheduler".to_owned()],
            seed: 0,
            events: false,
            unscripted: None,
            renew_interval: RENEW_INTERVAL,
        }
    }
}

/// What a fleet uses.
#[derive(Clone)]
pub struct Environment {
    /// The client for its calls.
    pub client: Client,
    /// The clock.
    pub clock: Clock,
    /// Owns every task of the fleet.
    pub spawner: Spawner,
}

/// A fleet of fake nodes. Dropping it does not stop it; it runs until its scope ends.
pub struct Fleet {
    state: Arc<ClusterState>,
    names: Vec<String>,
    client: Client,
    registered: watch::Receiver<usize>,
    tasks: Vec<Task>,
}

impl Fleet {
    /// Starts the nodes. They register in the background, see [`Fleet::registered`].
    #[must_use]
    pub fn start(options: Options, environment: Environment) -> Self {
        let Options { nodes, schedulers, seed, events, unscripted, renew_interval } = options;
        let Environment { client, clock, spawner } = environment;
        let names: Vec<String> = nodes.iter().map(|it| it.name.clone()).collect();
        let state = Arc::new(ClusterState::new(&nodes));
        let (counter, registered) = watch::channel(0);
        let mut tasks = Vec::new();
        let (known, pods) = (state.clone(), Api::<Pod>::all(client.clone()));
        tasks.push(spawner.spawn("fake-nodes-pods", list_and_watch(pods, move |it| known.on_pods_changed(it))));
        let (known, all) = (state.clone(), Api::<Node>::all(client.clone()));
        tasks.push(spawner.spawn("fake-nodes-nodes", list_and_watch(all, move |it| known.on_nodes_changed(it))));
        for (number, spec) in nodes.into_iter().enumerate() {
            let agent = Agent {
                node: spec.name.clone(),
                kubelet: Kubelet::new(pod_network(number), host_ip(number), unscripted),
                state: state.clone(),
                client: client.clone(),
                clock: clock.clone(),
                spawner: spawner.clone(),
                events,
            };
            tasks.push(spawner.spawn("fake-node-agent", agent.run()));
            let heartbeat = Heartbeat {
                spec,
                number,
                seed,
                renew_interval,
                state: state.clone(),
                client: client.clone(),
                clock: clock.clone(),
                registered: counter.clone(),
            };
            tasks.push(spawner.spawn("fake-node-heartbeat", heartbeat.run()));
        }
        if !schedulers.is_empty() {
            let scheduler = Scheduler {
                names: schedulers,
                state: state.clone(),
                client: client.clone(),
                clock,
                events,
                bound: BTreeMap::new(),
            };
            tasks.push(spawner.spawn("fake-nodes-scheduler", scheduler.run()));
        }
        Self { state, names, client, registered, tasks }
    }

    /// Waits until every node is registered and has its Lease.
    pub async fn registered(&self) {
        let mut registered = self.registered.clone();
        // All senders are dropped only with the scope: then no node will register any more.
        if registered.wait_for(|it| *it >= self.names.len()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The names of the nodes.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Makes the node silent: it renews nothing, observes nothing and writes nothing, while its containers continue.
    /// Returns false when there is no such node.
    pub fn make_silent(&self, node: &str) -> bool {
        self.state.set_silent(node, true)
    }

    /// Ends the silence of a node, unless its script makes it silent: it reports the state of its pods and stops those
    /// that were deleted meanwhile. Returns false when there is no such node.
    pub fn restore(&self, node: &str) -> bool {
        self.state.set_silent(node, false)
    }

    /// Which nodes are silent.
    #[must_use]
    pub fn silent(&self) -> BTreeSet<String> {
        self.state.silent()
    }

    /// Stops at once, without a write to the server.
    pub async fn stop(self) {
        for task in &self.tasks {
            task.stop();
        }
        for task in self.tasks {
            task.wait_until_ended().await;
        }
    }

    /// Stops, and removes the nodes and their Leases from the cluster. Returns what could not be removed.
    pub async fn remove(self) -> Vec<String> {
        let (client, names) = (self.client.clone(), self.names.clone());
        self.stop().await;
        let (nodes, leases): (Api<Node>, Api<Lease>) = (Api::all(client.clone()), Api::namespaced(client, LEASES));
        let mut left = Vec::new();
        for name in names {
            let params = DeleteParams::default();
            let node = with_time_limit(nodes.delete(&name, &params)).await.map(drop);
            let lease = with_time_limit(leases.delete(&name, &params)).await.map(drop);
            let failed =
                [(node, "node"), (lease, "lease")].into_iter().filter_map(|(it, what)| Some((it.err()?, what)));
            let failed = failed.filter(|(err, _)| !err.is_not_found());
            left.extend(failed.map(|(err, what)| format!("{what} {name}: {err}")));
        }
        left
    }
}
