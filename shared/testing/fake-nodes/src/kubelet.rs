//! The pods of one node, as a state machine: its inputs are the pods and the time, its outputs are calls to make.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clock::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::{
    sandbox::{PodEvent, Sandbox},
    script::Script,
    status::{self, Addresses},
};

/// The delay before a failed call is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The pods of a node, by uid: a successor of the same name inherits nothing.
#[derive(Debug)]
pub(crate) struct Kubelet {
    /// The first three numbers of the addresses of its pods, and its own address.
    network: String,
    host: String,
    /// See [`crate::Options::unscripted`].
    unscripted: Option<Duration>,
    pods: BTreeMap<String, KubeletPod>,
    /// Pods that had ended before the fleet started, once they are being deleted.
    ended: BTreeMap<String, Removal>,
    used_numbers: BTreeSet<u8>,
}

#[derive(Debug)]
struct KubeletPod {
    /// `None` if the script is invalid.
    sandbox: Option<Sandbox>,
    script: Script,
    addresses: Addresses,
    number: u8,
    /// The status that the server has stored.
    written: Option<PodStatus>,
    /// Versions of the pod that need no write: the one that the last write was based on, those that our writes created,
    /// and the one whose status was found to be equal to ours.
    handled: Vec<Option<String>>,
    removal: Removal,
    /// Its script has made the node silent already.
    lost: bool,
}

/// The state of the removal of a pod from the server.
#[derive(Debug, Default)]
struct Removal {
    /// The next attempt is not before this time.
    again: Option<Timestamp>,
    /// The server has accepted the delete.
    removed: bool,
}

/// A call to make.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    WriteStatus { pod: Arc<Pod>, status: Box<PodStatus> },
    RemovePod { pod: Arc<Pod> },
    ReportEvent { pod: Arc<Pod>, pod_event: PodEvent },
    MakeSilent { back_after: Option<Duration> },
}

impl Kubelet {
    pub(crate) fn new(network: String, host: String, unscripted: Option<Duration>) -> Self {
        Self { network, host, unscripted, pods: BTreeMap::new(), ended: BTreeMap::new(), used_numbers: BTreeSet::new() }
    }

    /// Returns what must be done now, for the present pods of the node.
    pub(crate) fn decide(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> Vec<Action> {
        let present: BTreeSet<&str> = pods.iter().map(|it| uid(it)).collect();
        // A pod that no longer exists was deleted without grace: its containers are killed, and nothing is written.
        let gone: Vec<String> = self.pods.keys().filter(|it| !present.contains(it.as_str())).cloned().collect();
        for known in gone.iter().filter_map(|it| self.pods.remove(it)) {
            self.used_numbers.remove(&known.number);
        }
        self.ended.retain(|it, _| present.contains(it.as_str()));
        let mut actions = Vec::new();
        for pod in pods {
            self.add(pod, now);
            match self.pods.get_mut(uid(pod)) {
                Some(known) => known.decide(pod, now, &mut actions),
                // It had ended before the fleet started.
                None if must_be_removed(pod) => {
                    let removal = self.ended.entry(uid(pod).to_owned()).or_default();
                    actions.extend(removal.decide(pod, now));
                }
                None => {}
            }
        }
        actions
    }

    /// When something is due even without a change of the pods.
    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let known = self.pods.values().filter_map(|it| it.next_deadline(now));
        known.chain(self.ended.values().filter_map(|it| it.next_deadline(now))).min()
    }

    /// The server has stored this status, as this version of the pod.
    pub(crate) fn on_written(&mut self, pod: &Pod, status: PodStatus, version: Option<String>) {
        if let Some(known) = self.pods.get_mut(uid(pod)) {
            known.written = Some(status);
            known.handled.extend([pod.metadata.resource_version.clone(), version]);
        }
    }

    /// The server has accepted the delete. The pod may still have finalizers.
    pub(crate) fn on_removed(&mut self, pod: &Pod) {
        if let Some(removal) = self.removal(pod) {
            removal.removed = true;
        }
    }

    /// The server refused a call.
    pub(crate) fn on_refused(&mut self, pod: &Pod, now: Timestamp) {
        if let Some(removal) = self.removal(pod) {
            removal.again = now.checked_add(RETRY_INTERVAL).ok();
        }
    }

    fn removal(&mut self, pod: &Pod) -> Option<&mut Removal> {
        let uid = uid(pod);
        self.pods.get_mut(uid).map(|it| &mut it.removal).or_else(|| self.ended.get_mut(uid))
    }

