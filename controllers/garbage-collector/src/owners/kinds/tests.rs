use std::time::Duration;

use client::discovery::ServedResource;

use super::*;

fn served(group: &str, version: &str, plural: &str, kind: &str, verbs: &[&str]) -> ServedResource {
    ServedResource::new(Resource::namespaced(group, version, plural, kind), true, verbs.iter().copied())
}

fn discovery(served: Vec<ServedResource>, failed: &[&str]) -> Discovery {
    let failed = failed.iter().map(|it| ((*it).to_owned(), "stale".to_owned())).collect();
    Discovery { served, failed, ..Discovery::default() }
}

fn now() -> Instant {
    clock::Clock::system().now()
}

fn plural(kinds: &Kinds, api_version: &str, kind: &str) -> Option<String> {
    let found = kinds.resource(&api_version.into(), &kind.into());
    found.ok().map(|it| it.collection(None))
}

fn all() -> Vec<ServedResource> {
    vec![
        served("", "v1", "bindings", "Binding", &["create"]),
        served("", "v1", "pods", "Pod", &["get", "delete"]),
        served("apps", "v1", "deployments", "Deployment", &["get"]),
        served("a.io", "v2", "things", "Thing", &["get"]),
        served("a.io", "v1", "things", "Thing", &["get"]),
        served("a.io", "v1", "thingtemplates", "Thing", &["create"]),
    ]
}

fn without_things() -> Vec<ServedResource> {
    all().into_iter().filter(|it| &*it.resource.group != "a.io").collect()
}

#[test]
fn every_served_version_is_known_and_nothing_else() {
    let kinds = Kinds::default();
    assert_eq!(plural(&kinds, "v1", "Pod"), None, "before the first answer");
    kinds.apply_discovery(&discovery(all(), &[]), &none(), now());
    for (api_version, kind, want) in [
        ("v1", "Pod", Some("/api/v1/pods")),
        ("apps/v1", "Deployment", Some("/apis/apps/v1/deployments")),
        ("a.io/v2", "Thing", Some("/apis/a.io/v2/things")),
        ("a.io/v1", "Thing", Some("/apis/a.io/v1/things")),
        ("a.io/v3", "Thing", None),
        ("v1", "Thing", None),
        ("", "Pod", None),
        ("v1", "Binding", None),
    ] {
        assert_eq!(plural(&kinds, api_version, kind).as_deref(), want, "{api_version} {kind}");
    }
    let unknown = kinds.resource(&"a.io/v3".into(), &"Thing".into()).unwrap_err();
    assert_eq!(unknown.to_string(), "unable to get REST mapping for a.io/v3/Thing: no such kind is known to be served");
}

fn things() -> BTreeSet<Resource> {
    ["v1", "v2"].map(|it| Resource::namespaced("a.io", it, "things", "Thing")).into()
}

fn none() -> BTreeSet<Resource> {
    BTreeSet::new()
}

#[test]
fn a_type_missing_from_an_answer_is_known_until_it_is_unserved() {
    let (kinds, start) = (Kinds::default(), now());
    let known = || ["a.io/v2", "a.io/v1"].map(|it| plural(&kinds, it, "Thing").is_some());
    let [first, second] = ["v1", "v2"].map(|it| Resource::namespaced("a.io", it, "things", "Thing"));
    let gone = |of: &Resource| kinds.0.read().gone.get(&TypeName::from(of)).copied();
    kinds.apply_discovery(&discovery(all(), &[]), &none(), start);
    assert!(kinds.resources().is_superset(&things()), "{:?}", kinds.resources());
    for answer in [Discovery::default(), discovery(without_things(), &["a.io/v1"]), discovery(without_things(), &[])] {
        kinds.apply_discovery(&answer, &none(), start);
        assert_eq!(known(), [true, true]);
    }
    let later = start + Duration::from_secs(30);
    kinds.apply_discovery(&discovery(without_things(), &[]), &BTreeSet::from([first.clone()]), later);
    assert_eq!((known(), gone(&first), gone(&second)), ([true, false], Some(later), None));
    kinds.remove(std::slice::from_ref(&second), later);
    assert_eq!((known(), gone(&second)), ([false, false], Some(later)), "removed by a response of the server");
    assert!(plural(&kinds, "v1", "Pod").is_some());
    kinds.apply_discovery(&discovery(all(), &[]), &none(), later);
    assert_eq!((known(), gone(&first), gone(&second)), ([true, true], None, None), "served again");
}

