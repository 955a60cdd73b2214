use std::collections::BTreeSet;

use fake_nodes::PREFIX;
use serde_json::json;

use super::*;

fn context() -> SampleContext {
    SampleContext {
        home: "home".into(),
        deleted_namespace: "deleted".into(),
        nodes: 3,
        open_nodes: 2,
        failing_node: "node-4".into(),
    }
}

fn all_samples() -> impl Iterator<Item = &'static Sample> {
    SAMPLES.iter().chain([NODE_FAILURE])
}

fn sample(name: &str) -> &'static Sample {
    all_samples().find(|it| it.name == name).unwrap()
}

fn progress(name: &str, objects: &[Value]) -> Progress {
    (sample(name).progress)(&context(), &observed(objects))
}

fn observed(objects: &[Value]) -> Observed {
    let mut observed = Observed::default();
    objects.iter().for_each(|it| observed.put(it["kind"].as_str().unwrap(), it.clone()));
    observed
}

fn pod(name: &str, status: Value) -> Value {
    json!({ "kind": "Pod", "metadata": { "namespace": "home", "name": name }, "status": status })
}

fn terminating(conditions: &[(&str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(name, message)| json!({ "type": name, "status": "True", "message": message }))
        .collect();
    json!({
        "kind": "Namespace",
        "metadata": { "name": "deleted", "deletionTimestamp": "2027-01-15T08:00:00Z" },
        "status": { "phase": "Terminating", "conditions": conditions },
    })
}

#[test]
fn every_sample_is_complete_and_has_a_unique_name() {
    let names: BTreeSet<&str> = all_samples().map(|it| it.name).collect();
    assert_eq!(names.len(), all_samples().count());
    for sample in all_samples() {
        let objects = (sample.objects)(&context());
        assert!(!objects.is_empty(), "{}", sample.name);
        for object in objects {
            assert!(object["apiVersion"].is_string() && object["kind"].is_string(), "{object}");
            assert!(object["metadata"]["name"].is_string(), "{object}");
        }
        let fresh = (sample.progress)(&context(), &Observed::default());
        assert_eq!(fresh.state, State::Going, "{}: without any object it is not done", sample.name);
        assert!(!sample.steps.iter().any(|it| (it.when)(&context(), &Observed::default())), "{}", sample.name);
    }
}

#[test]
fn a_deployment_is_updated_then_rolled_back_and_done_when_all_pods_have_the_old_image_again() {
    let deployment = |revision: u32, image: &str, observed: u32, counters: [u32; 3]| {
        let [replicas, updated, ready] = counters;
        json!({ "kind": "Deployment",
            "metadata": { "namespace": "home", "name": "shop", "generation": revision,
                "annotations": { "deployment.kubernetes.io/revision": revision.to_string() } },
            "spec": { "template": { "spec": { "containers": [{ "image": format!("example.com/main:{image}") }] } } },
            "status": { "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
                "readyReplicas": ready } })
    };
    let pod = |number: u32, image: &str| {
        json!({ "kind": "Pod", "metadata": { "namespace": "home", "name": format!("shop-a-{number}") },
            "spec": { "containers": [{ "image": format!("example.com/main:{image}") }] } })
    };
    let steps = sample("deployment").steps;
    let due =
        |it: &Value| [0, 1].map(|step: usize| (steps[step].when)(&context(), &observed(std::slice::from_ref(it))));
    let whole = [3, 3, 3];
    for (it, wanted) in [
        (deployment(1, "1", 0, whole), [false, false]),
        (deployment(1, "1", 1, [3, 3, 2]), [false, false]),
        (deployment(1, "1", 1, whole), [true, false]),
        (deployment(2, "2", 1, whole), [false, false]),
        (deployment(2, "2", 2, [4, 3, 3]), [false, false]),
        (deployment(2, "2", 2, [3, 2, 3]), [false, false]),
        (deployment(2, "2", 2, whole), [false, true]),
    ] {
        assert_eq!(due(&it), wanted, "{it}");
    }
    let images = steps.iter().map(|it| (it.act)(&context()));
    let wanted = ["example.com/main:2", "example.com/main:1"];
    assert!(images.eq(wanted.map(|it| Act::set_image("Deployment", "home", "shop", it))));

    for (it, image, state) in [
        (deployment(1, "1", 1, whole), "1", State::Going),
        (deployment(2, "2", 2, whole), "2", State::Going),
        (deployment(3, "1", 2, whole), "1", State::Going),
        (deployment(3, "1", 3, [4, 3, 3]), "1", State::Going),
        (deployment(3, "1", 3, whole), "2", State::Going),
        (deployment(3, "1", 3, whole), "1", State::Done),
    ] {
        let objects = [it, pod(1, "1"), pod(2, "1"), pod(3, image)];
        assert_eq!(progress("deployment", &objects).state, state, "{objects:?}");
    }
    let going = progress("deployment", &[deployment(2, "2", 2, [4, 2, 3]), pod(1, "1"), pod(2, "2")]);
    let text = "revision 2, 0 ReplicaSets; 3 pods ready; 1 with the old image, 1 with the new";
    assert_eq!(going, Progress::going(text));
}

#[test]
fn a_stateful_set_is_done_when_all_pods_have_the_new_image_and_the_revision_is_current() {
    let set = |ready: i64, current: &str| {
        json!({ "kind": "StatefulSet", "metadata": { "namespace": "home", "name": "ledger" },
            "status": { "readyReplicas": ready, "currentRevision": current, "updateRevision": "b" } })
    };
    let pod = |ordinal: u32, image: &str| {
        json!({ "kind": "Pod", "metadata": { "namespace": "home", "name": format!("ledger-{ordinal}") },
            "spec": { "containers": [{ "image": format!("example.com/main:{image}") }] } })
    };
    for (objects, state) in [
        (vec![set(2, "a"), pod(0, "1"), pod(1, "1")], State::Going),
        (vec![set(2, "b"), pod(0, "1"), pod(1, "1")], State::Going),
        (vec![set(1, "b"), pod(0, "2"), pod(1, "2")], State::Going),
        (vec![set(2, "b"), pod(0, "2"), pod(1, "2")], State::Done),
    ] {
        assert_eq!(progress("statefulset", &objects).state, state, "{objects:?}");
    }
    let all = observed(&[set(2, "a")]);
    assert!((sample("statefulset").steps[0].when)(&context(), &all));
}

#[test]
fn a_daemon_set_is_done_when_each_open_node_has_a_new_pod_and_the_tainted_one_has_none() {
    let set = |ready: u32, updated: u32| {
        json!({ "kind": "DaemonSet", "metadata": { "namespace": "home", "name": "agent" },
            "status": { "desiredNumberScheduled": 2, "numberReady": ready, "updatedNumberScheduled": updated } })
    };
    let pod = |node: u32, image: &str| {
        json!({ "kind": "Pod", "metadata": { "namespace": "home", "name": format!("agent-{node}{image}") },
            "spec": { "nodeName": format!("node-{node}"),
                "containers": [{ "image": format!("example.com/main:{image}") }] } })
    };
    let tainted = json!({ "kind": "Node", "metadata": { "name": "node-3", "labels": { DEDICATED: "true" } } });
    for (objects, state) in [
        (vec![set(2, 0), pod(1, "1"), pod(2, "1")], State::Going),
        (vec![set(1, 2), pod(1, "2"), pod(2, "2")], State::Going),
        (vec![set(2, 1), pod(1, "2"), pod(2, "2")], State::Going),
        (vec![set(2, 2), pod(1, "2"), pod(2, "2"), pod(2, "1")], State::Going),
        (vec![set(2, 2), pod(1, "2"), pod(2, "2")], State::Done),
        (vec![set(2, 2), pod(1, "2"), pod(2, "2"), pod(3, "2")], State::Failed),
    ] {
        let objects: Vec<Value> = objects.into_iter().chain([tainted.clone()]).collect();
        assert_eq!(progress("daemonset", &objects).state, state, "{objects:?}");
    }
    let due = |ready: u32| (sample("daemonset").steps[0].when)(&context(), &observed(&[set(ready, 0)]));
    assert_eq!((due(1), due(2)), (false, true));
}

#[test]
fn failing_node_is_silent_until_its_pods_are_replaced() {
    let node = |ready: &str, taints: &[&str]| {
        let taints =
            taints.iter().map(|it| json!({ "key": format!("node.kubernetes.io/{it}"), "effect": "NoExecute" }));
        let taints: Vec<Value> = taints.chain([json!({ "key": FAILING, "effect": "NoSchedule" })]).collect();
        json!({ "kind": "Node", "metadata": { "name": "node-4" }, "spec": { "taints": taints },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
    };
    let pod = |number: u32, node: &str, phase: &str, evicted: bool| {
        let mut pod = pod(&format!("courier-{number}"), json!({ "phase": phase }));
        pod["spec"]["nodeName"] = json!(node);
        if evicted {
            pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        }
        pod
    };
    let job = |status: Value| batch("Job", "courier", json!({}), status);
    let steps = sample("kill-node").steps;
    let due = |step: usize, pods: &[Value]| (steps[step].when)(&context(), &observed(pods));
    let running = |evicted: bool| {
        [
            pod(1, "node-1", "Running", false),
            pod(2, "node-1", "Running", false),
            pod(3, "node-4", "Running", evicted),
            pod(4, "node-4", "Running", evicted),
        ]
    };
    assert_eq!((due(0, &running(false)[..3]), due(0, &running(false))), (false, true));
    let replaced = |phase: &str| {
        let new = [pod(5, "node-1", phase, false), pod(6, "node-1", phase, false)];
        running(true).into_iter().chain(new).collect::<Vec<Value>>()
    };
    assert_eq!(
        (due(1, &running(true)), due(1, &replaced("Pending")), due(1, &replaced("Running"))),
        (false, false, true)
    );
    assert_eq!(
        steps.iter().map(|it| (it.command)(&context())).collect::<Vec<_>>(),
        ["true", ""].map(|value| {
            let value = if value.is_empty() { "-".to_owned() } else { format!("={value}") };
            format!("kubectl annotate node node-4 {PREFIX}silent{value}")
        })
    );

    let shown = |node: Value, pods: &[Value], status: Value| {
        progress("kill-node", &pods.iter().cloned().chain([node, job(status)]).collect::<Vec<_>>())
    };
    let lost = shown(node("Unknown", &["unreachable"]), &replaced("Running"), json!({}));
    let text = "node-4 Unknown, tainted unreachable:NoExecute; 2 pods on it, 2 evicted; 4 elsewhere; 0 of 4 succeeded";
    assert_eq!(lost, Progress::going(text));
    let complete = json!({ "succeeded": 4, "conditions": is_true("Complete", "CompletionsReached") });
    assert_eq!(shown(node("Unknown", &[]), &[], complete.clone()).state, State::Going, "the node is not back yet");
    assert_eq!(shown(node("True", &["unreachable"]), &[], complete.clone()).state, State::Going);
    let back = "node-4 Ready; 0 pods on it, 0 evicted; 0 elsewhere; 4 of 4 succeeded; Complete";
    assert_eq!(shown(node("True", &[]), &[], complete), Progress::done(back));
}

#[test]
fn tasks_are_done_when_all_have_succeeded() {
    let tasks = |phases: [&str; 3]| {
        let pods: Vec<Value> = phases
            .iter()
            .enumerate()
            .map(|(at, it)| pod(&format!("task-{}", at + 1), json!({ "phase": it })))
            .collect();
        progress("completion", &pods)
    };
    assert_eq!(tasks(["Pending", "Running", "Succeeded"]), Progress::going("1 of 3 succeeded, 1 running"));
    assert_eq!(tasks(["Succeeded"; 3]), Progress::done("3 of 3 succeeded, 0 running"));
    assert_eq!(tasks(["Succeeded", "Failed", "Succeeded"]).state, State::Failed);
}

#[test]
fn crash_loop_shows_its_back_off() {
    let flaky = |phase: &str, state: Value| {
        let container = json!({ "restartCount": 2, "state": state });
        progress("crash-loop", &[pod("flaky", json!({ "phase": phase, "containerStatuses": [container] }))])
    };
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    assert_eq!(flaky("Running", waiting), Progress::going("CrashLoopBackOff, 2 restarts"));
    assert_eq!(flaky("Succeeded", json!({})), Progress::done("Succeeded, 2 restarts"));
}

#[test]
fn unschedulable_pods_show_the_reason() {
    let condition = json!({ "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available" });
    let waits = pod("big-0001", json!({ "phase": "Pending", "conditions": [condition] }));
    let going = Progress::going("0 of 4 succeeded, 0 running; one waits: 0/3 nodes are available");
    assert_eq!(progress("capacity", &[waits]), going);
    let names: Vec<String> = (sample("capacity").objects)(&context())
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["big-0000", "big-0001", "big-0002", "big-special"]);
    let alone = SampleContext { nodes: 1, open_nodes: 1, ..context() };
    assert_eq!((sample("capacity").objects)(&alone).len(), 2, "no tainted node, no pod for it");
}

#[test]
fn user_deletes_namespace_and_removes_finalizer_when_nothing_else_is_left() {
    let steps = sample("ns-deletion").steps;
    let due = |step: usize, objects: &[Value]| (steps[step].when)(&context(), &observed(objects));
    let mut slow = pod("web-1", json!({ "phase": "Pending" }));
    slow["metadata"]["namespace"] = json!("deleted");
    assert!(!due(0, std::slice::from_ref(&slow)));
    slow["status"]["phase"] = json!("Running");
    assert!(due(0, &[slow]));

    let finalizers = (
        "NamespaceFinalizersRemaining",
        "Some content in the namespace has finalizers remaining: playground.mini-kcm.dev/backup in 1 resource instances",
    );
    let much = "Some resources are remaining: configmaps. has 1 resource instances, pods. has 2 resource instances";
    let last = "Some resources are remaining: configmaps. has 1 resource instances";
    assert!(!due(1, &[terminating(&[("NamespaceContentRemaining", much), finalizers])]));
    assert!(!due(1, &[terminating(&[("NamespaceContentRemaining", last)])]));
    assert!(due(1, &[terminating(&[("NamespaceContentRemaining", last), finalizers])]));
}

#[test]
fn namespace_shows_its_conditions_until_it_is_gone() {
    assert_eq!(progress("ns-deletion", &[terminating(&[])]), Progress::going("Terminating"));
    let shown = progress("ns-deletion", &[terminating(&[("NamespaceContentRemaining", "pods remain")])]);
    assert_eq!(shown, Progress::going("Terminating: pods remain"));
    let mut observed = observed(&[terminating(&[])]);
    observed.remove("Namespace", &terminating(&[]));
    assert_eq!((sample("ns-deletion").progress)(&context(), &observed).state, State::Done);
}

fn batch(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({ "kind": kind, "metadata": { "namespace": "home", "name": name }, "spec": spec, "status": status })
}

fn is_true(name: &str, reason: &str) -> Value {
    json!([{ "type": name, "status": "True", "reason": reason }])
}

/// A pod of a Job.
fn worker(job: &str, number: u32, phase: &str) -> Value {
    let mut pod = pod(&format!("{job}-{number}"), json!({ "phase": phase }));
    pod["metadata"]["labels"] = json!({ "batch.kubernetes.io/job-name": job });
    pod
}

#[test]
fn job_shows_its_counters_until_it_is_complete() {
    let tally = |status: Value| progress("job", &[batch("Job", "tally", json!({}), status)]);
    assert_eq!(tally(json!({})), Progress::going("0 of 4 succeeded, 0 active"));
    assert_eq!(tally(json!({ "succeeded": 2, "active": 2 })), Progress::going("2 of 4 succeeded, 2 active"));
    let complete = json!({ "succeeded": 4, "conditions": is_true("Complete", "CompletionsReached") });
    assert_eq!(tally(complete), Progress::done("4 of 4 succeeded, 0 active; Complete"));
    let failed = json!({ "conditions": is_true("Failed", "BackoffLimitExceeded") });
    assert_eq!(tally(failed).state, State::Failed);
}

#[test]
fn indexed_job_is_done_when_one_index_failed_and_the_others_succeeded() {
    let shards = |succeeded: &str, failed: &str, conditions: Value| {
        let status = json!({
            "completedIndexes": succeeded, "failedIndexes": failed, "failed": 2, "conditions": conditions,
        });
        progress("job-indexed", &[batch("Job", "shards", json!({}), status)])
    };
    let text = "indexes succeeded: 0,1,3; failed: none; 2 pods failed, 0 active";
    assert_eq!(shards("0,1,3", "", json!([])), Progress::going(text));
    assert_eq!(shards("0,1,3", "2", is_true("Failed", "FailedIndexes")).state, State::Done);
    assert_eq!(shards("0,1", "2", is_true("Failed", "FailedIndexes")).state, State::Failed);
    assert_eq!(shards("0,1,3", "2", is_true("Failed", "BackoffLimitExceeded")).state, State::Failed);
    assert_eq!(shards("0-3", "", is_true("Complete", "CompletionsReached")).state, State::Failed);
}

#[test]
fn user_suspends_job_when_both_pods_run_and_resumes_it_when_they_are_gone() {
    let steps = sample("job-suspend").steps;
    let due = |step: usize, objects: &[Value]| (steps[step].when)(&context(), &observed(objects));
    let (one, other) = (worker("pausable", 1, "Running"), worker("pausable", 2, "Running"));
    assert!(!due(0, &[one.clone(), worker("pausable", 2, "Pending")]));
    assert!(!due(0, &[one.clone(), pod("pausable-2", json!({ "phase": "Running" }))]), "a pod without an owner");
    assert!(due(0, &[one.clone(), other]));

    let suspended = batch("Job", "pausable", json!({}), json!({ "conditions": is_true("Suspended", "JobSuspended") }));
    assert!(!due(1, &[suspended.clone(), one]));
    assert!(due(1, &[suspended.clone(), worker("pausable", 1, "Succeeded")]), "it succeeded before the suspension");
    assert!(!due(1, &[batch("Job", "pausable", json!({}), json!({}))]));
    assert!(due(1, std::slice::from_ref(&suspended)));
    let shown = progress("job-suspend", &[suspended]);
    assert_eq!(shown, Progress::going("Suspended, 0 of 2 succeeded, 0 active, 0 pods"));
    assert_eq!(
        steps.iter().map(|it| (it.act)(&context()).operation).collect::<Vec<_>>(),
        [true, false].map(|suspend| { Operation::Merge(json!({ "spec": { "suspend": suspend } })) })
    );
}

#[test]
fn cronjob_is_suspended_and_done_after_its_first_success() {
    let chime = |suspend: bool, status: Value| {
        let cron = batch("CronJob", "chime", json!({ "suspend": suspend }), status);
        let job = batch("Job", "chime-29333333", json!({}), json!({}));
        let due = (sample("cronjob").steps[0].when)(&context(), &observed(std::slice::from_ref(&cron)));
        (due, progress("cronjob", &[cron, job]))
    };
    let made = json!({ "lastScheduleTime": "2027-01-15T08:00:05Z" });
    assert_eq!(chime(false, made), (false, Progress::going("1 Jobs, the last for 08:00:05")));
    let succeeded = json!({ "lastScheduleTime": "2027-01-15T08:00:05Z", "lastSuccessfulTime": "2027-01-15T08:00:07Z" });
    let text = "1 Jobs, the last for 08:00:05, the last success at 08:00:07";
    assert_eq!(chime(false, succeeded.clone()), (true, Progress::going(text)));
    assert_eq!(chime(true, succeeded).1, Progress::done(format!("{text}; suspended")));
}

/// The four objects of a tree with their metadata; `None` for one that is gone.
fn tree(name: &str, metas: [Option<Value>; 4]) -> Observed {
    let kinds = [("ConfigMap", ""), ("ConfigMap", "-part"), ("Pod", "-1"), ("Pod", "-2")];
    let mut observed = Observed::default();
    for ((kind, suffix), meta) in kinds.into_iter().zip(metas) {
        let mut object = json!({ "kind": kind, "metadata": meta.clone().unwrap_or_else(|| json!({})) });
        object["metadata"]["namespace"] = json!("home");
        object["metadata"]["name"] = json!(format!("{name}{suffix}"));
        object["status"] = json!({ "phase": "Running" });
        observed.put(kind, object.clone());
        if meta.is_none() {
            observed.remove(kind, &object);
        }
    }
    observed
}

fn owned() -> Option<Value> {
    Some(json!({ "ownerReferences": [{ "name": "it" }] }))
}

fn ends(finalizers: &[&str]) -> Option<Value> {
    Some(json!({ "deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": finalizers, "ownerReferences": [{}] }))
}

#[test]
fn user_deletes_each_tree_with_its_policy_once_its_pods_run() {
    for (name, policy) in [
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
        ("orphan", PropagationPolicy::Orphan),
    ] {
        let step = &sample(name).steps[0];
        assert!(!(step.when)(&context(), &tree(name, [owned(), owned(), owned(), None])));
        assert!((step.when)(&context(), &tree(name, [owned(), owned(), owned(), owned()])));
        assert_eq!((step.act)(&context()).operation, Operation::Cascade(policy));
        assert!((step.command)(&context()).ends_with(&format!("delete configmap {name} -n home --cascade={name}")));
    }
}

#[test]
fn deleted_tree_is_done_when_all_objects_are_gone() {
    let shown = |metas| (sample("foreground").progress)(&context(), &tree("foreground", metas));
    let waits = || ends(&["foregroundDeletion"]);
    let text = "owner waits for its dependents; part waits for its dependents; its pods ending and gone";
    assert_eq!(shown([waits(), waits(), ends(&[]), None]), Progress::going(text));
    assert_eq!(shown([waits(), None, None, None]).state, State::Going);
    assert_eq!(shown([None, None, None, None]).state, State::Done);
}

#[test]
fn orphans_have_no_owner_and_must_remain() {
    let shown = |metas| (sample("orphan").progress)(&context(), &tree("orphan", metas));
    let text = "owner orphans its dependents; part there; its pods there";
    assert_eq!(shown([ends(&["orphan"]), owned(), owned(), owned()]), Progress::going(text));
    assert_eq!(shown([None, owned(), owned(), owned()]).state, State::Going, "the reference is not removed yet");
    assert_eq!(shown([None, Some(json!({})), owned(), owned()]).state, State::Done);
    assert_eq!(shown([None, None, owned(), owned()]).state, State::Failed);
    assert_eq!(shown([None, Some(json!({})), owned(), None]).state, State::Failed);
}
