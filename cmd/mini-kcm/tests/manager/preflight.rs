//! The preflight checks of a running manager: they log, count, and never delay the election.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A namespace that is kept by an object with a finalizer. Its managedFields contain a write of another manager.
pub(super) fn create_blocked_namespace(cluster: &TestCluster, name: &str, writer: &str, at: &str) {
    cluster.create(json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name,
            "managedFields": [{
                "manager": writer, "operation": "Update", "apiVersion": "v1", "time": at, "fieldsType": "FieldsV1",
                "fieldsV1": { "f:status": {} }, "subresource": "status",
            }],
        },
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    }));
    cluster.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": name, "finalizers": ["a/b"]},
    }));
    cluster.delete("namespaces", "", name);
}

fn create_foreign_lease(cluster: &TestCluster, name: &str, manager: &str) {
    cluster.create(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": "kube-system",
            "managedFields": [{ "manager": manager, "operation": "Update", "apiVersion": "coordination.k8s.io/v1" }],
        },
        "spec": { "holderIdentity": "other_1", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15 },
    }));
}

fn findings(replica: &Replica, check: &str) -> i64 {
    let series = format!("mini_kcm_preflight_findings{{check=\"{check}\"}} ");
    let text = replica.metrics.encode();
    text.lines().find_map(|it| it.strip_prefix(&series)).unwrap_or("-1").parse().unwrap()
}

async fn wait_for_preflight(replica: &Replica) {
    wait_until("preflight has completed", || findings(replica, "rivals") >= 0).await;
}

const FOREIGN: &str = "mini_kcm_foreign_writes_total";

