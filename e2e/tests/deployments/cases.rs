//! The Deployments, ReplicaSets and ReplicationControllers that both managers run, and what users do to them. Each case
//! has a namespace of its own.

use e2e::workloads;
use fake_nodes::PREFIX;
use serde_json::{Value, json};

use crate::setup::{CREATE_ERROR, REVISION, path};

/// The kind of the object of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    ReplicaSet,
    ReplicationController,
}

impl Kind {
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::ReplicationController => "replicationcontrollers",
        }
    }

    pub(crate) fn observed(self) -> workloads::Kind {
        match self {
            Self::Deployment => workloads::Kind::Deployment,
            Self::ReplicaSet => workloads::Kind::ReplicaSet,
            Self::ReplicationController => workloads::Kind::ReplicationController,
        }
    }

    fn selector(self, app: &str) -> Value {
        match self {
            Self::ReplicationController => json!({ "app": app }),
            _ => json!({ "matchLabels": { "app": app } }),
        }
    }
}

/// The state that an object must reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) replicas: i64,
    /// Pods with the present template, of a Deployment.
    pub(crate) updated: i64,
    pub(crate) ready: i64,
    pub(crate) available: i64,
    /// All existing pods of the namespace.
    pub(crate) pods: usize,
    /// The reason of the condition Progressing, of a Deployment.
    pub(crate) reason: Option<&'static str>,
}

impl Want {
    /// So many available pods with the present template.
    pub(crate) fn all(count: i64) -> Self {
        let pods = usize::try_from(count).unwrap_or(usize::MAX);
        Self { replicas: count, updated: count, ready: count, available: count, pods, reason: Some(COMPLETE) }
    }

    /// Whether the condition Progressing has the wanted reason.
    pub(crate) fn has_reason(&self, found: Option<&str>) -> bool {
        found == self.reason || (self.reason == Some(PROGRESSES) && found == Some(CREATED))
    }

    /// A rollout that does not end: so many pods, of which these are updated, and the others are available.
    fn blocked(count: i64, updated: i64) -> Self {
        let old = count - updated;
        Self { updated, ready: old, available: old, reason: Some(PROGRESSES), ..Self::all(count) }
    }
}

