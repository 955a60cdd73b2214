//! Pods are deleted first, with their grace period, and the namespace is synced when they are gone.

use crate::world::{MS, SEC, World, forbidden, not_found};
use api::Pod;
use harness::pass;

const GET: &str = "get namespaces a";

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_009_everything_else_waits_for_the_last_pod() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "held", 0, &["x.io/hold"]);
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(20 * SEC).await;
    let pod = world.cluster.get("pods", "a", "held").unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(world.count("configmaps", "a"), 1);
    assert_eq!(world.cluster.get("namespaces", "", "a").unwrap()["status"]["phase"], "Terminating");
    assert_eq!(world.conditions("a").len(), 5);

    world.release("pods", "a", "held");
    world.cluster.delete("pods", "a", "held");
    pass(10 * SEC).await;
    assert_eq!((world.count("pods", "a"), world.count("configmaps", "a")), (0, 0));
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_010_pods_in_their_grace_period_are_listed_after_half_of_it() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "slow", 30, &[]);
    world.config_map("a", "x");
    let _manager = world.start().await;
    let start = world.clock.now();
    world.delete_namespace("a");
    pass(27 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1, "no other resource is deleted meanwhile");
    assert!(world.lines("a").iter().all(|it| !it.contains("configmaps")));
    let looks = world.times(GET, start);
    assert_eq!(looks.len(), 3, "{looks:?}");
    assert!(looks[0] < SEC && looks[1] >= 16 * SEC && looks[1] < 17 * SEC, "{looks:?}");
    // The remaining grace period is then 14 s, so the next sync is 8 s later.
    assert!(looks[2] >= 24 * SEC && looks[2] < 25 * SEC, "{looks:?}");
    assert_eq!(world.true_conditions("a"), ["NamespaceContentRemaining"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_011_pods_with_a_finalizer_are_listed_every_eight_seconds() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "held", 2, &["x.io/hold"]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(30 * SEC).await;
    world.cluster.clear_requests();
    let start = world.clock.now();
    pass(40 * SEC).await;
    let looks = world.times(GET, start);
    assert_eq!(looks.len(), 5, "{looks:?}");
    assert!(looks.windows(2).all(|it| it[1] - it[0] == 8 * SEC), "{looks:?}");
    assert_eq!(world.true_conditions("a"), ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"]);
    // Nothing changes, so nothing is written.
    assert!(world.calls().iter().all(|it| it.verb != "update" && it.verb != "deletecollection"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_012_pods_after_their_grace_period_are_an_error() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "undead", 2, &[]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert_eq!(
        world.condition("a", "NamespaceDeletionContentFailure"),
        "True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: \
         unexpected items still remain in namespace: a for gvr: /v1, Resource=pods"
    );
    let start = world.clock.now();
    world.cluster.clear_requests();
    pass(600 * SEC).await;
    let looks = world.times(GET, start);
    assert!(looks.len() > 9 && looks.len() < 20, "with back-off of at most a minute: {looks:?}");
    world.cluster.delete("pods", "a", "undead");
    pass(61 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_030_a_failing_pod_step_stops_the_pass() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "p", 0, &[]);
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "deletecollection pods a" { forbidden() } else { None });
    world.delete_namespace("a");
    pass(20 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    assert!(world.condition("a", "NamespaceDeletionContentFailure").contains("not you"));
    assert!(world.condition("a", "NamespaceContentRemaining").contains("pods. has 1 resource instances"));
    // The same if not even a list is allowed.
    world.fail_requests(|line, _| if line.ends_with(" pods a") || line == "list pods *" { forbidden() } else { None });
    pass(60 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    for kind in ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"] {
        let told = world.condition("a", kind);
        assert_eq!(told, "Unknown ContentNotCounted: Some content could not be counted");
    }
    world.fail_requests(|_, _| None);
    pass(61 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_031_conditions_show_the_pods_that_are_waited_for() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "one", 30, &["x.io/hold"]);
    world.pod("a", "two", 30, &["x.io/hold", "y.io/hold"]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!(
        world.condition("a", "NamespaceContentRemaining"),
        "True SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances"
    );
    assert_eq!(
        world.condition("a", "NamespaceFinalizersRemaining"),
        "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: \
         x.io/hold in 2 resource instances, y.io/hold in 1 resource instances"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_the_last_pod_enqueues_the_namespace_through_its_own_watch() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "one", 60, &[]);
    world.pod("a", "two", 60, &[]);
    world.create_namespace("b");
    world.pod("b", "other", 60, &[]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(7 * SEC).await;
    let watches = |it: &test_cluster::Call| it.verb == "watch" && it.resource == "pods";
    let opened: Vec<_> = world.cluster.requests().into_iter().filter(watches).collect();
    assert!(!opened.is_empty() && opened.iter().all(|it| it.namespace == "a"), "no watch of all pods");

    world.cluster.delete("pods", "a", "one");
    pass(500 * MS).await;
    assert!(world.exists("a"));
    world.cluster.delete("pods", "a", "two");
    pass(500 * MS).await;
    assert!(!world.exists("a"), "long before the next timer");
    // The watch is closed when the namespace no longer waits.
    world.cluster.clear_requests();
    pass(3600 * SEC).await;
    assert!(!world.cluster.requests().iter().any(watches));
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_the_last_pod_enqueues_the_namespace_through_a_shared_informer() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "one", 60, &[]);
    world.pod("a", "two", 60, &[]);
    let _manager = world.start_with(|informers| drop(informers.typed::<Pod>())).await;
    world.delete_namespace("a");
    pass(7 * SEC).await;
    world.cluster.delete("pods", "a", "one");
    pass(500 * MS).await;
    assert!(world.exists("a"));
    world.cluster.delete("pods", "a", "two");
    pass(500 * MS).await;
    assert!(!world.exists("a"));
    let own = |it: &test_cluster::Call| it.verb == "watch" && it.resource == "pods" && it.namespace == "a";
    assert!(!world.cluster.requests().iter().any(own), "no watch of its own");
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_025_a_recreated_namespace_is_empty() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "p", 1, &[]);
    world.object("v1", "Service", "a", "s", &[]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(SEC).await;
    world.cluster.delete("pods", "a", "p");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    world.create_namespace("a");
    assert_eq!((world.count("pods", "a"), world.count("services", "a")), (0, 0));
    world.config_map("a", "new");
    pass(400 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1, "new content stays");
    assert_eq!(world.spec_finalizers("a"), ["kubernetes"]);
}

#[tokio::test(start_paused = true)]
async fn owners_of_network_policies_stay_until_a_list_after_the_delay_shows_no_pods() {
    let world = World::new();
    world.custom_kind("meshnetworkpolicies", "MeshNetworkPolicy");
    world.create_namespace("a");
    world.config_map("a", "owner");
    world.object("example.com/v1", "MeshNetworkPolicy", "a", "deny", &[]);
    let _manager = world.start().await;
    let left = || (world.count("configmaps", "a"), world.count("meshnetworkpolicies.example.com", "a"));
    world.delete_namespace("a");
    pass(3 * SEC).await;
    assert_eq!(left(), (1, 1), "the policy would be deleted with the ConfigMap that owns it");
    assert_eq!(
        world.condition("a", "NamespaceContentRemaining"),
        "True SomeResourcesRemain: Some resources are remaining: \
         meshnetworkpolicies.example.com has 1 resource instances"
    );
    assert_eq!(
        world.condition("a", "NamespaceFinalizersRemaining"),
        "Unknown ContentNotCounted: Some content could not be counted"
    );
    assert_eq!(world.logged("Sync failed"), [""; 0], "the wait for the delay is not a failure");
    // An API server that has not observed the deletion admits a pod.
    world.pod("a", "late", 30, &[]);
    pass(20 * SEC).await;
    assert!(world.cluster.get("pods", "a", "late").unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(left(), (1, 1), "the pod must not run without its policy");
    world.cluster.delete("pods", "a", "late");
    pass(SEC).await;
    assert_eq!(left(), (0, 0));
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn uncounted_network_policies_delay_the_rest_only_for_the_safety_delay() {
    let world = World::new();
    world.custom_kind("meshnetworkpolicies", "MeshNetworkPolicy");
    world.create_namespace("a");
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line.contains("meshnetworkpolicies") { forbidden() } else { None });
    world.delete_namespace("a");
    pass(4 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    pass(8 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 0);
    assert!(world.condition("a", "NamespaceDeletionContentFailure").contains("not you"));
}

#[tokio::test(start_paused = true)]
async fn network_policies_not_served_by_one_api_server_delay_the_rest_for_the_safety_delay() {
    let world = World::new();
    world.custom_kind("meshnetworkpolicies", "MeshNetworkPolicy");
    world.create_namespace("a");
    world.config_map("a", "x");
    world.object("example.com/v1", "MeshNetworkPolicy", "a", "deny", &[]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line.starts_with("list meshnetworkpolicies") { not_found() } else { None });
    world.delete_namespace("a");
    pass(4 * SEC).await;
    assert_eq!((world.count("configmaps", "a"), world.count("meshnetworkpolicies.example.com", "a")), (1, 1));
    pass(8 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_uncounted_content_are_unknown_while_pods_remain() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "held", &["x.io/hold"]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert!(world.condition("a", "NamespaceFinalizersRemaining").starts_with("True "));
    // A pod is created late, and everything else waits for it. It is found when the proof that there is none has
    // expired.
    world.pod("a", "late", 300, &[]);
    pass(40 * SEC).await;
    assert!(world.condition("a", "NamespaceContentRemaining").contains("pods. has 1 resource instances"));
    assert_eq!(
        world.condition("a", "NamespaceFinalizersRemaining"),
        "Unknown ContentNotCounted: Some content could not be counted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_404_for_the_pods_list_is_not_an_empty_list() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "p", 0, &[]);
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line.ends_with(" pods a") || line == "list pods *" { not_found() } else { None });
    world.delete_namespace("a");
    pass(20 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    assert!(world.condition("a", "NamespaceDeletionContentFailure").ends_with("1 remaining: pods: not found"));
    world.fail_requests(|_, _| None);
    pass(61 * SEC).await;
    assert!(!world.exists("a"));
}
