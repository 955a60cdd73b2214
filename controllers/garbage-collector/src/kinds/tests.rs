use discovery::Served;

use super::*;

fn served(group: &str, version: &str, plural: &str, kind: &str, verbs: &[&str]) -> Served {
    Served::new(Resource::namespaced(group, version, plural, kind), true, verbs.iter().copied())
}

fn discovery(served: Vec<Served>, failed: &[&str]) -> Discovery {
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

fn all() -> Vec<Served> {
    vec![
        served("", "v1", "bindings", "Binding", &["create"]),
        served("", "v1", "pods", "Pod", &["get", "delete"]),
        served("apps", "v1", "deployments", "Deployment", &["get"]),
        served("a.io", "v2", "things", "Thing", &["get"]),
        served("a.io", "v1", "things", "Thing", &["get"]),
        served("a.io", "v1", "thingtemplates", "Thing", &["create"]),
    ]
}

fn without_things() -> Vec<Served> {
    all().into_iter().filter(|it| &*it.resource.group != "a.io").collect()
}

#[test]
fn every_served_version_is_known_and_nothing_else() {
    let kinds = Kinds::default();
    assert_eq!(plural(&kinds, "v1", "Pod"), None, "before the first answer");
    kinds.learn(&discovery(all(), &[]), true, now());
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

#[test]
fn what_did_not_answer_is_known_as_before_and_what_went_is_known_no_more() {
    let one_root = BTreeMap::from([("/apis", "no answer".to_owned())]);
    let answers = [
        ("nothing", Discovery::default(), true, [true, true]),
        ("one version failed", discovery(without_things(), &["a.io/v1"]), true, [false, true]),
        ("a root failed", Discovery { broken: one_root, ..discovery(without_things(), &[]) }, true, [true, true]),
        ("an answer that is not believed", discovery(without_things(), &[]), false, [true, true]),
        ("they are gone", discovery(without_things(), &[]), true, [false, false]),
    ];
    for (name, answer, believed, want) in answers {
        let (kinds, start) = (Kinds::default(), now());
        kinds.learn(&discovery(all(), &[]), true, start);
        kinds.learn(&answer, believed, start);
        kinds.learn(&answer, believed, start + LACKED);
        let known = ["a.io/v2", "a.io/v1"].map(|it| plural(&kinds, it, "Thing").is_some());
        assert_eq!(known, want, "{name}");
        assert!(plural(&kinds, "v1", "Pod").is_some(), "{name}");
    }
}

#[test]
fn what_answers_lack_is_forgotten_after_two_looks_half_a_minute_apart_or_by_the_servers_own_word() {
    type Look = fn() -> (Discovery, bool);
    let with: Look = || (discovery(all(), &[]), true);
    let without: Look = || (discovery(without_things(), &[]), true);
    let silent: Look = || (discovery(without_things(), &["a.io/v1", "a.io/v2"]), true);
    let doubtful: Look = || (discovery(without_things(), &[]), false);
    // The answers, and whether it is known after the last of them.
    type Story<'a> = (&'a str, &'a [(u64, Look)], bool);
    let stories: [Story<'_>; 7] = [
        ("one look", &[(0, without)], true),
        ("two in a hurry", &[(0, without), (29, without)], true),
        ("two looks", &[(0, without), (30, without)], false),
        ("it comes back and goes", &[(0, without), (15, with), (30, without)], true),
        ("its group fails in between", &[(0, without), (15, silent), (30, without)], true),
        ("an answer that is not believed in between", &[(0, without), (15, doubtful), (30, without)], true),
        ("and lacks it as long again", &[(0, without), (15, silent), (20, without), (50, without)], false),
    ];
    for (name, looks, is_known) in stories {
        let (kinds, start) = (Kinds::default(), now());
        kinds.learn(&with().0, true, start);
        for (at, look) in looks {
            let (answer, believed) = look();
            kinds.learn(&answer, believed, start + Duration::from_secs(*at));
        }
        assert_eq!(plural(&kinds, "a.io/v2", "Thing").is_some(), is_known, "{name}");
        assert!(plural(&kinds, "v1", "Pod").is_some(), "{name}");
    }
    let (kinds, start) = (Kinds::default(), now());
    kinds.learn(&with().0, true, start);
    kinds.learn(&without().0, true, start);
    let [first, second] = ["v1", "v2"].map(|it| Resource::namespaced("a.io", it, "things", "Thing"));
    kinds.forget(std::slice::from_ref(&second), start + Duration::from_secs(1));
    assert_eq!(["a.io/v2", "a.io/v1"].map(|it| plural(&kinds, it, "Thing").is_some()), [false, true]);
    let gone = |of: &Resource| kinds.gone_since(&TypeName::from(of));
    assert_eq!((gone(&second), gone(&first)), (Some(start), None));
}

#[test]
fn a_kind_of_two_resources_that_can_be_read_leads_to_neither_of_them() {
    let twice = || served("a.io", "v1", "allthings", "Thing", &["get"]);
    let kinds = Kinds::default();
    kinds.learn(&discovery(all(), &[]), true, now());
    // One more is no answer that takes something away.
    kinds.learn(&discovery(all().into_iter().chain([twice()]).collect(), &[]), false, now());
    assert_eq!(plural(&kinds, "a.io/v1", "Thing"), None);
    assert_eq!(plural(&kinds, "a.io/v2", "Thing").as_deref(), Some("/apis/a.io/v2/things"));
    let unknown = kinds.resource(&"a.io/v1".into(), &"Thing".into()).unwrap_err();
    let want = "unable to get REST mapping for a.io/v1/Thing: things.a.io and allthings.a.io are of this kind";
    assert_eq!(unknown.to_string(), want);
    // Told of twice, it is one all the same.
    let again = all().into_iter().chain(all());
    kinds.learn(&discovery(again.collect(), &[]), true, now());
    assert_eq!(plural(&kinds, "a.io/v1", "Thing").as_deref(), Some("/apis/a.io/v1/things"));
}

#[test]
fn a_type_that_moved_is_where_it_is_told_now() {
    let kinds = Kinds::default();
    kinds.learn(&discovery(all(), &[]), true, now());
    let cluster = Served::new(Resource::cluster("a.io", "v2", "allthings", "Thing"), true, ["get"]);
    kinds.learn(&discovery(vec![cluster], &["a.io/v1"]), false, now());
    assert_eq!(plural(&kinds, "a.io/v2", "Thing").as_deref(), Some("/apis/a.io/v2/allthings"));
    assert_eq!(plural(&kinds, "a.io/v1", "Thing").as_deref(), Some("/apis/a.io/v1/things"));
}

#[test]
fn it_is_known_since_when_a_type_is_served_no_more() {
    let thing = TypeName { api_version: "a.io/v2".into(), kind: "Thing".into() };
    let (kinds, first) = (Kinds::default(), now());
    let later = first + std::time::Duration::from_secs(30);
    kinds.learn(&discovery(without_things(), &[]), true, first);
    assert_eq!(kinds.gone_since(&thing), None, "it never was");
    kinds.learn(&discovery(all(), &[]), true, first);
    kinds.learn(&discovery(without_things(), &[]), false, first);
    assert_eq!(kinds.gone_since(&thing), None, "that is not believed");
    kinds.learn(&discovery(without_things(), &[]), true, first);
    assert_eq!(kinds.gone_since(&thing), None, "nor is one answer");
    kinds.learn(&discovery(without_things(), &[]), true, later);
    kinds.learn(&discovery(without_things(), &[]), true, later + LACKED);
    assert_eq!(kinds.gone_since(&thing), Some(first));
    kinds.learn(&discovery(all(), &[]), true, later);
    assert_eq!(kinds.gone_since(&thing), None, "it is again");
}
