//! No controller runs in two managers, and no manager leads without controllers that the other one ran.

use mini_kcm::controllers::Selection;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// With a Lease of its own, and one controller.
const BESIDE: [&str; 2] = ["--leader-elect-resource-name=mini-kcm", "--controllers=namespace"];
const OFF: &str = "*,bootstrapsigner,tokencleaner,-namespace-controller";
const ON: &str = "*,bootstrapsigner,tokencleaner";

/// The mirror pod of the built-in manager, as kubeadm and the kubelet create it.
fn create_built_in(cluster: &TestCluster, node: &str, flags: &[&str]) {
    let mut command = vec!["kube-controller-manager", "--leader-elect=true", "--bind-address=127.0.0.1"];
    command.extend(flags);
    cluster.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("kube-controller-manager-{node}"), "namespace": "kube-system",
            "labels": { "component": "kube-controller-manager", "tier": "control-plane" },
            "annotations": { "kubernetes.io/config.mirror": "x" },
        },
        "spec": { "nodeName": node, "containers": [
            { "name": "kube-controller-manager", "image": "i", "command": command },
        ] },
        "status": { "phase": "Running" },
    }));
}

fn create_built_in_with(cluster: &TestCluster, controllers: &str) {
    create_built_in(cluster, "cp1", &[&format!("--controllers={controllers}")]);
}

fn remove_built_in(cluster: &TestCluster) {
    cluster.remove("pods", "kube-system", "kube-controller-manager-cp1");
}

/// The Lease of the built-in manager.
fn create_built_in_lease(cluster: &TestCluster) {
    cluster.create(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "kube-controller-manager", "namespace": "kube-system",
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update",
                "apiVersion": "coordination.k8s.io/v1", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": {} },
            }],
        },
        "spec": { "holderIdentity": "cp1_1", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15 },
    }));
}

/// Renews the Lease of the built-in manager for this time.
async fn renew_for(cluster: &TestCluster, time: Duration) {
    let end = now() + time;
    while now() < end {
        let renewed = Clock::virtual_from(epoch()).wall().as_millisecond();
        let text = format!("{renewed} {:?}", end.saturating_duration_since(now()));
        cluster.update("leases", "kube-system", "kube-controller-manager", |it| it["spec"]["renewTime"] = json!(text));
        tokio::time::sleep(SECOND * 2).await;
    }
}

fn leads_beside(cluster: &TestCluster) -> bool {
    let lease = cluster.get("leases", "kube-system", "mini-kcm").unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().is_some_and(|it| !it.is_empty())
}

/// The `by` labels of the controllers that are held back.
fn held_back(replica: &Replica, controller: &str) -> Option<String> {
    let prefix = "mini_kcm_controller_held_back{by=\"";
    let text = replica.metrics.encode();
    let line =
        text.lines().find(|it| it.starts_with(prefix) && it.contains(&format!("controller=\"{controller}\"")))?;
    line.strip_prefix(prefix)?.split('"').next().map(str::to_owned)
}

fn events(cluster: &TestCluster, reason: &str) -> Vec<String> {
    let events = cluster.list("events", "kube-system");
    let of_reason = events.iter().filter(|it| it["reason"] == reason);
    of_reason.map(|it| it["message"].as_str().unwrap().to_owned()).collect()
}

/// From now on the polls of the built-in manager fail in this way, for this time.
fn fail_polls(cluster: &TestCluster, failure: Interception, time: Duration) {
    let begin = now();
    cluster.intercept(move |call: &Call| {
        let fails = call.path.starts_with("/api/v1/namespaces/kube-system/pods") && now() - begin < time;
        if fails { failure.clone() } else { Interception::Pass }
    });
}

