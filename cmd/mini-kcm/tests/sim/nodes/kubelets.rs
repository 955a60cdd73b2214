//! Simulated kubelets: they renew Leases, post status, and run and end the pods of their nodes.

use std::{collections::BTreeMap, time::Duration};

use clock::{Instant, Timestamp};
use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{
    HOME, LEASES, MS, NODE_LEASES, NODES, PODS, SEC, SimulatedCluster,
    model::{Pod, Ready, condition, list, ready},
    node_checks::OF_KUBELET,
};

/// How often a kubelet renews its Lease and compares its status with the stored one.
const INTERVAL: Duration = Duration::from_secs(10);

/// All machines by name, and the way from them to the API server.
#[derive(Default)]
pub(super) struct Machines {
    all: BTreeMap<String, Machine>,
    server_away_until: Option<Instant>,
    /// The run is over: nothing is changed any more.
    pub(super) is_over: bool,
}

/// One machine with a kubelet.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    pub(super) power: Power,
    link: Link,
    pub(super) is_ready: bool,
    pub(super) has_memory_pressure: bool,
    /// How often it posts a status that has not changed.
    status_interval: Duration,
    /// It posts its status in its next step.
    must_post: bool,
    next_step: Instant,
    posted_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    On,
    OffUntil(Instant),
    Dead,
}

/// What a kubelet succeeds to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Complete,
    LeaseOnly,
    StatusOnly,
}

/// What a kubelet does in one step.
struct Step {
    name: String,
    machine: Machine,
    posts: bool,
    renews: bool,
}

/// What a kubelet does with a pod.
enum PodStep {
    End,
    Run,
}

impl Machine {
    pub(super) fn random(rng: &mut Rng, now: Instant) -> Self {
        Self {
            power: Power::On,
            link: Link::Complete,
            is_ready: true,
            has_memory_pressure: false,
            status_interval: SEC * [20, 40, 120][rng.usize(..3)],
            must_post: true,
            next_step: now + MS * rng.u32(..10_000),
            posted_at: now,
        }
    }

    /// A change of the status is posted in the next step.
    pub(super) fn set_link(&mut self, link: Link) {
        (self.link, self.must_post) = (link, true);
    }

    pub(super) fn start(&mut self) {
        self.power = Power::On;
        self.set_link(Link::Complete);
    }

    pub(super) fn is_on(&self) -> bool {
        self.power == Power::On
    }

    fn has_posted(&self, node: &Value) -> bool {
        let wanted = if self.is_ready { Ready::True } else { Ready::False };
        let pressure = if self.has_memory_pressure { "True" } else { "False" };
        ready(node) == Some(wanted) && condition(node, "MemoryPressure")["status"] == pressure
    }
}

impl Machines {
    pub(super) fn get(&self, name: &str) -> Option<Machine> {
        self.all.get(name).copied()
    }

