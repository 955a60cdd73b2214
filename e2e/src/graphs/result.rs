//! The result of a graph, without what differs between any two runs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::observed_objects::{ObservedObject, ObservedObjects};

/// One object that a script created.
#[derive(Debug, Clone)]
pub(super) struct CreatedObject {
    /// Its name in the script.
    pub(super) name: String,
    pub(super) uid: String,
}

/// The state of the objects that a script created, and their events. `words` replace values that are chosen by the
/// run, such as the names of its namespaces.
pub(super) fn result(observed: &ObservedObjects, made: &[CreatedObject], words: &[(String, String)]) -> Value {
    let mut replaced = words.to_vec();
    replaced.extend(made.iter().map(|it| (it.uid.clone(), format!("<uid of {}>", it.name))));
    // A text that begins with another one is replaced before it.
    replaced.sort_by_key(|(it, _)| std::cmp::Reverse(it.len()));
    let replace_names = |text: &Value| {
        let text = text.as_str().unwrap_or_default().to_owned();
        replaced.iter().fold(text, |text, (it, word)| text.replace(it, word))
    };
    let mut objects = Map::new();
    for CreatedObject { name, uid } in made {
        // For an object that was created again, the last one counts; earlier ones are shown too if they still exist.
        let state = observed.find(uid).map_or_else(|| json!("never seen"), |it| object(&it, &replace_names));
        let before = objects.insert(name.clone(), state);
        if let Some(before) = before.filter(|it| it != "gone") {
            objects.insert(format!("{name} before"), before);
        }
    }
    let ours = |event: &&Value| made.iter().any(|it| event["involvedObject"]["uid"] == it.uid);
    let is_object = |event: &&Value| made.iter().any(|it| event["metadata"]["uid"] == it.uid);
    let all_events = observed.events();
    let events = counted(all_events.iter().filter(ours).filter(|it| !is_object(it)), &replace_names);
    json!({ "objects": objects, "events": events })
}

fn object(seen: &ObservedObject, replace_names: &impl Fn(&Value) -> String) -> Value {
    if seen.gone {
        return json!("gone");
    }
    let meta = &seen.last["metadata"];
    let mut kept = Map::new();
    let owners: Vec<Value> =
        meta["ownerReferences"].as_array().into_iter().flatten().map(|it| owner(it, replace_names)).collect();
    if !owners.is_empty() {
        kept.insert("owners".to_owned(), Value::Array(owners));
    }
    if meta["finalizers"].as_array().is_some_and(|it| !it.is_empty()) {
        kept.insert("finalizers".to_owned(), meta["finalizers"].clone());
    }
    if meta["deletionTimestamp"].is_string() {
        kept.insert("deleting".to_owned(), json!(true));
    }
    Value::Object(kept)
}

fn owner(reference: &Value, replace_names: &impl Fn(&Value) -> String) -> Value {
    let [api_version, kind, name, uid] = ["apiVersion", "kind", "name", "uid"].map(|it| replace_names(&reference[it]));
    let blocks = match &reference["blockOwnerDeletion"] {
        Value::Bool(true) => ", blocks",
        Value::Bool(false) => ", does not block",
        _ => "",
    };
    let controls = if reference["controller"] == true { ", controls" } else { "" };
    json!(format!("{api_version} {kind} {name}, {uid}{blocks}{controls}"))
}

/// Equal ones are counted together.
fn counted<'a>(events: impl Iterator<Item = &'a Value>, replace_names: &impl Fn(&Value) -> String) -> Vec<Value> {
    let mut counts: BTreeMap<String, (u64, Value)> = BTreeMap::new();
    for event in events {
        let about = &event["involvedObject"];
        let described = json!({
            "type": event["type"],
            "reason": event["reason"],
            "message": replace_names(&event["message"]),
            "from": event["source"]["component"],
            "reporting": event["reportingComponent"],
            "about": format!("{} {} {}", replace_names(&about["apiVersion"]), replace_names(&about["kind"]), replace_names(&about["name"])),
            "in": replace_names(&event["metadata"]["namespace"]),
        });
        let count = event["count"].as_u64().unwrap_or(1);
        counts.entry(described.to_string()).or_insert((0, described)).0 += count;
    }
    let with_count = |(count, mut event): (u64, Value)| {
        event["count"] = json!(count);
        event
    };
    counts.into_values().map(with_count).collect()
}
