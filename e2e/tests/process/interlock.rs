//! Our manager beside the upstream one, which runs as kubeadm starts it. The test is the kubelet: it creates the mirror
//! pod of the upstream manager with the flags of its process.

#![expect(clippy::unwrap_used, reason = "scenarios are tests")]

use std::{collections::BTreeSet, time::Duration};

use clock::Clock;
use e2e::{
    Audit, AuditEvent, ControlPlane, Flavour, Launch, Manager, Options, Rest, eventually, go_manager_or_skip,
    host_name, namespaces, objects,
};
use fake_nodes::{Environment, Fleet};
use http::Method;
use serde_json::{Value, json};
use tasks::Scope;

const TIME_LIMIT: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/kube-system/pods";
const LEASE: &str = "kube-controller-manager";
const POD: &str = "kube-controller-manager-node";
const ON: &str = "*,bootstrapsigner,tokencleaner";
const OFF: &str = "*,bootstrapsigner,tokencleaner,-namespace-controller";
/// No longer than the documented pause of a swap.
const LONGEST_PAUSE: Duration = Duration::from_secs(45);

async fn plane(what: &str) -> Option<ControlPlane> {
    let assets = go_manager_or_skip(what)?;
    Some(ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap())
}

/// The upstream manager with its mirror pod.
async fn built_in(plane: &ControlPlane, admin: &Rest, controllers: &str) -> Manager {
    let launch = Launch::as_kubeadm(plane, Flavour::Go, controllers, LEASE).unwrap().short_lease();
    let (_, mut pod) = objects::pod("kube-system", POD);
    pod["spec"]["nodeName"] = json!(host_name());
    pod["metadata"]["labels"] = json!({ "component": LEASE, "tier": "control-plane" });
    pod["spec"]["containers"][0]["name"] = json!(LEASE);
    pod["spec"]["containers"][0]["command"] =
        json!([LEASE, "--leader-elect=true", format!("--controllers={controllers}")]);
    admin.create(PODS, &pod).await.unwrap();
    launch.started().await.unwrap()
}

/// The kubelet stops the static pod.
async fn remove_built_in(admin: &Rest, manager: Manager) {
    drop(manager);
    admin.delete_now(&format!("{PODS}/{POD}")).await.unwrap();
}

async fn create_and_delete(admin: &Rest, name: &str) -> Duration {
    let clock = Clock::system();
    namespaces::create(admin, name).await.unwrap();
    admin.create_all(objects::dozen(name, 24)).await.unwrap();
    namespaces::delete(admin, name).await.unwrap();
    let begin = clock.now();
    namespaces::wait_until_gone(admin, name, TIME_LIMIT).await.unwrap();
    begin.elapsed()
}

async fn metrics(manager: &Manager) -> String {
    manager.endpoints().unwrap().send(Method::GET, "/metrics", None).await.unwrap().text
}

async fn wait_until_held_back(manager: &Manager, wanted: bool) {
    eventually("the interlock", TIME_LIMIT, async || {
        let is_held_back = metrics(manager).await.contains("mini_kcm_controller_held_back{");
        Ok((is_held_back == wanted).then_some(()))
    })
    .await
    .unwrap();
}

