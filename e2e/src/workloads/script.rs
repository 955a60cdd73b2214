use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::plays;

/// The workloads of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// What workloads refer to by YAML's aliases.
    #[serde(default, rename = "templates")]
    _templates: Value,
    /// By name, which is a DNS label.
    pub workloads: BTreeMap<String, Workload>,
}

/// One object, and what happens to it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// What is to be seen.
    pub shows: String,
    /// Dependents must be collected: runs where somebody does that.
    #[serde(default)]
    pub collector: bool,
    /// Why it runs on a real API server only.
    #[serde(default)]
    pub real: Option<String>,
    /// Why ours does otherwise: words of the line in `docs/differences.md`. What ours leaves has a record of its own.
    #[serde(default)]
    pub differs: Option<String>,
    /// What is not compared, as how often it happens is a matter of time: `events` by reason, or `gone-pods`.
    #[serde(default)]
    pub leave_out: Vec<String>,
    /// Created before.
    #[serde(default)]
    pub before: Vec<Value>,
    /// The Job or CronJob, without name and namespace.
    pub object: Value,
    /// What happens.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// Something that happens, or is waited for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Step {
    /// Waits for pods without a node and binds them; a fake kubelet does the rest.
    Run(Run),
    /// Pods that run are declared to have ended so.
    End(Run),
    /// A condition comes to pods.
    Mark(Mark),
    /// Waits.
    Until(Until),
    /// Waits for what upstream does not do.
    WithOurs(Until),
    /// Merges into the object.
    Edit(Value),
    /// Merges into the object's status, as only a controller should.
    Status(Value),
    /// The API server refuses to merge this into the object.
    Refused(Value),
    /// Deletes the object: `Background`, `Foreground` or `Orphan`.
    Delete(String),
    /// The object again, by another uid.
    CreateAgain(Value),
    /// Deletes pods.
    DeletePod(Which),
    /// Merges into pods.
    EditPod(EditPod),
    /// Further objects.
    Create(Vec<Value>),
    /// Merges into an object of another name: `{path: …, patch: …}`; the path lies below the namespace's.
    EditOther(Other),
    /// Deletes an object of another name, in the background.
    DeleteOther(Other),
}

/// Which pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Which {
    /// So many.
    #[serde(default = "one")]
    pub count: usize,
    /// Of this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// Of this name.
    #[serde(default)]
    pub name: Option<String>,
    /// With a node, or without.
    #[serde(default)]
    pub bound: Option<bool>,
}

/// What becomes of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    /// So many.
    #[serde(default = "one")]
    pub count: usize,
    /// Of this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// They end at once, so; otherwise they run until something happens to them.
    #[serde(default)]
    pub exit: Option<i32>,
    /// The container that ends with that; the others end well.
    #[serde(default)]
    pub container: Option<String>,
    /// Further lines of the fake kubelet's script.
    #[serde(default)]
    pub script: BTreeMap<String, String>,
}

/// A condition of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mark {
    /// So many.
    #[serde(default = "one")]
    pub count: usize,
    /// Of this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// Its type; it is True.
    pub condition: String,
}

/// A change of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EditPod {
    /// So many.
    #[serde(default = "one")]
    pub count: usize,
    /// Of this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// Of this name.
    #[serde(default)]
    pub name: Option<String>,
    /// Merged.
    pub patch: Value,
}

/// An object that is not the workload's own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Other {
    /// Such as `pods/lonely` or `jobs/other`.
    pub path: String,
    /// Merged.
    #[serde(default)]
    pub patch: Value,
}

/// All of this holds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Until {
    /// Part of the object's status. Numbers that are missing are zero.
    #[serde(default)]
    pub status: Option<Value>,
    /// Conditions that are True.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Conditions that are not.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// So many pods neither ended nor are being deleted.
    #[serde(default)]
    pub active: Option<usize>,
    /// So many of those have no node.
    #[serde(default)]
    pub waiting: Option<usize>,
    /// So many are being deleted and have not ended.
    #[serde(default)]
    pub terminating: Option<usize>,
    /// So many have ended.
    #[serde(default)]
    pub ended: Option<usize>,
    /// So many pods are there at all.
    #[serde(default)]
    pub pods: Option<usize>,
    /// So many have the finalizer.
    #[serde(default)]
    pub tracked: Option<usize>,
    /// So many Jobs are there.
    #[serde(default)]
    pub jobs: Option<usize>,
    /// So many Jobs that were there are complete or failed, those that are gone included.
    #[serde(default)]
    pub finished_jobs: Option<usize>,
    /// An event with this reason was told.
    #[serde(default)]
    pub event: Option<String>,
    /// The object is gone.
    #[serde(default)]
    pub gone: bool,
    /// The object is being deleted.
    #[serde(default)]
    pub deleting: bool,
}

fn one() -> usize {
    1
}

impl plays::Topic for Topic {
    /// Of each workload one.
    fn plays(&self) -> impl Iterator<Item = (String, Option<&str>)> {
        self.workloads.iter().map(|(name, it)| (name.clone(), it.differs.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plays::Topic as _;

    #[test]
    fn a_script_is_read_with_its_aliases_and_nothing_unknown_in_it() {
        let text = "
templates: {plain: &plain {spec: {restartPolicy: Never}}}
workloads:
  a:
    shows: that
    object: {kind: Job, spec: {template: *plain}}
    steps:
    - run: {count: 2, exit: 0}
    - until: {status: {succeeded: 2}, holds: [Complete]}
    - edit-pod: {index: 1, patch: {metadata: {labels: {a: null}}}}
    - delete: Orphan
";
        let topic = Topic::parse(text).unwrap();
        let workload = &topic.workloads["a"];
        assert_eq!(workload.object["spec"]["template"]["spec"]["restartPolicy"], "Never");
        assert!(matches!(&workload.steps[0], Step::Run(Run { count: 2, exit: Some(0), .. })));
        assert!(matches!(&workload.steps[2], Step::EditPod(EditPod { index: Some(1), .. })));
        assert!(Topic::parse(&text.replace("shows", "show")).is_err());
        assert!(Topic::parse(&text.replace("exit", "exits")).is_err());
    }
}
