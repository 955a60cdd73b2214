use serde_json::{Map, Value, json};

use super::apply;
use crate::kinds;

/// The object after a patch, or code and message of the failure.
fn patched(kind: &str, object: Value, patch: Value) -> Value {
    let Some(kind) = kinds::builtin().iter().find(|it| it.kind == kind) else { panic!("no {kind}") };
    let Value::Object(patch) = patch else { panic!("a patch is a map") };
    let mut object = object;
    match apply(kind, &mut object, patch) {
        Ok(()) => object,
        Err(failure) => {
            let status = failure.into_status();
            json!([status["code"], status["message"]])
        }
    }
}

/// One list of a pod's spec with this merge key, before and after.
fn spec(list: &str, stored: Value, patch: Value) -> Value {
    let mut spec = Map::new();
    spec.insert(list.to_owned(), stored);
    let object = json!({ "spec": spec });
    let after = patched("Pod", object, json!({ "spec": patch }));
    if after.is_array() { after } else { after["spec"].get(list).cloned().unwrap_or_default() }
}

#[test]
fn two_stored_elements_of_one_key_both_stay_and_the_first_is_changed() {
    let ports = |list: Value| json!([{ "name": "c", "ports": list }]);
    let stored = ports(json!([{ "containerPort": 80, "protocol": "TCP" }, { "containerPort": 80, "protocol": "UDP" }]));
    let patch = json!({ "containers": ports(json!([{ "containerPort": 80, "name": "web" }])) });
    let want = ports(json!([
        { "containerPort": 80, "protocol": "TCP", "name": "web" },
        { "containerPort": 80, "protocol": "UDP" },
    ]));
    assert_eq!(spec("containers", stored, patch), want);
}

#[test]
fn order_directive_applies_to_listed_elements_and_others_keep_their_order() {
    let names = |list: &[&str]| json!(list.iter().map(|it| json!({ "name": it })).collect::<Vec<_>>());
    type Case<'a> = (&'a str, &'a [&'a str], Option<&'a [&'a str]>, &'a [&'a str]);
    let cases: [Case<'_>; 7] = [
        ("a new one goes first", &["c3"], None, &["c3", "c1", "c2"]),
        ("all named", &["c3"], Some(&["c1", "c2", "c3"]), &["c1", "c2", "c3"]),
        ("some named", &["c3"], Some(&["c2", "c3"]), &["c1", "c2", "c3"]),
        ("reversed", &[], Some(&["c2", "c1"]), &["c2", "c1"]),
        ("unknown names", &[], Some(&["zz"]), &["c1", "c2"]),
        ("an empty order checks nothing", &["c3"], Some(&[]), &["c1", "c2", "c3"]),
        ("in patch order", &["c4", "c2", "c3", "c1"], None, &["c4", "c2", "c3", "c1"]),
    ];
    for (name, patch, order, want) in cases {
        let mut changes = Map::new();
        if !patch.is_empty() {
            changes.insert("containers".into(), names(patch));
        }
        if let Some(order) = order {
            changes.insert("$setElementOrder/containers".into(), names(order));
        }
        assert_eq!(spec("containers", names(&["c1", "c2"]), changes.into()), names(want), "{name}");
    }
}

#[test]
fn directives_in_lists() {
    let stored = json!([{ "name": "c1" }, { "name": "c2" }]);
    let cases = [
        ("delete", json!([{ "name": "c1", "$patch": "delete" }]), json!([{ "name": "c2" }])),
        ("delete nothing", json!([{ "name": "zz", "$patch": "delete" }]), stored.clone()),
        ("replace", json!([{ "$patch": "replace" }, { "name": "c9" }]), json!([{ "name": "c9" }])),
        ("an element with replace goes itself", json!([{ "$patch": "replace", "name": "c9" }]), json!([])),
        ("empty", json!([]), stored.clone()),
        (
            "without a key",
            json!([{ "$patch": "delete" }]),
            json!([500, "map: map[$patch:delete] does not contain declared merge key: name"]),
        ),
        (
            "unknown",
            json!([{ "name": "c1", "$patch": "foo" }]),
            json!([500, "unknown patch type: foo in map: map[$patch:foo name:c1]"]),
        ),
        (
            "merge",
            json!([{ "name": "c1", "$patch": "merge" }]),
            json!([500, "merging lists cannot yet be specified in the patch"]),
        ),
        (
            "scalars",
            json!(["c1"]),
            json!([500, "list element types are not identical: [[map[name:c1] map[name:c2]] [c1]]"]),
        ),
    ];
    for (name, patch, want) in cases {
        assert_eq!(spec("containers", stored.clone(), json!({ "containers": patch })), want, "{name}");
    }
}

#[test]
fn new_fields_lose_nulls_and_directives() {
    let cases = [
        ("nulls", json!({ "nodeSelector": { "a": null, "b": "1" } }), json!({ "nodeSelector": { "b": "1" } })),
        ("a map with $patch", json!({ "nodeSelector": { "$patch": "replace", "a": "1" } }), json!({})),
        (
            "an element with $patch",
            json!({ "tolerations": [{ "key": "a" }, { "$patch": "delete", "key": "b" }] }),
            json!({ "tolerations": [{ "key": "a" }] }),
        ),
    ];
    for (name, patch, want) in cases {
        assert_eq!(patched("Pod", json!({ "spec": {} }), json!({ "spec": patch })), json!({ "spec": want }), "{name}");
    }
}

#[test]
fn retained_keys_must_name_all_that_the_patch_sets() {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } });
    let patch = |it: Value| {
        let object = json!({ "spec": { "strategy": strategy } });
        patched("Deployment", object, json!({ "spec": { "strategy": it } }))
    };
    let after = patch(json!({ "type": "Recreate", "$retainKeys": ["type"] }));
    assert_eq!(after, json!({ "spec": { "strategy": { "type": "Recreate" } } }));
    let broken = json!([400, "invalid patch format of retainKeys"]);
    assert_eq!(patch(json!({ "type": "Recreate", "$retainKeys": [] })), broken);
    assert_eq!(patch(json!({ "$retainKeys": "type" })), broken);
    let after = patch(json!({ "rollingUpdate": null, "$retainKeys": ["type"] }));
    assert_eq!(after, json!({ "spec": { "strategy": { "type": "RollingUpdate" } } }));
}

#[test]
fn sets_of_scalars() {
    let stored = json!({ "metadata": { "finalizers": ["x/a", "x/b"] } });
    let cases = [
        (json!({ "finalizers": ["x/c", "x/a"] }), json!(["x/c", "x/a", "x/b"])),
        (json!({ "finalizers": ["x/n", "x/n"] }), json!(["x/n", "x/a", "x/b"])),
        (json!({ "$deleteFromPrimitiveList/finalizers": ["x/a", "zz"], "finalizers": ["x/c"] }), json!(["x/c", "x/b"])),
        (json!({ "$setElementOrder/finalizers": ["x/b", "x/a"] }), json!(["x/b", "x/a"])),
        (
            json!({ "$setElementOrder/finalizers": ["x/b"], "$deleteFromPrimitiveList/finalizers": ["x/a"] }),
            json!(["x/b"]),
        ),
    ];
    for (patch, want) in cases {
        let after = patched("ConfigMap", stored.clone(), json!({ "metadata": patch }));
        assert_eq!(after["metadata"]["finalizers"], want, "{patch}");
    }
}
