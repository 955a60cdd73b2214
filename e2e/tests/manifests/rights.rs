//! Every controller does its work with the rights of the manifests alone: no request is refused.

use std::time::Duration;

use clock::Clock;
use e2e::{AuditEvent, Build, ControlPlane, Identity, Rest, binary, eventually, free_port, namespaces, objects};
use fake_nodes::{Environment, Fleet, PREFIX};
use serde_json::{Value, json};
use tasks::Scope;

use super::{Started, TIME_LIMIT, account, cluster, document, in_cluster, manifest, strings};
use crate::support::shipped::controllers;

/// A CronJob runs at the next minute.
const A_MINUTE: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "work";
/// The controllers whose account, which their User-Agent names, has another name.
const ACCOUNTS: [(&str, &str); 4] = [
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("daemonset-controller", "daemon-set-controller"),
    ("replicationcontroller-controller", "replication-controller"),
    ("node-lifecycle-controller", "node-controller"),
];
/// Pods of the deleted node may be gone by the eviction or by the garbage collection of pods.
const WITHOUT_WORK: [&str; 2] = ["taint-eviction-controller", "pod-garbage-collector-controller"];

fn template(labels: &Value, run_for: Option<&str>) -> Value {
    let mut lines = json!({ format!("{PREFIX}stop-after"): "100ms" });
    if let Some(time) = run_for {
        lines[format!("{PREFIX}run-for")] = json!(time);
    }
    let restart = if run_for.is_some() { "Never" } else { "Always" };
    json!({
        "metadata": { "labels": labels, "annotations": lines },
        "spec": { "restartPolicy": restart, "containers": [{ "name": "main", "image": "example.com/main:1" }] },
    })
}

fn path(group: &str, resource: &str) -> String {
    let prefix = if group == "v1" { "/api/v1".to_owned() } else { format!("/apis/{group}") };
    format!("{prefix}/namespaces/{NAMESPACE}/{resource}")
}

async fn until(admin: &Rest, what: &str, path: &str, is_reached: impl Fn(&Value) -> bool) {
    eventually(what, A_MINUTE, async || {
        let found = admin.get(path).await?;
        anyhow::ensure!(is_reached(&found), "{}", found["status"]);
        Ok(Some(()))
    })
    .await
    .unwrap();
}

async fn until_gone(admin: &Rest, path: &str) {
    let gone = async || Ok(admin.find(path).await?.is_none().then_some(()));
    eventually(&format!("{path} to be gone"), A_MINUTE, gone).await.unwrap();
}

