use serde_json::{Map, Value};

use super::{
    ORDER, PATCH, fresh, merge,
    shapes::{Rule, Shape},
    shown, shown_list, unknown_directive,
};
use crate::Failure;

/// Merges two lists by a rule. Elements of the patch have the order of the patch; see [`weave`] for the others.
pub(super) fn merge_list(
    stored: Vec<Value>,
    patch: Vec<Value>,
    rule: Rule,
    inside: &'static Shape,
) -> Result<Vec<Value>, Failure> {
    check_types(&stored, &patch)?;
    let maps = stored.iter().chain(&patch).any(Value::is_object);
    match rule {
        Rule::By(key) if maps => {
            let (stored, patch) = match special(stored, patch, key)? {
                Special::Replaced(list) => return Ok(list),
                Special::Merge { stored, patch } => (stored, patch),
            };
            let before = stored.clone();
            let merged = merge_elements(stored, &patch, key, inside)?;
            Ok(weave(merged, &patch, &before, |a, b| a[key] == b[key]))
        }
        Rule::Set | Rule::By(_) if !maps => {
            let mut merged = Vec::<Value>::new();
            for value in stored.iter().chain(&patch) {
                if !merged.contains(value) {
                    merged.push(value.clone());
                }
            }
            Ok(weave(merged, &patch, &stored, |a, b| a == b))
        }
        _ => Err(Failure::internal("cannot merge lists without merge key")),
    }
}

/// Checks that the elements of both lists have one type, which is not a list.
pub(super) fn check_types(stored: &[Value], patch: &[Value]) -> Result<(), Failure> {
    let mut all = stored.iter().chain(patch);
    let Some(first) = all.next() else { return Ok(()) };
    if first.is_null() || !all.all(|it| super::same_type(first, it)) {
        let lists = format!("[{} {}]", shown_list(stored), shown_list(patch));
        return Err(Failure::internal(format!("list element types are not identical: {lists}")));
    }
    if first.is_array() {
        return Err(Failure::internal("lists of lists are not supported"));
    }
    Ok(())
}

enum Special {
    /// One element had `$patch: replace`: the list consists of the others.
    Replaced(Vec<Value>),
    Merge {
        stored: Vec<Value>,
        patch: Vec<Value>,
    },
}

/// Carries out the elements with `$patch`.
fn special(mut stored: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Special, Failure> {
    let (mut plain, mut replaces) = (Vec::new(), false);
    for element in patch {
        match (element.get(PATCH), element.as_object()) {
            (Some(Value::String(word)), _) if word == "replace" => replaces = true,
            (Some(Value::String(word)), Some(map)) if word == "delete" => {
                let Some(name) = map.get(key) else { return Err(without_key(&element, key)) };
                stored.retain(|it| it[key] != *name);
            }
            (Some(Value::String(word)), _) if word == "merge" => {
                return Err(Failure::internal("merging lists cannot yet be specified in the patch"));
            }
            (Some(other), Some(map)) => return Err(unknown_directive(other, map)),
            _ => plain.push(element),
        }
    }
    Ok(if replaces { Special::Replaced(plain) } else { Special::Merge { stored, patch: plain } })
}

/// Each element of the patch changes the first stored element with its key, or is appended.
fn merge_elements(
    mut stored: Vec<Value>,
    patch: &[Value],
    key: &str,
    inside: &'static Shape,
) -> Result<Vec<Value>, Failure> {
    for element in patch {
        let Some(name) = element.get(key) else { return Err(without_key(element, key)) };
        match (stored.iter_mut().find(|it| it[key] == *name), element) {
            (Some(Value::Object(found)), Value::Object(changes)) => {
                *found = merge(std::mem::take(found), changes.clone(), inside)?;
            }
            _ => stored.extend(fresh(element.clone())),
        }
    }
    Ok(stored)
}

fn without_key(element: &Value, key: &str) -> Failure {
    Failure::internal(format!("map: {} does not contain declared merge key: {key}", shown(element)))
}

/// Orders a merged list: elements in `wanted` have its order, the others have their order in `before`. When the two
/// sequences are merged, one of the others comes first only if both were in `before` and it was earlier; so a new
/// element comes before all elements that are not in `wanted`.
fn weave(merged: Vec<Value>, wanted: &[Value], before: &[Value], same: impl Fn(&Value, &Value) -> bool) -> Vec<Value> {
    let place = |list: &[Value], element: &Value| list.iter().position(|it| same(it, element));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|it| place(wanted, it).is_some());
    named.sort_by_key(|it| place(wanted, it));
    others.sort_by_key(|it| place(before, it).unwrap_or(usize::MAX));
    let mut woven = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (named.peek(), others.peek()) {
            (None, None) => return woven,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(a), Some(b)) => {
                matches!((place(before, a), place(before, b)), (Some(a), Some(b)) if b < a)
            }
        };
        woven.extend(if other_first { others.next() } else { named.next() });
    }
}

