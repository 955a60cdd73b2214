use serde_json::{Value, json};

use crate::Failure;

/// The limit of operations in one patch.
const MOST: usize = 10_000;
/// The limit of bytes that the copies of one patch add, because a small patch could create an object of any size.
const MOST_COPIED: usize = 3 * 1024 * 1024;

/// Applies a JSON patch (RFC 6902) with the deviations of a real server's library: negative indexes count from the end,
/// `replace` of a missing member adds it, a missing value is null, and the part before the first `/` of a path is
/// ignored.
///
/// # Errors
/// 400 for an invalid patch, 413 for too many operations, 422 for an operation that cannot be carried out and for too
/// large copies.
pub(crate) fn apply(document: &mut Value, patch: &Value) -> Result<(), Failure> {
    let operations = match patch {
        Value::Null => &Vec::new(),
        Value::Array(operations) => operations,
        other => return Err(undecodable(word(other), "Go value of type []handlers.jsonPatchOp")),
    };
    for operation in operations {
        check(operation)?;
    }
    if operations.len() > MOST {
        let message = format!("The allowed maximum operations in a JSON patch is {MOST}, got {}", operations.len());
        return Err(Failure::new(413, "RequestEntityTooLarge", message, Some(json!({}))));
    }
    let mut left = MOST_COPIED;
    for operation in operations {
        operate(document, operation, &mut left).ok_or_else(rejected)?;
    }
    Ok(())
}

fn check(operation: &Value) -> Result<(), Failure> {
    if !operation.is_object() && !operation.is_null() {
        return Err(undecodable(word(operation), "Go value of type handlers.jsonPatchOp"));
    }
    for field in ["op", "path", "from"] {
        let value = &operation[field];
        if !value.is_string() && !value.is_null() {
            let place = format!("Go struct field jsonPatchOp.{field} of type string");
            return Err(undecodable(word(value), &place));
        }
    }
    Ok(())
}

fn undecodable(word: &str, place: &str) -> Failure {
    Failure::bad_request(format!("error decoding patch: json: cannot unmarshal {word} into {place}"))
}

/// The Go name of the type of a JSON value.
pub(crate) fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn rejected() -> Failure {
    Failure::new(422, "Invalid", "the server rejected our request due to an error in our request", Some(json!({})))
}

/// Carries out one operation; `None` when that is impossible. `left` is how many bytes may still be copied.
fn operate(document: &mut Value, operation: &Value, left: &mut usize) -> Option<()> {
    let path = operation["path"].as_str()?;
    let value = || operation["value"].clone();
    match operation["op"].as_str()? {
        "add" => add(document, path, value()),
        "remove" => remove(document, path).map(drop),
        "replace" => replace(document, path, value()),
        "move" => {
            let moved = remove(document, operation["from"].as_str()?)?;
            add(document, path, moved)
        }
        "copy" => {
            let copied = get(document, operation["from"].as_str()?)?;
            *left = left.checked_sub(copied.to_string().len())?;
            let copied = copied.clone();
            add(document, path, copied)
        }
        "test" => (*get(document, path)? == operation["value"]).then_some(()),
        _ => None,
    }
}

/// The names of the parents of a member, and its own name.
fn split(path: &str) -> Option<(Vec<String>, String)> {
    let mut names: Vec<String> = path.split('/').skip(1).map(|it| it.replace("~1", "/").replace("~0", "~")).collect();
    let own = names.pop()?;
    Some((names, own))
}

/// The member; null if a map does not have it.
fn get<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let (parents, name) = split(path)?;
    let parent = parents.iter().try_fold(document, |value, name| member(value, name))?;
    match parent {
        Value::Object(map) => Some(map.get(&name).unwrap_or(&Value::Null)),
        _ => member(parent, &name),
    }
}

fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(name),
        Value::Array(list) => list.get(index(name, list.len())?),
        _ => None,
    }
}

/// The map or list that contains the member, and the member's name.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, name) = split(path)?;
    let parent = parents.iter().try_fold(document, |value, name| match value {
        Value::Object(map) => map.get_mut(name),
        Value::Array(list) => {
            let at = index(name, list.len())?;
            list.get_mut(at)
        }
        _ => None,
    });
    Some((parent?, name))
}

/// An index in a list of `len` elements; negative ones count from the end.
fn index(name: &str, len: usize) -> Option<usize> {
    let at: i64 = name.parse().ok()?;
    let len = i64::try_from(len).ok()?;
    usize::try_from(if at < 0 { at + len } else { at }).ok()
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, name) = parent(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(name, value);
        }
        Value::Array(list) if name == "-" => list.push(value),
        Value::Array(list) => {
            // Counted with the new element included: -1 appends.
            let at = index(&name, list.len() + 1)?;
            if at > list.len() {
                return None;
            }
            list.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return None;
        }
        *document = value;
        return Some(());
    }
    let (parent, name) = parent(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(name, value);
        }
        Value::Array(list) => {
            let at = index(&name, list.len())?;
            *list.get_mut(at)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = parent(document, path)?;
    match parent {
        Value::Object(map) => map.remove(&name),
        Value::Array(list) => {
            let at = index(&name, list.len())?;
            (at < list.len()).then(|| list.remove(at))
        }
        _ => None,
    }
}