    /// Adds a pod that is seen for the first time, unless it has ended already.
    fn add(&mut self, pod: &Pod, now: Timestamp) {
        if self.pods.contains_key(uid(pod)) || is_terminal(pod) {
            return;
        }
        // When all numbers are used, the remaining pods share the last one: no test connects to them.
        let number = (2..=254).find(|it| !self.used_numbers.contains(it)).unwrap_or(255);
        self.used_numbers.insert(number);
        let addresses = Addresses { host: self.host.clone(), pod: format!("{}.{number}", self.network) };
        let has_started = pod.status.as_ref().is_some_and(|it| it.start_time.is_some());
        let script = Script::of_pod(pod, self.unscripted);
        let written = script.as_ref().err().map(|error| status::rejected(pod, "BadScript", &error.to_string(), now));
        let sandbox = script.as_ref().ok().map(|script| {
            if has_started {
                Sandbox::recovered(pod, script.clone(), now)
            } else {
                Sandbox::new(pod, script.clone(), now)
            }
        });
        let known = KubeletPod {
            sandbox,
            script: script.unwrap_or_default(),
            addresses,
            number,
            written,
            handled: Vec::new(),
            removal: Removal::default(),
            lost: has_started,
        };
        self.pods.insert(uid(pod).to_owned(), known);
    }
}

impl KubeletPod {
    fn decide(&mut self, pod: &Arc<Pod>, now: Timestamp, actions: &mut Vec<Action>) {
        self.observe_version(pod);
        let Some(sandbox) = &mut self.sandbox else {
            if is_terminal(pod) && must_be_removed(pod) {
                actions.extend(self.removal.decide(pod, now));
            } else if !is_terminal(pod)
                && self.removal.is_due(now)
                && !self.is_handled(pod)
                && let Some(status) = self.written.clone()
            {
                actions.push(Action::WriteStatus { pod: pod.clone(), status: Box::new(status) });
            }
            return;
        };
        sandbox.observe(pod, now);
        let events = std::mem::take(&mut sandbox.events_to_report);
        actions.extend(events.into_iter().map(|pod_event| Action::ReportEvent { pod: pod.clone(), pod_event }));
        let before = self.written.as_ref().or(pod.status.as_ref());
        let status = status::status(pod, sandbox, &self.addresses, before, now);
        let is_over = sandbox.is_over();
        if !self.lost && self.silent_from().is_some_and(|it| it <= now) {
            self.lost = true;
            actions.push(Action::MakeSilent { back_after: self.script.node_back_after });
        }
        if !self.removal.is_due(now) {
            return;
        }
        if self.written.as_ref() != Some(&status) || self.is_contradicted(pod, &status) {
            actions.push(Action::WriteStatus { pod: pod.clone(), status: Box::new(status) });
        } else if is_over && must_be_removed(pod) {
            actions.extend(self.removal.decide(pod, now));
        }
    }

    /// Removes versions older than ours from the list, because they will not be seen again.
    fn observe_version(&mut self, pod: &Pod) {
        if let Some(at) = self.handled.iter().position(|it| *it == pod.metadata.resource_version) {
            self.handled.drain(..at);
        }
    }

    fn is_handled(&self, pod: &Pod) -> bool {
        self.handled.contains(&pod.metadata.resource_version)
    }

    /// As a kubelet does: a status that another client changed is written again, unless it says that the pod has ended.
    /// It is checked once per version, so that a server that stores it slightly differently does not cause endless
    /// writes.
    fn is_contradicted(&mut self, pod: &Pod, ours: &PodStatus) -> bool {
        if self.is_handled(pod) || is_terminal(pod) {
            return false;
        }
        let is_equal = pod.status.as_ref().is_some_and(|it| status::contains_all(it, ours));
        if is_equal {
            self.handled = vec![pod.metadata.resource_version.clone()];
        }
        !is_equal
    }

    fn silent_from(&self) -> Option<Timestamp> {
        self.sandbox.as_ref()?.accepted.checked_add(self.script.node_lost_after?).ok()
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let silence = self.silent_from().filter(|_| !self.lost);
        let again = self.removal.next_deadline(now);
        let changes = self.sandbox.as_ref().and_then(|it| it.next_deadline(now));
        [silence, again, changes].into_iter().flatten().min()
    }
}

impl Removal {
    /// Sends the delete to the server once.
    fn decide(&self, pod: &Arc<Pod>, now: Timestamp) -> Option<Action> {
        (self.is_due(now) && !self.removed).then(|| Action::RemovePod { pod: pod.clone() })
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.again.is_none_or(|it| it <= now)
    }

    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.again.filter(|it| *it > now)
    }
}

pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// True when the pod is deleted with grace, so that the kubelet must remove it.
fn must_be_removed(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds != Some(0)
}

#[cfg(test)]
mod tests;