/// The programs that finalized this namespace. The server logs a request after its watches have shown the result.
async fn finalized_by(audit: &mut Audit, name: &str) -> BTreeSet<String> {
    let is_it = |it: &&AuditEvent| it.resource() == "namespaces/finalize" && it.name() == name && it.succeeded();
    eventually("the audit event of the end of a namespace", TIME_LIMIT, async || {
        let of = audit.events()?.iter().filter(is_it);
        let programs: BTreeSet<String> =
            of.map(|it| it.user_agent.split('/').next().unwrap_or_default().to_owned()).collect();
        Ok((!programs.is_empty()).then_some(programs))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_is_swapped_and_rolled_back_and_never_runs_twice() {
    let Some(plane) = plane("the interlock").await else { return };
    let (admin, mut audit) = (plane.admin().await.unwrap(), plane.audit());
    // Pods without a node are collected.
    admin.create("/api/v1/nodes", &json!({ "metadata": { "name": host_name() } })).await.unwrap();
    let mut go = built_in(&plane, &admin, ON).await;
    // Ours first: the patch of the static pod comes later.
    let ours = Launch::new(&plane, Flavour::Ours).unwrap().flag("leader-elect-resource-name", "mini-kcm");
    let ours = ours.started().await.unwrap();
    wait_until_held_back(&ours, true).await;
    for round in 0..3 {
        let name = format!("built-in-{round}");
        create_and_delete(&admin, &name).await;
        assert_eq!(finalized_by(&mut audit, &name).await, BTreeSet::from([LEASE.to_owned()]));
        remove_built_in(&admin, go).await;
        go = built_in(&plane, &admin, OFF).await;
        let name = format!("ours-{round}");
        let pause = create_and_delete(&admin, &name).await;
        assert!(pause < LONGEST_PAUSE, "{pause:?}");
        assert_eq!(finalized_by(&mut audit, &name).await, BTreeSet::from(["mini-kcm".to_owned()]));
        wait_until_held_back(&ours, false).await;
        // Back, as `kubeadm upgrade` without the patch does it.
        remove_built_in(&admin, go).await;
        go = built_in(&plane, &admin, ON).await;
        wait_until_held_back(&ours, true).await;
    }
    let events = admin.items("/api/v1/namespaces/kube-system/events").await.unwrap();
    let held_back = |it: &&Value| it["reason"] == "ControllersHeldBack";
    assert!(events.iter().any(|it| held_back(&it)), "an event on the Lease");
    assert!(events.iter().filter(held_back).all(|it| it["involvedObject"]["name"] == "mini-kcm"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_of_the_upstream_manager_is_taken_over_only_on_request() {
    let Some(plane) = plane("a shared Lease").await else { return };
    let admin = plane.admin().await.unwrap();
    let go = built_in(&plane, &admin, ON).await;
    create_and_delete(&admin, "first").await;
    remove_built_in(&admin, go).await;
    let launch = |partial: &str| {
        let launch = Launch::as_kubeadm(&plane, Flavour::Ours, "namespace-controller", LEASE).unwrap();
        launch.short_lease().flag("partial-takeover", partial)
    };
    let mut refused = launch("false").start().unwrap();
    assert_eq!(refused.exit(TIME_LIMIT).await.unwrap(), Some(1));
    let log = refused.log().unwrap();
    assert!(log.contains("refusing to lead") && log.contains("deployment-controller"), "{log}");
    let _ours = launch("true").started().await.unwrap();
    create_and_delete(&admin, "second").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chosen_job_is_ours_beside_the_untouched_upstream_manager() {
    const VALUE: &str = "mini-kcm.dev/job-controller";
    let Some(plane) = plane("--job-managed-by").await else { return };
    let (admin, mut audit, scope) = (plane.admin().await.unwrap(), plane.audit(), Scope::new());
    let environment = Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
    let unscripted = Some(Duration::from_millis(300));
    let options = fake_nodes::Options { unscripted, ..fake_nodes::Options::with_nodes(2) };
    let _fleet = Fleet::start(options, environment);
    let _go = built_in(&plane, &admin, ON).await;
    let ours = Launch::new(&plane, Flavour::Ours).unwrap();
    let _ours = ours
        .flag("leader-elect-resource-name", "mini-kcm")
        .flag("controllers", "job-controller")
        .flag("job-managed-by", VALUE)
        .started()
        .await
        .unwrap();
    namespaces::create(&admin, "jobs").await.unwrap();
    let jobs = "/apis/batch/v1/namespaces/jobs/jobs";
    for (name, managed_by) in [("theirs", Value::Null), ("ours", json!(VALUE))] {
        let template = json!({ "spec": { "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "example.com/main:1" }] } });
        let spec = json!({ "completions": 3, "parallelism": 2, "managedBy": managed_by, "template": template });
        admin.create(jobs, &json!({ "metadata": { "name": name }, "spec": spec })).await.unwrap();
    }
    for name in ["theirs", "ours"] {
        eventually("the Job to complete", TIME_LIMIT, async || {
            let job = admin.get(&format!("{jobs}/{name}")).await?;
            Ok((job["status"]["succeeded"] == 3 && job["status"]["completionTime"].is_string()).then_some(()))
        })
        .await
        .unwrap();
    }
    let events = audit.events().unwrap();
    let of_controller =
        |it: &&AuditEvent| it.namespace() == "jobs" && it.is_work() && it.user_agent.contains("job-controller");
    for (job, agent) in [("theirs", LEASE), ("ours", "mini-kcm")] {
        let of_job = |it: &&AuditEvent| it.name() == job || it.name().starts_with(&format!("{job}-"));
        let agents: BTreeSet<&str> = events
            .iter()
            .filter(of_controller)
            .filter(of_job)
            .map(|it| it.user_agent.split('/').next().unwrap_or_default())
            .collect();
        assert_eq!(agents, BTreeSet::from([agent]), "{job}");
    }
}