const COMPLETE: &str = "NewReplicaSetAvailable";
/// Or [`CREATED`], which stays if no sync observes the ReplicaSet before its first pod.
pub(crate) const PROGRESSES: &str = "ReplicaSetUpdated";
pub(crate) const CREATED: &str = "NewReplicaSetCreated";
const PAUSED: &str = "DeploymentPaused";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// What a user does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Creates the object.
    Create,
    /// Waits until the object has this state.
    Wait(Want),
    /// Changes the object.
    Edit(Value),
    /// Changes the object, and once more when the first new pod exists.
    EditMeanwhile(Value, Value),
    /// Writes the scale subresource.
    Scale(i64),
    /// Deletes the object with this policy.
    Delete(&'static str),
    /// Creates another object of this resource.
    Add(&'static str, Value),
    /// Waits until a pod has a phase.
    AwaitPhase(&'static str, &'static str),
    /// Waits until a ReplicaSet has so many ready pods.
    AwaitSet(&'static str, i64),
    /// Changes the ReplicaSet of a revision.
    EditSet(&'static str, Value),
    /// Changes a pod with this value of the label `app`.
    EditPod(&'static str, Value),
    /// Deletes a pod, and waits for another one.
    DeletePod,
    /// Lets a pod fail, and waits for another one.
    FailPod,
    /// Limits the number of objects of a resource in the namespace.
    Limit(&'static str, i64),
}

/// An object.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    /// The name of the object and of its namespace.
    pub(crate) name: &'static str,
    /// The spec without selector and template.
    spec: Value,
    /// Fields of the pod's spec, in every template.
    fields: Value,
    pub(crate) steps: Vec<Step>,
    /// The sizes in the middle of a rollout depend on when pods become ready.
    pub(crate) sizes_vary: bool,
}

impl Case {
    pub(crate) fn new(kind: Kind, name: &'static str, spec: Value) -> Self {
        Self { kind, name, spec, fields: json!({}), steps: Vec::new(), sizes_vary: false }
    }

    /// A Deployment.
    fn deployment(name: &'static str, spec: Value) -> Self {
        Self::new(Kind::Deployment, name, spec).create()
    }

    /// A ReplicaSet.
    fn set(name: &'static str, spec: Value) -> Self {
        Self::new(Kind::ReplicaSet, name, spec).create()
    }

    /// A ReplicationController.
    fn controller(name: &'static str, spec: Value) -> Self {
        Self::new(Kind::ReplicationController, name, spec).create()
    }

    pub(crate) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn create(self) -> Self {
        self.then(Step::Create)
    }

    /// Does this before the object is created.
    fn before(mut self, steps: Vec<Step>) -> Self {
        self.steps.splice(0..0, steps);
        self
    }

    fn with_fields(mut self, fields: Value) -> Self {
        self.fields = fields;
        self
    }

    fn sizes_vary(mut self) -> Self {
        self.sizes_vary = true;
        self
    }

    fn wait(self, want: Want) -> Self {
        self.then(Step::Wait(want))
    }

    /// Waits for so many available pods with the present template, and no others.
    pub(crate) fn all(self, count: i64) -> Self {
        self.wait(Want::all(count))
    }

    fn edit(self, spec: Value) -> Self {
        self.then(Step::Edit(json!({ "spec": spec })))
    }

    fn annotate(self, key: &str, value: Value) -> Self {
        self.then(Step::Edit(json!({ "metadata": { "annotations": { key: value } } })))
    }

    fn replicas(self, replicas: i64) -> Self {
        self.edit(json!({ "replicas": replicas }))
    }

    fn image(self, tag: &str) -> Self {
        let template = self.template(tag);
        self.edit(json!({ "template": template }))
    }

    fn meanwhile(self, edit: Value) -> Self {
        let first = json!({ "spec": { "template": self.template("2") } });
        self.then(Step::EditMeanwhile(first, json!({ "spec": edit })))
    }

    /// What happens in the middle of its rollout depends on the time of an edit.
    pub(crate) fn is_timed(&self) -> bool {
        self.steps.iter().any(|it| matches!(it, Step::EditMeanwhile(..)))
    }

    fn template(&self, tag: &str) -> Value {
        template(self.name, tag, &self.fields)
    }

    pub(crate) fn collection(&self) -> String {
        path(self.name, self.kind.resource(), "")
    }

    pub(crate) fn path(&self) -> String {
        path(self.name, self.kind.resource(), self.name)
    }

    /// The object to create.
    pub(crate) fn object(&self) -> Value {
        let mut spec = self.spec.clone();
        spec["selector"] = self.kind.selector(self.name);
        spec["template"] = self.template("1");
        json!({ "spec": spec, "metadata": { "name": self.name, "labels": { "app": self.name },
            "annotations": { "example.com/note": "kept" } } })
    }

    /// An object whose number a quota limits, with the path of its collection. It is never stored.
    pub(crate) fn limited_object(&self, resource: &str) -> (String, Value) {
        if resource == "pods" {
            return (path(self.name, "pods", ""), orphan("probe", self.name, json!({}), json!({})));
        }
        (path(self.name, "replicasets", ""), set_of(self, "probe", "1", 0, json!({})))
    }
}

/// The image whose containers never become ready.
const BROKEN: &str = "broken";

/// The annotations that let containers start and stop soon.
fn script(is_broken: bool) -> Value {
    json!({ format!("{PREFIX}start-after"): "300ms", format!("{PREFIX}stop-after"): "100ms",
        format!("{PREFIX}hang"): is_broken.to_string() })
}

/// A template. A key that is in one template is in all, because an edit is a merge patch.
pub(crate) fn template(app: &str, tag: &str, fields: &Value) -> Value {
    let mut template = json!({
        "metadata": { "labels": { "app": app }, "annotations": script(tag == BROKEN) },
        "spec": { "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": format!("example.com/main:{tag}"), "args": ["<a>&b"] }] },
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        template["spec"][key] = value.clone();
    }
    template
}

/// A pod without a controller.
fn orphan(name: &str, app: &str, annotations: Value, fields: Value) -> Value {
    let mut pod = template(app, "1", &fields);
    pod["metadata"]["name"] = json!(name);
    for (key, value) in annotations.as_object().into_iter().flatten() {
        pod["metadata"]["annotations"][key] = value.clone();
    }
    pod
}

fn add_pod(name: &str, app: &str, annotations: Value, fields: Value) -> Step {
    Step::Add("pods", orphan(name, app, annotations, fields))
}

/// A ReplicaSet that the Deployment of a case selects.
fn set_of(case: &Case, name: &str, tag: &str, replicas: i64, annotations: Value) -> Value {
    let labels = json!({ "app": case.name });
    json!({ "metadata": { "name": name, "labels": labels, "annotations": annotations },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": case.template(tag) } })
}

/// A Deployment that is created when such a ReplicaSet exists and has its pods.
fn after_set(case: Case, name: &'static str, tag: &str, replicas: i64, annotations: Value) -> Case {
    let set = set_of(&case, name, tag, replicas, annotations);
    case.before(vec![Step::Add("replicasets", set), Step::AwaitSet(name, replicas)])
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({ "strategy": { "type": "RollingUpdate",
        "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } })
}

fn with_replicas(mut spec: Value, replicas: i64) -> Value {
    spec["replicas"] = json!(replicas);
    spec
}

fn of(replicas: i64) -> Value {
    json!({ "replicas": replicas })
}

fn recreate() -> Value {
    json!({ "replicas": 3, "strategy": { "type": "Recreate", "rollingUpdate": null } })
}

fn paused(is_paused: bool) -> Value {
    json!({ "paused": is_paused })
}

fn label(app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } } })
}

/// All cases, or those with `CASES` in their name.
pub(crate) fn cases() -> Vec<Case> {
    let filter = std::env::var("CASES").unwrap_or_default();
    let mut all = new_deployments();
    all.extend(scaled_deployments());
    all.extend(rollouts());
    all.extend(steps_of_rollouts());
    all.extend(blocked_rollouts());
    all.extend(pauses());
    all.extend(history());
    all.extend(owners());
    all.extend(edits_in_rollouts());
    all.extend(replica_sets());
    all.extend(adopting_sets());
    all.extend(replication_controllers());
    all.retain(|it| it.name.contains(&filter));
    all
}

/// What is in the ReplicaSets and pods of new Deployments.
fn new_deployments() -> Vec<Case> {
    let rich = json!({
        "tolerations": [{ "key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": null }],
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1,
            "podAffinityTerm": { "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "x" } } } }] } },
        "initContainers": [{ "name": "first", "image": "example.com/first:1" },
            { "name": "side", "image": "example.com/side:1", "restartPolicy": "Always" }],
        "volumes": [{ "name": "data", "emptyDir": { "sizeLimit": "1Gi" } }],
        "containers": [{ "name": "main", "image": "example.com/main:1",
            "resources": { "limits": { "cpu": "0.5", "memory": "100Mi" } },
            "ports": [{ "containerPort": 80 }], "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "env": [{ "name": "NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                { "name": "PLAIN", "value": "1" }] }],
    });
    let endless = json!({ "replicas": 1, "progressDeadlineSeconds": i32::MAX });
    vec![
        Case::deployment("plain", of(3)).all(3),
        Case::deployment("none", of(0)).all(0),
        Case::deployment("rich", of(1)).with_fields(rich).all(1),
        Case::deployment("min-ready", json!({ "replicas": 2, "minReadySeconds": 1 })).all(2),
        Case::deployment("no-deadline", endless).wait(Want { reason: None, ..Want::all(1) }),
        Case::deployment("recreate", recreate()).all(3),
        Case::deployment("pod-deleted", of(2)).all(2).then(Step::DeletePod).all(2),
        Case::deployment("pod-failed", of(2)).all(2).then(Step::FailPod).wait(Want { pods: 3, ..Want::all(2) }),
        Case::deployment("annotated", of(1)).all(1).annotate("example.com/more", json!("a")).all(1),
        Case::deployment("annotation-gone", of(1)).all(1).annotate("example.com/note", Value::Null).all(1),
        Case::deployment("min-ready-set", of(1)).all(1).edit(json!({ "minReadySeconds": 1 })).all(1),
    ]
}

/// Scaling, also in the middle of a rollout.
fn scaled_deployments() -> Vec<Case> {
    // The old ReplicaSet keeps 3 pods, the new one has 2.
    let half = |name: &'static str| Case::deployment(name, of(4)).all(4).image(BROKEN).wait(Want::blocked(5, 2));
    let scaled = |updated: i64, old: i64| Want::blocked(updated + old, updated);
    vec![
        Case::deployment("scaled-up", of(1)).all(1).replicas(3).all(3),
        Case::deployment("scaled-down", of(3)).all(3).replicas(1).all(1),
        Case::deployment("scaled-to-none", of(2)).all(2).replicas(0).all(0),
        Case::deployment("scaled-from-none", of(0)).all(0).replicas(2).all(2),
        Case::deployment("scaled-by-scale", of(1)).all(1).then(Step::Scale(3)).all(3),
        Case::deployment("scaled-recreate", recreate()).all(3).replicas(1).all(1).replicas(2).all(2),
        half("proportional-up").replicas(8).wait(scaled(4, 6)),
        half("proportional-down").replicas(2).wait(scaled(1, 2)),
        half("proportional-end").replicas(0).all(0),
        half("proportional-scale").then(Step::Scale(5)).wait(scaled(3, 4)),
        Case::deployment("proportional-fix", with_replicas(rolling(json!(2), json!(0)), 3))
            .all(3)
            .image(BROKEN)
            .wait(scaled(2, 3))
            .replicas(6)
            .wait(scaled(3, 5)),
    ]
}

/// Updates that are not disturbed.
fn rollouts() -> Vec<Case> {
    let rolled = |name: &'static str, spec: Value| Case::deployment(name, spec).all(3).image("2").all(3);
    let version = json!({ "template": { "metadata": { "labels": { "version": "2" } } } });
    let slow = json!({ "replicas": 2, "minReadySeconds": 1 });
    vec![
        rolled("rolled", of(3)),
        rolled("rolled-recreate", recreate()),
        rolled("reverted", of(3)).image("1").all(3),
        rolled("reverted-recreate", recreate()).image("1").all(3),
        rolled("strategy-set", of(3)).edit(recreate()).image("3").all(3),
        Case::deployment("relabelled", of(2)).all(2).edit(version).all(2),
        Case::deployment("rolled-ready", slow).all(2).image("2").all(2),
        Case::deployment("scaled-and-rolled", of(2))
            .all(2)
            .edit(json!({ "replicas": 3, "template": template("scaled-and-rolled", "2", &json!({})) }))
            .all(3)
            .sizes_vary(),
    ]
}

/// Surges and unavailable pods.
fn steps_of_rollouts() -> Vec<Case> {
    let rolled = |name: &'static str, surge: Value, unavailable: Value, replicas: i64| {
        let spec = with_replicas(rolling(surge, unavailable), replicas);
        Case::deployment(name, spec).all(replicas).image("2").all(replicas).sizes_vary()
    };
    vec![
        rolled("surge-two", json!(2), json!(0), 3),
        rolled("surge-half", json!("50%"), json!(0), 3),
        rolled("surge-and-less", json!(1), json!(1), 3),
        rolled("less-two", json!(0), json!(2), 3),
        rolled("less-half", json!(0), json!("50%"), 4),
        rolled("less-hardly", json!("0%"), json!("1%"), 2),
        rolled("all-at-once", json!("100%"), json!("100%"), 3),
        rolled("default-of-ten", json!("25%"), json!("25%"), 10),
    ]
}

/// Rollouts whose pods never become ready.
fn blocked_rollouts() -> Vec<Case> {
    let blocked = |name: &'static str| Case::deployment(name, of(3)).all(3).image(BROKEN).wait(Want::blocked(4, 1));
    let timed_out = |name: &'static str| {
        let spec = json!({ "replicas": 2, "progressDeadlineSeconds": 1 });
        let state = Want { reason: Some(TIMED_OUT), ..Want::blocked(3, 1) };
        Case::deployment(name, spec).all(2).image(BROKEN).wait(state)
    };
    let never = json!({ "replicas": 1, "progressDeadlineSeconds": 1, "paused": true });
    vec![
        blocked("blocked"),
        blocked("blocked-reverted").image("1").all(3),
        blocked("blocked-mended").image("3").all(3),
        Case::deployment("blocked-two", of(4)).all(4).image(BROKEN).wait(Want::blocked(5, 2)).image("1").all(4),
        timed_out("timed-out"),
        timed_out("timed-out-mended").image("3").all(2),
        timed_out("timed-out-scaled").replicas(1).wait(Want { reason: Some(TIMED_OUT), ..Want::blocked(2, 1) }),
        timed_out("timed-out-paused").edit(paused(true)).wait(Want { reason: Some(TIMED_OUT), ..Want::blocked(3, 1) }),
        Case::deployment("timed-out-first", never)
            .wait(Want { reason: Some(PAUSED), ..Want::all(0) })
            .edit(json!({ "paused": false, "template": template("timed-out-first", BROKEN, &json!({})) }))
            .wait(Want { ready: 0, available: 0, reason: Some(TIMED_OUT), ..Want::all(1) }),
    ]
}

fn pauses() -> Vec<Case> {
    let at_rest = |count: i64| Want { reason: Some(PAUSED), ..Want::all(count) };
    let outdated = |count: i64| Want { updated: 0, ..at_rest(count) };
    let new = |name: &'static str| Case::deployment(name, json!({ "replicas": 2, "paused": true })).wait(at_rest(0));
    let pause = |name: &'static str| Case::deployment(name, of(2)).all(2).edit(paused(true)).wait(at_rest(2));
    vec![
        new("paused-new"),
        new("paused-new-resumed").edit(paused(false)).all(2),
        pause("paused"),
        pause("paused-resumed").edit(paused(false)).all(2),
        pause("paused-scaled").replicas(3).wait(at_rest(3)),
        pause("paused-edited").image("2").wait(outdated(2)),
        pause("paused-rolled").image("2").wait(outdated(2)).edit(paused(false)).all(2),
        pause("paused-both").image("2").wait(outdated(2)).replicas(3).wait(outdated(3)).edit(paused(false)).all(3),
    ]
}

/// Old ReplicaSets, and returns to them.
fn history() -> Vec<Case> {
    let rolled = |name: &'static str, limit: i64, tags: &[&str]| {
        let case = Case::deployment(name, json!({ "replicas": 1, "revisionHistoryLimit": limit })).all(1);
        tags.iter().fold(case, |case, tag| case.image(tag).all(1))
    };
    let rollback_to = "deprecated.deployment.rollback.to";
    vec![
        rolled("history-none", 0, &["2", "3"]),
        rolled("history-one", 1, &["2", "3", "4"]),
        rolled("history-used-again", 1, &["2", "1", "2", "3"]),
        rolled("history-lowered", 5, &["2", "3"]).edit(json!({ "revisionHistoryLimit": 0 })).all(1),
        rolled("history-paused", 5, &["2"])
            .edit(json!({ "revisionHistoryLimit": 0, "paused": true }))
            .wait(Want { reason: Some(PAUSED), ..Want::all(1) }),
        rolled("rollback-to-last", 5, &["2", "3"]).annotate(rollback_to, json!("0")).all(1),
        rolled("rollback-to-first", 5, &["2", "3"]).annotate(rollback_to, json!("1")).all(1),
        rolled("rollback-to-none", 5, &["2"]).annotate(rollback_to, json!("9")).all(1),
        rolled("rollback-to-same", 5, &["2"]).annotate(rollback_to, json!("2")).all(1),
    ]
}

/// ReplicaSets that are adopted, released, changed by users or refused, and Deployments that are deleted.
fn owners() -> Vec<Case> {
    let high = json!({ REVISION: "3546343826724305832" });
    let limited = Want { reason: Some(PROGRESSES), ..Want::all(2) };
    let refused = Want { reason: Some(CREATE_ERROR), ..Want::all(0) };
    let collided = json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 2 } } } });
    let orphaned = |name: &'static str| Case::deployment(name, of(2)).all(2).then(Step::Delete("Orphan"));
    vec![
        after_set(Case::deployment("adopted", of(2)), "older", "1", 2, json!({})).all(2),
        after_set(Case::deployment("adopted-scaled", of(3)), "older", "1", 2, json!({})).all(3),
        after_set(Case::deployment("adopted-old", of(2)), "older", "0", 2, high).all(2).sizes_vary(),
        Case::deployment("released", of(2))
            .all(2)
            .then(Step::EditSet("1", label("other")))
            .wait(Want { pods: 4, ..Want::all(2) }),
        Case::deployment("collided", of(2)).all(2).then(Step::EditSet("1", collided)).all(2),
        orphaned("orphaned"),
        orphaned("orphaned-adopted").create().all(2),
        Case::deployment("deleted", of(2)).all(2).then(Step::Delete("Background")),
        Case::deployment("deleted-last", of(2)).all(2).then(Step::Delete("Foreground")),
        Case::deployment("limited", of(3)).before(vec![Step::Limit("pods", 2)]).wait(limited),
        Case::deployment("limited-raised", of(3))
            .before(vec![Step::Limit("pods", 2)])
            .wait(limited)
            .then(Step::Limit("pods", 5))
            .all(3),
        Case::deployment("refused", of(1)).before(vec![Step::Limit("count/replicasets.apps", 0)]).wait(refused),
        Case::deployment("refused-first", of(1))
            .before(vec![Step::Limit("count/replicasets.apps", 0)])
            .wait(refused)
            .then(Step::Limit("count/replicasets.apps", 2))
            .all(1),
    ]
}

