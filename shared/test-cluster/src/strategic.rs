use serde_json::{Map, Value};

use crate::{Failure, kinds::Kind, meta};

/// How a list takes part in a strategic merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Replaced as a whole.
    Atomic,
    /// Merged element by element, which this field tells apart.
    By(&'static str),
    /// A set of scalars.
    Set,
}

/// Applies a strategic merge patch.
///
/// # Errors
/// 500 for what breaks the format, 501 for directives that no client of ours sends.
pub(crate) fn apply(kind: &Kind, target: &mut Value, patch: Map<String, Value>) -> Result<(), Failure> {
    merge(kind, meta::as_map(target), patch, &mut Vec::new())
}

fn merge(
    kind: &Kind,
    target: &mut Map<String, Value>,
    patch: Map<String, Value>,
    path: &mut Vec<String>,
) -> Result<(), Failure> {
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(stored)) = target.get_mut(list) {
                stored.retain(|it| !gone.contains(it));
            }
            continue;
        }
        if field.starts_with('$') {
            return Err(Failure::not_served(&format!("strategic merge directive {field}")));
        }
        path.push(field.clone());
        match value {
            Value::Null => {
                target.remove(&field);
            }
            Value::Object(inner) => merge_map(kind, target, &field, inner, path)?,
            Value::Array(elements) => merge_list(kind, target, &field, elements, path)?,
            scalar => {
                target.insert(field, scalar);
            }
        }
        path.pop();
    }
    Ok(())
}

fn merge_map(
    kind: &Kind,
    target: &mut Map<String, Value>,
    field: &str,
    mut patch: Map<String, Value>,
    path: &mut Vec<String>,
) -> Result<(), Failure> {
    let directive = patch.remove("$patch");
    match directive.as_ref().and_then(Value::as_str) {
        Some("delete") => {
            target.remove(field);
            return Ok(());
        }
        Some("replace") => {
            target.remove(field);
        }
        None | Some("merge") => {}
        Some(other) => return Err(Failure::internal(format!("unknown patch type: {other} in map: {patch:?}"))),
    }
    // Merging into an empty map strips nulls and directives of what is new.
    let inner = target.entry(field).or_insert_with(|| Value::Object(Map::new()));
    merge(kind, meta::as_map(inner), patch, path)
}

fn merge_list(
    kind: &Kind,
    target: &mut Map<String, Value>,
    field: &str,
    patch: Vec<Value>,
    path: &mut Vec<String>,
) -> Result<(), Failure> {
    let rule = rule(kind, path);
    let stored = match target.remove(field) {
        Some(Value::Array(stored)) if rule != Rule::Atomic => stored,
        _ => Vec::new(),
    };
    let merged = match rule {
        Rule::Atomic => {
            if patch.iter().any(|it| it.get("$patch").is_some()) {
                return Err(Failure::not_served(&format!("$patch in the atomic list {}", path.join("."))));
            }
            patch
        }
        Rule::Set => order(stored, patch, |a, b| a == b),
        Rule::By(key) => merge_elements(kind, stored, patch, key, path)?,
    };
    target.insert(field.into(), Value::Array(merged));
    Ok(())
}

fn merge_elements(
    kind: &Kind,
    mut stored: Vec<Value>,
    mut patch: Vec<Value>,
    key: &str,
    path: &mut Vec<String>,
) -> Result<Vec<Value>, Failure> {
    let directive = |it: &Value| it["$patch"].as_str().map(str::to_owned);
    let lone = |it: &Value| it.as_object().is_some_and(|map| map.len() == 1);
    if patch.iter().any(|it| directive(it).as_deref() == Some("replace") && lone(it)) {
        patch.retain(|it| directive(it).is_none());
        stored.clear();
    }
    let mut touched = Vec::new();
    for element in patch {
        let name = element[key].clone();
        if name.is_null() {
            let message = format!("map: {element} does not contain declared merge key: {key}");
            return Err(Failure::internal(message));
        }
        match directive(&element).as_deref() {
            Some("delete") => {
                stored.retain(|it| it[key] != name);
                continue;
            }
            None | Some("merge") => {}
            Some(other) => return Err(Failure::internal(format!("unknown patch type: {other} in map: {element}"))),
        }
        let Value::Object(mut fields) = element else { continue };
        fields.remove("$patch");
        let at = stored.iter().position(|it| it[key] == name);
        let mut merged = at.map_or(Value::Null, |it| stored[it].clone());
        merge(kind, meta::as_map(&mut merged), fields, path)?;
        if let Some(at) = at {
            stored[at] = merged.clone();
        }
        touched.push(merged);
    }
    Ok(order(stored, touched, |a, b| a[key] == b[key]))
}