#[tokio::test(start_paused = true)]
async fn controller_that_the_built_in_manager_runs_starts_when_it_is_given_up() {
    let cluster = cluster();
    create_terminating_namespace(&cluster, "terminating");
    // The patch of the static pod was forgotten.
    create_built_in_with(&cluster, ON);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    tokio::time::sleep(SECOND * 300).await;
    assert!(replica.writes(&cluster.requests()).is_empty() && !is_gone(&cluster, "terminating"));
    let by = "pod kube-system/kube-controller-manager-cp1";
    assert_eq!(held_back(&replica, "namespace-controller").as_deref(), Some(by));
    let [event] = events(&cluster, "ControllersHeldBack").try_into().expect("one event");
    assert!(event.contains("namespace-controller: kube-system/kube-controller-manager-cp1 runs them"), "{event}");
    // The kubelet replaces the pod.
    remove_built_in(&cluster);
    create_built_in_with(&cluster, OFF);
    let begin = now();
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert!(begin.elapsed() <= SECOND * 10, "{:?}", begin.elapsed());
    assert_eq!(held_back(&replica, "namespace-controller"), None);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(events(&cluster, "ControllersResumed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn running_controller_is_stopped_and_started_again() {
    let cluster = cluster();
    let replica = Replica::start(&cluster, "a", &BESIDE);
    create_terminating_namespace(&cluster, "first");
    wait_until("the first namespace is gone", || is_gone(&cluster, "first")).await;
    for round in 0..3 {
        let name = format!("round-{round}");
        // The built-in manager comes back with its old flags, as after `kubeadm upgrade`.
        create_built_in_with(&cluster, ON);
        tokio::time::sleep(SECOND * 10).await;
        assert!(held_back(&replica, "namespace-controller").is_some(), "within ten seconds");
        cluster.clear_requests();
        create_terminating_namespace(&cluster, &name);
        tokio::time::sleep(SECOND * 120).await;
        assert!(replica.writes(&cluster.requests()).is_empty(), "round {round}");
        remove_built_in(&cluster);
        create_built_in_with(&cluster, OFF);
        let begin = now();
        wait_until("the namespace is gone", || is_gone(&cluster, &name)).await;
        assert!(begin.elapsed() <= SECOND * 15, "{:?}", begin.elapsed());
        let text = replica.metrics.encode();
        assert_eq!(text.matches("workqueue_depth{name=\"namespace\"}").count(), 1, "{text}");
        assert!(text.contains(
            "running_managed_controllers{manager=\"kube-controller-manager\",name=\"namespace-controller\"} 1"
        ));
        remove_built_in(&cluster);
    }
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
}

#[tokio::test(start_paused = true)]
async fn sync_of_a_controller_that_is_held_back_writes_nothing_more() {
    let cluster = cluster();
    // Each call takes long, so a sync of many types is in progress when the other manager appears.
    cluster.intercept(|call| match call.verb {
        "list" | "deletecollection" if !call.user_agent.contains("/preflight") => Interception::Delay(SECOND * 4),
        _ => Interception::Pass,
    });
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    for number in 0..40 {
        create_terminating_namespace(&cluster, &format!("terminating-{number}"));
    }
    wait_until("a sync has begun", || cluster.requests().iter().any(|it| it.verb == "deletecollection")).await;
    create_built_in_with(&cluster, ON);
    tokio::time::sleep(SECOND * 10).await;
    cluster.clear_requests();
    tokio::time::sleep(SECOND * 120).await;
    let calls = cluster.requests();
    assert!(replica.writes(&calls).is_empty(), "{:?}", replica.writes(&calls));
    // The other controllers' part of the term goes on: the Lease is renewed, and the manager ends in order.
    assert!(calls.iter().any(|it| it.resource == "leases" && it.verb == "update"));
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
}

#[tokio::test(start_paused = true)]
async fn other_controllers_go_on_while_one_is_held_back() {
    let cluster = cluster();
    create_built_in_with(&cluster, "*,-namespace-controller");
    let replica =
        Replica::start(&cluster, "a", &["--leader-elect-resource-name=mini-kcm", "--controllers=namespace,job"]);
    create_terminating_namespace(&cluster, "terminating");
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert!(held_back(&replica, "job-controller").is_some() && held_back(&replica, "namespace-controller").is_none());
}

#[tokio::test(start_paused = true)]
async fn every_controller_can_be_stopped_and_started_again() {
    let names: Vec<&str> = Selection::new(&["*".to_owned()]).unwrap().implemented().map(|it| it.name).collect();
    let off = names.iter().fold("*".to_owned(), |list, name| format!("{list},-{name}"));
    let cluster = cluster();
    create_built_in_with(&cluster, &off);
    let replica = Replica::start(&cluster, "a", &BESIDE[..1]);
    for round in 0..2 {
        for (list, is_on) in [(off.as_str(), true), (ON, false)] {
            remove_built_in(&cluster);
            create_built_in_with(&cluster, list);
            wait_until("it leads", || leads_beside(&cluster)).await;
            tokio::time::sleep(SECOND * 30).await;
            let text = replica.metrics.encode();
            for name in &names {
                let running = format!("{{manager=\"kube-controller-manager\",name=\"{name}\"}} 1");
                assert_eq!(text.contains(&running), is_on, "round {round}: {name}");
                assert_eq!(held_back(&replica, name).is_none(), is_on, "round {round}: {name}");
            }
            let panics = text.lines().filter(|it| it.starts_with("mini_kcm_sync_panics_total") && !it.ends_with(" 0"));
            assert_eq!(panics.collect::<Vec<_>>(), [""; 0], "round {round}");
        }
    }
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
}

#[tokio::test(start_paused = true)]
async fn standby_without_the_patch_holds_a_controller_back_only_when_it_may_lead() {
    let cluster = cluster();
    // `kubeadm upgrade` has written one of two manifests again.
    create_built_in(&cluster, "cp1", &[&format!("--controllers={OFF}")]);
    create_built_in(&cluster, "cp2", &[&format!("--controllers={ON}")]);
    create_built_in_lease(&cluster);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    create_terminating_namespace(&cluster, "first");
    renew_for(&cluster, SECOND * 20).await;
    assert!(is_gone(&cluster, "first") && held_back(&replica, "namespace-controller").is_none());
    // The leader has crashed. The standby acquires the Lease 15 s after the last renewal.
    tokio::time::sleep(SECOND * 12).await;
    assert_eq!(
        held_back(&replica, "namespace-controller").as_deref(),
        Some("pod kube-system/kube-controller-manager-cp2")
    );
    cluster
        .update("leases", "kube-system", "kube-controller-manager", |it| it["spec"]["holderIdentity"] = json!("cp2_1"));
    create_terminating_namespace(&cluster, "second");
    renew_for(&cluster, SECOND * 60).await;
    assert!(!is_gone(&cluster, "second"));
    cluster
        .update("leases", "kube-system", "kube-controller-manager", |it| it["spec"]["holderIdentity"] = json!("cp1_2"));
    renew_for(&cluster, SECOND * 20).await;
    assert!(is_gone(&cluster, "second"));
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_manager_that_cannot_be_seen_hold_a_controller_back() {
    let cluster = cluster();
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    assert_eq!(held_back(&replica, "namespace-controller"), None);
    preflight::create_blocked_namespace(&cluster, "foreign", "kube-controller-manager", "2026-01-01T00:01:00Z");
    // Preflight looks for such writes every five minutes.
    tokio::time::sleep(SECOND * 310).await;
    assert_eq!(held_back(&replica, "namespace-controller").as_deref(), Some("manager kube-controller-manager"));
    cluster.remove("namespaces", "", "foreign");
    tokio::time::sleep(SECOND * 310).await;
    assert_eq!(held_back(&replica, "namespace-controller"), None);
}

#[tokio::test(start_paused = true)]
async fn restart_of_the_built_in_manager_changes_nothing() {
    let cluster = cluster();
    create_built_in_with(&cluster, OFF);
    create_built_in_lease(&cluster);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    tokio::time::sleep(SECOND * 10).await;
    renew_for(&cluster, SECOND * 10).await;
    remove_built_in(&cluster);
    tokio::time::sleep(SECOND * 10).await;
    create_terminating_namespace(&cluster, "during");
    let begin = now();
    wait_until("the namespace is gone", || is_gone(&cluster, "during")).await;
    assert!(begin.elapsed() <= SECOND * 6, "{:?}", begin.elapsed());
    create_built_in_with(&cluster, OFF);
    renew_for(&cluster, SECOND * 10).await;
    assert!(events(&cluster, "ControllersHeldBack").is_empty());
    // It is removed for good.
    remove_built_in(&cluster);
    tokio::time::sleep(SECOND * 120).await;
    assert!(events(&cluster, "ControllersHeldBack").is_empty(), "{:?}", events(&cluster, "ControllersHeldBack"));
    drop(replica);
}

#[tokio::test(start_paused = true)]
async fn removed_built_in_manager_is_succeeded_after_a_while() {
    let cluster = cluster();
    create_built_in_with(&cluster, ON);
    create_terminating_namespace(&cluster, "terminating");
    let _replica = Replica::start(&cluster, "a", &BESIDE);
    tokio::time::sleep(SECOND * 60).await;
    remove_built_in(&cluster);
    let begin = now();
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    // The kubelet might have been replacing the pod.
    assert!(begin.elapsed() >= SECOND * 25 && begin.elapsed() <= SECOND * 45, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn manager_that_cannot_be_seen_holds_back_unless_the_user_knows_better() {
    for (flags, acts) in [(vec![], false), (vec!["--assume-exclusive"], true)] {
        let cluster = cluster();
        create_built_in_lease(&cluster);
        create_terminating_namespace(&cluster, "terminating");
        let args: Vec<&str> = BESIDE.into_iter().chain(flags).collect();
        let replica = Replica::start(&cluster, "a", &args);
        renew_for(&cluster, SECOND * 120).await;
        assert_eq!(is_gone(&cluster, "terminating"), acts, "{args:?}");
        let by = (!acts).then_some("lease kube-system/kube-controller-manager");
        assert_eq!(held_back(&replica, "namespace-controller").as_deref(), by, "{args:?}");
        // The other manager has stopped.
        wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
        assert_eq!(held_back(&replica, "namespace-controller"), None, "{args:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_list_pods_the_lease_decides() {
    let cluster = cluster();
    cluster.intercept(|call: &Call| match call.path.as_str() {
        path if path.starts_with("/api/v1/namespaces/kube-system/pods") => {
            Interception::status(403, "Forbidden", "pods is forbidden")
        }
        _ => Interception::Pass,
    });
    create_built_in_with(&cluster, OFF);
    create_built_in_lease(&cluster);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    renew_for(&cluster, SECOND * 20).await;
    let by = held_back(&replica, "namespace-controller");
    assert_eq!(by.as_deref(), Some("lease kube-system/kube-controller-manager"));
}

#[tokio::test(start_paused = true)]
async fn no_controller_starts_before_the_first_poll() {
    let cluster = cluster();
    let begin = now();
    fail_polls(&cluster, Interception::status(500, "InternalError", "down"), SECOND * 30);
    create_terminating_namespace(&cluster, "terminating");
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    let first = replica.writes(&cluster.requests())[0].at.saturating_duration_since(begin);
    assert!(first >= SECOND * 30 && first <= SECOND * 35, "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn new_leader_whose_polls_fail_steps_down() {
    let cluster = cluster();
    fail_polls(&cluster, Interception::Hang, Duration::MAX);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    let begin = now();
    let Exit::Failed(cause) = replica.wait_until_ended().await else { panic!("its polls fail") };
    assert!(cause.starts_with("cannot read the pods and Leases of other controller managers: "), "{cause}");
    assert!(begin.elapsed() <= SECOND * 70, "{:?}", begin.elapsed());
    wait_until("the Lease is released", || !leads_beside(&cluster)).await;
}

/// The first write after a hand-over need not wait for a poll.
#[tokio::test(start_paused = true)]
async fn new_leader_does_not_poll_again_if_its_last_poll_is_recent() {
    let cluster = cluster();
    let first = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    let second = Replica::start(&cluster, "b", &BESIDE);
    let has_started = || {
        let running = "{manager=\"kube-controller-manager\",name=\"namespace-controller\"} 1";
        second.metrics.encode().contains(running)
    };
    // It polls every three seconds.
    tokio::time::sleep(SECOND * 10).await;
    assert!(!has_started());
    cluster.intercept(|call: &Call| {
        let is_poll = call.path.starts_with("/api/v1/namespaces/kube-system/pods");
        if is_poll { Interception::Hang } else { Interception::Pass }
    });
    first.stop.cancel();
    assert_eq!(first.wait_until_ended().await, Exit::Clean);
    tokio::time::sleep(SECOND).await;
    assert!(has_started());
}

#[tokio::test(start_paused = true)]
async fn rights_that_are_taken_away_hold_controllers_back_after_a_while() {
    let cluster = cluster();
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    tokio::time::sleep(SECOND * 10).await;
    cluster.intercept(|call: &Call| match call.path.as_str() {
        // The election needs the read of our own Lease.
        path if path.ends_with("/leases/mini-kcm") => Interception::Pass,
        path if call.user_agent.contains("/preflight") && (path.contains("/pods") || path.contains("/leases")) => {
            Interception::status(403, "Forbidden", "forbidden")
        }
        _ => Interception::Pass,
    });
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(held_back(&replica, "namespace-controller"), None, "a server that starts refuses everything");
    tokio::time::sleep(SECOND * 25).await;
    let by = held_back(&replica, "namespace-controller");
    assert_eq!(by.as_deref(), Some("lease kube-system/kube-controller-manager"));
}

#[tokio::test(start_paused = true)]
async fn a_role_without_the_get_of_the_built_in_lease_suffices() {
    let cluster = cluster();
    cluster.intercept(|call: &Call| {
        let is_get = call.path.ends_with("/leases/kube-controller-manager");
        if is_get { Interception::status(403, "Forbidden", "forbidden") } else { Interception::Pass }
    });
    let replica = Replica::start(&cluster, "a", &BESIDE);
    create_terminating_namespace(&cluster, "terminating");
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert_eq!(held_back(&replica, "namespace-controller"), None);
}

#[tokio::test(start_paused = true)]
async fn leader_without_a_pod_is_noticed_beside_the_pods_of_other_nodes() {
    let cluster = cluster();
    create_built_in(&cluster, "cp2", &[&format!("--controllers={OFF}")]);
    // `kubectl delete node cp1` has removed the pod of cp1, and its manager still leads.
    create_built_in_lease(&cluster);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    create_terminating_namespace(&cluster, "terminating");
    renew_for(&cluster, SECOND * 60).await;
    assert!(!is_gone(&cluster, "terminating"));
    let by = held_back(&replica, "namespace-controller");
    assert_eq!(by.as_deref(), Some("lease kube-system/kube-controller-manager"));
    cluster
        .update("leases", "kube-system", "kube-controller-manager", |it| it["spec"]["holderIdentity"] = json!("cp2_1"));
    renew_for(&cluster, SECOND * 20).await;
    assert!(is_gone(&cluster, "terminating"));
}

#[tokio::test(start_paused = true)]
async fn polls_that_fail_for_some_minutes_do_not_stop_a_running_controller() {
    let cluster = cluster();
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    tokio::time::sleep(SECOND).await;
    let begin = now();
    fail_polls(&cluster, Interception::Hang, SECOND * 290);
    tokio::time::sleep(SECOND * 200).await;
    create_terminating_namespace(&cluster, "terminating");
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert!(begin.elapsed() < SECOND * 290, "{:?}", begin.elapsed());
    tokio::time::sleep(SECOND * 600).await;
    assert!(!replica.exit.is_finished());
}

/// The built-in manager may have got other flags meanwhile.
#[tokio::test(start_paused = true)]
async fn leader_whose_polls_fail_for_five_minutes_steps_down() {
    for failure in [Interception::Hang, Interception::status(429, "TooManyRequests", "busy")] {
        let cluster = cluster();
        let replica = Replica::start(&cluster, "a", &BESIDE);
        wait_until("it leads", || leads_beside(&cluster)).await;
        tokio::time::sleep(SECOND).await;
        let begin = now();
        fail_polls(&cluster, failure, Duration::MAX);
        let Exit::Failed(cause) = replica.wait_until_ended().await else { panic!("its polls fail") };
        assert_eq!(cause, "cannot read the pods and Leases of other controller managers for 300 s");
        assert!((SECOND * 295..=SECOND * 310).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        wait_until("the Lease is released", || !leads_beside(&cluster)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn first_poll_whose_read_of_our_own_lease_is_refused_permits_nothing() {
    let cluster = cluster();
    create_built_in_lease(&cluster);
    // It was released, so it is acquired before the second poll.
    cluster.update("leases", "kube-system", "kube-controller-manager", |it| it["spec"]["holderIdentity"] = json!(""));
    create_terminating_namespace(&cluster, "terminating");
    let begin = now();
    // An API server that has just started.
    cluster.intercept(move |call: &Call| match call.verb {
        "get" | "list" if now() - begin < SECOND => Interception::status(403, "Forbidden", "not yet"),
        _ => Interception::Pass,
    });
    let replica = Replica::start(&cluster, "a", &[]);
    let Exit::Failed(cause) = replica.wait_until_ended().await else { panic!("it lacks controllers") };
    assert!(cause.contains("refusing to lead"), "{cause}");
    let is_work = |it: &Recorded| matches!(it.verb, "update" | "patch" | "delete" | "deletecollection");
    let written: Vec<String> = cluster.requests().into_iter().filter(is_work).map(|it| it.path).collect();
    assert!(written.iter().all(|it| it.contains("/leases/")), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_manager_whose_controllers_are_held_back_are_no_fault() {
    let foreign = |replica: &Replica| replica.metrics.encode().contains("mini_kcm_foreign_writes_total{");
    let cluster = cluster();
    create_built_in_with(&cluster, ON);
    let replica = Replica::start(&cluster, "a", &BESIDE);
    wait_until("it leads", || leads_beside(&cluster)).await;
    preflight::create_blocked_namespace(&cluster, "before", "kube-controller-manager", "2026-01-01T00:01:00Z");
    tokio::time::sleep(SECOND * 400).await;
    assert!(held_back(&replica, "namespace-controller").is_some() && !foreign(&replica));
    remove_built_in(&cluster);
    create_built_in_with(&cluster, OFF);
    wait_until("it is resumed", || held_back(&replica, "namespace-controller").is_none()).await;
    tokio::time::sleep(SECOND * 310).await;
    assert!(!foreign(&replica), "the write is from before");
    preflight::create_blocked_namespace(&cluster, "after", "kube-controller-manager", "2026-01-01T00:12:00Z");
    tokio::time::sleep(SECOND * 310).await;
    assert!(foreign(&replica));
}

#[tokio::test(start_paused = true)]
async fn jobs_of_our_own_are_not_held_back() {
    let cluster = cluster();
    create_built_in_with(&cluster, ON);
    let args = ["--leader-elect-resource-name=mini-kcm", "--controllers=job,namespace", "--job-managed-by=a.b/c"];
    let replica = Replica::start(&cluster, "a", &args);
    wait_until("it leads", || leads_beside(&cluster)).await;
    tokio::time::sleep(SECOND * 10).await;
    assert!(held_back(&replica, "job-controller").is_none() && held_back(&replica, "namespace-controller").is_some());
}

#[tokio::test(start_paused = true)]
async fn manager_refuses_a_lease_whose_holder_ran_more_controllers() {
    for (flags, leads) in [(vec![], false), (vec!["--partial-takeover"], true)] {
        let cluster = cluster();
        create_built_in_lease(&cluster);
        let replica = Replica::start(&cluster, "a", &flags);
        if leads {
            wait_until("it leads", || is_leader(&cluster, "a")).await;
            continue;
        }
        let Exit::Failed(cause) = replica.wait_until_ended().await else { panic!("it lacks controllers") };
        for words in
            ["refusing to lead", "kube-system/kube-controller-manager", "endpoints-controller", "--partial-takeover"]
        {
            assert!(cause.contains(words), "{words}: {cause}");
        }
        assert!(!cause.contains(" job-controller"), "we run it: {cause}");
        assert_eq!(lease(&cluster)["spec"]["holderIdentity"], "cp1_1", "the Lease is not written");
    }
}

#[tokio::test(start_paused = true)]
async fn leader_makes_way_for_a_manager_with_more_controllers() {
    for standby in [false, true] {
        let cluster = cluster();
        let leader = Replica::start(&cluster, "a", &[]);
        wait_until("a leads", || is_leader(&cluster, "a")).await;
        let other = Replica::start(&cluster, "b", &[]);
        tokio::time::sleep(SECOND * 5).await;
        // kubeadm has restored its manager, which waits for our Lease.
        create_built_in_with(&cluster, ON);
        let begin = now();
        let replica = if standby { other } else { leader };
        let Exit::Failed(cause) = replica.wait_until_ended().await else { panic!("it lacks controllers") };
        assert!(cause.contains("that kube-system/kube-controller-manager-cp1 runs: "), "{cause}");
        assert!(begin.elapsed() <= SECOND * 10, "{:?}", begin.elapsed());
        wait_until("the Lease is released", || lease(&cluster)["spec"]["holderIdentity"] == "").await;
    }
}

#[tokio::test(start_paused = true)]
async fn managers_with_the_same_controllers_share_a_lease() {
    let cluster = cluster();
    create_built_in_lease(&cluster);
    create_built_in_with(&cluster, "namespace,job");
    create_terminating_namespace(&cluster, "terminating");
    let _replica = Replica::start(&cluster, "a", &["--controllers=namespace,job"]);
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert!(is_leader(&cluster, "a"));
}

#[tokio::test(start_paused = true)]
async fn preflight_shows_what_would_be_held_back() {
    let cluster = cluster();
    create_built_in_with(&cluster, ON);
    for (args, fine, words) in [
        (&BESIDE[..], true, "# warning: interlock: namespace-controller would be held back: kube-system/kube-con"),
        (
            &["--controllers=namespace"][..],
            false,
            "# error: interlock: refusing to lead with the Lease kube-system/kube",
        ),
        (&["--controllers=namespace", "--partial-takeover"][..], true, ""),
    ] {
        let (config, deps) = Replica::prepare(&cluster, "a", args);
        let report = manager::preflight(config, deps).await;
        let text = report.text();
        assert!(report.is_fine() == fine && text.contains(words), "{args:?}: {text}");
        assert_eq!(text.contains("interlock"), !words.is_empty(), "{args:?}: {text}");
    }
}
