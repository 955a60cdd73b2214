//! Strategic merge patches: maps are merged member by member, lists by the table of [`shapes`], and directives (names
//! that begin with `$`) express other operations.

mod lists;
mod shapes;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::{
    lists::merge_list,
    shapes::{Rule, Shape},
};
use crate::{Failure, kinds::Kind, meta};

/// In a map: the operation on the map. In an element of a list: the operation on the element or on the list.
const PATCH: &str = "$patch";
/// In a map: the only members that are kept.
const RETAIN: &str = "$retainKeys";
/// In the name of a member: values to remove from a list.
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// In the name of a member: the order of a list.
const ORDER: &str = "$setElementOrder";

/// Applies a patch to the stored object. A member of a wrong type is found later by the decoder.
///
/// # Errors
/// 400 and 500 for an invalid patch, as a real server responds.
pub(crate) fn apply(kind: &Kind, target: &mut Value, patch: Map<String, Value>) -> Result<(), Failure> {
    let original = std::mem::take(meta::as_map(target));
    *target = Value::Object(merge(original, patch, Shape::of(kind))?);
    Ok(())
}

fn merge(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    shape: &'static Shape,
) -> Result<Map<String, Value>, Failure> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(word)) if word == "replace" => {
            patch.remove(PATCH);
            return Ok(patch);
        }
        Some(Value::String(word)) if word == "delete" => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(other, &patch)),
    }
    retain(&mut original, &mut patch)?;
    lists::put_in_order(&mut original, &mut patch, shape)?;
    // Values are removed from a list before values are added to it.
    let (deletions, members): (Vec<_>, Vec<_>) = patch.into_iter().partition(|it| it.0.starts_with(DELETE_FROM));
    for (name, gone) in deletions {
        delete_from(&mut original, &name, gone, shape)?;
    }
    for (field, value) in members {
        merge_member(&mut original, field, value, shape)?;
    }
    Ok(original)
}

fn merge_member(
    original: &mut Map<String, Value>,
    field: String,
    value: Value,
    shape: &'static Shape,
) -> Result<(), Failure> {
    let rule = shape.rule(&field);
    let merged = match (original.remove(&field), value) {
        (_, Value::Null) => return Ok(()),
        (Some(Value::Object(stored)), Value::Object(patch)) if rule != Rule::Replace => {
            Some(Value::Object(merge(stored, patch, shape.inside(&field))?))
        }
        (Some(Value::Array(stored)), Value::Array(patch)) if matches!(rule, Rule::By(_) | Rule::Set) => {
            Some(Value::Array(merge_list(stored, patch, rule, shape.inside(&field))?))
        }
        (Some(stored), value) if same_type(&stored, &value) => Some(value),
        (_, value) => fresh(value),
    };
    if let Some(merged) = merged {
        original.insert(field, merged);
    }
    Ok(())
}

/// The value of a member that did not exist: nulls delete nothing, and a map with `$patch` has no effect.
fn fresh(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let members = map.into_iter().filter(|it| !it.1.is_null());
            Some(Value::Object(members.filter_map(|(field, value)| Some((field, fresh(value)?))).collect()))
        }
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(fresh).collect())),
        scalar => Some(scalar),
    }
}

fn same_type(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Removes the members that `$retainKeys` does not list; it must list all members that the patch sets.
fn retain(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Failure> {
    let broken = || Failure::bad_request("invalid patch format of retainKeys");
    let kept = match patch.remove(RETAIN) {
        None => return Ok(()),
        Some(Value::Array(kept)) => kept,
        Some(_) => return Err(broken()),
    };
    let named = |field: &str| kept.iter().any(|it| it == field);
    let sets = |(field, value): (&String, &Value)| {
        !value.is_null() && !field.starts_with(DELETE_FROM) && !field.starts_with(ORDER)
    };
    if patch.iter().any(|it| sets(it) && !named(it.0)) {
        return Err(broken());
    }
    original.retain(|field, _| named(field));
    Ok(())
}

/// `$deleteFromPrimitiveList/<field>`: removes values from a list, whatever its rule.
fn delete_from(
    original: &mut Map<String, Value>,
    name: &str,
    gone: Value,
    shape: &'static Shape,
) -> Result<(), Failure> {
    let Some((_, field)) = name.split_once('/') else {
        return Err(Failure::bad_request("invalid patch format of primitive list"));
    };
    let gone = match gone {
        Value::Null => {
            original.remove(field);
            return Ok(());
        }
        Value::Array(gone) => gone,
        _ => return Ok(()),
    };
    let Some(Value::Array(stored)) = original.get_mut(field) else { return Ok(()) };
    lists::check_types(stored, &gone)?;
    if stored.iter().chain(&gone).any(Value::is_object) {
        // Maps are not primitive values: the real server merges them as if the directive were absent.
        let merged = merge_list(std::mem::take(stored), gone, shape.rule(field), shape.inside(field))?;
        *stored = merged;
    } else {
        stored.retain(|it| !gone.contains(it));
    }
    Ok(())
}

fn unknown_directive(word: &Value, map: &Map<String, Value>) -> Failure {
    Failure::internal(format!("unknown patch type: {} in map: {}", shown(word), shown_map(map)))
}

/// A value as the real server's messages print it: `map[a:1 b:[x y]]`.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => shown_list(list),
        Value::Object(map) => shown_map(map),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The same for a map.
pub(crate) fn shown_map(map: &Map<String, Value>) -> String {
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    members.sort_by_key(|it| it.0);
    let members: Vec<String> = members.into_iter().map(|(field, value)| format!("{field}:{}", shown(value))).collect();
    format!("map[{}]", members.join(" "))
}

fn shown_list(list: &[Value]) -> String {
    let elements: Vec<String> = list.iter().map(shown).collect();
    format!("[{}]", elements.join(" "))
}