/// Edits in the middle of a rollout.
fn edits_in_rollouts() -> Vec<Case> {
    let case = |name: &'static str| Case::deployment(name, of(3)).all(3);
    let image = |name: &str, tag: &str| json!({ "template": template(name, tag, &json!({})) });
    vec![
        case("mid-edited").meanwhile(image("mid-edited", "3")).all(3),
        case("mid-reverted").meanwhile(image("mid-reverted", "1")).all(3),
        case("mid-scaled-up").meanwhile(of(5)).all(5),
        case("mid-scaled-down").meanwhile(of(1)).all(1),
        case("mid-recreated").meanwhile(recreate()).all(3),
        case("mid-surged").meanwhile(rolling(json!("100%"), json!(0))).all(3),
    ]
}

/// ReplicaSets without a Deployment.
fn replica_sets() -> Vec<Case> {
    let limited = |name: &'static str| Case::set(name, of(3)).before(vec![Step::Limit("pods", 2)]).all(2);
    vec![
        Case::set("set", of(3)).all(3),
        Case::set("set-none", of(0)).all(0),
        Case::set("set-min-ready", json!({ "replicas": 2, "minReadySeconds": 1 })).all(2),
        Case::set("set-scaled", of(1)).all(1).replicas(3).all(3).then(Step::Scale(2)).all(2),
        Case::set("set-pod-deleted", of(2)).all(2).then(Step::DeletePod).all(2),
        Case::set("set-pod-failed", of(2)).all(2).then(Step::FailPod).wait(Want { pods: 3, ..Want::all(2) }),
        Case::set("set-pods-failed", of(2))
            .all(2)
            .then(Step::FailPod)
            .wait(Want { pods: 3, ..Want::all(2) })
            .then(Step::FailPod)
            .wait(Want { pods: 4, ..Want::all(2) }),
        Case::set("set-edited", of(2))
            .all(2)
            .edit(json!({ "template": { "metadata": { "labels": { "version": "2" } } } }))
            .then(Step::DeletePod)
            .all(2),
        Case::set("set-releases", of(2))
            .all(2)
            .then(Step::EditPod("set-releases", label("other")))
            .wait(Want { pods: 3, ..Want::all(2) }),
        Case::set("set-readopts", of(2))
            .all(2)
            .then(Step::EditPod("set-readopts", label("other")))
            .wait(Want { pods: 3, ..Want::all(2) })
            .then(Step::EditPod("other", label("set-readopts")))
            .all(2),
        limited("set-limited"),
        limited("set-limited-lowered").replicas(2).all(2),
        limited("set-limited-raised").then(Step::Limit("pods", 5)).all(3),
        Case::set("set-deleted", of(2)).all(2).then(Step::Delete("Foreground")),
        Case::set("set-orphaned", of(2)).all(2).then(Step::Delete("Orphan")),
    ]
}

