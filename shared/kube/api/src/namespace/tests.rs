use serde_json::json;

use super::*;
use crate::{ConditionStatus, Version};

const TERMINATING: &str = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a","uid":"U-1","resourceVersion":"7",
    "labels":{"x":"y"},"managedFields":[{"manager":"kubectl"}],"finalizers":["example.com/other"],"newField":1.50,
    "deletionTimestamp":"2026-01-02T03:04:05Z"},
    "spec":{"finalizers":["kubernetes","example.com/mine"],"newSpec":true},
    "status":{"phase":"Terminating","newStatus":{"deep":[1]},"conditions":[
        {"type":"Foreign","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-02T03:04:06Z","seen":3},
        {"type":"Gone","status":"False"}]}}"#;

#[test]
fn namespace_keeps_the_json_that_its_writes_need() {
    let namespace = Namespace::decode_object(TERMINATING.as_bytes()).unwrap();
    assert_eq!((&*namespace.meta.name, namespace.meta.deletion), ("a", Some(1_767_323_045)));
    assert_eq!((namespace.meta.uid.to_string(), &namespace.meta.version), ("U-1".to_owned(), &Version::from(7)));
    assert_eq!(&*namespace.meta.finalizers, [Atom::from("example.com/other")]);
    assert_eq!(*namespace.spec_finalizers, [Atom::from("kubernetes"), Atom::from("example.com/mine")]);
    assert_eq!(namespace.phase, NamespacePhase::Terminating);
    assert_eq!(
        namespace.spec.as_ref().unwrap().get(),
        r#"{"finalizers":["kubernetes","example.com/mine"],"newSpec":true}"#
    );

    let raw = namespace.raw_metadata().get();
    assert!(raw.contains(r#""labels":{"x":"y"}"#) && raw.contains(r#""newField":1.50"#), "{raw}");
    assert!(!raw.contains("managedFields") && !raw.contains("kubectl"), "{raw}");
}

#[test]
fn unknown_status_fields_are_kept() {
    let namespace = Namespace::decode_object(TERMINATING.as_bytes()).unwrap();
    let mut foreign = namespace.conditions[0].clone();
    foreign.status = ConditionStatus::False;
    let ours = Condition { type_: "Ours".into(), status: ConditionStatus::True, ..Condition::default() };
    let status = namespace.status_with(&NamespacePhase::Active, &[ours, foreign]).unwrap();
    assert_eq!(
        status,
        json!({ "phase": "Active", "newStatus": { "deep": [1] }, "conditions": [
            { "type": "Ours", "status": "True", "reason": "", "message": "", "lastTransitionTime": null },
            { "type": "Foreign", "status": "False", "reason": "R", "message": "m",
              "lastTransitionTime": "2026-01-02T03:04:06Z", "seen": 3 },
        ] })
    );
}

#[test]
fn namespace_without_spec_and_status_decodes() {
    for text in [
        r#"{"metadata":{"name":"a"}}"#,
        r#"{"metadata":{"name":"a"},"spec":null,"status":null}"#,
        r#"{"metadata":{"name":"a"},"spec":{"finalizers":null},"status":{"phase":null,"conditions":null}}"#,
    ] {
        let namespace = Namespace::decode_object(text.as_bytes()).unwrap();
        assert!(namespace.spec_finalizers.is_empty() && namespace.conditions.is_empty());
        assert_eq!(namespace.phase.as_str(), "");
        let status = namespace.status_with(&NamespacePhase::Terminating, &[]).unwrap();
        assert_eq!(status, json!({ "phase": "Terminating", "conditions": [] }));
    }
}

#[test]
fn decoding_error_names_the_field() {
    for (text, field) in [
        (r#"{"metadata":{"name":"a"},"spec":{"finalizers":[1]}}"#, "spec.finalizers[0]: "),
        (
            r#"{"metadata":{"name":"a"},"status":{"conditions":[{"lastTransitionTime":"x"}]}}"#,
            "status.conditions[0].lastTransitionTime: ",
        ),
        (r#"{"metadata":{"name":"a","deletionTimestamp":"soon"}}"#, "metadata.deletionTimestamp: "),
    ] {
        let why = Namespace::decode_object(text.as_bytes()).unwrap_err().to_string();
        assert!(why.contains(field), "{why}");
    }
}