    pub(super) fn insert(&mut self, name: &str, machine: Machine) {
        self.all.insert(name.to_owned(), machine);
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Machine> {
        self.all.get_mut(name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.all.keys().cloned().collect()
    }

    /// How many machines are dead, and how many there are.
    pub(super) fn dead_and_all(&self) -> (usize, usize) {
        (self.all.values().filter(|it| it.power == Power::Dead).count(), self.all.len())
    }

    pub(super) fn is_server_away(&self, now: Instant) -> bool {
        self.server_away_until.is_some_and(|it| it > now)
    }

    /// No kubelet reaches the server until then. Afterwards each posts its status first.
    pub(super) fn take_server_away(&mut self, until: Instant) {
        self.server_away_until = Some(until);
        self.all.values_mut().for_each(|it| it.must_post = true);
    }

    /// Nothing changes any more: what sleeps returns, and every living kubelet reaches the server.
    pub(super) fn end_run(&mut self) {
        (self.server_away_until, self.is_over) = (None, true);
        for machine in self.all.values_mut() {
            match (machine.power, machine.link) {
                (Power::OffUntil(_), _) => machine.start(),
                (Power::On, Link::StatusOnly) => machine.set_link(Link::Complete),
                // Its last status may not be its present one.
                (Power::On, link) => machine.set_link(link),
                (Power::Dead, _) => {}
            }
        }
    }

    /// The next steps of all kubelets. `nodes` returns the stored object of a node, if it exists.
    fn steps<'a>(&mut self, nodes: impl Fn(&str) -> Option<&'a Value>, now: Instant) -> Vec<Step> {
        if self.is_server_away(now) {
            return Vec::new();
        }
        let mut steps = Vec::new();
        for (name, machine) in &mut self.all {
            if matches!(machine.power, Power::OffUntil(end) if end <= now) {
                machine.start();
            }
            let is_due = machine.must_post || machine.next_step <= now;
            let Some(node) = nodes(name).filter(|_| machine.is_on() && is_due) else { continue };
            let is_outdated = !machine.has_posted(node) || machine.posted_at + machine.status_interval <= now;
            let posts = machine.must_post || (machine.link != Link::LeaseOnly && is_outdated);
            machine.next_step = now + INTERVAL;
            if posts {
                (machine.must_post, machine.posted_at) = (false, now);
            }
            let renews = machine.link != Link::StatusOnly;
            steps.push(Step { name: name.clone(), machine: *machine, posts, renews });
        }
        steps
    }
}

/// All kubelets, until the run ends.
pub(super) async fn run(cluster: SimulatedCluster, mut rng: Rng) {
    loop {
        cluster.world.sleep(MS * rng.u32(500..1_500)).await;
        let now = cluster.world.clock().now();
        let steps = {
            let model = cluster.model.lock();
            let node = |name: &str| model.nodes.get(name).map(|it| &it.object).filter(|it| !it.is_null());
            cluster.machines.lock().steps(node, now)
        };
        for step in steps {
            step.execute(&cluster.world);
        }
        for (pod, step) in pod_steps(&cluster, now) {
            step.execute(&cluster.world, &pod);
        }
    }
}

impl Step {
    fn execute(&self, world: &World) {
        if self.posts {
            post_status(world, &self.name, &self.machine);
        }
        if self.renews {
            renew_lease(world, &self.name);
        }
    }
}

fn post_status(world: &World, name: &str, machine: &Machine) {
    let now = second(world);
    world.cluster().update(NODES, "", name, |node| {
        let condition = |kind: &str| {
            let status = match kind {
                "Ready" => machine.is_ready,
                "MemoryPressure" => machine.has_memory_pressure,
                _ => false,
            };
            let (old, status) = (condition(node, kind), if status { "True" } else { "False" });
            let transition = if old["status"] == status { old["lastTransitionTime"].clone() } else { json!(now) };
            json!({
                "type": kind, "status": status, "reason": "Kubelet", "message": "posted by the kubelet",
                "lastHeartbeatTime": now, "lastTransitionTime": transition,
            })
        };
        let mut conditions = OF_KUBELET.map(condition).to_vec();
        let others = list(&node["status"]["conditions"]).iter();
        conditions.extend(others.filter(|it| !OF_KUBELET.iter().any(|kind| it["type"] == *kind)).cloned());
        node["status"]["conditions"] = json!(conditions);
    });
}

fn renew_lease(world: &World, name: &str) {
    let now = format!("{:.6}", world.clock().wall());
    let cluster = world.cluster();
    if cluster.get(LEASES, NODE_LEASES, name).is_some() {
        cluster.update(LEASES, NODE_LEASES, name, |it| it["spec"]["renewTime"] = json!(now));
        return;
    }
    cluster.create(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name, "namespace": NODE_LEASES },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now },
    }));
}

/// The present wall time of the API server in the format of most times.
pub(super) fn second(world: &World) -> String {
    Timestamp::from_second(world.clock().wall().as_second()).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// What the kubelets that run do with their pods, by the names of the pods.
fn pod_steps(cluster: &SimulatedCluster, now: Instant) -> Vec<(String, PodStep)> {
    let (model, machines) = (cluster.model.lock(), cluster.machines.lock());
    let is_on = |node: &str| machines.get(node).filter(Machine::is_on);
    let may_write = !machines.is_server_away(now);
    let step = |pod: &Pod| {
        let machine = is_on(&pod.node).filter(|_| may_write)?;
        match pod.deletion {
            Some((grace, since)) => (since + grace <= now && !pod.is_held()).then_some(PodStep::End),
            None if pod.has_ended() => None,
            None => (machine.is_ready && pod.ready != Some(Ready::True)).then_some(PodStep::Run),
        }
    };
    model.living_pods().filter_map(|(_, pod)| Some((pod.name.clone(), step(pod)?))).collect()
}

impl PodStep {
    fn execute(&self, world: &World, pod: &str) {
        let (phase, status) = match self {
            Self::Run => ("Running", "True"),
            Self::End => ("Failed", "False"),
        };
        let now = second(world);
        world.cluster().update(PODS, HOME, pod, |it| {
            if !matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
                it["status"]["phase"] = phase.into();
            }
            let mut conditions = list(&it["status"]["conditions"]).to_vec();
            conditions.retain(|it| it["type"] != "Ready");
            conditions.push(json!({
                "type": "Ready", "status": status, "reason": "Kubelet", "message": "posted by the kubelet",
                "lastTransitionTime": now,
            }));
            it["status"]["conditions"] = json!(conditions);
        });
        if matches!(self, Self::End) {
            world.cluster().delete(PODS, HOME, pod);
        }
    }
}
