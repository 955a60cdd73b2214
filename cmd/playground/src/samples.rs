//! The table of samples. A new sample is one entry: its objects, the user's steps, its progress.

mod daemon_sets;
mod deployments;
mod jobs;
mod namespace_deletion;
mod node_failure;
mod owners;
mod pods;
mod stateful_sets;

use kube::api::PropagationPolicy;
use serde_json::{Value, json};

use crate::observed::Observed;

/// Every sample, in the order of the view.
pub(crate) const SAMPLES: &[Sample] = &[
    pods::COMPLETION,
    pods::CRASHES,
    pods::CAPACITY,
    jobs::PLAIN,
    jobs::INDEXED,
    jobs::SUSPENDED,
    jobs::CRON,
    deployments::ROLLOUT,
    stateful_sets::ROLLOUT,
    daemon_sets::ROLLOUT,
    owners::BACKGROUND,
    owners::FOREGROUND,
    owners::ORPHAN,
    namespace_deletion::NAMESPACE_DELETION,
];

/// The sample of `--kill-node`.
pub(crate) const NODE_FAILURE: &Sample = &node_failure::NODE_FAILURE;

/// One sample.
pub(crate) struct Sample {
    /// One word.
    pub(crate) name: &'static str,
    /// One line that describes it.
    pub(crate) shows: &'static str,
    /// The controllers that must run.
    pub(crate) needs: &'static [&'static str],
    /// Created in this order. An owner reference names an earlier object; its uid is filled in at creation.
    pub(crate) objects: fn(&SampleContext) -> Vec<Value>,
    /// Kinds that `progress` and `steps` read, by apiVersion and kind, in addition to pods and namespaces.
    pub(crate) watched_kinds: &'static [(&'static str, &'static str)],
    /// The user's steps, each once and in order.
    pub(crate) steps: &'static [Step],
    /// The progress, once its objects are created.
    pub(crate) progress: fn(&SampleContext, &Observed) -> Progress,
}

/// The namespaces and nodes of the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SampleContext {
    /// The namespace that is not deleted by a sample.
    pub(crate) home: String,
    /// The namespace that a sample deletes.
    pub(crate) deleted_namespace: String,
    /// The number of nodes, and how many of them have no additional taint.
    pub(crate) nodes: usize,
    pub(crate) open_nodes: usize,
    /// The additional node of `--kill-node`.
    pub(crate) failing_node: String,
}

/// One step of the user.
pub(crate) struct Step {
    /// When it is due.
    pub(crate) when: fn(&SampleContext, &Observed) -> bool,
    /// The equivalent kubectl command, for the view.
    pub(crate) command: fn(&SampleContext) -> String,
    /// The action.
    pub(crate) act: fn(&SampleContext) -> Act,
}

/// An action of the user on one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Act {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) operation: Operation,
}

impl Act {
    /// Gives the pods of a workload of the group apps another image.
    fn set_image(kind: &'static str, namespace: &str, name: &str, image: &str) -> Self {
        let containers = json!([{ "name": "main", "image": image }]);
        Self {
            api_version: "apps/v1",
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            operation: Operation::Merge(json!({ "spec": { "template": { "spec": { "containers": containers } } } })),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Delete,
    /// With a policy for its dependents.
    Cascade(PropagationPolicy),
    Merge(Value),
}

/// The progress of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) text: String,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Going,
    Done,
    Failed,
}

impl Progress {
    pub(crate) fn going(text: impl Into<String>) -> Self {
        Self { text: text.into(), state: State::Going }
    }

    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), state: State::Done }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), state: State::Failed }
    }
}

/// The label and taint of the dedicated node.
pub(crate) const DEDICATED: &str = "playground.mini-kcm.dev/dedicated";
/// The label and taint of the node that falls silent; another node has the label with the value `false`.
pub(crate) const FAILING: &str = "playground.mini-kcm.dev/failing";

/// A condition of an object, if it is true.
fn true_condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|it| it["type"] == name && it["status"] == "True")
}

#[cfg(test)]
mod tests;
