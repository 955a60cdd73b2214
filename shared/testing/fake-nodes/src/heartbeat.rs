//! The heartbeat of a node: its registration, its Lease and its status.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    calls::{CallError, of_status, with_time_limit},
    cluster_state::ClusterState,
    node::{NodeSpec, is_posted},
    node_script::NodeScript,
};

/// The interval at which a kubelet writes an unchanged status.
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// The delay after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The namespace of node Leases.
pub(crate) const LEASES: &str = "kube-node-lease";

/// The heartbeat of one node.
pub(crate) struct Heartbeat {
    pub(crate) spec: NodeSpec,
    pub(crate) number: usize,
    pub(crate) seed: u64,
    /// See [`crate::Options::renew_interval`].
    pub(crate) renew_interval: Duration,
    pub(crate) state: Arc<ClusterState>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// Counts the nodes that are registered and have their Lease.
    pub(crate) registered: watch::Sender<usize>,
}

/// What the server has stored for this node.
struct Reported {
    uid: String,
    lease: Option<Lease>,
    status: Instant,
}

impl Heartbeat {
    pub(crate) async fn run(self) {
        let mut changes = self.state.subscribe(&self.spec.name);
        let uid = loop {
            match self.register().await {
                Ok(uid) => break uid,
                Err(err) => {
                    tracing::warn!(%err, node = self.spec.name, "cannot register");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        };
        let mut reported = Reported { uid, lease: None, status: self.clock.now() };
        let mut is_counted = false;
        // A random first delay, so that the nodes of a fleet do not all write at the same time.
        let mut rng = fastrand::Rng::with_seed(self.seed ^ self.number as u64);
        let mut pause = self.renew_interval.mul_f64(rng.f64());
        let mut was_silent = false;
        loop {
            if self.state.is_silent(&self.spec.name) {
                was_silent = true;
                if changes.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let script = self.state.script(&self.spec.name);
            let heartbeat = self.send_heartbeat(&mut reported, &script, was_silent).await;
            match &heartbeat {
                Ok(()) if !is_counted => {
                    is_counted = true;
                    self.registered.send_modify(|it| *it += 1);
                }
                Ok(()) => was_silent = false,
                Err(err) => tracing::warn!(%err, node = self.spec.name, "a heartbeat failed"),
            }
            let wait = match heartbeat {
                Ok(()) => std::mem::replace(&mut pause, self.renew_interval),
                Err(_) => RETRY_INTERVAL,
            };
            self.wait(wait, &script, &mut changes).await;
        }
    }

    /// Waits for `wait`, or until the node becomes silent or has another script.
    async fn wait(&self, wait: Duration, script: &NodeScript, changes: &mut watch::Receiver<u64>) {
        let change = async {
            while !self.state.is_silent(&self.spec.name) && self.state.script(&self.spec.name) == *script {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            biased;
            () = change => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    /// Registers the node and returns its uid.
    async fn register(&self) -> Result<String, CallError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let script = self.state.script(&self.spec.name);
        let mut wanted = self.spec.object(self.number, self.seed, &script, self.clock.wall());
        let uid = |node: Node| node.metadata.uid.unwrap_or_default();
        match with_time_limit(nodes.create(&PostParams::default(), &wanted)).await {
            Ok(node) => return Ok(uid(node)),
            Err(err) if err.is_conflict() => {}
            Err(err) => return Err(err),
        }
        // The node exists already. The kubelet owns its labels and its status; its taints are left to the controllers.
        let labels = Patch::Merge(json!({ "metadata": { "labels": wanted.metadata.labels } }));
        let params = PatchParams::default();
        let uid = uid(with_time_limit(nodes.patch(&self.spec.name, &params, &labels)).await?);
        let Some(status) = wanted.status.take() else { return Ok(uid) };
        let write = async {
            let (params, patch) = of_status(&uid, &status)?;
            nodes.patch_status(&self.spec.name, &params, &patch).await
        };
        with_time_limit(write).await?;
        Ok(uid)
    }

    async fn send_heartbeat(&self, reported: &mut Reported, script: &NodeScript, back: bool) -> Result<(), CallError> {
        if script.renews_lease {
            reported.lease = Some(self.renew(reported).await?);
        }
        let node = self.state.node(&self.spec.name);
        let is_posted = is_posted(script, node.as_ref().and_then(|it| it.status.as_ref()));
        // Without a Lease each heartbeat is a status.
        let due = reported.status + STATUS_EVERY <= self.clock.now() || !script.renews_lease;
        if script.posts_status && (due || back || !is_posted) {
            self.write_status(reported, script).await?;
            reported.status = self.clock.now();
        }
        Ok(())
    }

    async fn renew(&self, reported: &mut Reported) -> Result<Lease, CallError> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let name = &self.spec.name;
        let next = |held: Option<&Lease>| self.spec.lease(&reported.uid, held, self.clock.wall());
        if let Some(held) = reported.lease.as_ref() {
            let lease = next(Some(held));
            match with_time_limit(leases.replace(name, &PostParams::default(), &lease)).await {
                Err(err) if err.is_obsolete() => {}
                renewed => return renewed,
            }
        }
        match with_time_limit(leases.get(name)).await {
            Ok(held) => {
                let lease = next(Some(&held));
                with_time_limit(leases.replace(name, &PostParams::default(), &lease)).await
            }
            Err(err) if err.is_not_found() => with_time_limit(leases.create(&PostParams::default(), &next(None))).await,
            Err(err) => Err(err),
        }
    }

    async fn write_status(&self, reported: &Reported, script: &NodeScript) -> Result<(), CallError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        // Read it again: a controller may have written that the node is lost, and when.
        let node = match with_time_limit(nodes.get(&self.spec.name)).await {
            // As a kubelet: a node that was deleted is not registered again.
            Err(err) if err.is_not_found() => return Ok(()),
            node => node?,
        };
        let status = self.spec.status(self.number, self.seed, script, node.status.as_ref(), self.clock.wall());
        let write = async {
            let (params, patch) = of_status(&reported.uid, &status)?;
            nodes.patch_status(&self.spec.name, &params, &patch).await
        };
        with_time_limit(write).await.map(drop)
    }
}
