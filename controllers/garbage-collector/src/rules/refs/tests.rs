use api::{OwnerRef, Version};

use super::*;

fn live() -> Value {
    json!({ "metadata": {
        "name": "x", "uid": "item", "resourceVersion": "7",
        "ownerReferences": [
            { "apiVersion": "v1", "kind": "A", "name": "a", "uid": "a", "blockOwnerDeletion": true, "future": [1] },
            { "apiVersion": "v1", "kind": "B", "name": "b", "uid": "b", "controller": true },
        ],
    } })
}

fn owner(name: &str, blocks: bool) -> OwnerRef {
    OwnerRef {
        api_version: "v1".into(),
        kind: "Kind".into(),
        name: name.into(),
        uid: Uid::new(name),
        controller: true,
        block_owner_deletion: blocks,
    }
}

fn meta() -> Meta {
    Meta {
        uid: Uid::new("item"),
        version: Version::from(7),
        owners: [owner("a", true), owner("b", false)].into(),
        ..Meta::default()
    }
}

#[test]
fn references_are_compared_by_uid() {
    let want = json!({ "metadata": { "uid": "item", "ownerReferences": [
        { "$patch": "delete", "uid": "a" }, { "$patch": "delete", "uid": "c" },
    ] } });
    assert_eq!(detach(&Uid::new("item"), &[Uid::new("a"), Uid::new("c")], None), want);
}

#[test]
fn references_are_removed_only_from_the_checked_state() {
    let want = json!({ "metadata": { "uid": "item", "resourceVersion": "7", "ownerReferences": [
        { "$patch": "delete", "uid": "a" },
    ] } });
    assert_eq!(detach(&Uid::new("item"), &[Uid::new("a")], Some(&Version::from(7))), want);
}

#[test]
fn unknown_fields_of_other_references_are_kept() {
    let left = |owner: &str| detach_live(&live(), &[Uid::new(owner), Uid::new("c")]);
    let with = |list: Value| json!({ "metadata": { "uid": "item", "resourceVersion": "7", "ownerReferences": list } });
    assert_eq!(left("b"), Some(with(json!([live()["metadata"]["ownerReferences"][0]]))));
    assert_eq!(left("a"), Some(with(json!([live()["metadata"]["ownerReferences"][1]]))));
    assert_eq!(left("c"), None, "it names neither");
    assert_eq!(detach_live(&live(), &[Uid::new("a"), Uid::new("b")]), Some(with(Value::Null)));
    assert_eq!(detach_live(&json!({ "metadata": {} }), &[Uid::new("a")]), None);
}

#[test]
fn only_blocking_references_are_unblocked_and_only_in_the_checked_state() {
    let want = json!({ "metadata": { "uid": "item", "resourceVersion": "7", "ownerReferences": [{
        "apiVersion": "v1", "kind": "Kind", "name": "a", "uid": "a", "controller": true, "blockOwnerDeletion": false,
    }] } });
    assert_eq!(unblock(&meta()), want);
    let mut unblocked = live();
    unblocked["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(false);
    let want =
        json!({ "uid": "item", "resourceVersion": "7", "ownerReferences": unblocked["metadata"]["ownerReferences"] });
    assert_eq!(unblock_live(&live())["metadata"], want);
}

#[test]
fn removing_the_last_finalizer_writes_null() {
    let body = |left: &[&str]| finalizers(&meta(), left.iter().copied())["metadata"]["finalizers"].clone();
    assert_eq!(body(&["x", "y"]), json!(["x", "y"]));
    assert_eq!(body(&[]), Value::Null);
    assert_eq!(finalizers(&meta(), std::iter::empty())["metadata"]["resourceVersion"], json!("7"));
    assert_eq!(finalizers(&meta(), std::iter::empty())["metadata"]["uid"], json!("item"));
}