/// Carries out every `$setElementOrder/<field>` together with the patch of that field.
pub(super) fn put_in_order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    shape: &'static Shape,
) -> Result<(), Failure> {
    let orders: Vec<String> = patch.keys().filter(|it| it.starts_with(ORDER)).cloned().collect();
    for name in orders {
        let wanted = match patch.remove(&name) {
            Some(Value::Array(wanted)) => wanted,
            other => return Err(no_list(&other.unwrap_or_default())),
        };
        let Some((_, field)) = name.split_once('/') else {
            return Err(Failure::bad_request("invalid patch format of setElementOrder list"));
        };
        let stored = take_list(original, field)?;
        let changes = take_list(patch, field)?;
        if stored.is_none() && changes.is_none() {
            continue;
        }
        let rule = shape.rule(field);
        if let Some(changes) = &changes {
            check_order(changes, &wanted, rule)?;
        }
        let before = stored.clone().unwrap_or_default();
        let merged = match (stored, changes) {
            (Some(stored), Some(changes)) if rule == Rule::Plain => {
                drop(stored);
                changes
            }
            (Some(stored), Some(changes)) => merge_list(stored, changes, rule, shape.inside(field))?,
            (None, Some(changes)) => changes.into_iter().filter_map(fresh).collect(),
            (stored, None) => stored.unwrap_or_default(),
        };
        let woven = weave_by_rule(field, merged, &wanted, &before, rule)?;
        original.insert(field.to_owned(), Value::Array(woven));
    }
    Ok(())
}

fn weave_by_rule(
    field: &str,
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    rule: Rule,
) -> Result<Vec<Value>, Failure> {
    match rule {
        Rule::By(key) => {
            for (at, element) in wanted.iter().enumerate() {
                match element {
                    Value::Object(map) if map.contains_key(key) => {}
                    Value::Object(_) => return Err(without_key(element, key)),
                    _ => return Err(Failure::internal(format!("value for key {at} is not a map"))),
                }
            }
            Ok(weave(merged, wanted, before, |a, b| a[key] == b[key]))
        }
        _ if merged.iter().chain(wanted).any(Value::is_object) => {
            // A real server closes the connection here.
            Err(Failure::not_served(&format!("{ORDER}/{field}, whose elements have no merge key,")))
        }
        _ => Ok(weave(merged, wanted, before, |a, b| a == b)),
    }
}

/// Checks that all elements that the patch sets are in the wanted order, in the same sequence.
fn check_order(changes: &[Value], wanted: &[Value], rule: Rule) -> Result<(), Failure> {
    let same = |a: &Value, b: &Value| match rule {
        Rule::By(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        _ => a == b,
    };
    let mut set = changes.iter().filter(|it| it.get(PATCH).and_then(Value::as_str) != Some("delete")).peekable();
    for element in wanted {
        set.next_if(|it| same(it, element));
    }
    if set.peek().is_none() || wanted.is_empty() {
        return Ok(());
    }
    let (changes, wanted) = (shown_list(changes), shown_list(wanted));
    let message = format!("The order in patch list:\n{changes}\n doesn't match {ORDER} list:\n{wanted}\n");
    Err(Failure::internal(message))
}

fn take_list(map: &mut Map<String, Value>, field: &str) -> Result<Option<Vec<Value>>, Failure> {
    match map.remove(field) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(no_list(&other)),
    }
}

fn no_list(other: &Value) -> Failure {
    let word = match other {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => "map[string]interface {}",
    };
    Failure::internal(format!("expected a []interface {{}}, but received a {word}"))
}