/// Pods that exist before their ReplicaSet.
fn adopting_sets() -> Vec<Case> {
    let plain = |name: &str, app: &str| add_pod(name, app, json!({}), json!({}));
    let ended = |name: &str, app: &str, code: &str| {
        let script = json!({ format!("{PREFIX}run-for"): "100ms", format!("{PREFIX}exit-code"): code });
        add_pod(name, app, script, json!({ "restartPolicy": "Never" }))
    };
    let cost = |cost: &str| json!({ "controller.kubernetes.io/pod-deletion-cost": cost });
    let unassigned = json!({ "schedulerName": "none" });
    let ranked = vec![
        add_pod("costly", "set-ranks", cost("10"), json!({})),
        add_pod("cheap", "set-ranks", cost("-5"), json!({})),
        add_pod("unready", "set-ranks", script(true), json!({})),
        add_pod("unassigned", "set-ranks", json!({}), unassigned.clone()),
    ];
    // The managers have seen a pod that runs, so that they do not create another one first.
    let running = |app: &str| vec![plain("a", app), Step::AwaitPhase("a", "Running")];
    let surplus = vec![
        plain("a", "set-adopts-surplus"),
        plain("b", "set-adopts-surplus"),
        Step::AwaitPhase("a", "Running"),
        Step::AwaitPhase("b", "Running"),
        add_pod("unassigned", "set-adopts-surplus", json!({}), unassigned),
    ];
    let both = vec![
        ended("failed", "set-ended", "1"),
        ended("succeeded", "set-ended", "0"),
        Step::AwaitPhase("failed", "Failed"),
        Step::AwaitPhase("succeeded", "Succeeded"),
    ];
    vec![
        Case::set("set-adopts", of(1)).before(running("set-adopts")).all(1),
        Case::set("set-adopts-more", of(2)).before(running("set-adopts-more")).all(2),
        Case::set("set-adopts-surplus", of(2)).before(surplus).all(2),
        Case::set("set-ended", of(1)).before(both).wait(Want { pods: 3, ..Want::all(1) }),
        Case::set("set-ranks", of(4))
            .before(ranked)
            .wait(Want { ready: 2, available: 2, ..Want::all(4) })
            .replicas(3)
            .wait(Want { ready: 2, available: 2, ..Want::all(3) })
            .replicas(2)
            .all(2)
            .replicas(1)
            .all(1),
    ]
}

