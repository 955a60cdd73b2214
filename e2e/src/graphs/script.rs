use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::script_files;

/// The graphs of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// Templates for YAML aliases.
    #[serde(default, rename = "templates")]
    _templates: Value,
    /// By name, which is a DNS label.
    pub graphs: BTreeMap<String, Graph>,
}

/// Objects, and the steps of a user.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Graph {
    /// A description.
    pub shows: String,
    /// Why it runs on a real API server only.
    #[serde(default)]
    pub real: Option<String>,
    /// Why the result of our manager differs: words of the line in `docs/differences.md`. Our result has its own
    /// record.
    #[serde(default)]
    pub differs: Option<String>,
    /// It is run once with each of them.
    #[serde(default = "background")]
    pub policies: Vec<Policy>,
    /// Created in this order.
    pub objects: Vec<Value>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The propagation policy of the user's deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Policy {
    /// The object first, then its dependents.
    Background,
    /// Its dependents first.
    Foreground,
    /// Only the object.
    Orphan,
    /// The server's default.
    Default,
}

/// An action, or a condition to wait for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Step {
    /// Deletes an object with the policy of the run, or with a policy given after the name.
    Delete(String),
    /// Removes all finalizers of an object.
    Release(String),
    /// Merges a patch into an object.
    Edit(Edit),
    /// Creates more objects, possibly with names used before.
    Create(Vec<Value>),
    /// Waits.
    Until(Until),
    /// Waits only in runs with these policies.
    By(By),
    /// Checks the order of deletions by their versions.
    InOrder(InOrder),
}

/// A change of an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Its name.
    pub object: String,
    /// The merge patch.
    pub patch: Value,
}

/// Conditions for some policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct By {
    /// The policies.
    pub policies: Vec<Policy>,
    /// The conditions.
    pub until: Until,
}

/// An order of deletions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InOrder {
    /// Only with these policies.
    pub policies: Vec<Policy>,
    /// In this order.
    pub gone: Vec<String>,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Until {
    /// These objects are deleted.
    #[serde(default)]
    pub gone: Vec<String>,
    /// These objects exist and are not being deleted.
    #[serde(default)]
    pub there: Vec<String>,
    /// These objects are being deleted.
    #[serde(default)]
    pub deleting: Vec<String>,
    /// The names in their owner references.
    #[serde(default)]
    pub owners: BTreeMap<String, Vec<String>>,
    /// Their finalizers.
    #[serde(default)]
    pub finalizers: BTreeMap<String, Vec<String>>,
    /// There is an event with this reason for one of the objects.
    #[serde(default)]
    pub event: Option<String>,
}

fn background() -> Vec<Policy> {
    vec![Policy::Background]
}

impl Policy {
    /// As in the names of runs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Foreground => "foreground",
            Self::Orphan => "orphan",
            Self::Default => "default",
        }
    }

    /// As in delete options.
    #[must_use]
    pub fn option(self) -> Option<&'static str> {
        match self {
            Self::Background => Some("Background"),
            Self::Foreground => Some("Foreground"),
            Self::Orphan => Some("Orphan"),
            Self::Default => None,
        }
    }

    pub(super) fn parse(word: &str) -> anyhow::Result<Self> {
        let all = [Self::Background, Self::Foreground, Self::Orphan, Self::Default];
        all.into_iter().find(|it| it.word() == word.to_lowercase()).with_context(|| format!("no policy {word:?}"))
    }
}

impl Graph {
    /// Its runs, with the policy of each.
    pub fn planned_runs(&self, name: &str) -> impl Iterator<Item = (String, Policy)> {
        self.policies.iter().map(move |it| (format!("{name}.{}", it.word()), *it))
    }
}

impl script_files::Topic for Topic {
    /// One run for each graph and each of its policies.
    fn planned_runs(&self) -> impl Iterator<Item = (String, Option<&str>)> {
        let graphs = self.graphs.iter();
        graphs.flat_map(|(name, graph)| graph.planned_runs(name).map(|(run, _)| (run, graph.differs.as_deref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script_files::Topic as _;

    #[test]
    fn graph_is_read_with_aliases_and_unknown_fields_are_refused() {
        let text = "
templates: {spec: &spec {replicas: 0}}
graphs:
  a:
    shows: that
    policies: [Foreground, Default]
    objects:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}
    - {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: child, ownerReferences: [{to: owner}]}, spec: *spec}
    steps:
    - delete: owner Orphan
    - until: {gone: [owner], owners: {child: []}}
";
        let topic = Topic::parse(text).unwrap();
        let graph = &topic.graphs["a"];
        assert_eq!(graph.policies, [Policy::Foreground, Policy::Default]);
        assert_eq!(graph.objects[1]["spec"]["replicas"], 0);
        assert!(matches!(&graph.steps[0], Step::Delete(it) if it == "owner Orphan"));
        assert_eq!((Policy::parse("Orphan").unwrap(), Policy::parse("never").is_err()), (Policy::Orphan, true));
        assert!(Topic::parse(&text.replace("shows", "show")).is_err());
        assert!(Topic::parse(&text.replace("gone", "went")).is_err());
    }
}