/// Work for each of these controllers, until all of it is done.
async fn work(admin: &Rest, running: &[&str]) {
    namespaces::create(admin, NAMESPACE).await.unwrap();
    let (jobs, sets, daemons) =
        (path("batch/v1", "jobs"), path("apps/v1", "statefulsets"), path("apps/v1", "daemonsets"));
    let job = json!({ "metadata": { "name": "one" }, "spec": {
        "completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 1, "template": template(&json!({}), Some("300ms")) } });
    admin.create(&jobs, &job).await.unwrap();
    let scheduled = json!({ "metadata": { "name": "each-minute" }, "spec": { "schedule": "* * * * *",
        "jobTemplate": { "spec": { "template": template(&json!({}), Some("300ms")) } } } });
    admin.create(&path("batch/v1", "cronjobs"), &scheduled).await.unwrap();
    let labels = json!({ "app": "set" });
    let set = json!({ "metadata": { "name": "set" }, "spec": { "replicas": 2, "serviceName": "set",
        "podManagementPolicy": "Parallel", "selector": { "matchLabels": labels }, "template": template(&labels, None),
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Delete" },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }] } });
    admin.create(&sets, &set).await.unwrap();
    let labels = json!({ "app": "daemon" });
    let daemon = json!({ "metadata": { "name": "daemon" }, "spec": {
        "selector": { "matchLabels": labels }, "template": template(&labels, None) } });
    admin.create(&daemons, &daemon).await.unwrap();
    let labels = json!({ "app": "replicas" });
    let replicas = |selector: Value| {
        json!({ "metadata": { "name": "replicas" }, "spec": {
            "replicas": 2, "selector": selector, "template": template(&labels, None) } })
    };
    let target = path("v1", "replicationcontrollers");
    admin.create(&target, &replicas(labels.clone())).await.unwrap();
    until(admin, "the replicas", &format!("{target}/replicas"), |it| it["status"]["readyReplicas"] == 2).await;
    if running.contains(&"deployment-controller") {
        let deployments = path("apps/v1", "deployments");
        admin.create(&deployments, &replicas(json!({ "matchLabels": labels }))).await.unwrap();
        let target = format!("{deployments}/replicas");
        until(admin, "the Deployment", &target, |it| it["status"]["readyReplicas"] == 2).await;
    }

    // StatefulSet and DaemonSet: pods, an update with revisions, a smaller set with its claims.
    until(admin, "the pods of the set", &format!("{sets}/set"), |it| it["status"]["readyReplicas"] == 2).await;
    until(admin, "a pod on each node", &format!("{daemons}/daemon"), |it| it["status"]["numberReady"] == 3).await;
    let change = json!({ "spec": { "template": { "metadata": { "annotations": { "example.com/change": "1" } } } } });
    admin.merge(&format!("{daemons}/daemon"), &change).await.unwrap();
    admin.merge(&format!("{sets}/set"), &json!({ "spec": { "replicas": 1 } })).await.unwrap();
    let claims = path("v1", "persistentvolumeclaims");
    let is_deleted = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    until(admin, "the claim of the scaled pod to be deleted", &format!("{claims}/data-set-1"), is_deleted).await;
    // The finalizer of claims belongs to a controller that does not run here.
    for claim in admin.items(&claims).await.unwrap() {
        let target = format!("{claims}/{}", claim["metadata"]["name"].as_str().unwrap());
        admin.merge(&target, &objects::without_finalizers()).await.unwrap();
    }
    until_gone(admin, &format!("{claims}/data-set-1")).await;
    until(admin, "the update", &format!("{daemons}/daemon"), |it| it["status"]["updatedNumberScheduled"] == 3).await;
    // Job and its time to live.
    until_gone(admin, &format!("{jobs}/one")).await;
    // A node that is silent: taint, eviction, and pods of a node that is deleted.
    let silent = json!({ "metadata": { "annotations": { format!("{PREFIX}silent"): "true" } } });
    admin.merge("/api/v1/nodes/node-1", &silent).await.unwrap();
    let is_tainted = |it: &Value| it["spec"]["taints"].to_string().contains("node.kubernetes.io/unreachable");
    until(admin, "a taint", "/api/v1/nodes/node-1", is_tainted).await;
    admin.delete("/api/v1/nodes/node-1").await.unwrap();
    // Garbage collector, in the foreground and with orphans; then the namespace with all that is left.
    let foreground = json!({ "propagationPolicy": "Foreground" });
    let target = format!("{daemons}/daemon");
    let answer = admin.send(http::Method::DELETE, &target, Some(("application/json", &foreground))).await.unwrap();
    assert!(answer.code < 300, "{}", answer.text);
    let orphan = json!({ "propagationPolicy": "Orphan" });
    let target = format!("{sets}/set");
    let answer = admin.send(http::Method::DELETE, &target, Some(("application/json", &orphan))).await.unwrap();
    assert!(answer.code < 300, "{}", answer.text);
    until_gone(admin, &format!("{sets}/set")).await;
    until(admin, "a run of the CronJob", &format!("{}/each-minute", path("batch/v1", "cronjobs")), |it| {
        it["status"]["lastSuccessfulTime"].is_string()
    })
    .await;
    admin.create_all(objects::dozen(NAMESPACE, 12)).await.unwrap();
    namespaces::delete(admin, NAMESPACE).await.unwrap();
    namespaces::wait_until_gone(admin, NAMESPACE, A_MINUTE).await.unwrap();
}

/// The requests of our managers that the authorizer refused. Admission answers with the same code, for example to a
/// create in a terminating namespace.
fn forbidden(plane: &ControlPlane) -> Vec<String> {
    let text = std::fs::read_to_string(plane.audit_log()).unwrap();
    let events = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let ours = events.filter(|it| it["userAgent"].as_str().is_some_and(|it| it.starts_with("mini-kcm/v")));
    let refused = ours.filter(|it| it["annotations"]["authorization.k8s.io/decision"] == "forbid");
    refused.map(|it| format!("{} {} {}", it["user"]["username"], it["verb"], it["requestURI"])).collect()
}

/// Starts nodes and a manager with these arguments, lets it work, and returns its requests.
async fn requests(plane: &ControlPlane, admin: &Rest, mut arguments: Vec<String>, port: u16) -> Vec<AuditEvent> {
    // Short times only. They need no other rights.
    arguments.extend(["--node-monitor-grace-period=4s", "--node-eviction-rate=50"].map(str::to_owned));
    let mut audit = plane.audit();
    audit.events().unwrap();
    let program = binary(Build::Release).unwrap();
    let scope = Scope::new();
    let environment = Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
    let renew_interval = Duration::from_secs(1);
    let options = fake_nodes::Options { renew_interval, ..fake_nodes::Options::with_nodes(3) };
    let fleet = Fleet::start(options, environment);
    tokio::time::timeout(TIME_LIMIT, fleet.registered()).await.unwrap();
    let manager = Started::leading(plane, program, &arguments, port).await.unwrap();
    work(admin, &controllers(&arguments)).await;
    drop(manager);
    audit.events().unwrap().iter().filter(|it| it.user_agent.starts_with("mini-kcm/v")).cloned().collect()
}

/// Fails if a request was refused, or if one of these controllers wrote nothing.
fn check(plane: &ControlPlane, requests: &[AuditEvent], running: &[&str], what: &str) {
    assert_eq!(forbidden(plane), [""; 0], "{what}");
    for controller in running.iter().filter(|it| !WITHOUT_WORK.contains(it)) {
        let account = ACCOUNTS.iter().find(|(name, _)| name == controller).map_or(*controller, |(_, account)| account);
        let agent = format!("/{account}");
        let wrote = requests.iter().any(|it| it.is_work() && it.succeeded() && it.user_agent.ends_with(&agent));
        let agents: std::collections::BTreeSet<&str> = requests.iter().map(|it| it.user_agent.as_str()).collect();
        assert!(wrote, "{what}: {controller} wrote nothing; {agents:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_of_the_deployment_is_refused_nothing() {
    let what = "rights of the Deployment";
    let Some((plane, kubectl)) = cluster(what).await else { return };
    kubectl.run(&format!("apply -k {}", manifest("base").display())).unwrap();
    let admin = plane.admin().await.unwrap();
    let (kubeconfig, port) = (account(&plane, &admin, "mini-kcm").await, free_port().unwrap());
    let arguments = [super::arguments(&kubectl, "base"), in_cluster(&kubeconfig, port)].concat();
    // The authorizer of the server observes new rules a moment later.
    eventually("the rules to be known", TIME_LIMIT, async || {
        let can = kubectl.run("auth can-i watch leases --as=system:serviceaccount:kube-system:mini-kcm")?;
        Ok((can.trim() == "yes").then_some(()))
    })
    .await
    .unwrap();
    check(&plane, &requests(&plane, &admin, arguments.clone(), port).await, &controllers(&arguments), what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_pod_is_refused_nothing_with_the_credentials_of_the_built_in_manager() {
    let what = "rights of the static pod";
    let Some((plane, _kubectl)) = cluster(what).await else { return };
    let admin = plane.admin().await.unwrap();
    let kubeconfig = plane.kubeconfig(Identity::ControllerManager).unwrap().display().to_string();
    let command = strings(&document("static-pod/mini-kcm.yaml")["spec"]["containers"][0]["command"]);
    let with_file = |it: &String| {
        it.replace("/etc/kubernetes/controller-manager.conf", &kubeconfig)
            .replace("/etc/kubernetes/pki", &plane.certificates().display().to_string())
    };
    let port = free_port().unwrap();
    let mut arguments: Vec<String> = command[1..].iter().map(with_file).collect();
    arguments.push(format!("--secure-port={port}"));
    check(&plane, &requests(&plane, &admin, arguments.clone(), port).await, &controllers(&arguments), what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_chosen_job_needs_the_role_of_jobs_only() {
    let what = "rights for chosen Jobs";
    let Some((plane, kubectl)) = cluster(what).await else { return };
    kubectl.run(&format!("apply -k {}", manifest("job-managed-by").display())).unwrap();
    let admin = plane.admin().await.unwrap();
    let (kubeconfig, port) = (account(&plane, &admin, "mini-kcm-jobs").await, free_port().unwrap());
    let arguments = [super::arguments(&kubectl, "job-managed-by"), in_cluster(&kubeconfig, port)].concat();
    eventually("the rules to be known", TIME_LIMIT, async || {
        let can = kubectl.run("auth can-i watch jobs --as=system:serviceaccount:kube-system:mini-kcm-jobs")?;
        Ok((can.trim() == "yes").then_some(()))
    })
    .await
    .unwrap();
    let scope = Scope::new();
    let environment = Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
    let unscripted = Some(Duration::from_millis(300));
    let options = fake_nodes::Options { unscripted, ..fake_nodes::Options::with_nodes(1) };
    let fleet = Fleet::start(options, environment);
    tokio::time::timeout(TIME_LIMIT, fleet.registered()).await.unwrap();
    let _manager = Started::leading(&plane, binary(Build::Release).unwrap(), &arguments, port).await.unwrap();
    // The example as it is shipped, and a Job without the field.
    let created =
        kubectl.run(&format!("create -o name -f {}", manifest("job-managed-by/example-job.yaml").display())).unwrap();
    let job = created.trim().strip_prefix("job.batch/").unwrap();
    let other = json!({ "metadata": { "name": "other" }, "spec": { "template": template(&json!({}), Some("300ms")) } });
    admin.create("/apis/batch/v1/namespaces/default/jobs", &other).await.unwrap();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let is_complete = |it: &Value| it["status"]["conditions"].to_string().contains("\"Complete\"");
    until(&admin, "the Job to be complete", &format!("{jobs}/{job}"), is_complete).await;
    let other = admin.get(&format!("{jobs}/other")).await.unwrap();
    assert!(other["status"].as_object().is_none_or(serde_json::Map::is_empty), "it is not ours: {}", other["status"]);
    assert_eq!(forbidden(&plane), [""; 0]);
}
