//! Decides which names a definition gets, given the other definitions of its group.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::meta;

/// The decision about the names of a definition.
#[derive(Debug, PartialEq)]
pub(super) struct NameDecision {
    /// The value of `status.acceptedNames`.
    pub(super) accepted: Value,
    /// Reason and message when a name is not accepted.
    pub(super) problem: Option<(&'static str, String)>,
}

/// Decides about the names of `definition`. `others` are the other definitions of its group with their accepted names.
pub(super) fn decide(definition: &Value, others: &[Value]) -> NameDecision {
    let (asked, own) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for names in others.iter().map(|it| &it["status"]["acceptedNames"]) {
        resources.extend([text(names, "plural"), text(names, "singular")]);
        resources.extend(meta::texts(names, "shortNames"));
        kinds.extend([text(names, "kind"), text(names, "listKind")]);
    }
    let mut accepted = own.as_object().cloned().unwrap_or_default();
    let mut problem = None;
    // Only the last conflict is reported.
    for (field, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        match conflict(asked, own, field, used) {
            Some(message) => problem = Some((reason, message)),
            None => accept(&mut accepted, asked, field),
        }
    }
    accept(&mut accepted, asked, "categories");
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| json!(""));
    }
    NameDecision { accepted: accepted.into(), problem }
}

fn text<'a>(names: &'a Value, field: &str) -> &'a str {
    names[field].as_str().unwrap_or_default()
}

fn accept(accepted: &mut Map<String, Value>, asked: &Value, field: &str) {
    match asked.get(field) {
        Some(value) => accepted.insert(field.into(), value.clone()),
        None => accepted.remove(field),
    };
}

/// Why a name, or one of several names, is not accepted. Names that the definition already has stay accepted.
fn conflict(asked: &Value, own: &Value, field: &str, used: &BTreeSet<&str>) -> Option<String> {
    let (wanted, had) = match field {
        "shortNames" => (meta::texts(asked, field), meta::texts(own, field)),
        _ => (vec![text(asked, field)], vec![text(own, field)]),
    };
    let taken = wanted.iter().filter(|it| !it.is_empty() && used.contains(**it) && !had.contains(it));
    let taken: Vec<String> = taken.map(|it| format!("{it:?} is already in use")).collect();
    match &taken[..] {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(names: Value) -> Value {
        json!({ "spec": { "names": names }, "status": { "acceptedNames": { "plural": "", "kind": "" } } })
    }

    fn has(names: Value) -> Value {
        json!({ "status": { "acceptedNames": names } })
    }

    #[test]
    fn used_names_are_not_accepted() {
        let foo = has(json!({
            "plural": "foos", "singular": "foo", "shortNames": ["fo"], "kind": "Foo", "listKind": "FooList",
        }));
        for (names, accepted, problem) in [
            (
                json!({ "plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList", "categories": ["all"] }),
                json!({ "plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList", "categories": ["all"] }),
                None,
            ),
            (
                json!({ "plural": "xoos", "singular": "foo", "kind": "Foo", "listKind": "FooList" }),
                json!({ "plural": "xoos", "kind": "" }),
                Some(("ListKindConflict", r#""FooList" is already in use"#.to_owned())),
            ),
            (
                json!({ "plural": "yoos", "singular": "yoo", "shortNames": ["foos", "fo"], "kind": "Yoo" }),
                json!({ "plural": "yoos", "singular": "yoo", "kind": "Yoo" }),
                Some(("ShortNamesConflict", r#"["foos" is already in use, "fo" is already in use]"#.to_owned())),
            ),
            (
                json!({ "plural": "voos", "singular": "fo", "kind": "Voo" }),
                json!({ "plural": "voos", "kind": "Voo" }),
                Some(("SingularConflict", r#""fo" is already in use"#.to_owned())),
            ),
        ] {
            let interception = decide(&definition(names), std::slice::from_ref(&foo));
            assert_eq!(interception, NameDecision { accepted, problem });
        }
    }

    #[test]
    fn accepted_name_stays_accepted() {
        let mut own = definition(json!({ "plural": "foos", "kind": "Foo", "shortNames": ["f"] }));
        own["status"]["acceptedNames"] = own["spec"]["names"].clone();
        let late = has(json!({ "plural": "f", "kind": "Foo" }));
        assert_eq!(decide(&own, &[late]).problem, None);
    }
}
