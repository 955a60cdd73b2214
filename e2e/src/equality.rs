//! The objects of two managers that did the same work, compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::eventually;

/// What must be equal, by a name that both managers use.
pub type Results = BTreeMap<String, Value>;

/// Fields of the metadata that differ between two runs.
const IDENTITY: [&str; 6] = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"];

/// How many differences a message has.
const MAX_SHOWN: usize = 20;

/// An object without its status and without what differs between two runs: its identity, its versions, and the uids of
/// its owners.
#[must_use]
pub fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !IDENTITY.contains(&field.as_str()));
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner["uid"] = json!("uid");
        }
    }
    object
}

/// A message without the random part of generated names, which begin with one of these prefixes.
#[must_use]
pub fn without_generated_names(message: &str, prefixes: &[String]) -> String {
    let word = |word: &str| {
        let bare = word.trim_start_matches('"');
        match prefixes.iter().find(|prefix| bare.starts_with(&**prefix)) {
            Some(prefix) => format!("{prefix}*"),
            None => word.to_owned(),
        }
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Waits until both managers have the same results, and returns their number.
///
/// # Errors
/// If they still differ after `within`; the message has the differences.
pub async fn until_equal(
    within: Duration,
    mut ours: impl AsyncFnMut() -> anyhow::Result<Results>,
    mut theirs: impl AsyncFnMut() -> anyhow::Result<Results>,
) -> anyhow::Result<usize> {
    eventually("the same objects", within, async || {
        let (ours, theirs) = (ours().await?, theirs().await?);
        let differences = differences(&ours, &theirs);
        let shown = differences.len().min(MAX_SHOWN);
        ensure!(
            differences.is_empty(),
            "{} differences, of which {shown}:\n{}",
            differences.len(),
            differences[..shown].join("\n")
        );
        Ok(Some(ours.len()))
    })
    .await
}

/// One text for each field that differs.
fn differences(ours: &Results, theirs: &Results) -> Vec<String> {
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        add_differences(name, ours.get(name), theirs.get(name), &mut found);
    }
    found
}

fn add_differences(path: &str, ours: Option<&Value>, theirs: Option<&Value>, found: &mut Vec<String>) {
    match (ours, theirs) {
        _ if ours == theirs => {}
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                add_differences(&format!("{path}.{key}"), one.get(key), other.get(key), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                add_differences(&format!("{path}[{index}]"), Some(one), Some(other), found);
            }
        }
        _ => {
            let text = |it: Option<&Value>| it.map_or("nothing".to_owned(), Value::to_string);
            found.push(format!("{path}:\n  ours       {}\n  upstream's {}", text(ours), text(theirs)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_status_are_not_compared() {
        let object = |uid: &str, image: &str| {
            json!({
                "metadata": { "name": "a", "uid": uid, "resourceVersion": uid, "ownerReferences": [{ "uid": uid }] },
                "spec": { "image": image }, "status": { "uid": uid },
            })
        };
        assert_eq!(comparable(&object("1", "x")), comparable(&object("2", "x")));
        assert_ne!(comparable(&object("1", "x")), comparable(&object("1", "y")));
        assert_eq!(comparable(&object("1", "x"))["metadata"]["name"], "a");
    }

    #[test]
    fn generated_names_are_shortened() {
        let shortened = |text: &str| without_generated_names(text, &["a-".to_owned(), "ns/a-".to_owned()]);
        assert_eq!(shortened("Created pod: a-x7b2q"), "Created pod: a-*");
        assert_eq!(shortened("pods \"a-x7b2q\" is forbidden on ns/a-1"), "pods a-* is forbidden on ns/a-*");
        assert_eq!(shortened("Created pod: b-x7b2q"), "Created pod: b-x7b2q");
    }

    #[test]
    fn every_difference_has_both_sides() {
        let ours = Results::from([("a".to_owned(), json!(1)), ("b".to_owned(), json!({ "x": [1, 2], "y": 1 }))]);
        let theirs = Results::from([("b".to_owned(), json!({ "x": [1, 3], "y": 1 })), ("c".to_owned(), json!(4))]);
        let found = differences(&ours, &theirs);
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], "b.x[1]:\n  ours       2\n  upstream's 3");
        assert!(found[2].contains("ours       nothing"), "{}", found[2]);
        assert!(differences(&ours, &ours).is_empty());
    }
}
