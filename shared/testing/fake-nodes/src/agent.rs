//! The kubelet of one node, with its I/O: it observes its pods and makes the calls that [`Kubelet`] decides.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Timestamp};
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, api::PostParams};
use tasks::Spawner;

use crate::{
    calls::{CallError, at_once, of_status, with_time_limit},
    cluster_state::ClusterState,
    kubelet::{Action, Kubelet, uid},
    sandbox::PodEvent,
    status::digest,
};

/// The kubelet of one node.
pub(crate) struct Agent {
    pub(crate) node: String,
    pub(crate) kubelet: Kubelet,
    pub(crate) state: Arc<ClusterState>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) spawner: Spawner,
    /// Writes events, which `kubectl describe` shows.
    pub(crate) events: bool,
}

impl Agent {
    pub(crate) async fn run(mut self) {
        let mut changes = self.state.subscribe(&self.node);
        loop {
            changes.borrow_and_update();
            if !self.state.is_silent(&self.node) && self.state.has_listed_pods() {
                while self.run_due().await {}
            }
            // A silent node writes nothing, and is notified when it is restored, so it needs no timer.
            let now = self.clock.wall();
            let next = self.kubelet.next_deadline(now).filter(|_| !self.state.is_silent(&self.node));
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                () = until(next, now) => {}
            }
        }
    }

    /// Carries out what is due now. Returns false when nothing was due.
    async fn run_due(&mut self) -> bool {
        let pods = self.state.pods_of(&self.node);
        let todo = self.kubelet.decide(&pods, self.clock.wall());
        let busy = !todo.is_empty();
        for it in todo {
            if self.state.is_silent(&self.node) {
                return false;
            }
            match it {
                Action::WriteStatus { pod, status } => self.write(&pod, *status).await,
                Action::RemovePod { pod } => self.remove(&pod).await,
                Action::ReportEvent { pod, pod_event } => self.write_event(&pod, &pod_event).await,
                Action::MakeSilent { back_after } => self.make_silent(back_after),
            }
        }
        busy
    }

    async fn write(&mut self, pod: &Pod, status: PodStatus) {
        let written = async {
            let (params, patch) = of_status(uid(pod), &status)?;
            self.pods(pod).patch_status(name(pod), &params, &patch).await
        };
        match with_time_limit(written).await {
            Ok(answer) => self.kubelet.on_written(pod, status, answer.metadata.resource_version),
            Err(err) => self.on_refused(pod, &err, "status"),
        }
    }

    async fn remove(&mut self, pod: &Pod) {
        match with_time_limit(self.pods(pod).delete(name(pod), &at_once(uid(pod)))).await {
            Ok(_) => self.kubelet.on_removed(pod),
            Err(err) if err.is_obsolete() => self.kubelet.on_removed(pod),
            Err(err) => self.on_refused(pod, &err, "deletion"),
        }
    }

    fn on_refused(&mut self, pod: &Pod, err: &CallError, what: &str) {
        if !err.is_obsolete() {
            tracing::warn!(%err, node = self.node, pod = name(pod), what, "the server refused a write");
        }
        self.kubelet.on_refused(pod, self.clock.wall());
    }

    async fn write_event(&self, pod: &Pod, pod_event: &PodEvent) {
        if !self.events {
            return;
        }
        let event = event(pod, &self.node, pod_event, self.clock.wall());
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace(pod));
        // Events are best effort: a terminating namespace accepts none, and no test depends on one.
        if let Err(err) = with_time_limit(events.create(&PostParams::default(), &event)).await {
            tracing::debug!(%err, node = self.node, pod = name(pod), "an event is lost");
        }
    }

    fn make_silent(&self, back_after: Option<Duration>) {
        tracing::info!(node = self.node, ?back_after, "a pod's script makes the node silent");
        self.state.set_silent(&self.node, true);
        if let Some(after) = back_after {
            let (state, node) = (self.state.clone(), self.node.clone());
            self.spawner.spawn("fake-node-back", async move {
                tokio::time::sleep(after).await;
                state.set_silent(&node, false);
            });
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace(pod))
    }
}

/// Waits until the wall time `next`, where `now` is the present time. Without `next` it waits for ever.
async fn until(next: Option<Timestamp>, now: Timestamp) {
    match next {
        // Timers have a resolution of one millisecond; wait slightly longer, so that it is not too early.
        Some(at) => {
            let wait: Duration = at.duration_since(now).try_into().unwrap_or_default();
            tokio::time::sleep(wait + Duration::from_millis(1)).await;
        }
        None => std::future::pending().await,
    }
}

fn event(pod: &Pod, node: &str, pod_event: &PodEvent, now: Timestamp) -> Event {
    let (kind, reason, message, container) = text_of(pod_event);
    let field_path = container.map(|it| format!("spec.containers{{{it}}}"));
    event_on(pod, kind, reason, message, field_path, ("kubelet", Some(node)), now)
}

/// An event about a pod, as kubelet and scheduler write them.
pub(crate) fn event_on(
    pod: &Pod,
    kind: &str,
    reason: &str,
    message: String,
    field_path: Option<String>,
    (component, host): (&str, Option<&str>),
    now: Timestamp,
) -> Event {
    let meta = &pod.metadata;
    // Other recorders make the name unique by the time alone; in virtual time many events have the same time.
    let content = now.as_nanosecond().to_be_bytes().into_iter().chain(reason.bytes()).chain(message.bytes());
    let unique = digest(content.chain(component.bytes()).chain(field_path.iter().flat_map(|it| it.bytes())));
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{unique:016x}", name(pod))),
            namespace: meta.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path,
        },
        type_: Some(kind.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        source: Some(EventSource { component: Some(component.to_owned()), host: host.map(str::to_owned) }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: host.map(str::to_owned),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

fn text_of(pod_event: &PodEvent) -> (&'static str, &'static str, String, Option<&str>) {
    match pod_event {
        PodEvent::Started { container } => ("Normal", "Started", "Container started".to_owned(), Some(container)),
        PodEvent::Killing { container } => {
            ("Normal", "Killing", format!("Stopping container {container}"), Some(container))
        }
        PodEvent::BackOff { container } => {
            ("Warning", "BackOff", format!("Back-off restarting failed container {container}"), Some(container))
        }
        PodEvent::DeadlineExceeded => {
            let message = "Pod was active on the node longer than the specified deadline";
            ("Normal", "DeadlineExceeded", message.to_owned(), None)
        }
    }
}

pub(crate) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}