#[tokio::test(start_paused = true)]
async fn acceptance_shell_048_without_another_manager_there_are_no_foreign_writes() {
    let cluster = cluster();
    // Upstream leads without our controller, so it never writes the subresource of that controller.
    create_foreign_lease(&cluster, "kube-controller-manager", "kube-controller-manager");
    create_blocked_namespace(&cluster, "held", "mini-kcm", "2026-01-01T00:00:00Z");
    let replica = Replica::start(&cluster, "a", &["--leader-elect-resource-name=mini-kcm"]);
    create_terminating_namespace(&cluster, "terminating");
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    wait_for_preflight(&replica).await;
    assert!(!replica.metrics.encode().contains(FOREIGN), "{}", replica.metrics.encode());
    assert_eq!(findings(&replica, "rivals"), 1, "the other Lease is a finding");
    assert_eq!([findings(&replica, "rights"), findings(&replica, "version")], [0; 2]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_049_writes_of_another_manager_are_reported_and_counted_once() {
    let cluster = cluster();
    create_blocked_namespace(&cluster, "held", "kube-controller-manager", "2026-01-01T00:01:00Z");
    let replica = Replica::start(&cluster, "a", &["--leader-elect-resource-name=mini-kcm"]);
    wait_for_preflight(&replica).await;
    let series = format!("{FOREIGN}{{controller=\"namespace-controller\",manager=\"kube-controller-manager\"}} 1");
    assert!(replica.metrics.encode().contains(&series), "{}", replica.metrics.encode());
    assert_eq!(findings(&replica, "rivals"), 1);
    tokio::time::sleep(MINUTE * 6).await;
    assert!(replica.metrics.encode().contains(&series), "the same write is counted once");
    tokio::time::sleep(MINUTE * 10).await;
    assert_eq!(findings(&replica, "rivals"), 0, "the write is no longer recent");
}

#[tokio::test(start_paused = true)]
async fn writes_of_the_previous_leader_are_not_foreign() {
    let cluster = cluster();
    // Upstream leads with our Lease, and stops soon.
    create_foreign_lease(&cluster, "kube-controller-manager", "kube-controller-manager");
    create_blocked_namespace(&cluster, "held", "kube-controller-manager", "2026-01-01T00:00:00Z");
    let replica = Replica::start(&cluster, "a", &["--partial-takeover"]);
    wait_for_preflight(&replica).await;
    assert_eq!(findings(&replica, "rivals"), 0, "as standby");
    wait_until("it leads", || is_leader(&cluster, "a")).await;
    tokio::time::sleep(MINUTE * 6).await;
    assert_eq!(findings(&replica, "rivals"), 0, "as the next leader");
    assert!(!replica.metrics.encode().contains(FOREIGN), "{}", replica.metrics.encode());
}

#[tokio::test(start_paused = true)]
async fn findings_stay_while_the_server_is_down() {
    let cluster = cluster();
    create_blocked_namespace(&cluster, "held", "kube-controller-manager", "2026-01-01T00:01:00Z");
    let begun = now();
    cluster.intercept(move |call: &Call| match call.resource.as_str() {
        _ if call.path == "/version" && now() - begun > MINUTE => Interception::status(500, "InternalError", "down"),
        "namespaces" if call.verb == "list" && now() - begun > MINUTE => {
            Interception::status(500, "InternalError", "down")
        }
        "selfsubjectaccessreviews" => Interception::access(false),
        _ => Interception::Pass,
    });
    let replica = Replica::start(&cluster, "a", &[]);
    wait_for_preflight(&replica).await;
    let rights = findings(&replica, "rights");
    assert!(rights > 5 && findings(&replica, "rivals") == 1);
    tokio::time::sleep(MINUTE * 6).await;
    assert_eq!(findings(&replica, "version"), 1, "the server does not report its version");
    assert_eq!(findings(&replica, "rights"), rights);
    let series = format!("{FOREIGN}{{controller=\"namespace-controller\",manager=\"kube-controller-manager\"}} 1");
    assert!(replica.metrics.encode().contains(&series), "a failed list adds no finding: {series}");
}

#[tokio::test(start_paused = true)]
async fn newer_server_is_a_finding_and_permissions_are_reviewed_once() {
    let cluster = cluster();
    cluster.intercept(|call: &Call| match call.path.as_str() {
        "/version" => {
            let body = json!({ "major": "1", "minor": "99", "gitVersion": "v1.99.0" });
            Interception::Answer { status: 200, headers: Vec::new(), body }
        }
        _ => Interception::Pass,
    });
    let replica = Replica::start(&cluster, "a", &[]);
    wait_for_preflight(&replica).await;
    assert_eq!([findings(&replica, "version"), findings(&replica, "rights")], [1, 0]);
    cluster.clear_requests();
    tokio::time::sleep(MINUTE * 30).await;
    assert!(cluster.requests().iter().all(|it| it.resource != "selfsubjectaccessreviews"));
    assert_eq!([findings(&replica, "version"), findings(&replica, "rights")], [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn manager_without_permissions_has_findings_and_leads() {
    let cluster = cluster();
    let begun = now();
    cluster.intercept(move |call: &Call| {
        let refused = call.resource == "selfsubjectaccessreviews" && now() - begun < MINUTE * 8;
        if refused { Interception::access(false) } else { Interception::Pass }
    });
    let replica = Replica::start(&cluster, "a", &[]);
    wait_until("it leads", || is_leader(&cluster, "a")).await;
    assert!(now() - begun < Duration::from_secs(2), "the election does not wait for preflight");
    wait_for_preflight(&replica).await;
    assert!(findings(&replica, "rights") > 5);
    tokio::time::sleep(MINUTE * 12).await;
    assert_eq!(findings(&replica, "rights"), 0, "checked again until all permissions are granted");
    assert!(is_leader(&cluster, "a"));
    let review_count = |calls: &[Recorded]| calls.iter().filter(|it| it.resource == "selfsubjectaccessreviews").count();
    let before = review_count(&cluster.requests());
    tokio::time::sleep(MINUTE * 30).await;
    assert_eq!(review_count(&cluster.requests()), before, "granted permissions are not reviewed again");
}

#[tokio::test(start_paused = true)]
async fn server_that_is_too_old_or_hangs_is_a_finding_and_does_not_end_the_leader() {
    for old in [true, false] {
        let cluster = cluster();
        let body = json!({ "major": "1", "minor": "33", "gitVersion": "v1.33.1" });
        cluster.intercept(move |call: &Call| match call.path.as_str() {
            "/version" if old => Interception::Answer { status: 200, headers: Vec::new(), body: body.clone() },
            "/version" => Interception::Hang,
            _ => Interception::Pass,
        });
        let replica = Replica::start(&cluster, "a", &[]);
        tokio::time::sleep(MINUTE * 3).await;
        assert!(is_leader(&cluster, "a") && !replica.exit.is_finished(), "the leader continues");
        let found = if old { "version" } else { "server" };
        assert_eq!(findings(&replica, found), 1, "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn preflight_lists_what_the_cluster_will_lack() {
    // The list of kubeadm, and a list that we implement completely.
    for (list, is_missing) in [("*,bootstrapsigner,tokencleaner", true), ("namespace", false)] {
        let flag = format!("--controllers={list}");
        let (config, deps) = Replica::prepare(&cluster(), "a", &[flag.as_str()]);
        let report = manager::preflight(config, deps).await;
        let text = report.text();
        assert!(report.is_fine(), "no controller lacks a permission: {text}");
        assert_eq!(text.contains("EndpointSlices, so traffic to Services goes nowhere"), is_missing, "{text}");
        assert_eq!(text.contains("# warning: flags: not in this binary"), is_missing, "{text}");
        assert_eq!(text.contains("# Nothing is missing."), !is_missing, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn preflight_prints_rules_for_denied_paths() {
    let cluster = cluster();
    cluster.intercept(|call: &Call| {
        let review: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        if review["spec"]["nonResourceAttributes"].is_null() {
            return Interception::Pass;
        }
        let body = json!({ "kind": review["kind"], "status": { "allowed": false } });
        Interception::Answer { status: 201, headers: Vec::new(), body }
    });
    let (config, deps) = Replica::prepare(&cluster, "a", &["--use-service-account-credentials"]);
    let report = manager::preflight(config, deps).await;
    let text = report.text();
    assert!(!report.is_fine(), "{text}");
    for words in [
        " may not get /healthz, which the start of a term needs\n",
        "system:serviceaccount:kube-system:namespace-controller may not get /apis, which namespace-controller needs\n",
        "rules:\n  - nonResourceURLs: [\"/healthz\"]\n    verbs: [\"get\"]\n---\n",
        "rules:\n  - nonResourceURLs: [\"/api\"]\n    verbs: [\"get\"]\n  \
         - nonResourceURLs: [\"/apis\"]\n    verbs: [\"get\"]\n---\n",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn clock_difference_is_a_finding() {
    // Without the server's time there is no finding.
    for (date, differ) in [("Thu, 01 Jan 2026 00:00:02 GMT", 0), ("Thu, 01 Jan 2026 00:01:00 GMT", 1), ("nonsense", -1)]
    {
        let cluster = cluster();
        cluster.intercept(move |call: &Call| match call.path.as_str() {
            "/version" => Interception::Answer {
                status: 200,
                headers: vec![("date", date.to_owned())],
                body: json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.2" }),
            },
            _ => Interception::Pass,
        });
        let replica = Replica::start(&cluster, "a", &[]);
        wait_for_preflight(&replica).await;
        assert_eq!(findings(&replica, "clock"), differ, "{date}");
        let (config, deps) = Replica::prepare(&cluster, "b", &[]);
        let text = manager::preflight(config, deps).await.text();
        assert_eq!(text.contains("# note: clock: the server does not report its time"), differ < 0, "{text}");
    }
}
