//! Bodies of the patches that remove owner references or clear blockOwnerDeletion.
//!
//! Built-in types accept a strategic merge patch, which names owners by uid and does not change the others. Custom
//! resources answer 415 to that. They get a JSON merge patch with the whole list from a live read with all fields,
//! valid only for that resourceVersion.

use api::{Meta, Uid, Version};
use serde_json::{Map, Value, json};

/// Removes these owners from this object: in `version` only, or in any version if it is `None`. An owner that the
/// object does not name is no error.
pub(crate) fn detach(object: &Uid, owners: &[Uid], version: Option<&Version>) -> Value {
    let gone = owners.iter().map(|owner| json!({ "$patch": "delete", "uid": owner }));
    let mut metadata = json!({ "uid": object, "ownerReferences": gone.collect::<Vec<_>>() });
    if let Some(version) = version {
        metadata["resourceVersion"] = json!(version);
    }
    json!({ "metadata": metadata })
}

/// The same for the object of a live read; `None` if it names none of them.
pub(crate) fn detach_live(live: &Value, owners: &[Uid]) -> Option<Value> {
    let named = references(live);
    let keep = |it: &&Value| !owners.iter().any(|owner| it["uid"].as_str() == Some(owner.to_string().as_str()));
    let kept: Vec<&Value> = named.iter().filter(keep).collect();
    (kept.len() < named.len()).then(|| full_list_patch(live, kept.into_iter().cloned().collect()))
}

/// Clears blockOwnerDeletion on all references. The patch is valid only for the checked resourceVersion, so that the
/// DELETE after it does not miss an owner that was added since.
pub(crate) fn unblock(object: &Meta) -> Value {
    let blocking = object.owners.iter().filter(|it| it.block_owner_deletion);
    let unblocked = blocking.map(|it| {
        json!({
            "apiVersion": &*it.api_version, "kind": &*it.kind, "name": &*it.name, "uid": it.uid, "controller": it.controller,
            "blockOwnerDeletion": false,
        })
    });
    let unblocked: Vec<Value> = unblocked.collect();
    json!({ "metadata": { "uid": object.uid, "resourceVersion": object.version, "ownerReferences": unblocked } })
}

/// The same for the object of a live read.
pub(crate) fn unblock_live(live: &Value) -> Value {
    let mut references = references(live).to_vec();
    for reference in references.iter_mut().filter_map(Value::as_object_mut) {
        if reference.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
            reference.insert("blockOwnerDeletion".to_owned(), Value::Bool(false));
        }
    }
    full_list_patch(live, references)
}

/// Sets exactly these finalizers.
pub(crate) fn finalizers<'a>(object: &Meta, left: impl Iterator<Item = &'a str>) -> Value {
    let left: Vec<&str> = left.collect();
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    json!({ "metadata": { "uid": object.uid, "resourceVersion": object.version, "finalizers": left } })
}

/// A merge patch replaces the whole list, so it contains all remaining references, or null for none.
fn full_list_patch(live: &Value, references: Vec<Value>) -> Value {
    let metadata = &live["metadata"];
    let mut body = Map::new();
    body.insert("uid".to_owned(), metadata["uid"].clone());
    body.insert("resourceVersion".to_owned(), metadata["resourceVersion"].clone());
    let references = if references.is_empty() { Value::Null } else { Value::Array(references) };
    body.insert("ownerReferences".to_owned(), references);
    json!({ "metadata": body })
}

fn references(live: &Value) -> &[Value] {
    live["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