fn replication_controllers() -> Vec<Case> {
    let moved =
        |app: &str| json!({ "selector": { "app": app }, "template": { "metadata": { "labels": { "app": app } } } });
    let orphan = |app: &str| vec![add_pod("a", app, json!({}), json!({})), Step::AwaitPhase("a", "Running")];
    vec![
        Case::controller("rc", of(3)).all(3),
        Case::controller("rc-min-ready", json!({ "replicas": 2, "minReadySeconds": 1 })).all(2),
        Case::controller("rc-scaled", of(1)).all(1).replicas(3).all(3).then(Step::Scale(0)).all(0),
        Case::controller("rc-pod-deleted", of(2)).all(2).then(Step::DeletePod).all(2),
        Case::controller("rc-pod-failed", of(1)).all(1).then(Step::FailPod).wait(Want { pods: 2, ..Want::all(1) }),
        Case::controller("rc-adopts", of(2)).before(orphan("rc-adopts")).all(2),
        Case::controller("rc-releases", of(2))
            .all(2)
            .then(Step::EditPod("rc-releases", label("other")))
            .wait(Want { pods: 3, ..Want::all(2) }),
        // The selector of a ReplicationController can be changed.
        Case::controller("rc-moved", of(2)).all(2).edit(moved("other")).wait(Want { pods: 4, ..Want::all(2) }),
        Case::controller("rc-limited", of(3)).before(vec![Step::Limit("pods", 2)]).all(2),
        Case::controller("rc-deleted", of(2)).all(2).then(Step::Delete("Background")),
        Case::controller("rc-deleted-last", of(2)).all(2).then(Step::Delete("Foreground")),
        // Its pods are orphaned by default.
        Case::controller("rc-orphaned", of(2)).all(2).then(Step::Delete("")),
    ]
}
