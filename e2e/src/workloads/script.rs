use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::script_files;

/// The workloads of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// Templates for YAML aliases.
    #[serde(default, rename = "templates")]
    _templates: Value,
    /// By name, which is a DNS label.
    pub workloads: BTreeMap<String, Workload>,
}

/// One object, and the steps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// A description.
    pub shows: String,
    /// It needs the garbage collector: it runs only with a manager that has it.
    #[serde(default)]
    pub collector: bool,
    /// Why it runs on a real API server only.
    #[serde(default)]
    pub real: Option<String>,
    /// Why the result of our manager differs: words of the line in `docs/differences.md`. Our result has its own
    /// record.
    #[serde(default)]
    pub differs: Option<String>,
    /// What is not compared, because its number depends on timing: reasons of events, or `gone-pods`.
    #[serde(default)]
    pub leave_out: Vec<String>,
    /// Objects that are created before.
    #[serde(default)]
    pub before: Vec<Value>,
    /// The Job or CronJob, without name and namespace.
    pub object: Value,
    /// The steps.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// An action, or a condition to wait for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Step {
    /// Waits for pods without a node and binds them; a fake kubelet does the rest.
    Run(Run),
    /// Writes a terminal status of running pods.
    End(Run),
    /// Adds a condition to pods.
    Mark(Mark),
    /// Waits.
    Until(Until),
    /// Waits, only with our manager, for something that upstream does not do.
    WithOurs(Until),
    /// Merges a patch into the object.
    Edit(Value),
    /// Merges a patch into the object's status, which normally only a controller writes.
    Status(Value),
    /// The API server must refuse to merge this patch into the object.
    Refused(Value),
    /// Deletes the object with a policy: `Background`, `Foreground` or `Orphan`.
    Delete(String),
    /// Creates the object again, with another uid.
    CreateAgain(Value),
    /// Deletes pods.
    DeletePod(Which),
    /// Merges a patch into pods.
    EditPod(EditPod),
    /// Creates more objects.
    Create(Vec<Value>),
    /// Merges a patch into an object of another name: `{path: …, patch: …}`, with a path relative to the namespace's.
    EditOther(Other),
    /// Deletes an object of another name, with the policy Background.
    DeleteOther(Other),
}

/// A selection of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Which {
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// With this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// With this name.
    #[serde(default)]
    pub name: Option<String>,
    /// With a node, or without.
    #[serde(default)]
    pub bound: Option<bool>,
}

/// How pods run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// With this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// The exit code with which they end at once; without it they run until something else ends them.
    #[serde(default)]
    pub exit: Option<i32>,
    /// The container with this exit code; the others exit with 0.
    #[serde(default)]
    pub container: Option<String>,
    /// Additional keys for the fake kubelet's script.
    #[serde(default)]
    pub script: BTreeMap<String, String>,
}

/// A condition of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mark {
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// With this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// Its type; its status is True.
    pub condition: String,
}

/// A change of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EditPod {
    /// How many.
    #[serde(default = "one")]
    pub count: usize,
    /// With this completion index.
    #[serde(default)]
    pub index: Option<u32>,
    /// With this name.
    #[serde(default)]
    pub name: Option<String>,
    /// The merge patch.
    pub patch: Value,
}

/// An object other than the workload's own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Other {
    /// Such as `pods/lonely` or `jobs/other`.
    pub path: String,
    /// The merge patch.
    #[serde(default)]
    pub patch: Value,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Until {
    /// A part of the object's status. Missing numbers count as zero.
    #[serde(default)]
    pub status: Option<Value>,
    /// Conditions that are True.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Conditions that are not True.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// How many pods have not ended and are not being deleted.
    #[serde(default)]
    pub active: Option<usize>,
    /// How many of those have no node.
    #[serde(default)]
    pub waiting: Option<usize>,
    /// How many pods are being deleted and have not ended.
    #[serde(default)]
    pub terminating: Option<usize>,
    /// How many pods have ended.
    #[serde(default)]
    pub ended: Option<usize>,
    /// How many pods exist.
    #[serde(default)]
    pub pods: Option<usize>,
    /// How many pods have the finalizer.
    #[serde(default)]
    pub tracked: Option<usize>,
    /// How many Jobs exist.
    #[serde(default)]
    pub jobs: Option<usize>,
    /// How many Jobs are complete or failed, including deleted ones.
    #[serde(default)]
    pub finished_jobs: Option<usize>,
    /// There is an event with this reason.
    #[serde(default)]
    pub event: Option<String>,
    /// The object is deleted.
    #[serde(default)]
    pub gone: bool,
    /// The object is being deleted.
    #[serde(default)]
    pub deleting: bool,
}

fn one() -> usize {
    1
}

impl script_files::Topic for Topic {
    /// One run for each workload.
    fn planned_runs(&self) -> impl Iterator<Item = (String, Option<&str>)> {
        self.workloads.iter().map(|(name, it)| (name.clone(), it.differs.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script_files::Topic as _;

    #[test]
    fn script_is_read_with_aliases_and_unknown_fields_are_refused() {
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
