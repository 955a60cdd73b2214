//! What one node does about its pods: a machine told of the pods and the time; its answers are calls to be made.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clock::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::{
    sandbox::{Happening, Sandbox},
    script::Script,
    status::{self, Addresses},
};

/// A call that failed is made again so much later.
const AGAIN: Duration = Duration::from_secs(1);

/// The pods of a node, by uid: a successor of the same name inherits nothing.
#[derive(Debug)]
pub(crate) struct Kubelet {
    /// The first three numbers of the addresses of its pods, and its own address.
    network: String,
    host: String,
    pods: BTreeMap<String, Held>,
    taken: BTreeSet<u8>,
}

#[derive(Debug)]
struct Held {
    /// `None` where the script cannot be read.
    sandbox: Option<Sandbox>,
    script: Script,
    addresses: Addresses,
    number: u8,
    /// What the server has from us.
    written: Option<PodStatus>,
    /// Nothing is asked for before.
    again: Option<Timestamp>,
    /// The server has heard that all is over.
    removed: bool,
    /// The node fell silent for it already.
    lost: bool,
}

/// A call to make.
#[derive(Debug, Clone)]
pub(crate) enum Todo {
    Write { pod: Arc<Pod>, status: Box<PodStatus> },
    Remove { pod: Arc<Pod> },
    Tell { pod: Arc<Pod>, happening: Happening },
    FallSilent { back_after: Option<Duration> },
}

impl Kubelet {
    pub(crate) fn new(network: String, host: String) -> Self {
        Self { network, host, pods: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// What is to be done now, the pods of the node being these.
    pub(crate) fn decide(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> Vec<Todo> {
        let there: BTreeSet<&str> = pods.iter().map(|it| uid(it)).collect();
        // Whoever is gone has been deleted without grace: its containers are killed and nobody is told.
        let gone: Vec<String> = self.pods.keys().filter(|it| !there.contains(it.as_str())).cloned().collect();
        for held in gone.iter().filter_map(|it| self.pods.remove(it)) {
            self.taken.remove(&held.number);
        }
        let mut todo = Vec::new();
        for pod in pods {
            self.take(pod, now);
            match self.pods.get_mut(uid(pod)) {
                Some(held) => held.decide(pod, now, &mut todo),
                // It ended before we came.
                None if must_go(pod) => todo.push(Todo::Remove { pod: pod.clone() }),
                None => {}
            }
        }
        todo
    }

    /// When there is something to do even if nothing is heard.
    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.pods.values().filter_map(|it| it.next_deadline(now)).min()
    }

    /// The server has this status.
    pub(crate) fn written(&mut self, pod: &Pod, status: PodStatus) {
        if let Some(held) = self.pods.get_mut(uid(pod)) {
            held.written = Some(status);
        }
    }

    /// The server has let the pod go, but for its finalizers.
    pub(crate) fn removed(&mut self, pod: &Pod) {
        if let Some(held) = self.pods.get_mut(uid(pod)) {
            held.removed = true;
        }
    }

    /// The server did not do what was asked.
    pub(crate) fn refused(&mut self, pod: &Pod, now: Timestamp) {
        if let Some(held) = self.pods.get_mut(uid(pod)) {
            held.again = now.checked_add(AGAIN).ok();
        }
    }

    /// Takes in a pod seen for the first time, unless it has ended already.
    fn take(&mut self, pod: &Pod, now: Timestamp) {
        if self.pods.contains_key(uid(pod)) || is_terminal(pod) {
            return;
        }
        // More pods than numbers share the last one: nobody connects to them.
        let number = (2..=254).find(|it| !self.taken.contains(it)).unwrap_or(255);
        self.taken.insert(number);
        let addresses = Addresses { host: self.host.clone(), pod: format!("{}.{number}", self.network) };
        let known = pod.status.as_ref().is_some_and(|it| it.start_time.is_some());
        let script = Script::of(&pod.metadata);
        let written = script.as_ref().err().map(|error| status::rejected(pod, "BadScript", &error.to_string(), now));
        let sandbox = script.as_ref().ok().map(|script| {
            if known { Sandbox::recovered(pod, script.clone(), now) } else { Sandbox::new(pod, script.clone(), now) }
        });
        let held = Held {
            sandbox,
            script: script.unwrap_or_default(),
            addresses,
            number,
            written,
            again: None,
            removed: false,
            lost: known,
        };
        self.pods.insert(uid(pod).to_owned(), held);
    }
}

impl Held {
    fn decide(&mut self, pod: &Arc<Pod>, now: Timestamp, todo: &mut Vec<Todo>) {
        let Some(sandbox) = &mut self.sandbox else {
            if !is_terminal(pod)
                && self.is_due(now)
                && let Some(status) = self.written.clone()
            {
                todo.push(Todo::Write { pod: pod.clone(), status: Box::new(status) });
            } else if must_go(pod) && self.is_due(now) && !self.removed {
                todo.push(Todo::Remove { pod: pod.clone() });
            }
            return;
        };
        sandbox.observe(pod, now);
        let told = std::mem::take(&mut sandbox.happened);
        todo.extend(told.into_iter().map(|happening| Todo::Tell { pod: pod.clone(), happening }));
        let before = self.written.as_ref().or(pod.status.as_ref());
        let status = status::status(pod, sandbox, &self.addresses, before, now);
        let over = sandbox.is_over();
        if !self.lost && self.falls_silent().is_some_and(|it| it <= now) {
            self.lost = true;
            todo.push(Todo::FallSilent { back_after: self.script.node_back_after });
        }
        if !self.is_due(now) {
            return;
        }
        if self.written.as_ref() != Some(&status) {
            todo.push(Todo::Write { pod: pod.clone(), status: Box::new(status) });
        } else if over && must_go(pod) && !self.removed {
            todo.push(Todo::Remove { pod: pod.clone() });
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.again.is_none_or(|it| it <= now)
    }

    fn falls_silent(&self) -> Option<Timestamp> {
        self.sandbox.as_ref()?.accepted.checked_add(self.script.node_lost_after?).ok()
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let silence = self.falls_silent().filter(|_| !self.lost);
        let again = self.again.filter(|it| *it > now);
        let changes = self.sandbox.as_ref().and_then(|it| it.next_deadline(now));
        [silence, again, changes].into_iter().flatten().min()
    }
}

pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Deleted with grace, so that the kubelet has the last word.
fn must_go(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds != Some(0)
}

#[cfg(test)]
mod tests;