#[test]
fn a_kind_with_two_readable_resources_is_ambiguous() {
    let twice = || served("a.io", "v1", "allthings", "Thing", &["get"]);
    let kinds = Kinds::default();
    kinds.apply_discovery(&discovery(all(), &[]), &none(), now());
    // One more resource of the kind does not remove anything.
    kinds.apply_discovery(&discovery(all().into_iter().chain([twice()]).collect(), &[]), &none(), now());
    assert_eq!(plural(&kinds, "a.io/v1", "Thing"), None);
    assert_eq!(plural(&kinds, "a.io/v2", "Thing").as_deref(), Some("/apis/a.io/v2/things"));
    let unknown = kinds.resource(&"a.io/v1".into(), &"Thing".into()).unwrap_err();
    let want = "unable to get REST mapping for a.io/v1/Thing: things.a.io and allthings.a.io are of this kind";
    assert_eq!(unknown.to_string(), want);
    // The same resource twice in an answer is still one.
    let again = all().into_iter().chain(all());
    kinds.apply_discovery(&discovery(again.collect(), &[]), &BTreeSet::from([twice().resource]), now());
    assert_eq!(plural(&kinds, "a.io/v1", "Thing").as_deref(), Some("/apis/a.io/v1/things"));
}

#[test]
fn a_moved_type_is_ambiguous_until_its_old_place_is_unserved() {
    let cluster = |plural: &str| ServedResource::new(Resource::cluster("a.io", "v2", plural, "Thing"), true, ["get"]);
    let old = || served("a.io", "v2", "things", "Thing", &["get"]);
    for (moved, to) in [
        (cluster("allthings"), "/apis/a.io/v2/allthings"),
        (cluster("things"), "/apis/a.io/v2/things"),
        (served("a.io", "v2", "newthings", "Thing", &["get"]), "/apis/a.io/v2/newthings"),
    ] {
        let kinds = Kinds::default();
        kinds.apply_discovery(&discovery(all(), &[]), &none(), now());
        for _ in 0..2 {
            kinds.apply_discovery(&discovery(vec![moved.clone()], &["a.io/v1"]), &none(), now());
            assert_eq!(plural(&kinds, "a.io/v2", "Thing"), None, "{to}: one answer may lack what is served");
            assert_eq!(plural(&kinds, "a.io/v1", "Thing").as_deref(), Some("/apis/a.io/v1/things"));
        }
        kinds.apply_discovery(&discovery(vec![moved], &["a.io/v1"]), &BTreeSet::from([old().resource]), now());
        assert_eq!(plural(&kinds, "a.io/v2", "Thing").as_deref(), Some(to));
    }
}

#[test]
fn removed_types_of_random_names_are_not_kept() {
    let (kinds, start) = (Kinds::default(), now());
    let name = |number: u32| served("a.io", "v1", &format!("r{number}"), &format!("R{number}"), &["get"]);
    let at = |number: u32| start + Duration::from_secs(30) * number;
    for number in 0..1_000_u32 {
        let before = number.checked_sub(1).map(|it| name(it).resource);
        kinds.apply_discovery(&discovery(vec![name(number)], &[]), &before.into_iter().collect(), at(number));
        kinds.mark_merge_only(&name(number).resource);
    }
    let inner = kinds.0.read();
    assert_eq!((inner.known.len(), inner.gone.len(), inner.merge_only.len()), (1, 10, 1));
    drop(inner);
    let of = |number: u32| TypeName::from(&name(number).resource);
    let left = [998, 990, 989, 0].map(|it| kinds.remaining_block(&of(it), at(999)).as_secs());
    assert_eq!(left, [300, 60, 30, 0], "a removed type blocks no owner any more");
    assert!(kinds.is_merge_only(&name(999).resource) && !kinds.is_merge_only(&name(0).resource));
}
