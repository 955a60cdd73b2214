//! What is shown, as a table. Adding a sample is one entry: its objects, what the user does next, how far it is.

mod farewell;
mod jobs;
mod owners;
mod pods;

use kube::api::PropagationPolicy;
use serde_json::Value;

use crate::seen::Seen;

/// Every sample, in the order of the view.
pub(crate) const SAMPLES: &[Sample] = &[
    pods::COMPLETION,
    pods::CRASHES,
    pods::ROOM,
    jobs::PLAIN,
    jobs::INDEXED,
    jobs::SUSPENDED,
    jobs::CRON,
    owners::BACKGROUND,
    owners::FOREGROUND,
    owners::ORPHAN,
    farewell::FAREWELL,
];

/// One thing to watch.
pub(crate) struct Sample {
    /// A word.
    pub(crate) name: &'static str,
    /// A line.
    pub(crate) shows: &'static str,
    /// The controller that must run; `None` for what nodes do alone.
    pub(crate) needs: Option<&'static str>,
    /// Created in this order. Owner references name what was created before; their uids are filled in then.
    pub(crate) objects: fn(&Scene) -> Vec<Value>,
    /// Kinds that `progress` and `steps` look at, by apiVersion and kind, beside pods and namespaces.
    pub(crate) looks_at: &'static [(&'static str, &'static str)],
    /// What the user does, once each and one after another.
    pub(crate) steps: &'static [Step],
    /// How far it is, once its objects are created.
    pub(crate) progress: fn(&Scene, &Seen) -> Progress,
}

/// Where a sample plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scene {
    /// The namespace of whatever stays.
    pub(crate) home: String,
    /// A namespace that is there to be deleted.
    pub(crate) farewell: String,
    /// How many nodes there are, and how many of them anybody may use.
    pub(crate) nodes: usize,
    pub(crate) open_nodes: usize,
}

/// Something the user does.
pub(crate) struct Step {
    /// When.
    pub(crate) when: fn(&Scene, &Seen) -> bool,
    /// The same as a command, for the view.
    pub(crate) says: fn(&Scene) -> String,
    /// What.
    pub(crate) act: fn(&Scene) -> Act,
}

/// What a user does to an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Act {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// Empty for the cluster's own.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) does: Does,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Does {
    Delete,
    /// With what is to become of all that it owns.
    Cascade(PropagationPolicy),
    Merge(Value),
}

/// How far a sample is.
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

/// The label and taint of the node that is not for everybody.
pub(crate) const DEDICATED: &str = "playground.mini-kcm.dev/dedicated";

/// The condition of an object, if it is true.
fn true_condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|it| it["type"] == name && it["status"] == "True")
}

#[cfg(test)]
mod tests;
