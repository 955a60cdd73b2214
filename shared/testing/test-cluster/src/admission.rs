//! Admission: what the server adds to an object of a request, and why it may refuse it.

use serde_json::{Value, json};

use crate::{
    Failure,
    kinds::{self, Kind},
    meta,
    store::State,
};

/// Priority classes that always exist: name and value.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Admits a new object.
///
/// # Errors
/// 403 for a priority class that does not exist or that contradicts the pod's priority.
pub(crate) fn create(state: &State, kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    match kind.table.as_str() {
        kinds::PODS => {
            add_outage_tolerations(object);
            add_topology_labels(state, object);
            set_priority(state, kind, object)?;
        }
        kinds::NODES => add_not_ready_taint(object),
        kinds::VOLUME_CLAIMS => add_finalizer(object, "kubernetes.io/pvc-protection"),
        kinds::VOLUMES => add_finalizer(object, "kubernetes.io/pv-protection"),
        _ => {}
    }
    Ok(())
}

/// Admits a change of the object itself.
pub(crate) fn update(kind: &Kind, current: &Value, next: &mut Value) {
    if !kind.is(kinds::PODS) {
        return;
    }
    add_outage_tolerations(next);
    for field in ["priority", "preemptionPolicy"] {
        let old = &current["spec"][field];
        if next["spec"][field].is_null() && !old.is_null() {
            meta::map(next, "spec").insert(field.into(), old.clone());
        }
    }
}

/// By default a pod tolerates a node that is not ready or unreachable for five minutes (DefaultTolerationSeconds).
fn add_outage_tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |it: &Value| {
            let matches = |field: &str, wanted: &str| {
                let given = it[field].as_str().unwrap_or_default();
                given.is_empty() || given == wanted
            };
            matches("key", key) && matches("effect", "NoExecute")
        };
        let tolerations = meta::map(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
        let Value::Array(list) = tolerations else { continue };
        if !list.iter().any(covers) {
            list.push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
}

/// A pod that is created with a node name gets the topology labels of the node.
fn add_topology_labels(state: &State, pod: &mut Value) {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    copy_topology(state, &node, pod);
}

/// Copies the topology labels of a node to a pod that is bound to it.
pub(crate) fn copy_topology(state: &State, node: &str, pod: &mut Value) {
    let Some(node) = state.stored(kinds::NODES, node) else { return };
    for label in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"] {
        if let Some(value) = node.label(label) {
            let labels = meta::map(pod, "metadata").entry("labels").or_insert_with(|| json!({}));
            meta::as_map(labels).insert(label.into(), value.into());
        }
    }
}

/// Replaces the name of a priority class by its value.
fn set_priority(state: &State, kind: &Kind, pod: &mut Value) -> Result<(), Failure> {
    let refused = |pod: &Value, why: String| Err(Failure::forbidden(kind, meta::name(pod), &why));
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if name.is_empty() { Ok(default_class(state)) } else { class(state, &name).ok_or(()) };
    let Ok(class) = class else { return refused(pod, format!("no PriorityClass with name {name} was found")) };
    let Class { name, value, preemption } = class;
    if let Some(sent) = pod["spec"]["priority"].as_i64().filter(|it| *it != value) {
        let why = format!(
            "the integer value of priority ({sent}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return refused(pod, why);
    }
    if let Some(sent) = pod["spec"]["preemptionPolicy"].as_str().filter(|it| *it != preemption) {
        let why = format!(
            "the string value of PreemptionPolicy ({sent}) must not be provided in pod spec; priority admission \
             controller computed {preemption} from the given PriorityClass name"
        );
        return refused(pod, why);
    }
    let spec = meta::map(pod, "spec");
    if !name.is_empty() {
        spec.insert("priorityClassName".into(), name.into());
    }
    spec.insert("priority".into(), value.into());
    spec.insert("preemptionPolicy".into(), preemption.into());
    Ok(())
}

/// What a priority class sets in a pod.
struct Class {
    /// Empty for a pod without a class.
    name: String,
    value: i64,
    preemption: String,
}

impl Class {
    fn of(object: &Value) -> Self {
        Self {
            name: meta::name(object).to_owned(),
            value: object["value"].as_i64().unwrap_or(0),
            preemption: object["preemptionPolicy"].as_str().unwrap_or(PREEMPTS).to_owned(),
        }
    }
}

const PREEMPTS: &str = "PreemptLowerPriority";

fn class(state: &State, name: &str) -> Option<Class> {
    if let Some(object) = state.object(kinds::PRIORITY_CLASSES, name) {
        return Some(Class::of(&object));
    }
    let (name, value) = *SYSTEM_CLASSES.iter().find(|it| it.0 == name)?;
    Some(Class { name: name.into(), value, preemption: PREEMPTS.into() })
}

/// The class of pods without one: the default class with the lowest value, if any.
fn default_class(state: &State) -> Class {
    let classes = state.tables.get(kinds::PRIORITY_CLASSES).into_iter().flat_map(|it| it.objects.values());
    // Searched in the bytes first, because few classes are a default, and this runs for every new pod.
    const DEFAULT: &[u8] = b"\"globalDefault\":true";
    let may_be = classes.filter(|it| it.object().windows(DEFAULT.len()).any(|it| it == DEFAULT));
    let defaults = may_be.map(|it| it.decode()).filter(|it| it["globalDefault"] == true);
    let lowest = defaults.map(|it| Class::of(&it)).min_by_key(|it| it.value);
    lowest.unwrap_or_else(|| Class { name: String::new(), value: 0, preemption: PREEMPTS.into() })
}

/// A new node accepts no pods until a controller finds it ready.
fn add_not_ready_taint(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let taints = meta::map(node, "spec").entry("taints").or_insert_with(|| json!([]));
    let Value::Array(taints) = taints else { return };
    if !taints.iter().any(|it| it["key"] == KEY && it["effect"] == "NoSchedule") {
        taints.push(json!({ "key": KEY, "effect": "NoSchedule" }));
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers = meta::finalizers(object);
    if !finalizers.contains(&finalizer) {
        finalizers.push(finalizer);
        let finalizers: Vec<String> = finalizers.into_iter().map(str::to_owned).collect();
        meta::set(object, "finalizers", finalizers);
    }
}
