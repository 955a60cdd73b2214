//! Content other than pods: how it is deleted, what fails, and what is reported.

use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, forbidden, line, not_allowed, not_found};

const STATUS: &str = "update namespaces/status a";
const GET: &str = "get namespaces a";

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_013_a_finalizer_on_content_is_reported_and_waited_for() {
    let world = World::new();
    world.create_namespace("a");
    world.object("apps/v1", "Deployment", "a", "held", &["custom.io/finalizer"]);
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(20 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 0);
    assert_eq!(
        world.condition("a", "NamespaceContentRemaining"),
        "True SomeResourcesRemain: Some resources are remaining: deployments.apps has 1 resource instances"
    );
    assert_eq!(
        world.condition("a", "NamespaceFinalizersRemaining"),
        "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: \
         custom.io/finalizer in 1 resource instances"
    );
    assert_eq!(world.true_conditions("a").len(), 2);
    world.release("deployments", "a", "held");
    pass(9 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_016_without_deletecollection_objects_are_deleted_one_by_one() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "one", &[]);
    world.object("v1", "Secret", "a", "two", &[]);
    let resource = |plural: &str, kind: &str, verbs: &[&str]| json!({ "resource": plural, "responseKind": { "kind": kind }, "scope": "Namespaced", "verbs": verbs });
    let resources = [
        resource("pods", "Pod", &["delete", "deletecollection", "list"]),
        resource("secrets", "Secret", &["delete", "list"]),
    ];
    let core = json!({
        "kind": "APIGroupDiscoveryList",
        "items": [{ "metadata": {}, "versions": [{ "version": "v1", "freshness": "Current", "resources": resources }] }],
    });
    let uid_of = |name: &str| world.cluster.get("secrets", "a", name).unwrap()["metadata"]["uid"].clone();
    let uids = [uid_of("one"), uid_of("two")];
    let _manager = world.start().await;
    world.fail_requests(move |line, _| {
        let body = core.clone();
        (line == "GET /api").then_some(Interception::Answer { status: 200, headers: Vec::new(), body })
    });
    world.delete_namespace("a");
    pass(SEC).await;
    let lines: Vec<_> = world.lines("a").into_iter().filter(|it| it.contains("secrets")).collect();
    assert_eq!(lines, ["list secrets a", "delete secrets a/one", "delete secrets a/two", "list secrets a"]);
    let deletes: Vec<_> = world.calls().iter().filter(|it| it.verb == "delete").map(|it| it.json()).collect();
    assert!(deletes.iter().all(|it| it["propagationPolicy"] == "Background"), "{deletes:?}");
    let asked: Vec<_> = deletes.iter().map(|it| it["preconditions"]["uid"].clone()).collect();
    assert_eq!(asked, uids, "only listed objects are deleted");
    pass(9 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_replaced_since_it_was_listed_counts_as_gone() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "one", &[]);
    let _manager = world.start().await;
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, _| match line {
        "deletecollection secrets a" => not_allowed(),
        "delete secrets a/one" if std::mem::take(&mut first) => {
            cluster.remove("secrets", "a", "one");
            let metadata = json!({ "name": "one", "namespace": "a", "finalizers": ["x.io/hold"] });
            cluster.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata }));
            None
        }
        _ => None,
    });
    world.delete_namespace("a");
    pass(SEC).await;
    let successor = world.cluster.get("secrets", "a", "one").unwrap();
    assert!(successor["metadata"]["deletionTimestamp"].is_null(), "the successor is not deleted");
    assert_eq!(
        world.true_conditions("a"),
        ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"],
        "this is not an error"
    );
    // The next list finds it, and it is deleted by its own uid.
    pass(8 * SEC).await;
    let successor = world.cluster.get("secrets", "a", "one").unwrap();
    assert!(successor["metadata"]["deletionTimestamp"].is_string());
    world.release("secrets", "a", "one");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_resolves_a_failed_delete() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.fail_requests(|line, _| (line == "deletecollection configmaps a").then_some(Interception::LoseAnswer));
    let start = world.clock.now();
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!(world.true_conditions("a"), [""; 0]);
    let about: Vec<_> = world.lines("a").into_iter().filter(|it| it.contains("configmaps")).collect();
    assert_eq!(about, ["deletecollection configmaps a", "list configmaps a"]);
    assert_eq!(world.times(GET, start).len(), 1, "no error, so no retry");
    pass(9 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_stops_deletes_no_further_object_and_lists_no_further_page() {
    let world = World::new();
    world.create_namespace("a");
    (0..100).for_each(|number| world.object("v1", "Secret", "a", &format!("x-{number}"), &[]));
    let manager = world.start().await;
    world.fail_requests(|line, _| match line {
        "deletecollection secrets a" => not_allowed(),
        _ if line.starts_with("delete secrets a/") => Some(Interception::DelayAnswer(100 * MS)),
        _ => None,
    });
    world.delete_namespace("a");
    pass(350 * MS).await;
    manager.stop();
    pass(30 * SEC).await;
    let deletes = world.calls().iter().filter(|it| it.verb == "delete").count();
    assert!((12..=20).contains(&deletes), "{deletes}");
    assert_eq!(world.count("secrets", "a"), 100 - deletes, "requests in flight complete");
    assert_eq!(world.lines("a").last().map(String::as_str).unwrap_or_default().split(' ').next(), Some("delete"));

    let world = World::new();
    world.create_namespace("a");
    (0..1234).for_each(|number| world.object("v1", "Secret", "a", &format!("held-{number}"), &["x.io/hold"]));
    let manager = world.start().await;
    world.fail_requests(|line, _| (line == "list secrets a").then_some(Interception::DelayAnswer(SEC)));
    world.delete_namespace("a");
    pass(500 * MS).await;
    manager.stop();
    pass(30 * SEC).await;
    assert_eq!(world.lines("a").iter().filter(|it| *it == "list secrets a").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_017_a_kind_not_found_in_one_namespace_is_deleted_in_the_next() {
    let world = World::new();
    for name in ["a", "b"] {
        world.create_namespace(name);
        world.config_map(name, "x");
    }
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line.ends_with(" configmaps a") { not_found() } else { None });
    world.delete_namespace("a");
    pass(SEC).await;
    let about =
        |name: &str| -> Vec<_> { world.lines(name).into_iter().filter(|it| it.contains("configmaps")).collect() };
    assert_eq!(about("a"), ["deletecollection configmaps a", "list configmaps a", "list configmaps a"]);
    pass(9 * SEC).await;
    assert!(!world.exists("a"), "a missing kind blocks no namespace");
    world.delete_namespace("b");
    pass(10 * SEC).await;
    assert_eq!(about("b"), ["deletecollection configmaps b", "list configmaps b"]);
    assert!(!world.exists("b"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_018_a_refused_deletecollection_is_no_error() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "one", &[]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "deletecollection secrets a" { not_allowed() } else { None });
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!(world.count("secrets", "a"), 0);
    assert_eq!(world.true_conditions("a"), [""; 0]);
    pass(9 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_019_020_021_one_failing_kind_stops_no_other_is_reported_once_and_recovers() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "one", &[]);
    world.config_map("a", "x");
    world.object("apps/v1", "ReplicaSet", "a", "x", &[]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "deletecollection secrets a" { forbidden() } else { None });
    let start = world.clock.now();
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!(
        (world.count("configmaps", "a"), world.count("replicasets", "a"), world.count("secrets", "a")),
        (0, 0, 1)
    );
    assert_eq!(
        world.condition("a", "NamespaceDeletionContentFailure"),
        "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: \
         secrets: refused with 403: not you"
    );
    assert!(world.condition("a", "NamespaceContentRemaining").contains("secrets. has 1 resource instances"));
    pass(600 * SEC).await;
    assert!(world.exists("a"));
    let looks = world.times(GET, start);
    let waits: Vec<_> = looks.windows(2).map(|it| it[1] - it[0]).collect();
    assert!(waits.iter().all(|it| *it <= 60 * SEC), "the back-off is at most a minute: {waits:?}");
    assert!(waits.iter().filter(|it| **it == 60 * SEC).count() >= 5, "{waits:?}");
    assert_eq!(world.times(STATUS, start).len(), 1, "the same status is not written twice");

    let before = world.conditions("a");
    world.fail_requests(|line, _| if line == "update namespaces/finalize a" { forbidden() } else { None });
    pass(61 * SEC).await;
    let after = world.conditions("a");
    assert_eq!((&before[2]["status"], &after[2]["status"]), (&json!("True"), &json!("False")));
    assert_ne!(before[2]["lastTransitionTime"], after[2]["lastTransitionTime"]);
    assert_eq!(before[0], after[0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_022_nothing_gets_the_orphan_finalizer() {
    let world = World::new();
    world.create_namespace("a");
    world.object("batch/v1", "Job", "a", "job", &["x.io/hold"]);
    let job = world.cluster.get("jobs", "a", "job").unwrap();
    world.cluster.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "namespace": "a", "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job["metadata"]["uid"], "controller": true,
        }] },
        "spec": { "containers": [] },
    }));
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!(world.count("pods", "a"), 0);
    let job = world.cluster.get("jobs", "a", "job").unwrap();
    assert!(job["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(job["metadata"]["finalizers"], json!(["x.io/hold"]));
    let deletions: Vec<_> = world.calls().into_iter().filter(|it| it.verb == "deletecollection").collect();
    assert!(deletions.len() >= 2);
    assert!(deletions.iter().all(|it| it.json()["propagationPolicy"] == "Background"), "{deletions:?}");
}

#[tokio::test(start_paused = true)]
async fn requested_deletions_are_listed_and_not_repeated() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "held", &["x.io/hold"]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(60 * SEC).await;
    let lines = world.lines("a");
    assert_eq!(lines.iter().filter(|it| *it == "deletecollection secrets a").count(), 1, "{lines:?}");
    // An object that was created late is deleted all the same.
    world.object("v1", "Secret", "a", "late", &[]);
    pass(9 * SEC).await;
    assert_eq!(world.count("secrets", "a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_pages_is_counted_to_its_end() {
    let world = World::new();
    world.create_namespace("a");
    for number in 0..1234 {
        world.object("v1", "Secret", "a", &format!("held-{number}"), &["x.io/hold"]);
    }
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(SEC).await;
    assert!(world.condition("a", "NamespaceContentRemaining").contains("secrets. has 1234 resource instances"));
    let pages = world.calls().into_iter().filter(|it| line(it) == "list secrets a").count();
    assert_eq!(pages, 3);
}

#[tokio::test(start_paused = true)]
async fn objects_waiting_in_the_foreground_are_deleted_again_in_the_background() {
    let world = World::new();
    world.create_namespace("a");
    // No garbage collector runs in this test, so the object would wait forever for its dependents.
    world.object("v1", "Secret", "a", "waits", &["foregroundDeletion"]);
    world.object("apps/v1", "ReplicaSet", "a", "orphans", &["orphan"]);
    world.cluster.delete("secrets", "a", "waits");
    world.cluster.delete("replicasets", "a", "orphans");
    let state = world.cluster.get("secrets", "a", "waits").unwrap();
    assert_eq!(state["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(state["metadata"]["deletionTimestamp"].is_string());
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line.starts_with("deletecollection ") { not_allowed() } else { None });
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!((world.count("secrets", "a"), world.count("replicasets", "a")), (0, 0));
    pass(9 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn objects_put_into_foreground_deletion_later_are_deleted_again_in_the_background() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "held", &["x.io/hold"]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(SEC).await;
    // A user deletes it again with foreground propagation, and the finalizer that kept it is removed.
    let finalizers = json!(["foregroundDeletion"]);
    world.cluster.update("secrets", "a", "held", |it| it["metadata"]["finalizers"] = finalizers);
    pass(20 * SEC).await;
    assert!(!world.exists("a"));
}
