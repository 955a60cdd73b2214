use std::sync::Arc;

use super::*;
use crate::{
    Cached, ConditionStatus, Lease, Namespace, Node, NodeCondition, ObjectKey, Pod, PodPhase, StatusOwner, Uid,
};

/// A pod with UID `u-1` and owner `o-1`. `grace` is its terminationGracePeriodSeconds.
fn pod(name: &str, grace: &str) -> String {
    format!(
        r#"{{"kind":"Pod","metadata":{{"name":"{name}","namespace":"ns","uid":"u-1","resourceVersion":"12",
            "ownerReferences":[{{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"o-1","controller":true}}]}},
            "spec":{{"terminationGracePeriodSeconds":{grace}}},"status":{{"phase":"Running"}}}}"#
    )
}

fn event(what: &str, object: &str) -> String {
    format!(r#"{{"type":"{what}","object":{object}}}"#)
}

#[test]
fn events_carry_their_object() {
    for (word, want) in [("ADDED", Event::Added), ("MODIFIED", Event::Modified), ("DELETED", Event::Deleted)] {
        let Frame::Object(got, pod) = Pod::decode_frame(event(word, &pod("p", "30")).as_bytes()) else {
            panic!("{word}")
        };
        assert_eq!((got, pod.meta().key()), (want, ObjectKey::new("ns", "p")));
        assert_eq!((pod.phase, pod.termination_grace), (PodPhase::Running, Some(30)));
    }
}

#[test]
fn object_before_its_type_is_decoded() {
    let typed_first = Pod::decode_frame(event("MODIFIED", &pod("p", "30")).as_bytes());
    let text = format!(r#"{{"object":{},"type":"MODIFIED"}}"#, pod("p", "30"));
    assert!(matches!(typed_first, Frame::Object(..)));
    assert_eq!(Pod::decode_frame(text.as_bytes()), typed_first);
    let wrong = format!(r#"{{"object":{},"type":"MODIFIED"}}"#, pod("p", r#""x""#));
    assert!(matches!(Pod::decode_frame(wrong.as_bytes()), Frame::Unreadable(Event::Modified, ..)));
    let bookmark = r#"{"object":{"metadata":{"resourceVersion":"9"}},"type":"BOOKMARK"}"#;
    let want = Frame::Bookmark { version: Version::from(9), initial_end: false };
    assert_eq!(Pod::decode_frame(bookmark.as_bytes()), want);
}

#[test]
fn object_that_does_not_decode_keeps_its_metadata() {
    for (name, object, field) in [
        ("a number as text", pod("p", r#""30""#), "spec.terminationGracePeriodSeconds: "),
        ("a phase as number", pod("p", "30").replace(r#""Running""#, "1"), "status.phase: "),
        (
            "a malformed time",
            pod("p", "30").replace(r#""phase":"Running""#, r#""conditions":[{},{"lastTransitionTime":"now"}]"#),
            "status.conditions[1].lastTransitionTime: ",
        ),
        (
            "labels of numbers",
            pod("p", "30").replace(r#""uid":"u-1""#, r#""uid":"u-1","labels":{"a":1}"#),
            "metadata.labels.a: ",
        ),
    ] {
        let frame = Pod::decode_frame(event("DELETED", &object).as_bytes());
        let Frame::Unreadable(Event::Deleted, meta, why) = frame else { panic!("{name}: {frame:?}") };
        assert_eq!(meta.as_ref().key(), ObjectKey::new("ns", "p"), "{name}");
        assert_eq!((&meta.uid, &meta.version), (&Uid::new("u-1"), &Version::from(12)), "{name}");
        assert_eq!(meta.as_ref().controller().unwrap().uid, Uid::new("o-1"), "{name}");
        assert!(why.starts_with(field), "{name}: {why}");
        let alone = Pod::decode_object(object.as_bytes()).unwrap_err().to_string();
        assert!(alone.contains(field), "{name}: {alone}");
    }
}

#[test]
fn object_without_readable_metadata_is_garbage() {
    for (name, text) in [
        ("no JSON", "{".to_owned()),
        ("nothing", String::new()),
        ("no event", "[]".to_owned()),
        ("an unknown word", event("RENAMED", &pod("p", "30"))),
        ("no word", format!(r#"{{"object":{}}}"#, pod("p", "30"))),
        ("no object", r#"{"type":"ADDED"}"#.to_owned()),
        ("two events", format!("{0}{0}", event("ADDED", &pod("p", "30")))),
        ("no metadata", event("ADDED", "{}")),
        ("no name", event("ADDED", r#"{"metadata":{"uid":"u"}}"#)),
        ("a uid that is no text", event("ADDED", r#"{"metadata":{"name":"p","uid":7}}"#)),
        ("a malformed deletion time", event("ADDED", r#"{"metadata":{"name":"p","deletionTimestamp":"soon"}}"#)),
        ("a bookmark without an object", event("BOOKMARK", "{}")),
        ("an error without a status", event("ERROR", "1")),
    ] {
        assert!(matches!(Pod::decode_frame(text.as_bytes()), Frame::Garbage(_)), "{name}");
        assert!(matches!(Meta::decode_frame(text.as_bytes()), Frame::Garbage(_)), "{name}");
    }
    let Frame::Garbage(why) = Pod::decode_frame(event("ADDED", r#"{"metadata":{"name":"p","uid":7}}"#).as_bytes())
    else {
        panic!()
    };
    assert!(why.starts_with("metadata.uid: "), "{why}");
}

#[test]
fn bookmark_has_the_version_and_the_end_of_the_first_set() {
    for (annotations, initial_end) in [
        (r#"{"k8s.io/initial-events-end":"true"}"#, true),
        (r#"{"k8s.io/initial-events-end":"false"}"#, false),
        (r#"{"other":"true"}"#, false),
        ("null", false),
    ] {
        let object = format!(
            r#"{{"kind":"Pod","metadata":{{"creationTimestamp":null,"resourceVersion":"41","annotations":{annotations}}},
                "spec":{{"containers":null}}}}"#
        );
        let want = Frame::Bookmark { version: Version::from(41), initial_end };
        assert_eq!(Pod::decode_frame(event("BOOKMARK", &object).as_bytes()), want, "{annotations}");
    }
}

#[test]
fn an_error_is_a_status() {
    let object = r#"{"kind":"Status","metadata":{},"status":"Failure","message":"too old resource version",
        "reason":"Expired","code":410,"details":null}"#;
    let Frame::Error(status) = Pod::decode_frame(event("ERROR", object).as_bytes()) else { panic!() };
    assert_eq!((status.code, &*status.reason, &*status.message), (410, "Expired", "too old resource version"));
}

#[test]
fn page_with_an_undecodable_item_keeps_the_others() {
    let list = format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"50","continue":"abc","remainingItemCount":7}},
            "items":[{},{},{}]}}"#,
        pod("a", "1"),
        pod("b", "{}"),
        pod("c", "3")
    );
    let page = Pod::decode_page(list.as_bytes()).unwrap();
    assert_eq!((page.version, &*page.next, page.remaining), (Version::from(50), "abc", Some(7)));
    let seen: Vec<_> = page.items.iter().map(|it| it.as_ref().map(|it| &*it.meta.name)).collect();
    let [Ok("a"), Err((meta, why)), Ok("c")] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((&*meta.name, &meta.uid), ("b", &Uid::new("u-1")));
    assert!(why.starts_with("spec.terminationGracePeriodSeconds: "), "{why}");
}

#[test]
fn a_page_may_be_empty_but_must_be_a_list() {
    for text in
        [r#"{"metadata":{"resourceVersion":"5"},"items":null}"#, r#"{"items":[],"metadata":{"resourceVersion":"5"}}"#]
    {
        let page = Meta::decode_page(text.as_bytes()).unwrap();
        assert_eq!((page.items.len(), page.version, page.next.len(), page.remaining), (0, Version::from(5), 0, None));
    }
    for (text, field) in [
        (r#"{"kind":"Status","metadata":{},"code":200}"#, "items"),
        (r#"{"metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":1}}]}"#, "metadata.name"),
        (r#"{"metadata":{},"items":[{}]}"#, "metadata"),
        ("", "EOF"),
    ] {
        let why = Meta::decode_page(text.as_bytes()).unwrap_err().to_string();
        assert!(why.contains(field), "{why}");
    }
}

#[test]
fn metadata_is_complete_and_shared() {
    let text = r#"{"metadata":{"n\u0061me":"a","namespace":"ns","uid":"6B4E1C52-8D1F-4A0B-9B6E-0123456789AB",
        "resourceVersion":"3","finalizers":["f.io/1","f.io/2"],"deletionTimestamp":"2026-01-02T03:04:05Z",
        "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o","blockOwnerDeletion":true},{"controller":null}]}}"#;
    let meta = Meta::decode_object(text.as_bytes()).unwrap();
    assert_eq!((&*meta.name, &*meta.namespace, meta.deletion), ("a", "ns", Some(1_767_323_045)));
    assert_eq!(meta.uid.to_string(), "6B4E1C52-8D1F-4A0B-9B6E-0123456789AB");
    assert_eq!(*meta.finalizers, [crate::Atom::from("f.io/1"), crate::Atom::from("f.io/2")]);
    let [owner, empty] = &*meta.owners else { panic!("{:?}", meta.owners) };
    assert_eq!((&*owner.api_version, &*owner.kind, &*owner.name, &owner.uid), ("v1", "K", "n", &Uid::new("o")));
    assert_eq!((owner.controller, owner.block_owner_deletion), (false, true));
    assert!(empty.uid.is_empty() && !empty.controller);
    let again = Meta::decode_object(text.as_bytes()).unwrap();
    assert!(Arc::ptr_eq(&meta.owners, &again.owners) && Arc::ptr_eq(&meta.finalizers, &again.finalizers));
}

#[test]
fn unknown_enum_values_decode() {
    let text = pod("p", "30").replace(
        r#""phase":"Running""#,
        r#""phase":"Dreaming","conditions":[{"type":"New","status":"Maybe"}],"newField":{"x":[1]}"#,
    );
    let pod = Pod::decode_object(text.as_bytes()).unwrap();
    assert_eq!(pod.phase, PodPhase::Other("Dreaming".into()));
    assert_eq!(pod.condition("New").unwrap().status, ConditionStatus::Other("Maybe".into()));
    let node = r#"{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"Perhaps"}]}}"#;
    let [NodeCondition { status, .. }] = &*Node::decode_object(node.as_bytes()).unwrap().conditions else { panic!() };
    assert_eq!(status.as_str(), "Perhaps");
}

#[test]
fn acceptance_machinery_018_managed_fields_are_in_no_stored_object() {
    let fields = r#""managedFields":[{"manager":"zz-manager","operation":"Update","fieldsV1":{"f:x":{}}}]"#;
    let object = format!(r#"{{"metadata":{{"name":"a","namespace":"b",{fields},"uid":"u"}}}}"#);
    fn stored<T: Cached>(object: &str) -> [T; 3] {
        let Frame::Object(Event::Added, streamed) = T::decode_frame(event("ADDED", object).as_bytes()) else {
            panic!()
        };
        let list = format!(r#"{{"metadata":{{}},"items":[{object}]}}"#);
        let listed = T::decode_page(list.as_bytes()).unwrap().items.remove(0).ok().unwrap();
        [streamed, listed, T::decode_object(object.as_bytes()).unwrap()]
    }
    fn check<T: Cached>(object: &str) {
        for it in stored::<T>(object) {
            assert_eq!(&*it.meta().uid.to_string(), "u");
            assert!(!format!("{it:?}").contains("zz-manager"), "{it:?}");
        }
    }
    check::<Meta>(&object);
    check::<Pod>(&object);
    check::<Node>(&object);
    check::<Lease>(&object);
    check::<Namespace>(&object);
    for namespace in stored::<Namespace>(&object) {
        assert_eq!(namespace.raw_metadata().get(), r#"{"name":"a","namespace":"b","uid":"u"}"#);
    }
}

#[test]
fn partial_metadata_is_preferred_and_whole_objects_decode_too() {
    for watch in [true, false] {
        let media_types: Vec<&str> = Meta::accept(watch).split(',').collect();
        assert!(media_types.len() == 2 && media_types[0].contains(";as=PartialObjectMetadata"), "{media_types:?}");
        assert_eq!(media_types[1], "application/json");
    }
    // The response of a server that does not support PartialObjectMetadata.
    let pod = serde_json::json!({
        "apiVersion": "metrics.example.com/v1", "kind": "Sample",
        "spec": { "metadata": { "name": "not-this" }, "uid": "nor-this" },
        "metadata": { "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": { "x": "y" } },
        "status": { "items": [1, { "metadata": null }] },
    });
    let want =
        Meta { name: "a".into(), namespace: "ns".into(), uid: Uid::new("u"), version: 7.into(), ..Meta::default() };
    let list = serde_json::json!({ "kind": "SampleList", "metadata": { "resourceVersion": "9" }, "items": [pod] });
    let page = Meta::decode_page(list.to_string().as_bytes()).unwrap();
    assert_eq!((page.items, page.version), (vec![Ok(want.clone())], 9.into()));
    let frame = serde_json::json!({ "type": "ADDED", "object": pod });
    assert_eq!(Meta::decode_frame(frame.to_string().as_bytes()), Frame::Object(crate::Event::Added, want));
}
