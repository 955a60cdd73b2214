use super::*;

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

fn groups(document: &str) -> Vec<Group> {
    match root(document.as_bytes()).unwrap() {
        Root::Aggregated(groups) => groups,
        Root::Names(names) => panic!("no aggregated answer: {names:?}"),
    }
}

/// `group/version/plural`, with `L` where it lists and `C` where it deletes collections.
fn kinds(discovery: &Discovery) -> Vec<String> {
    let word = |it: &Kind| {
        let offers = format!("{}{}", if it.list { "L" } else { "" }, if it.delete_collection { "C" } else { "" });
        format!("{}/{} {offers}", it.resource.api_version(), it.resource.plural)
    };
    discovery.kinds.iter().map(word).collect()
}

#[test]
fn only_what_is_namespaced_and_can_be_deleted_counts() {
    let discovery = assemble(groups(CORE), Vec::new());
    assert_eq!(kinds(&discovery), ["v1/pods LC"]);
    assert_eq!(&*discovery.kinds[0].resource.kind, "Pod");
    assert_eq!((discovery.failure(), discovery.parse_failure()), (None, None));
}

#[test]
fn each_resource_is_taken_in_the_preferred_version_that_serves_it() {
    let discovery = assemble(groups(GROUPS), Vec::new());
    assert_eq!(kinds(&discovery), ["example.com/v2/new L", "example.com/v1/old "]);
}

#[test]
fn a_stale_group_is_named_with_its_api_service_and_hides_nothing_else() {
    let discovery = assemble(groups(GROUPS), Vec::new());
    assert_eq!(
        discovery.failure().unwrap(),
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
         metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1 \
         (see APIService v1beta1.metrics.k8s.io)"
    );
    assert_eq!(discovery.kinds.len(), 2);
}

#[test]
fn a_root_that_does_not_answer_is_told_and_the_other_one_counts() {
    let discovery = assemble(groups(CORE), vec!["/apis: outcome unknown".to_owned()]);
    assert_eq!(discovery.failure().unwrap(), "/apis: outcome unknown");
    assert_eq!(kinds(&discovery), ["v1/pods LC"]);
}

#[test]
fn an_answer_without_any_resource_is_a_failure() {
    let nothing = r#"{"kind":"APIGroupDiscoveryList","items":null}"#;
    assert!(assemble(groups(nothing), Vec::new()).failure().is_some());
}

#[test]
fn the_old_form_names_groups_with_the_preferred_version_first() {
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
fn the_old_form_lists_subresources_among_the_resources() {
    let list = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
        {"name":"pods","singularName":"","namespaced":true,"kind":"Pod","verbs":["delete","list"]},
        {"name":"pods/eviction","namespaced":true,"kind":"Eviction","verbs":["create","delete"]}]}"#;
    let resources = resources(list.as_bytes());
    let served = Served { at: GroupVersion("v1".to_owned()), resources };
    assert_eq!(kinds(&assemble(vec![Group { versions: vec![served] }], Vec::new())), ["v1/pods L"]);
}

#[test]
fn a_group_version_that_is_none_is_told_and_the_rest_counts() {
    let served = |at: &str| Served { at: GroupVersion(at.to_owned()), resources: Ok(Vec::new()) };
    let mut all = groups(CORE);
    all.push(Group { versions: vec![served("a/b/c"), served("d/")] });
    let discovery = assemble(all, Vec::new());
    assert_eq!(
        discovery.parse_failure().unwrap(),
        "unexpected GroupVersion string: a/b/c, unexpected GroupVersion string: d/"
    );
    assert_eq!((discovery.failure(), discovery.kinds.len()), (None, 1));
}

#[test]
fn bytes_that_are_no_discovery_are_an_error() {
    for bytes in ["", "[]", "{}", r#"{"kind":"Status"}"#] {
        assert!(root(bytes.as_bytes()).is_err(), "{bytes}");
    }
}

#[test]
fn pods_that_are_not_listed_are_unknown_as_long_as_anybody_is_silent() {
    use crate::Pods;
    let served = assemble(groups(CORE), Vec::new());
    assert_eq!(served.pods(), Pods::Served(&served.kinds[0]));
    assert_eq!(assemble(groups(GROUPS), Vec::new()).pods(), Pods::Unknown);
    let none = assemble(groups(GROUPS)[..1].to_vec(), Vec::new());
    assert_eq!(none.pods(), Pods::NotServed);
}
