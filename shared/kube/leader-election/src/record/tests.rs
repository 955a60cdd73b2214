use serde_json::{Value, json};

use super::*;

fn config() -> Config {
    Config {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        namespace: "kube-system".into(),
        name: "kcm".into(),
        identity: "us".into(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn lease(json: &Value) -> Lease {
    Lease::decode(json.to_string().as_bytes()).unwrap()
}

fn body(lease: &Lease) -> Value {
    serde_json::to_value(lease).unwrap()
}

fn foreign() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "kcm", "namespace": "kube-system", "uid": "u1", "resourceVersion": "41",
            "labels": {"a": "b"}, "annotations": {"their": "note"}, "finalizers": ["x/y"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u2"}],
            "managedFields": [{"manager": "kcm"}], "unknown": {"deep": [1]},
        },
        "spec": {
            "holderIdentity": "go", "leaseDurationSeconds": 60, "leaseTransitions": 6,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:09.120000Z",
            "strategy": "OldestEmulationVersion", "preferredHolder": "other",
        },
    })
}

#[test]
fn a_put_changes_the_record_and_our_notes_and_nothing_else() {
    let mut want = foreign();
    want["metadata"].as_object_mut().unwrap().remove("managedFields");
    want["metadata"]["annotations"]["mini-kcm.io/fence"] = json!(r#"{"transitions":7,"ms":10000}"#);
    want["spec"]["holderIdentity"] = json!("us");
    want["spec"]["leaseDurationSeconds"] = json!(15);
    want["spec"]["leaseTransitions"] = json!(7);
    want["spec"]["acquireTime"] = json!("2026-01-01T01:00:00.000000Z");
    want["spec"]["renewTime"] = json!("2026-01-01T01:00:00.000000Z");
    let taken = lease(&foreign()).taken(&config(), at(1_767_229_200));
    assert_eq!(body(&taken), want);

    // A renewal keeps acquireTime and leaseTransitions.
    want["metadata"]["resourceVersion"] = json!("42");
    want["spec"]["renewTime"] = json!("2026-01-01T01:00:02.000000Z");
    let taken = taken.with_stored_version(Uid::new("u1"), Version::from(42));
    assert_eq!(body(&taken.renewed(&config(), at(1_767_229_202))), want);
}

#[test]
fn a_new_lease_is_upstreams_record() {
    let new = Lease::new(&config(), at(0));
    let want = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "kcm", "namespace": "kube-system",
            "annotations": {"mini-kcm.io/fence": r#"{"transitions":0,"ms":10000}"#},
        },
        "spec": {
            "holderIdentity": "us", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "1970-01-01T00:00:00.000000Z", "renewTime": "1970-01-01T00:00:00.000000Z",
        },
    });
    assert_eq!(body(&new), want);
}

#[test]
fn release_adds_notes_and_removes_the_fence() {
    let held = Lease::new(&config(), at(0)).taken(&config(), at(5));
    let notes = Notes { versions: BTreeMap::from([("namespaces".to_owned(), Version::from(123))]) };
    let released = held.released(Some(notes.clone()), at(9));
    let want = json!({
        "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 1,
        "acquireTime": "1970-01-01T00:00:09.000000Z", "renewTime": "1970-01-01T00:00:09.000000Z",
    });
    assert_eq!(body(&released)["spec"], want);
    let annotations = json!({ "mini-kcm.io/hand-over": r#"{"transitions":1,"versions":{"namespaces":"123"}}"# });
    assert_eq!(body(&released)["metadata"]["annotations"], annotations);

    let read = lease(&body(&released));
    assert_eq!(read.notes(), Some(&notes));
    assert_eq!(body(&read.taken(&config(), at(10)))["metadata"]["annotations"].as_object().unwrap().len(), 1);
    assert!(body(&held.released(None, at(9)))["metadata"].get("annotations").is_none(), "no empty map is left");
}

#[test]
fn notes_count_only_for_the_holder_that_wrote_them() {
    let fence = r#"{"transitions":7,"ms":9000}"#;
    let hand_over = r#"{"transitions":7,"versions":{"pods":"5"}}"#;
    let with = |holder: &str, transitions: i64, fence: &str, hand_over: &str| {
        lease(&json!({
            "metadata": { "annotations": { FENCE: fence, HAND_OVER: hand_over } },
            "spec": { "holderIdentity": holder, "leaseTransitions": transitions },
        }))
    };
    // name, lease, fence in seconds, notes
    let cases = [
        ("ours leads", with("a", 7, fence, hand_over), Some(9), false),
        ("ours has released", with("", 7, fence, hand_over), None, true),
        ("a Go manager leads since", with("go", 8, fence, hand_over), None, false),
        ("a Go manager has released since", with("", 8, fence, hand_over), None, false),
        ("notes that are no JSON", with("a", 7, "10s", "?"), None, false),
        ("notes of another form, of a holder", with("a", 7, r#"{"ms":"x"}"#, "[]"), None, false),
        ("notes of another form, released", with("", 7, "1", r#"{"transitions":7}"#), None, false),
    ];
    for (name, lease, fence, notes) in cases {
        assert_eq!((lease.fence(), lease.notes().is_some()), (fence.map(Duration::from_secs), notes), "{name}");
    }
}

#[test]
fn missing_and_null_fields_are_as_upstream_reads_them() {
    for json in [json!({}), json!({"metadata": null, "spec": null}), json!({"spec": {"holderIdentity": null}})] {
        let lease = lease(&json);
        assert_eq!((lease.record.holder(), lease.record.duration()), ("", Duration::ZERO), "{json}");
        assert!(lease.is_untouched() && lease.version.is_empty(), "{json}");
        assert_eq!(body(&lease.taken(&config(), at(0)))["spec"]["leaseTransitions"], 1);
    }
    let negative = lease(&json!({"spec": {"leaseDurationSeconds": -5, "renewTime": "x"}}));
    assert_eq!(negative.record.duration(), Duration::ZERO);
    assert!(!negative.is_untouched());
    for garbage in ["[]", "{", r#"{"spec":{"holderIdentity":5}}"#] {
        assert!(Lease::decode(garbage.as_bytes()).is_err(), "{garbage}");
    }
}

#[test]
fn times_have_six_decimals_as_go_writes_them() {
    let of = |nanos| format_micro_time(Timestamp::from_nanosecond(nanos).unwrap());
    assert_eq!(of(1_500_000_000), "1970-01-01T00:00:01.500000Z");
    assert_eq!(of(1_000_001_999), "1970-01-01T00:00:01.000001Z");
}
