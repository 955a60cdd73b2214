//! The garbage collector: an object is deleted with its dependents, in two ways, or without them.

use kube::api::PropagationPolicy;
use serde_json::{Value, json};

use super::{Act, Operation, Progress, Sample, SampleContext, Step, pods};
use crate::observed::Observed;

const CONTROLLERS: &[&str] = &["garbage-collector-controller"];
const WATCHED_KINDS: &[(&str, &str)] = &[("v1", "ConfigMap")];
/// The pods need a moment to end, so that the order of the deletions is visible.
const ENDING: (&str, &str) = ("stop-after", "2s");

pub(super) const BACKGROUND: Sample = Sample {
    name: "background",
    shows: "an object is deleted and gone at once; then its dependents, and then theirs",
    needs: CONTROLLERS,
    objects: |context| tree(context, "background"),
    watched_kinds: WATCHED_KINDS,
    steps: &[Step {
        when: |context, observed| is_running(context, observed, "background"),
        command: |context| delete_command(context, "background"),
        act: |context| delete(context, "background", PropagationPolicy::Background),
    }],
    progress: |context, observed| until_gone(&Tree::of(context, observed, "background")),
};

pub(super) const FOREGROUND: Sample = Sample {
    name: "foreground",
    shows: "an object is deleted and waits: first the pods end, then their owner is gone, then the object",
    needs: CONTROLLERS,
    objects: |context| tree(context, "foreground"),
    watched_kinds: WATCHED_KINDS,
    steps: &[Step {
        when: |context, observed| is_running(context, observed, "foreground"),
        command: |context| delete_command(context, "foreground"),
        act: |context| delete(context, "foreground", PropagationPolicy::Foreground),
    }],
    progress: |context, observed| until_gone(&Tree::of(context, observed, "foreground")),
};

pub(super) const ORPHAN: Sample = Sample {
    name: "orphan",
    shows: "an object is deleted alone; its dependent stays without an owner and keeps its own dependents",
    needs: CONTROLLERS,
    objects: |context| tree(context, "orphan"),
    watched_kinds: WATCHED_KINDS,
    steps: &[Step {
        when: |context, observed| is_running(context, observed, "orphan"),
        command: |context| delete_command(context, "orphan"),
        act: |context| delete(context, "orphan", PropagationPolicy::Orphan),
    }],
    progress: |context, observed| until_free(&Tree::of(context, observed, "orphan")),
};

/// An object, a part that it owns, and two pods that the part owns. The uids of owners are filled in at creation.
fn tree(context: &SampleContext, name: &str) -> Vec<Value> {
    let map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": context.home, "name": name },
        })
    };
    let owned = |mut object: Value, owner: &str| {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "controller": true, "blockOwnerDeletion": true,
        }]);
        object
    };
    let part = format!("{name}-part");
    let pod = |number: usize| pods::pod(context, &format!("{name}-{number}"), "Always", &[ENDING]);
    vec![map(name), owned(map(&part), name), owned(pod(1), &part), owned(pod(2), &part)]
}

/// The observed objects of a tree.
struct Tree<'a> {
    top: Leaf<'a>,
    part: Leaf<'a>,
    pods: [Leaf<'a>; 2],
}

/// One of its objects.
struct Leaf<'a> {
    last: Option<&'a Value>,
    gone: bool,
}

impl<'a> Leaf<'a> {
    fn of(context: &SampleContext, observed: &'a Observed, kind: &str, name: &str) -> Self {
        Self { last: observed.get(kind, &context.home, name), gone: observed.is_gone(kind, &context.home, name) }
    }

    fn word(&self) -> &'static str {
        let Some(object) = self.last else { return if self.gone { "gone" } else { "not created yet" } };
        let meta = &object["metadata"];
        let has = |finalizer: &str| meta["finalizers"].as_array().is_some_and(|it| it.iter().any(|it| it == finalizer));
        if !meta["deletionTimestamp"].is_string() {
            "there"
        } else if has("foregroundDeletion") {
            "waits for its dependents"
        } else if has("orphan") {
            "orphans its dependents"
        } else {
            "ending"
        }
    }

    fn has_no_owner(&self) -> bool {
        self.last.is_some_and(|it| it["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty))
    }
}

impl<'a> Tree<'a> {
    fn of(context: &SampleContext, observed: &'a Observed, name: &str) -> Self {
        let leaf = |kind: &str, name: String| Leaf::of(context, observed, kind, &name);
        Self {
            top: leaf("ConfigMap", name.to_owned()),
            part: leaf("ConfigMap", format!("{name}-part")),
            pods: [1, 2].map(|it| leaf("Pod", format!("{name}-{it}"))),
        }
    }

    fn text(&self) -> String {
        let Self { top, part, pods: [one, other] } = self;
        let pods = if one.word() == other.word() {
            format!("its pods {}", one.word())
        } else {
            format!("its pods {} and {}", one.word(), other.word())
        };
        format!("owner {}; part {}; {pods}", top.word(), part.word())
    }
}

fn is_running(context: &SampleContext, observed: &Observed, name: &str) -> bool {
    let is_running = |it: &Leaf<'_>| it.last.is_some_and(|it| it["status"]["phase"] == "Running");
    Tree::of(context, observed, name).pods.iter().all(is_running)
}

fn delete_command(context: &SampleContext, name: &str) -> String {
    format!("kubectl delete configmap {name} -n {} --cascade={name}", context.home)
}

fn delete(context: &SampleContext, name: &str, policy: PropagationPolicy) -> Act {
    Act {
        api_version: "v1",
        kind: "ConfigMap",
        namespace: context.home.clone(),
        name: name.to_owned(),
        operation: Operation::Cascade(policy),
    }
}

fn until_gone(tree: &Tree<'_>) -> Progress {
    let Tree { top, part, pods: [one, other] } = tree;
    if [top, part, one, other].iter().all(|it| it.gone) {
        return Progress::done("all gone: the owner, its part and both pods");
    }
    Progress::going(tree.text())
}

fn until_free(tree: &Tree<'_>) -> Progress {
    let Tree { top, part, pods } = tree;
    if part.gone || pods.iter().any(|it| it.gone) {
        return Progress::failed(tree.text());
    }
    if top.gone && part.has_no_owner() {
        return Progress::done("owner gone; part stays without an owner, with its pods");
    }
    Progress::going(tree.text())
}
