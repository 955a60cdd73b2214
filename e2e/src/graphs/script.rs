use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::plays;

/// The graphs of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// What graphs refer to by YAML's aliases.
    #[serde(default, rename = "templates")]
    _templates: Value,
    /// By name, which is a DNS label.
    pub graphs: BTreeMap<String, Graph>,
}

/// Objects, and what happens to them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Graph {
    /// What is to be seen.
    pub shows: String,
    /// Why it runs on a real API server only.
    #[serde(default)]
    pub real: Option<String>,
    /// Why ours does otherwise: words of the line in `docs/differences.md`. What ours leaves has a record of its own.
    #[serde(default)]
    pub differs: Option<String>,
    /// It is played once by each.
    #[serde(default = "background")]
    pub policies: Vec<Policy>,
    /// Created in this order.
    pub objects: Vec<Value>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// How the user asks for a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Policy {
    /// The object first, its dependents then.
    Background,
    /// Its dependents first.
    Foreground,
    /// The object alone.
    Orphan,
    /// As the server thinks best.
    Default,
}

/// Something that happens, or is waited for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Step {
    /// Deletes an object, by the policy of the play, or by one that stands behind the name.
    Delete(String),
    /// Takes all finalizers of an object away.
    Release(String),
    /// Merges into an object.
    Edit(Edit),
    /// Further objects, also such as were there before.
    Create(Vec<Value>),
    /// Waits.
    Until(Until),
    /// Waits in the plays by these policies only.
    By(By),
    /// These were gone in this order, by the server's own count.
    InOrder(InOrder),
}

/// A change.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Its name.
    pub object: String,
    /// Merged.
    pub patch: Value,
}

/// What holds for some policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct By {
    /// For these.
    pub policies: Vec<Policy>,
    /// This.
    pub until: Until,
}

/// An order of ends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InOrder {
    /// In plays by these.
    pub policies: Vec<Policy>,
    /// The first one first.
    pub gone: Vec<String>,
}

/// All of this holds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Until {
    /// These are gone.
    #[serde(default)]
    pub gone: Vec<String>,
    /// These are there and are not being deleted.
    #[serde(default)]
    pub there: Vec<String>,
    /// These are being deleted.
    #[serde(default)]
    pub deleting: Vec<String>,
    /// The names in their owner references.
    #[serde(default)]
    pub owners: BTreeMap<String, Vec<String>>,
    /// Their finalizers.
    #[serde(default)]
    pub finalizers: BTreeMap<String, Vec<String>>,
    /// An event with this reason was told of one of them.
    #[serde(default)]
    pub event: Option<String>,
}

fn background() -> Vec<Policy> {
    vec![Policy::Background]
}

impl Policy {
    /// As the names of plays have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Foreground => "foreground",
            Self::Orphan => "orphan",
            Self::Default => "default",
        }
    }

    /// As the options of a deletion have it.
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
    /// Its plays, of which it names the graph and the policy.
    pub fn plays(&self, name: &str) -> impl Iterator<Item = (String, Policy)> {
        self.policies.iter().map(move |it| (format!("{name}.{}", it.word()), *it))
    }
}

impl plays::Topic for Topic {
    /// Of each graph one by each of its policies.
    fn plays(&self) -> impl Iterator<Item = (String, Option<&str>)> {
        let graphs = self.graphs.iter();
        graphs.flat_map(|(name, graph)| graph.plays(name).map(|(play, _)| (play, graph.differs.as_deref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plays::Topic as _;

    #[test]
    fn a_graph_is_read_with_its_aliases_and_nothing_unknown_in_it() {
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
