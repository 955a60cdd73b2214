use super::{CORE as CORE_ROOT, *};

const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
  {"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[
    {"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced",
     "singularResource":"pod","verbs":["create","delete","deletecollection","get","list","watch"],
     "subresources":[{"subresource":"status","verbs":["get"]}]},
    {"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","verbs":["delete","list"]},
    {"resource":"bindings","responseKind":{"kind":"Binding"},"scope":"Namespaced","verbs":["create"]},
    {"resource":"odd","responseKind":null,"scope":"Namespaced","verbs":null}]}]}]}"#;

const GROUPS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[
  {"metadata":{"name":"example.com"},"versions":[
    {"version":"v2","freshness":"Current","resources":[
      {"resource":"new","responseKind":{"kind":"New"},"scope":"Namespaced","verbs":["delete","list"]}]},
    {"version":"v1","freshness":"Current","resources":[
      {"resource":"new","responseKind":{"kind":"New"},"scope":"Namespaced","verbs":["delete","list"]},
      {"resource":"old","responseKind":{"kind":"Old"},"scope":"Namespaced","verbs":["delete"]}]}]},
  {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale","resources":null}]}]}"#;

fn groups(document: &str) -> Vec<ListedGroup> {
    match root(document.as_bytes()).unwrap() {
        Root::Aggregated(groups) => groups,
        Root::Names(names) => panic!("no aggregated response: {names:?}"),
    }
}

fn from(document: &str) -> Discovery {
    assemble(groups(document), BTreeMap::new())
}

/// `group/version/plural`, with `P` where it is preferred, `L` where it lists and `C` where it is cluster-scoped.
fn words<'a>(served: impl IntoIterator<Item = &'a ServedResource>) -> Vec<String> {
    let word = |it: &ServedResource| {
        let marks = [(it.preferred, "P"), (it.has_verb("list"), "L"), (!it.resource.namespaced, "C")];
        let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        format!("{}/{} {marks}", it.resource.api_version(), it.resource.plural)
    };
    served.into_iter().map(word).collect()
}

#[test]
fn every_resource_has_its_kind_its_scope_and_its_verbs() {
    let discovery = from(CORE);
    assert_eq!(words(&discovery.served), ["v1/pods PL", "v1/nodes PLC", "v1/bindings P", "v1/odd P"]);
    let pods = &discovery.served[0];
    assert_eq!(pods.resource, Resource::namespaced("", "v1", "pods", "Pod"));
    assert!(pods.has_verb("deletecollection") && !pods.has_verb("patch") && !discovery.served[3].has_verb("delete"));
    assert_eq!((discovery.failure(), discovery.parse_failure()), (None, None));
}

#[test]
fn all_versions_are_listed_and_each_resource_is_preferred_in_the_first_that_serves_it() {
    let discovery = from(GROUPS);
    let all = ["example.com/v2/new PL", "example.com/v1/new L", "example.com/v1/old P"];
    assert_eq!(words(&discovery.served), all);
    assert_eq!(words(discovery.choose(|_| true)), [all[0], all[2]]);
    let older = discovery.choose(|it| &*it.resource.version == "v1");
    assert_eq!(words(older), [all[1], all[2]], "the first that is wanted");
}

#[test]
fn absence_proves_nothing_where_reading_failed() {
    let broken = |root| BTreeMap::from([(root, "outcome unknown".to_owned())]);
    let core = Resource::namespaced("", "v1", "gone", "Gone");
    let stale = Resource::namespaced("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");
    let named = Resource::namespaced("example.com", "v1", "gone", "Gone");
    for (name, discovery, want) in [
        ("a stale group", from(GROUPS), [true, false, true]),
        ("the groups' root", assemble(groups(CORE), broken(NAMED)), [true, false, false]),
        ("the core's root", assemble(groups(GROUPS), broken(CORE_ROOT)), [false, false, true]),
        ("nothing was read", Discovery::default(), [false, false, false]),
    ] {
        assert_eq!([&core, &stale, &named].map(|it| discovery.has_read(it)), want, "{name}");
    }
}

#[test]
fn stale_group_is_named_with_its_api_service_and_hides_no_other() {
    let discovery = from(GROUPS);
    assert_eq!(
        discovery.failure().unwrap(),
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
         metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1 \
         (see APIService v1beta1.metrics.k8s.io)"
    );
    assert_eq!(discovery.choose(|_| true).len(), 2);
}

#[test]
fn failed_root_is_reported_and_the_other_one_is_used() {
    let discovery = assemble(groups(CORE), BTreeMap::from([(NAMED, "outcome unknown".to_owned())]));
    assert_eq!(discovery.failure().unwrap(), "/apis: outcome unknown");
    assert_eq!(discovery.served.len(), 4);
}

#[test]
fn response_without_any_resource_is_a_failure() {
    let nothing = r#"{"kind":"APIGroupDiscoveryList","items":null}"#;
    let discovery = from(nothing);
    assert!(discovery.failure().is_some() && !discovery.is_complete());
}

#[test]
fn legacy_form_lists_groups_with_the_preferred_version_first() {
    let core = r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;
    assert_eq!(root(core.as_bytes()).unwrap(), Root::Names(vec![vec![GroupVersion("v1".to_owned())]]));
    let named = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"a.io",
        "versions":[{"groupVersion":"a.io/v1","version":"v1"},{"groupVersion":"a.io/v2","version":"v2"}],
        "preferredVersion":{"groupVersion":"a.io/v2","version":"v2"}}]}"#;
    let Root::Names(names) = root(named.as_bytes()).unwrap() else { panic!("names expected") };
    let names: Vec<String> = names.concat().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a.io/v2", "a.io/v1"]);
    assert_eq!(GroupVersion("a.io/v2".to_owned()).path(), "/apis/a.io/v2");
    assert_eq!(GroupVersion("v1".to_owned()).path(), "/api/v1");
}

#[test]
fn subresources_in_the_legacy_form_are_left_out() {
    let list = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
        {"name":"pods","singularName":"","namespaced":true,"kind":"Pod","verbs":["delete","list"]},
        {"name":"pods/eviction","namespaced":true,"kind":"Eviction","verbs":["create","delete"]}]}"#;
    let resources = resources(list.as_bytes());
    let version = ListedVersion { at: GroupVersion("v1".to_owned()), resources };
    let discovery = assemble(vec![ListedGroup { versions: vec![version] }], BTreeMap::new());
    assert_eq!(words(&discovery.served), ["v1/pods PL"]);
}

#[test]
fn malformed_group_version_is_reported_and_the_others_are_used() {
    let version = |at: &str| ListedVersion { at: GroupVersion(at.to_owned()), resources: Ok(Vec::new()) };
    let mut all = groups(CORE);
    all.push(ListedGroup { versions: vec![version("a/b/c"), version("d/")] });
    let discovery = assemble(all, BTreeMap::new());
    assert_eq!(
        discovery.parse_failure().unwrap(),
        "unexpected GroupVersion string: a/b/c, unexpected GroupVersion string: d/"
    );
    assert_eq!((discovery.failure(), discovery.served.len()), (None, 4));
}

#[test]
fn bytes_that_are_no_discovery_are_an_error() {
    for bytes in ["", "[]", "{}", r#"{"kind":"Status"}"#] {
        assert!(root(bytes.as_bytes()).is_err(), "{bytes}");
    }
}
