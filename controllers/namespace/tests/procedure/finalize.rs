//! The namespace itself: phase, finalizers, conditions, and conflicts with other writers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, conflict, not_found};

const FINALIZE: &str = "update namespaces/finalize a";
const STATUS: &str = "update namespaces/status a";
const GET: &str = "get namespaces a";

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_001_an_active_namespace_queued_by_mistake_costs_one_get() {
    let world = World::new();
    world.create_namespace("a");
    let active = world.cluster.get("namespaces", "", "a").unwrap();
    // The cache shows it terminating, the server does not.
    world.fail_requests(move |line, _| {
        let body = active.clone();
        (line == GET).then_some(Interception::Answer { status: 200, headers: Vec::new(), body })
    });
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(60 * SEC).await;
    assert_eq!(world.lines("a"), [GET]);
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_002_content_is_deleted_at_once_and_the_namespace_after_five_seconds() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    let _manager = world.start().await;
    let start = world.clock.now();
    world.delete_namespace("a");
    pass(50 * MS).await;
    assert_eq!(world.count("configmaps", "a"), 0, "content is deleted at once");
    pass(20 * SEC).await;
    assert!(!world.exists("a"));
    let finalized = world.times(FINALIZE, start);
    assert_eq!(finalized.len(), 1);
    assert!(finalized[0] >= 5 * SEC && finalized[0] < 6 * SEC, "{finalized:?}");
    // Everything was listed once more, after the delay and before the end.
    let proofs = world.times("list configmaps *", start);
    assert!(proofs.iter().any(|it| *it >= 5 * SEC && *it <= finalized[0]), "{proofs:?}");
    let discoveries = world.times("GET /apis", start);
    assert!(discoveries.iter().any(|it| *it >= 5 * SEC), "{discoveries:?}");
}

