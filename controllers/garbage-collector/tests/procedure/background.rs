//! Owners that are gone, and the dependents that are deleted after them.

use client::Propagation::{Background, Foreground, Orphan};
use futures::future::join_all;
use harness::{failure, pass};
use serde_json::json;

use crate::world::{SEC, World, blocking, graph, missing_owner, own_metric, owner};

#[tokio::test(start_paused = true)]
async fn acceptance_gc_001_dependents_of_a_deleted_owner_are_deleted_with_one_call_each() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..20 {
        world.create("Pod", &format!("pod-{number}"), &[owner(&rc)]);
    }
    let manager = world.start().await;
    assert_eq!(world.lines(), [""; 0], "no request is sent while the owner exists");
    world.delete("ReplicationController", "rc", Some(Background)).await;
    assert!(!world.has("ReplicationController", "rc"), "it is gone before its dependents");
    pass(2 * SEC).await;
    assert_eq!(world.names("pods"), [""; 0]);
    assert_eq!(
        (world.call_count("delete pods"), world.lines().len()),
        (20, 20),
        "a watch showed the deletion of the owner"
    );
    for call in world.calls() {
        let body = call.json();
        assert_eq!(body["propagationPolicy"], "Background");
        assert!(
            body["preconditions"]["uid"].is_string() && body["preconditions"]["resourceVersion"].is_string(),
            "{body}"
        );
    }
    assert_eq!(own_metric(&manager, "deletes_total{policy=\"Background\",reason=\"owners_gone\"}"), 20);
    let told = world.logged("Deleted an object");
    assert_eq!(told.len(), 20);
    let uid = rc["metadata"]["uid"].as_str().unwrap();
    for line in told {
        assert!(line.contains("reason=\"owners_gone\"") && line.contains("policy=\"Background\""), "{line}");
        assert!(line.contains(uid) && line.contains("as a watch showed"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_002_an_object_stays_while_one_owner_exists() {
    let world = World::new();
    let (gone, stays) =
        (world.create("ReplicationController", "a", &[]), world.create("ReplicationController", "b", &[]));
    world.create("Pod", "pod", &[owner(&gone), owner(&stays)]);
    let manager = world.start().await;
    world.delete("ReplicationController", "a", Some(Background)).await;
    pass(2 * SEC).await;
    assert_eq!(world.owners("pods", "pod"), ["b"]);
    assert!(!world.is_deleting("pods", "pod"));
    assert_eq!(world.lines(), ["get replicationcontrollers b", "patch pods pod"]);
    assert_eq!(own_metric(&manager, "references_removed_total{reason=\"owner_lives\"}"), 1);
    world.delete("ReplicationController", "b", Some(Background)).await;
    pass(2 * SEC).await;
    assert!(!world.has("pods", "pod"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_003_an_object_without_owners_is_not_written() {
    let world = World::new();
    world.create("Pod", "free", &[]);
    let other = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "bound", &[owner(&other)]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(60 * SEC).await;
    assert_eq!(world.names("pods"), ["free"]);
    assert_eq!(world.lines(), ["delete pods bound"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_004_a_dependent_of_a_nonexistent_owner_is_deleted() {
    let world = World::new();
    let _manager = world.start().await;
    world.create("Pod", "pod", &[missing_owner("v1", "ReplicationController", "never")]);
    pass(2 * SEC).await;
    assert!(!world.has("pods", "pod"));
    assert_eq!(world.call_count("delete pods pod"), 1);
    assert_eq!(
        world.call_count("get replicationcontrollers never"),
        1,
        "one proof is used for the owner and the dependent"
    );
    assert_eq!(world.events().await, [""; 0], "no event is sent");
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_005_each_propagation_policy_treats_dependents_as_specified() {
    let world = World::new();
    let policies = [Orphan, Background, Foreground];
    let mut uids = Vec::new();
    for number in 0..30 {
        let rc = world.create("ReplicationController", &format!("rc-{number}"), &[]);
        for pod in 0..3 {
            world.create("Pod", &format!("pod-{number}-{pod}"), &[blocking(&rc)]);
        }
        uids.push(rc["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    let manager = world.start().await;
    let page = graph(&manager);
    assert!(uids.iter().all(|it| page.contains(it)), "{page}");
    let observed = || own_metric(&manager, "graph_nodes{state=\"observed\"}");
    let before = observed();
    let names: Vec<String> = (0..30).map(|number| format!("rc-{number}")).collect();
    let deletions = names.iter().zip(policies.iter().cycle());
    join_all(deletions.map(|(name, policy)| world.delete("ReplicationController", name, Some(*policy)))).await;
    pass(10 * SEC).await;
    assert_eq!(world.names("replicationcontrollers"), [""; 0]);
    let mut want: Vec<String> =
        (0..30).step_by(3).flat_map(|number| (0..3).map(move |pod| format!("pod-{number}-{pod}"))).collect();
    want.sort();
    assert_eq!(world.names("pods"), want);
    assert!(want.iter().all(|it| world.owners("pods", it).is_empty() && !world.is_deleting("pods", it)));
    for reason in ["owners_gone", "owner_waits"] {
        let gone = own_metric(&manager, &format!("deletes_total{{policy=\"Background\",reason=\"{reason}\"}}"));
        assert_eq!(gone, 30, "{reason}");
    }
    let page = graph(&manager);
    assert!(!uids.iter().any(|it| page.contains(it)), "{page}");
    assert_eq!((before - observed(), own_metric(&manager, "graph_nodes{state=\"virtual\"}")), (30 + 60, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_006_replica_sets_and_pods_of_a_deleted_deployment_are_deleted() {
    for policy in [None, Some(Background), Some(Foreground)] {
        let world = World::new();
        let deployment = world.create("Deployment", "web", &[]);
        let set = world.create("ReplicaSet", "web-1", &[blocking(&deployment)]);
        world.create("Pod", "web-1-a", &[blocking(&set)]);
        let _manager = world.start().await;
        world.delete("Deployment", "web", policy).await;
        pass(5 * SEC).await;
        let left = (world.names("Deployment"), world.names("ReplicaSet"), world.names("pods"));
        assert_eq!(left, (vec![], vec![], vec![]), "{policy:?}");
        let deletes: Vec<String> = world.lines().into_iter().filter(|it| it.starts_with("delete")).collect();
        assert_eq!(deletes, ["delete replicasets web-1", "delete pods web-1-a"], "{policy:?}");
        if policy != Some(Foreground) {
            assert_eq!(world.lines().len(), 2, "{policy:?}: a watch shows each deletion: {:?}", world.lines());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_007_jobs_and_pods_of_a_deleted_cron_job_are_deleted() {
    let world = World::new();
    let cron_job = world.create("CronJob", "c", &[]);
    let job = world.create("Job", "c-1", &[owner(&cron_job)]);
    world.create("Pod", "c-1-a", &[owner(&job)]);
    let _manager = world.start().await;
    world.delete("CronJob", "c", Some(Background)).await;
    pass(5 * SEC).await;
    assert!(!world.has("jobs.batch", "c-1") && !world.has("pods", "c-1-a"));
    assert_eq!(
        world.lines(),
        ["delete jobs c-1", "delete pods c-1-a"],
        "with background propagation, whatever the default of Jobs is"
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_008_one_proof_serves_all_dependents_of_an_owner() {
    let world = World::new();
    let never = missing_owner("v1", "ReplicationController", "never");
    for number in 0..100 {
        world.create("Pod", &format!("pod-{number}"), std::slice::from_ref(&never));
    }
    let manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(world.names("pods"), [""; 0]);
    assert_eq!((world.call_count("get"), world.call_count("delete pods")), (1, 100));
    assert_eq!(own_metric(&manager, "owner_reads_total{result=\"gone\"}"), 1);
    world.create("Pod", "late", &[never]);
    pass(5 * SEC).await;
    assert!(!world.has("pods", "late"));
    assert_eq!(world.call_count("get"), 1, "later dependents need no read");
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_035_dependents_of_a_replaced_owner_are_deleted() {
    let world = World::new();
    let first = world.create("ReplicationController", "rc", &[]);
    let old = world.create("Pod", "old", &[owner(&first)]);
    world.cluster.remove("replicationcontrollers", "n", "rc");
    let second = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "new", &[owner(&second)]);
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(world.names("pods"), ["new"]);
    assert!(world.has("replicationcontrollers", "rc"));
    let told = world.logged("Deleted an object");
    assert!(told.len() == 1 && told[0].contains("was replaced by uid"), "{told:?}");
    assert_eq!(world.calls().last().unwrap().json()["preconditions"]["uid"], old["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_035_a_recreated_owner_gets_no_old_dependents_and_keeps_its_own() {
    // The watch shows both, or a complete set contains only the second.
    for is_shown in [true, false] {
        let world = World::new();
        let first = world.create("Secret", "own", &[]);
        world.create("ConfigMap", "old", &[owner(&first)]);
        let _manager = world.start().await;
        if !is_shown {
            world.cluster.freeze_watches("secrets");
        }
        world.delete("Secret", "own", Some(Background)).await;
        let second = world.create("Secret", "own", &[]);
        world.create("ConfigMap", "new", &[owner(&second)]);
        world.create("ConfigMap", "both", &[owner(&first), owner(&second)]);
        if !is_shown {
            world.cluster.compact();
            world.cluster.break_watches("secrets");
        }
        pass(60 * SEC).await;
        assert_eq!(world.names("configmaps"), ["both", "new"], "shown: {is_shown}: {:?}", world.lines());
        assert_eq!(world.owners("configmaps", "both"), ["own"], "shown: {is_shown}");
        let left = world.get("Secret", "own").unwrap();
        assert_eq!(left["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"], "shown: {is_shown}");
        assert!(world.call_count("patch secrets") + world.call_count("delete secrets") == 0, "shown: {is_shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_042_dependents_of_an_unreadable_owner_stay() {
    for interception in [
        failure(500, "InternalError").unwrap(),
        failure(503, "ServiceUnavailable").unwrap(),
        failure(403, "Forbidden").unwrap(),
        test_cluster::Interception::Fail,
        test_cluster::Interception::LoseAnswer,
    ] {
        let world = World::new();
        world.create("Pod", "pod", &[missing_owner("v1", "ReplicationController", "never")]);
        let answer = interception.clone();
        world.respond(move |line, _| line.starts_with("get ").then(|| answer.clone()));
        let manager = world.start().await;
        pass(60 * SEC).await;
        assert!(world.has("pods", "pod") && world.call_count("delete") == 0, "{interception:?}");
        assert!(world.call_count("get replicationcontrollers never") > 5, "{interception:?}: {:?}", world.lines());
        assert_eq!(
            own_metric(&manager, "unresolvable_objects{why=\"failed\"}"),
            1,
            "{interception:?}: the owner is looked up"
        );
        world.cluster.stop_intercepting();
        pass(300 * SEC).await;
        assert!(!world.has("pods", "pod"), "{interception:?}");
        assert_eq!(own_metric(&manager, "unresolvable_objects{why=\"failed\"}"), 0, "{interception:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_042_dependents_of_an_observed_unreadable_owner_stay() {
    for interception in [
        failure(500, "InternalError").unwrap(),
        failure(503, "ServiceUnavailable").unwrap(),
        failure(504, "Timeout").unwrap(),
        test_cluster::Interception::Fail,
        test_cluster::Interception::LoseAnswer,
        // Until our own request timeout.
        test_cluster::Interception::Hang,
    ] {
        let world = World::new();
        let [gone, live, waits] = ["gone", "live", "waits"].map(|it| world.create("ReplicationController", it, &[]));
        let unseen = world.create("Secret", "unseen", &[]);
        world.create("Pod", "of-two", &[owner(&gone), owner(&live)]);
        world.create("Pod", "of-waits", &[blocking(&waits)]);
        world.create("ConfigMap", "of-unseen", &[owner(&unseen)]);
        let _manager = world.start().await;
        let answer = interception.clone();
        world.respond(move |line, _| line.starts_with("get ").then(|| answer.clone()));
        // One disappears in a way that proves nothing: a list does not contain it.
        world.cluster.freeze_watches("secrets");
        world.cluster.remove("secrets", "n", "unseen");
        world.cluster.compact();
        world.cluster.break_watches("secrets");
        world.delete("ReplicationController", "gone", Some(Background)).await;
        world.delete("ReplicationController", "waits", Some(Foreground)).await;
        pass(300 * SEC).await;
        let lines = world.lines();
        assert_eq!((world.call_count("delete"), world.call_count("patch")), (0, 0), "{interception:?}: {lines:?}");
        assert_eq!(world.owners("pods", "of-two"), ["gone", "live"], "{interception:?}");
        assert!(world.has("pods", "of-waits") && world.has("configmaps", "of-unseen"), "{interception:?}");
        assert_eq!(world.finalizers("replicationcontrollers", "waits"), ["foregroundDeletion"], "{interception:?}");
        for owner in ["replicationcontrollers live", "replicationcontrollers waits", "secrets unseen"] {
            assert!(world.call_count(&format!("get {owner}")) >= 3, "{interception:?}: {owner}: {lines:?}");
        }
        world.cluster.stop_intercepting();
        pass(600 * SEC).await;
        assert_eq!(world.owners("pods", "of-two"), ["live"], "{interception:?}");
        assert!(!world.has("pods", "of-waits") && !world.has("replicationcontrollers", "waits"), "{interception:?}");
        assert!(!world.has("configmaps", "of-unseen"), "{interception:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_without_an_object_name_deletes_no_dependents() {
    let world = World::new();
    world.create("Pod", "pod", &[missing_owner("v1", "ReplicationController", "never")]);
    // As if the version of the type was removed, or the request went to a server that does not serve it.
    world.respond(|line, _| {
        line.starts_with("get ").then(|| test_cluster::Interception::text(404, "404 page not found"))
    });
    let manager = world.start().await;
    pass(60 * SEC).await;
    assert!(world.has("pods", "pod"));
    assert_eq!(world.call_count("delete"), 0);
    assert_eq!(own_metric(&manager, "unresolvable_objects{why=\"not_served\"}"), 1);
    assert_eq!(world.logged("An owner cannot be looked up: its dependents are not deleted").len(), 1, "logged once");
    world.cluster.stop_intercepting();
    pass(300 * SEC).await;
    assert!(!world.has("pods", "pod"));
}

#[tokio::test(start_paused = true)]
async fn an_owner_missing_from_a_list_is_read_before_any_delete() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..50 {
        world.create("Pod", &format!("pod-{number}"), &[owner(&rc)]);
    }
    let _manager = world.start().await;
    // All workers need the owner at the same time, and the response is slow.
    world.respond(|line, _| line.starts_with("get ").then_some(test_cluster::Interception::DelayAnswer(SEC)));
    // The watch misses the deletion: its resourceVersion is too old, so a complete set follows.
    world.cluster.freeze_watches("replicationcontrollers");
    world.cluster.remove("replicationcontrollers", "n", "rc");
    world.cluster.compact();
    world.cluster.break_watches("replicationcontrollers");
    pass(60 * SEC).await;
    assert_eq!(world.names("pods"), [""; 0]);
    assert_eq!((world.call_count("get replicationcontrollers rc"), world.call_count("delete pods")), (1, 50));
    assert_eq!(world.lines().len(), 51);
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_a_dependent_choose_its_propagation_policy() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let set = |name: &str, finalizer: &str| {
        world.create_with(
            "ReplicaSet",
            json!({
                "namespace": "n", "name": name, "ownerReferences": [owner(&rc)], "finalizers": [finalizer],
            }),
        )
    };
    let (orphans, last) = (set("orphans", "orphan"), set("last", "foregroundDeletion"));
    world.create("Pod", "stays", &[owner(&orphans)]);
    world.create("Pod", "goes", &[owner(&last)]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(5 * SEC).await;
    assert_eq!(world.names("ReplicaSet"), [""; 0]);
    assert_eq!(world.names("pods"), ["stays"]);
    let policies: Vec<_> = world
        .calls()
        .iter()
        .filter(|it| it.verb == "delete" && it.resource == "replicasets")
        .map(|it| (it.name.clone(), it.json()["propagationPolicy"].clone()))
        .collect();
    assert!(policies.contains(&("orphans".to_owned(), json!("Orphan"))), "{policies:?}");
    assert!(policies.contains(&("last".to_owned(), json!("Foreground"))), "{policies:?}");
}

/// Issue 16, 18: if the owner is proved absent for every claim, it is not looked up any more, even if a finalizer keeps
/// the dependents with these claims.
#[tokio::test(start_paused = true)]
async fn an_owner_with_all_claims_proved_absent_is_not_read_again() {
    let world = World::new();
    let manager = world.start().await;
    let never = missing_owner("v1", "ReplicationController", "never");
    for namespace in ["n", "m"] {
        let held = json!({ "namespace": namespace, "name": "child", "ownerReferences": [never],
                           "finalizers": ["example.com/hold"] });
        world.create_with("ConfigMap", held);
    }
    pass(60 * SEC).await;
    assert!(world.is_deleting("configmaps", "child") && world.cluster.get("configmaps", "m", "child").is_some());
    assert_eq!(world.call_count("get replicationcontrollers"), 2, "once in each namespace: {:?}", world.lines());
    let taken = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
    let before = taken();
    assert!(before > 0);
    pass(600 * SEC).await;
    assert_eq!(taken(), before, "no retry until the finalizers are removed");
}
