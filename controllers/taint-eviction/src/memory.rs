//! What this process has observed, and which deletions it has announced.
//!
//! Pods are kept by uid, so a new pod of the same name inherits nothing. Nodes are kept by name, because a pod has only
//! the name of its node; the entry has the uid.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{ConditionStatus, Node, Pod, Uid};
use clock::{BootInstant, Instant};
use parking_lot::Mutex;
use workload::Observation;

use crate::rules::taints::{Now, ObservedTaint, after_interruption, are_taints_of, later, no_execute, observe};

/// How long the taints of an outage may stay on a node that is ready again, while there is a leader. Normally they are lifted
/// within a second. This is longer than a new leader needs to lift those of many nodes; but another manager may have set
/// them, and never lift them.
const TO_LIFT: Duration = Duration::from_secs(60);

/// The memory of all nodes and pods.
#[derive(Default)]
pub(crate) struct Memory {
    observations: Mutex<Observations>,
    /// The pods that are to be deleted. Only during a term.
    evictions: Mutex<HashMap<Uid, Stage>>,
}

#[derive(Default)]
struct Observations {
    /// The nodes with `NoExecute` taints, by name.
    tainted: HashMap<Box<str>, TaintedNode>,
    /// When a pod was first observed on a node that had `NoExecute` taints already. A pod without an entry was there
    /// before the taints.
    arrivals: HashMap<Uid, Instant>,
    /// When the first list of pods was handled. It counts as the arrival of each pod without an entry.
    first_pods: Option<Instant>,
    /// When the term began. Before that, there may have been no leader that lifts taints.
    term_since: Option<Instant>,
    observation: Observation,
}

struct TaintedNode {
    uid: Uid,
    taints: Arc<[ObservedTaint]>,
    /// Since when the node is observed to be ready with these taints.
    ready_since: Option<Instant>,
}

/// What a pod has to tolerate.
pub(crate) struct PodTaints {
    /// The `NoExecute` taints of its node.
    pub(crate) taints: Arc<[ObservedTaint]>,
    /// When the pod was observed on the node; `None` if that was before all taints.
    pub(crate) arrival: Option<Instant>,
    /// By when the taints of an outage are probably lifted, because the node is ready again.
    pub(crate) lifted_by: Option<Instant>,
}

/// How far the eviction of a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its timer runs.
    Waiting,
    /// Its deletion is announced by an event, and is tried until it succeeds.
    Marked {
        /// The condition DisruptionTarget was written.
        has_condition: bool,
    },
}

impl Memory {
    /// Records the state of a node.
    pub(crate) fn record_node(&self, node: &Node, is_gapless: bool, now: Now) {
        let tainted = &mut self.observations.lock().tainted;
        let (uid, name) = (&node.meta.uid, &node.meta.name);
        if no_execute(node).next().is_none() {
            tainted.remove(name);
            return;
        }
        let known = tainted.get(name).filter(|it| it.uid == *uid);
        let taints = observe(known.map(|it| &*it.taints).unwrap_or_default(), node, is_gapless, now);
        let is_ready = node.condition("Ready").is_some_and(|it| it.status == ConditionStatus::True);
        let before = known.filter(|_| is_gapless).and_then(|it| it.ready_since);
        let ready_since = is_ready.then(|| before.unwrap_or(now.instant));
        tainted.insert(name.clone(), TaintedNode { uid: uid.clone(), taints, ready_since });
    }

    /// Records whether the watch of nodes is interrupted, and for how long already.
    pub(crate) fn check_observation(&self, interrupted_for: Option<Duration>, boot: BootInstant, now: Instant) {
        let observations = &mut *self.observations.lock();
        if let Some(missed) = observations.observation.check(boot, interrupted_for) {
            for node in observations.tainted.values_mut() {
                node.taints = after_interruption(&node.taints, missed, now);
                node.ready_since = node.ready_since.map(|it| later(it, missed, now));
            }
            // Times count from the arrival of a pod if it came after the taint.
            for arrival in observations.arrivals.values_mut().chain(&mut observations.first_pods) {
                *arrival = later(*arrival, missed, now);
            }
        }
    }

    /// Whether the watch of nodes is interrupted.
    pub(crate) fn is_interrupted(&self, boot: BootInstant) -> bool {
        self.observations.lock().observation.is_interrupted(boot)
    }

    /// Removes a deleted node.
    pub(crate) fn remove_node(&self, name: &str) {
        self.observations.lock().tainted.remove(name);
    }

    /// Whether a node has `NoExecute` taints.
    pub(crate) fn is_tainted(&self, node: &str) -> bool {
        self.observations.lock().tainted.contains_key(node)
    }

    /// Whether a live read of a node shows exactly the observed `NoExecute` taints.
    pub(crate) fn has_taints_of(&self, node: &Node) -> bool {
        let observations = self.observations.lock();
        observations.tainted.get(&node.meta.name).is_some_and(|it| are_taints_of(&it.taints, node))
    }

    /// Records the time at which the first list of pods is handled.
    pub(crate) fn record_first_pods(&self, now: Instant) {
        self.observations.lock().first_pods = Some(now);
    }

    /// Records when the term begins.
    pub(crate) fn begin_term(&self, now: Instant) {
        self.observations.lock().term_since = Some(now);
    }

    /// Records that a pod was observed on its node for the first time. If the node has no taint now, the pod was there
    /// before every later one, and needs no entry.
    pub(crate) fn record_arrival(&self, pod: &Pod, now: Instant) {
        let observations = &mut *self.observations.lock();
        if observations.tainted.contains_key(&*pod.node) {
            observations.arrivals.entry(pod.meta.uid.clone()).or_insert(now);
        }
    }

    /// Removes the arrival of a pod that is gone.
    pub(crate) fn remove_arrival(&self, pod: &Uid) {
        self.observations.lock().arrivals.remove(pod);
    }

    /// What a pod has to tolerate; `None` if its node has no `NoExecute` taint.
    pub(crate) fn taints_of(&self, pod: &Pod) -> Option<PodTaints> {
        let observations = self.observations.lock();
        let node = observations.tainted.get(&*pod.node)?;
        let arrival = observations.arrivals.get(&pod.meta.uid).copied().or(observations.first_pods);
        let lifted_by = node.ready_since.map(|it| observations.term_since.map_or(it, |term| it.max(term)) + TO_LIFT);
        Some(PodTaints { taints: node.taints.clone(), arrival, lifted_by })
    }

    /// Sets the stage of a pod, and returns the one before.
    pub(crate) fn set_stage(&self, pod: &Uid, stage: Stage) -> Option<Stage> {
        self.evictions.lock().insert(pod.clone(), stage)
    }

    /// The stage of a pod; `None` if no deletion is planned.
    pub(crate) fn stage(&self, pod: &Uid) -> Option<Stage> {
        self.evictions.lock().get(pod).copied()
    }

    /// Removes the stage of a pod, and returns it.
    pub(crate) fn end_eviction(&self, pod: &Uid) -> Option<Stage> {
        self.evictions.lock().remove(pod)
    }
}