#[tokio::test(start_paused = true)]
async fn content_created_during_the_delay_is_deleted_before_the_namespace() {
    let world = World::new();
    world.create_namespace("a");
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(4 * SEC).await;
    world.config_map("a", "late");
    pass(SEC / 2).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    assert_eq!(world.count("configmaps", "a"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_delay_is_kept_however_far_our_clock_is_ahead_of_the_servers() {
    let world = World::new();
    world.create_namespace("a");
    let _manager = world.start().await;
    let start = world.clock.now();
    world.cluster.update("namespaces", "", "a", |it| {
        it["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        it["status"]["phase"] = json!("Terminating");
    });
    pass(4 * SEC).await;
    world.config_map("a", "late");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    assert_eq!(world.count("configmaps", "a"), 0);
    let finalized = world.times(FINALIZE, start);
    assert!(finalized[0] >= 5 * SEC && finalized[0] < 6 * SEC, "{finalized:?}");
}

#[tokio::test(start_paused = true)]
async fn a_proof_of_emptiness_is_repeated_when_the_namespace_had_to_wait() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "held", &["x.io/hold"]);
    let _manager = world.start().await;
    let start = world.clock.now();
    world.delete_namespace("a");
    pass(9 * SEC).await;
    // An API server whose watch is very late admits the object, after the delay and the first proofs after it.
    assert!(world.times("list configmaps *", start).iter().any(|it| *it >= 5 * SEC));
    world.config_map("a", "late");
    pass(51 * SEC).await;
    world.release("secrets", "a", "held");
    let (cluster, left_behind) = (world.cluster.clone(), Arc::new(AtomicUsize::new(0)));
    let told = left_behind.clone();
    world.fail_requests(move |line, _| {
        if line == FINALIZE {
            told.fetch_add(cluster.list("configmaps", "a").len(), Ordering::SeqCst);
        }
        None
    });
    pass(20 * SEC).await;
    assert!(!world.exists("a"));
    assert_eq!((left_behind.load(Ordering::SeqCst), world.count("configmaps", "a")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_waits_has_its_proofs_renewed_only_twice_a_minute() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "held", &["x.io/hold"]);
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(10 * SEC).await;
    world.cluster.clear_requests();
    pass(600 * SEC).await;
    for kind in ["configmaps", "deployments.apps"] {
        let lists = world.times(&format!("list {kind} *"), world.clock.now()).len();
        assert!((15..=20).contains(&lists), "{kind}: {lists}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_deleted_namespace_has_its_numbers() {
    let world = World::new();
    world.create_namespace("a");
    (0..500).for_each(|number| world.config_map("a", &format!("x-{number}")));
    let _manager = world.start().await;
    // Our watch shows the deletion before the response arrives.
    world.fail_requests(|line, _| (line == FINALIZE).then_some(Interception::DelayAnswer(SEC)));
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    let told = world.logged("Namespace has been deleted");
    assert!(told.len() == 1 && told[0].contains("namespace=a") && told[0].contains("passes=2 kinds=1"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_003_015_a_finalized_namespace_costs_one_get_even_when_discovery_fails() {
    let world = World::new();
    world.create_namespace("a");
    // A finalizer in the metadata keeps it.
    world.cluster.update("namespaces", "", "a", |it| {
        it["metadata"]["finalizers"] = json!(["foreign/hold"]);
        it["spec"]["finalizers"] = json!([]);
    });
    world.config_map("a", "x");
    world.delete_namespace("a");
    world.cluster.break_group("apps");
    let _manager = world.start().await;
    pass(60 * SEC).await;
    assert_eq!(world.lines("a"), [GET]);
    assert_eq!(world.calls().len(), 1, "no discovery, no deletes");
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_004_the_phase_is_written_first() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    world.delete_namespace("a");
    world.cluster.update("namespaces", "", "a", |it| it["status"]["phase"] = json!("Active"));
    let _manager = world.start().await;
    let lines = world.lines("a");
    assert_eq!(lines[..2], [GET, STATUS], "{lines:?}");
    let first = world.calls().into_iter().find(|it| it.subresource == "status").unwrap();
    assert_eq!(first.json()["status"]["phase"], "Terminating");
    assert_eq!(world.calls()[1].subresource, "status", "before any discovery");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_005_an_empty_namespace_is_proved_empty_reported_and_finalized() {
    let world = World::new();
    world.create_namespace("a");
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(SEC).await;
    assert_eq!(world.true_conditions("a"), [""; 0]);
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    // Kinds that are proved empty in the whole cluster need no requests for this namespace, neither at the start nor at
    // the end.
    assert_eq!(world.lines("a"), [GET, STATUS, GET, FINALIZE]);
    let finalize = world.calls().into_iter().find(|it| it.subresource == "finalize").unwrap();
    assert_eq!(finalize.json()["spec"]["finalizers"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_006_only_our_own_entry_is_removed() {
    let world = World::new();
    world.create_namespace("a");
    world.cluster.update("namespaces", "", "a", |it| {
        it["spec"]["finalizers"] = json!(["z.io/last", "kubernetes", "b.io/first", "z.io/last"]);
        it["metadata"]["labels"]["mine"] = json!("yes");
        it["metadata"]["annotations"] = json!({ "note": "kept" });
    });
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(60 * SEC).await;
    assert_eq!(world.spec_finalizers("a"), ["b.io/first", "z.io/last"]);
    let left = world.cluster.get("namespaces", "", "a").unwrap();
    assert_eq!(left["status"]["phase"], "Terminating");
    assert_eq!(
        (&left["metadata"]["labels"]["mine"], &left["metadata"]["annotations"]["note"]),
        (&json!("yes"), &json!("kept"))
    );
    assert_eq!(world.lines("a").iter().filter(|it| *it == FINALIZE).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_007_a_finalize_conflict_is_retried_on_the_fresh_object() {
    let world = World::new();
    world.create_namespace("a");
    let _manager = world.start().await;
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, _| {
        if line == FINALIZE && std::mem::take(&mut first) {
            // Another client writes just before us.
            cluster.update("namespaces", "", "a", |it| it["metadata"]["annotations"] = json!({ "rival": "was here" }));
        }
        None
    });
    world.delete_namespace("a");
    pass(20 * SEC).await;
    assert!(!world.exists("a"));
    let lines = world.lines("a");
    assert_eq!(lines[lines.len() - 3..], [FINALIZE, GET, FINALIZE], "{lines:?}");
    assert_eq!(lines.iter().filter(|it| *it == FINALIZE).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn repeated_conflicts_are_bounded() {
    let world = World::new();
    world.create_namespace("a");
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == FINALIZE { conflict() } else { None });
    world.delete_namespace("a");
    pass(65 * SEC).await;
    let attempts = world.lines("a").iter().filter(|it| *it == FINALIZE).count();
    assert!(attempts <= 80 && attempts % 5 == 0, "five at a time, with back-off in between: {attempts}");
    world.fail_requests(|_, _| None);
    pass(60 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_008_a_successor_of_the_same_name_is_never_finalized() {
    let world = World::new();
    world.create_namespace("a");
    let _manager = world.start().await;
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, _| {
        if line != FINALIZE || !std::mem::take(&mut first) {
            return None;
        }
        cluster.remove("namespaces", "", "a");
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } }));
        cluster.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "new", "namespace": "a" },
        }));
        conflict()
    });
    world.delete_namespace("a");
    pass(60 * SEC).await;
    assert_eq!(world.spec_finalizers("a"), ["kubernetes"]);
    assert_eq!(world.count("configmaps", "a"), 1, "its content is not deleted");
    // One more read after the conflict finds the new namespace. That is an error, so one more read follows after the
    // back-off, and nothing else.
    let lines = world.lines("a");
    assert_eq!(lines[lines.len() - 3..], [FINALIZE, GET, GET], "{lines:?}");
    assert_eq!(lines.iter().filter(|it| *it == FINALIZE).count(), 1);
    let failures = world.logged("Sync failed");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("namespace uid has changed across retries"), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_023_a_namespace_that_is_gone_at_a_write_is_success() {
    for gone in [STATUS, FINALIZE] {
        let world = World::new();
        world.create_namespace("a");
        let _manager = world.start().await;
        let cluster = world.cluster.clone();
        world.fail_requests(move |line, _| {
            if line == gone {
                cluster.remove("namespaces", "", "a");
                return not_found();
            }
            None
        });
        world.delete_namespace("a");
        if gone == STATUS {
            world.cluster.update("namespaces", "", "a", |it| it["status"]["phase"] = json!("Active"));
        }
        pass(20 * SEC).await;
        world.cluster.clear_requests();
        pass(120 * SEC).await;
        assert_eq!(world.lines("a"), [""; 0], "no retry after {gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_028_conditions_that_cannot_be_written_do_not_delay_the_namespace() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == STATUS { conflict() } else { None });
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    assert_eq!(world.count("configmaps", "a"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_026_a_restarted_controller_finishes_what_terminates() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.create_namespace(name);
        world.pod(name, "held", 30, &["x.io/hold"]);
        world.config_map(name, "x");
    }
    let manager = world.start().await;
    for name in ["a", "b", "c"] {
        world.delete_namespace(name);
    }
    pass(2 * SEC).await;
    drop(manager);
    for name in ["a", "b", "c"] {
        world.release("pods", name, "held");
        world.cluster.delete("pods", name, "held");
    }
    pass(60 * SEC).await;
    assert!(world.exists("a"), "no manager runs");
    let started = world.clock.now();
    let _manager = world.start().await;
    pass(8 * SEC).await;
    for name in ["a", "b", "c"] {
        assert!(!world.exists(name), "{name}");
        // By the server's clock it was deleted a minute ago. The delay is measured by our clock, and it has just begun.
        let ended = world.times(&format!("update namespaces/finalize {name}"), started);
        assert!(ended[0] >= 5 * SEC && ended[0] < 6 * SEC, "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_spec_finalizer_enqueues_the_namespace() {
    let world = World::new();
    world.create_namespace("a");
    world.cluster.update("namespaces", "", "a", |it| it["metadata"]["finalizers"] = json!(["foreign/hold"]));
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert_eq!(world.spec_finalizers("a"), [""; 0]);
    world.cluster.update("namespaces", "", "a", |it| it["spec"]["finalizers"] = json!(["kubernetes"]));
    pass(2 * SEC).await;
    assert_eq!(world.spec_finalizers("a"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_pass_deletes_nothing_of_a_successor() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "old");
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        let slow = line == "list configmaps *" && std::mem::take(&mut first);
        slow.then_some(Interception::DelayAnswer(2 * SEC))
    });
    world.delete_namespace("a");
    pass(SEC).await;
    // During the pass, the namespace is force-deleted and created again.
    world.cluster.remove("configmaps", "a", "old");
    world.cluster.remove("namespaces", "", "a");
    world.create_namespace("a");
    world.config_map("a", "new");
    pass(60 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    assert!(world.lines("a").iter().all(|it| !it.starts_with("deletecollection") && !it.starts_with("update")));
}

#[tokio::test(start_paused = true)]
async fn a_long_first_pass_does_not_prolong_the_delay() {
    for (pass_takes, at_least) in [(3, 5), (7, 7)] {
        let world = World::new();
        world.create_namespace("a");
        world.config_map("a", "x");
        let _manager = world.start().await;
        world.fail_requests(move |line, _| {
            (line == "deletecollection configmaps a").then_some(Interception::DelayAnswer(pass_takes * SEC))
        });
        let start = world.clock.now();
        world.delete_namespace("a");
        pass(20 * SEC).await;
        let finalized = world.times(FINALIZE, start);
        assert!(finalized[0] >= at_least * SEC && finalized[0] < (at_least + 1) * SEC, "{finalized:?}");
    }
}
