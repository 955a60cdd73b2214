//! The scheduler, with its I/O: binds the pods that [`schedule`] places, and writes to the others why they wait.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clock::Clock;
use k8s_openapi::{
    api::core::v1::{Binding, Event, Node, ObjectReference, Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;

use crate::{
    agent::{event_on, name, namespace},
    calls::{CallError, of_status, with_time_limit},
    cluster_state::{ClusterState, key},
    kubelet::uid,
    schedule::{self, Placement},
};

/// The delay after a failed call.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Binds the pods that name one of its schedulers.
pub(crate) struct Scheduler {
    pub(crate) names: Vec<String>,
    pub(crate) state: Arc<ClusterState>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) events: bool,
    /// By uid: pods that were bound but are not yet seen as bound.
    pub(crate) bound: BTreeMap<String, ((String, String), String)>,
}

impl Scheduler {
    pub(crate) async fn run(mut self) {
        let mut changes = self.state.subscribe_all();
        loop {
            changes.borrow_and_update();
            let done = self.run_due().await;
            let again =
                async { if done { std::future::pending().await } else { tokio::time::sleep(RETRY_INTERVAL).await } };
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                () = again => {}
            }
        }
    }

    /// Places all waiting pods. Returns false when a call failed.
    async fn run_due(&mut self) -> bool {
        let Some(mut input) = self.state.scheduling_input(&mut self.bound) else { return true };
        input.waiting.retain(|it| self.is_ours(it));
        if input.waiting.is_empty() {
            return true;
        }
        let nodes: Vec<&Node> = input.nodes.iter().map(|it| &**it).collect();
        let placed = schedule::place(input.waiting.iter().map(|it| &**it), &nodes, &mut input.used);
        let mut done = true;
        for (pod, placement) in placed {
            let result = match placement {
                Placement::On(node) => self.bind(pod, node).await,
                Placement::Nowhere(message) => self.explain(pod, message).await,
            };
            if let Err(err) = result
                && !err.is_obsolete()
            {
                tracing::warn!(%err, pod = name(pod), "cannot schedule");
                done = false;
            }
        }
        done
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let asked = pod.spec.as_ref().and_then(|it| it.scheduler_name.as_deref()).unwrap_or("default-scheduler");
        self.names.iter().any(|it| it == asked)
    }

    async fn bind(&mut self, pod: &Pod, node: String) -> Result<(), CallError> {
        let metadata = ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        };
        let target =
            ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..ObjectReference::default() };
        let (binding, params) = (Binding { metadata, target }, PostParams::default());
        let pods = self.pods(pod);
        with_time_limit(pods.create_subresource::<_, Value>("binding", name(pod), &params, &binding)).await?;
        let message = format!("Successfully assigned {}/{} to {node}", namespace(pod), name(pod));
        self.bound.insert(uid(pod).to_owned(), (key(pod), node));
        self.write_event(pod, "Normal", "Scheduled", message).await;
        Ok(())
    }

    async fn explain(&self, pod: &Pod, message: String) -> Result<(), CallError> {
        let known = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        let before = known.into_iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
        if before.is_some_and(|it| it.message.as_ref() == Some(&message)) {
            return Ok(());
        }
        let since = before.and_then(|it| it.last_transition_time.clone());
        let condition = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            message: Some(message.clone()),
            last_transition_time: since.or_else(|| Some(Time(self.clock.wall()))),
            observed_generation: pod.metadata.generation,
            ..PodCondition::default()
        };
        let status = PodStatus { conditions: Some(vec![condition]), ..PodStatus::default() };
        let write = async {
            let (params, patch) = of_status(uid(pod), &status)?;
            self.pods(pod).patch_status(name(pod), &params, &patch).await
        };
        with_time_limit(write).await?;
        self.write_event(pod, "Warning", "FailedScheduling", message).await;
        Ok(())
    }

    async fn write_event(&self, pod: &Pod, kind: &str, reason: &str, message: String) {
        if !self.events {
            return;
        }
        let event = event_on(pod, kind, reason, message, None, ("default-scheduler", None), self.clock.wall());
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace(pod));
        // Events are best effort, see the agent.
        if let Err(err) = with_time_limit(events.create(&PostParams::default(), &event)).await {
            tracing::debug!(%err, pod = name(pod), "an event is lost");
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace(pod))
    }
}