/// Weaves the touched elements into the stored ones: a stored one goes first only if it stood before a touched one that
/// existed too.
fn order(stored: Vec<Value>, touched: Vec<Value>, same: impl Fn(&Value, &Value) -> bool) -> Vec<Value> {
    let mut first = Vec::<Value>::new();
    for element in touched {
        if !first.iter().any(|it| same(it, &element)) {
            first.push(element);
        }
    }
    let place = |element: &Value| stored.iter().position(|it| same(it, element));
    let mut touched = first.iter().map(|it| (place(it), it)).peekable();
    let rest = stored.iter().enumerate().filter(|it| !first.iter().any(|other| same(other, it.1)));
    let mut rest = rest.peekable();
    let mut woven = Vec::new();
    loop {
        match (touched.peek(), rest.peek()) {
            (Some((Some(at), _)), Some((earlier, _))) if earlier < at => {
                woven.extend(rest.next().map(|it| it.1.clone()));
            }
            (Some(_), _) => woven.extend(touched.next().map(|it| it.1.clone())),
            (None, Some(_)) => woven.extend(rest.next().map(|it| it.1.clone())),
            (None, None) => return woven,
        }
    }
}

/// The lists that merge, by kind and path.
fn rule(kind: &Kind, path: &[String]) -> Rule {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path[..] {
        ["metadata", "finalizers"] => return Rule::Set,
        ["metadata", "ownerReferences"] => return Rule::By("uid"),
        ["status", "conditions"] if kind.status_apart() => return Rule::By("type"),
        _ => {}
    }
    let own = match (kind.kind.as_str(), &path[..]) {
        ("Node", ["status", "addresses"]) => Rule::By("type"),
        ("Node", ["spec", "podCIDRs"]) => Rule::Set,
        ("Service", ["spec", "ports"]) => Rule::By("port"),
        ("ServiceAccount", ["secrets"]) => Rule::By("name"),
        ("ServiceAccount", ["imagePullSecrets"]) => Rule::By("name"),
        ("Pod", ["status", "podIPs" | "hostIPs"]) => Rule::By("ip"),
        ("Pod", ["status", "resourceClaimStatuses"]) => Rule::By("name"),
        _ => Rule::Atomic,
    };
    let pod_spec = match (kind.kind.as_str(), &path[..]) {
        ("Pod", ["spec", rest @ ..]) => rest,
        ("Deployment" | "ReplicaSet" | "Job", ["spec", "template", "spec", rest @ ..]) => rest,
        ("Deployment" | "ReplicaSet" | "Job", ["spec", "template", rest @ ..]) => {
            return match rest {
                ["metadata", "finalizers"] => Rule::Set,
                ["metadata", "ownerReferences"] => Rule::By("uid"),
                _ => Rule::Atomic,
            };
        }
        _ => return own,
    };
    match pod_spec {
        ["containers" | "initContainers" | "ephemeralContainers" | "imagePullSecrets"]
        | ["schedulingGates" | "volumes" | "resourceClaims"] => Rule::By("name"),
        ["hostAliases"] => Rule::By("ip"),
        ["topologySpreadConstraints"] => Rule::By("topologyKey"),
        ["containers" | "initContainers" | "ephemeralContainers", field] => match *field {
            "ports" => Rule::By("containerPort"),
            "env" => Rule::By("name"),
            "volumeMounts" => Rule::By("mountPath"),
            "volumeDevices" => Rule::By("devicePath"),
            _ => Rule::Atomic,
        },
        _ => own,
    }
}
