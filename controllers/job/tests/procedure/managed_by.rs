//! `--job-managed-by`: only the Jobs of one value of `spec.managedBy` are ours (KEP-4368).

use harness::{Manager, pass};
use job_controller::Options;
use serde_json::{Value, json};

use crate::world::{FINALIZER, MS, SEC, World};

const OURS: &str = "mini-kcm.dev/job-controller";

async fn start(world: &World) -> Manager {
    world.start_with(Options { managed_by: OURS.to_owned(), ..Options::default() }).await
}

/// Jobs of the built-in controller and of a third one.
fn others() -> [Value; 3] {
    [json!({}), json!({ "managedBy": "kubernetes.io/job-controller" }), json!({ "managedBy": "example.com/x" })]
}

/// A pod of this Job, as its controller creates it.
fn create_pod_of(world: &World, job: &Value, name: &str, phase: &str) {
    let meta = &job["metadata"];
    world.cluster.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "n", "labels": job["spec"]["template"]["metadata"]["labels"],
            "finalizers": [FINALIZER],
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"],
                "controller": true }],
        },
        "spec": { "nodeName": "node", "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": phase },
    }));
}

#[tokio::test(start_paused = true)]
async fn job_of_our_value_runs_to_completion() {
    let world = World::new();
    let manager = start(&world).await;
    world.job("j", json!({ "managedBy": OURS, "completions": 2, "parallelism": 2 }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    assert_eq!(pods.len(), 2);
    pods.iter().for_each(|it| world.succeed(it));
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer()), (2, 0));
    let events = |event: &str| {
        manager.metric(&format!("job_controller_terminated_pods_tracking_finalizer_total{{event=\"{event}\"}}"))
    };
    assert_eq!((events("add"), events("delete")), (2, 2));
    assert!(manager.metric_lines("job_controller_jobs_by_external_controller_total").is_empty());
}

#[tokio::test(start_paused = true)]
async fn other_jobs_and_their_pods_are_untouched_in_every_state() {
    let world = World::new();
    let manager = start(&world).await;
    for (number, spec) in others().into_iter().enumerate() {
        let name = format!("other-{number}");
        let job = world.job(&name, spec);
        for phase in ["Running", "Succeeded", "Failed"] {
            create_pod_of(&world, &job, &format!("{name}-{}", phase.to_lowercase()), phase);
        }
    }
    pass(5 * SEC).await;
    // A pod is deleted, and one loses its controller.
    world.delete_pod_gracefully("other-0-running");
    world.cluster.update("pods", "n", "other-1-failed", |it| it["metadata"]["ownerReferences"] = json!([]));
    // One Job finishes, one is suspended, and one is deleted before its pods.
    world.cluster.update("jobs.batch", "n", "other-0", |it| {
        it["status"]["conditions"] = json!([{ "type": "Complete", "status": "True" }]);
    });
    world.edit("other-1", |spec| spec["suspend"] = json!(true));
    world.cluster.remove("jobs.batch", "n", "other-2");
    pass(5 * SEC).await;
    world.delete_pod_gracefully("other-2-running");
    create_pod_of(&world, &json!({ "metadata": { "name": "gone", "uid": "gone" } }), "of-a-gone-job", "Succeeded");
    pass(600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    // The pods that were there, and the one of the Job that is gone.
    assert_eq!(world.with_finalizer(), 10);
    assert!(manager.metric_lines("job_controller_terminated_pods_tracking_finalizer_total").is_empty());
    assert!(manager.metric_lines("job_controller_job_syncs_total").is_empty());
    let external = manager.metric_lines("job_controller_jobs_by_external_controller_total");
    assert_eq!(external, ["job_controller_jobs_by_external_controller_total{controller_name=\"example.com/x\"} 1"]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_our_deleted_job_lose_their_finalizer() {
    let world = World::new();
    let _manager = start(&world).await;
    world.job("j", json!({ "managedBy": OURS, "completions": 2, "parallelism": 2 }));
    pass(5 * SEC).await;
    assert_eq!(world.with_finalizer(), 2);
    world.cluster.remove("jobs.batch", "n", "j");
    pass(5 * SEC).await;
    assert_eq!(world.with_finalizer(), 0);
}

#[tokio::test(start_paused = true)]
async fn late_pods_of_our_finished_job_lose_their_finalizer() {
    let world = World::new();
    let _manager = start(&world).await;
    let job = world.job("j", json!({ "managedBy": OURS }));
    pass(5 * SEC).await;
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
    create_pod_of(&world, &job, "late", "Succeeded");
    pass(5 * SEC).await;
    assert!(!world.has_finalizer("late"));
}

#[tokio::test(start_paused = true)]
async fn orphans_are_adopted_by_our_job_only() {
    let world = World::new();
    let _manager = start(&world).await;
    for (name, managed_by) in [("theirs", Value::Null), ("ours", json!(OURS))] {
        let labels = json!({ "app": name });
        let spec = json!({
            "managedBy": managed_by, "manualSelector": true, "suspend": true, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } },
        });
        world.job(name, spec);
        world.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("orphan-{name}"), "namespace": "n", "labels": labels, "finalizers": [FINALIZER] },
            "spec": { "nodeName": "node", "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running" },
        }));
    }
    pass(5 * SEC).await;
    let touched: Vec<String> = world.lines().into_iter().filter(|it| it.contains("orphan-theirs")).collect();
    assert_eq!(touched, [""; 0]);
    assert!(world.has_finalizer("orphan-theirs"));
    assert!(world.lines().iter().any(|it| it == "patch pods orphan-ours"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn restarted_manager_leaves_the_pods_of_missing_jobs_alone() {
    let world = World::new();
    create_pod_of(&world, &json!({ "metadata": { "name": "gone", "uid": "gone" } }), "a", "Succeeded");
    create_pod_of(&world, &json!({ "metadata": { "name": "gone", "uid": "gone" } }), "b", "Running");
    world.delete_pod_gracefully("b");
    let _manager = start(&world).await;
    pass(60 * SEC + MS).await;
    assert_eq!((world.lines(), world.with_finalizer()), (vec![], 2));
}
