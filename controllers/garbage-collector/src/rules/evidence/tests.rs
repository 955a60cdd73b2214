use api::{Details, Status};

use super::*;

fn owner_coordinates() -> Coordinates {
    Coordinates {
        kind: "ConfigMap".into(),
        api_version: "v1".into(),
        namespace: "ns".into(),
        name: "owner".into(),
        uid: Uid::new("u1"),
    }
}

fn maps() -> Resource {
    Resource::namespaced("", "v1", "configmaps", "ConfigMap")
}

fn not_found(name: &str) -> ApiError {
    not_found_as(name, "", "")
}

fn not_found_as(name: &str, kind: &str, group: &str) -> ApiError {
    let [name, kind, group] = [name, kind, group].map(str::to_owned);
    let details = Details { name, kind, group, ..Details::default() };
    ApiError::from_status(Status { code: 404, details, ..Status::default() }, None)
}

fn meta(uid: &str, deletion: Option<i64>, finalizers: &[&str]) -> Meta {
    Meta {
        name: "owner".into(),
        uid: Uid::new(uid),
        version: Version::from(7),
        finalizers: finalizers.iter().map(|it| (*it).into()).collect(),
        deletion,
        ..Meta::default()
    }
}

#[test]
fn a_404_is_a_proof_only_if_it_names_the_object() {
    let gone = evaluate_read(&maps(), &owner_coordinates(), Err(not_found("owner"))).unwrap();
    assert!(
        matches!(&gone, OwnerState::Gone(gone) if gone.evidence == Evidence::NotFound && gone.owner == owner_coordinates())
    );
    for name in ["", "other", "owner/status"] {
        let err = evaluate_read(&maps(), &owner_coordinates(), Err(not_found(name))).unwrap_err();
        assert!(matches!(err, Unproved::NotServed(_)), "{name:?}: {err}");
    }
    let nameless = Coordinates { name: "".into(), ..owner_coordinates() };
    assert!(evaluate_read(&maps(), &nameless, Err(not_found(""))).is_err(), "an empty name matches no object");
}

#[test]
fn a_404_about_another_kind_of_the_same_name_proves_nothing() {
    for (kind, group, resource, proves) in [
        ("configmaps", "", maps(), true),
        ("ConfigMap", "", maps(), true),
        ("configmap", "", maps(), true),
        ("namespaces", "", maps(), false),
        ("configmaps", "example.com", maps(), false),
        ("widgets", "example.com", Resource::namespaced("example.com", "v1", "widgets", "Widget"), true),
        ("widgets", "", Resource::namespaced("example.com", "v1", "widgets", "Widget"), true),
        ("widgets", "apps", Resource::namespaced("example.com", "v1", "widgets", "Widget"), false),
        ("companions", "example.com", Resource::namespaced("example.com", "v1", "widgets", "Widget"), false),
    ] {
        let weighed = evaluate_read(&resource, &owner_coordinates(), Err(not_found_as("owner", kind, group)));
        assert_eq!(matches!(weighed, Ok(OwnerState::Gone(_))), proves, "{kind} {group}");
        assert!(proves || matches!(weighed, Err(Unproved::NotServed(_))), "{kind} {group}");
    }
}

#[test]
fn no_other_error_proves_anything() {
    for code in [400, 401, 403, 405, 406, 409, 410, 422, 429, 500, 503, 504] {
        let details = Details { name: "owner".to_owned(), ..Details::default() };
        let err = ApiError::from_read(Status { code, details, ..Status::default() }, None);
        assert!(matches!(evaluate_read(&maps(), &owner_coordinates(), Err(err)), Err(Unproved::Failed(_))), "{code}");
    }
    assert!(matches!(
        evaluate_read(&maps(), &owner_coordinates(), Err(ApiError::unknown("cut off"))),
        Err(Unproved::Failed(_))
    ));
}

#[test]
fn acceptance_gc_035_another_uid_under_the_name_proves_that_the_first_is_gone() {
    let gone = evaluate_read(&maps(), &owner_coordinates(), Ok(meta("u2", None, &[]))).unwrap();
    assert!(matches!(&gone, OwnerState::Gone(gone) if gone.evidence == Evidence::Replaced(Uid::new("u2"))));
    assert!(
        matches!(evaluate_read(&maps(), &owner_coordinates(), Ok(meta("", None, &[]))), Err(Unproved::Unrelated)),
        "an object without uid"
    );
    let elsewhere = Meta { name: "other".into(), ..meta("u2", None, &[]) };
    assert!(
        matches!(evaluate_read(&maps(), &owner_coordinates(), Ok(elsewhere)), Err(Unproved::Unrelated)),
        "another object than the requested one"
    );
}

#[test]
fn an_owner_waits_only_while_it_is_deleted_in_the_foreground() {
    for (name, deletion, finalizers, waits) in [
        ("exists", None, &[][..], false),
        ("exists with a finalizer", None, &[FOREGROUND], false),
        ("is deleted with another finalizer", Some(1), &["example.com/x"], false),
        ("orphans", Some(1), &[ORPHAN], false),
        ("acceptance_gc_014: orphans first", Some(1), &[FOREGROUND, ORPHAN], false),
        ("is deleted after its dependents", Some(1), &["example.com/x", FOREGROUND], true),
    ] {
        let owner_state = evaluate_read(&maps(), &owner_coordinates(), Ok(meta("u1", deletion, finalizers))).unwrap();
        match owner_state {
            OwnerState::Waiting(waiting) => assert!(waits && *waiting.version() == Version::from(7), "{name}"),
            OwnerState::Live(uid) => assert!(!waits && uid == Uid::new("u1"), "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn checking_needs_one_owner_state_for_each_reference() {
    let reference = |name: &str| OwnerRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: name.into(),
        uid: Uid::new(name),
        controller: false,
        block_owner_deletion: false,
    };
    let object = || Object {
        coordinates: owner_coordinates(),
        resource: maps(),
        meta: Meta { owners: [reference("a"), reference("b")].into(), ..meta("u1", None, &[]) },
    };
    let live = |name: &str| OwnerState::Live(Uid::new(name));
    assert!(CheckedObject::new(object(), vec![live("a"), live("b")]).is_some());
    assert!(CheckedObject::new(object(), vec![live("a")]).is_none(), "one is missing");
    assert!(CheckedObject::new(object(), vec![live("b"), live("a")]).is_none(), "of the other one");
}
