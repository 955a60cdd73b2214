//! Typical owner trees of users, and the usual ways to delete them.

use std::{collections::BTreeMap, time::Duration};

use clock::Clock;
use e2e::{Identity, Kubectl, Rest, eventually, graphs::ObservedObjects, kubectl_or_skip, namespaces, objects};
use fake_nodes::{Environment, Fleet};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tasks::Scope;

use super::setup::{self, NAME, Setup, TIME_LIMIT, wait_until_gone, with_owner};
use crate::support::{On, on_both_servers};

on_both_servers! {
    acceptance_gc_005_many_controllers_deleted_at_once_by_mixed_policies
    deployment_tree_is_deleted_with_each_policy_by_kubectl
    job_deleted_in_the_foreground_is_removed_after_its_pods
}

async fn acceptance_gc_005_many_controllers_deleted_at_once_by_mixed_policies(on: On) {
    let Some(setup) = Setup::new(on, "many controllers, mixed policies").await.unwrap() else { return };
    let name = "mixed";
    namespaces::create(&setup.admin, name).await.unwrap();
    let controllers = format!("/api/v1/namespaces/{name}/replicationcontrollers");
    let pods = format!("/api/v1/namespaces/{name}/pods");
    let mut uids = BTreeMap::new();
    for number in 0..30 {
        let created = setup.admin.create(&controllers, &controller(number)).await.unwrap();
        let children = (0..4).map(|it| with_owner(objects::pod(name, &format!("pod-{number}-{it}")), &created, true));
        setup.admin.create_all(children.collect()).await.unwrap();
        uids.insert(number, created["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    let policies = ["Background", "Orphan", "Foreground"];
    let deletions = (0..30).map(|it| {
        let (admin, path) = (setup.admin.clone(), format!("{controllers}/rc-{it}"));
        async move { setup::delete(&admin, &path, policies[it % 3]).await }
    });
    try_join_all(deletions).await.unwrap();
    let left = eventually("the controllers and the pods of two thirds of them to go", TIME_LIMIT, async || {
        let (controllers, pods) = (setup.admin.items(&controllers).await?, setup.admin.items(&pods).await?);
        anyhow::ensure!(controllers.is_empty() && pods.len() == 40, "{} and {}", controllers.len(), pods.len());
        Ok(Some(pods))
    });
    for pod in left.await.unwrap() {
        let number = pod["metadata"]["name"].as_str().unwrap().split('-').nth(1).unwrap().parse::<usize>().unwrap();
        assert_eq!(policies[number % 3], "Orphan", "{pod}");
        assert!(pod["metadata"]["ownerReferences"].is_null(), "{pod}");
    }
    setup.wait_until_collecting(name, "sign").await.unwrap();
    assert_eq!(setup.admin.items(&pods).await.unwrap().len(), 40);
    let page = format!("/debug/controllers/{NAME}/graph");
    let graph = setup.manager.endpoints().unwrap().send(http::Method::GET, &page, None).await.unwrap();
    if setup.is_ours() {
        assert_eq!(graph.code, 200, "{}", graph.text);
    }
    let known: Vec<_> = uids.values().filter(|it| graph.code == 200 && graph.text.contains(&***it)).collect();
    assert!(known.is_empty(), "the graph has controllers that are gone: {known:?}");
}

fn controller(number: usize) -> Value {
    let labels = json!({ "app": format!("rc-{number}") });
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    json!({
        "apiVersion": "v1", "kind": "ReplicationController",
        "metadata": { "name": format!("rc-{number}") },
        "spec": {
            "replicas": 4, "selector": labels,
            "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
        },
    })
}

/// A Deployment, its ReplicaSet and two pods, as their controllers would create them; returns their paths from the top
/// down.
async fn deployment(admin: &Rest, namespace: &str) -> Vec<String> {
    let typed = |(path, mut object): objects::PathAndObject, kind: &str| {
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!(kind);
        (path, object)
    };
    let top = typed(objects::deployment(namespace, "web"), "Deployment");
    let mut paths = vec![format!("{}/web", top.0)];
    let owner = admin.create(&top.0, &top.1).await.unwrap();
    let (path, set) = objects::deployment(namespace, "web-1");
    let (_, set) = with_owner(typed((path, set), "ReplicaSet"), &owner, true);
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/replicasets");
    let owner = admin.create(&sets, &set).await.unwrap();
    paths.push(format!("{sets}/web-1"));
    for pod in ["web-1-a", "web-1-b"] {
        let (pods, object) = with_owner(objects::pod(namespace, pod), &owner, true);
        admin.create(&pods, &object).await.unwrap();
        paths.push(format!("{pods}/{pod}"));
    }
    paths
}

async fn deployment_tree_is_deleted_with_each_policy_by_kubectl(on: On) {
    let name = "kubectl delete --cascade";
    let Some(program) = kubectl_or_skip(name) else { return };
    let Some(setup) = Setup::new(on, name).await.unwrap() else { return };
    let kubectl = Kubectl::new(program, &setup.server.kubeconfig(Identity::Admin).unwrap());
    let admin = &setup.admin;
    for way in ["background", "foreground", "orphan"] {
        namespaces::create(admin, way).await.unwrap();
        let paths = deployment(admin, way).await;
        // kubectl returns when the Deployment does not exist any more.
        let line = format!("delete deployment web -n {way} --cascade={way} --timeout=60s");
        let (kubectl, said) = (kubectl.clone(), line.clone());
        let told = tokio::task::spawn_blocking(move || kubectl.run(&said)).await.unwrap().unwrap();
        assert!(told.contains("\"web\" deleted"), "kubectl {line}: {told}");
        assert!(admin.find(&paths[0]).await.unwrap().is_none());
        match way {
            "background" => {
                for path in &paths[1..] {
                    wait_until_gone(admin, path).await.unwrap();
                }
            }
            "foreground" => {
                for path in &paths[1..] {
                    assert!(admin.find(path).await.unwrap().is_none(), "{path} was deleted before the Deployment");
                }
            }
            _ => {
                let set = admin.get(&paths[1]).await.unwrap();
                assert!(set["metadata"]["ownerReferences"].is_null(), "{set}");
                for path in &paths[2..] {
                    let pod = admin.get(path).await.unwrap();
                    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
                }
            }
        }
    }
}

async fn job_deleted_in_the_foreground_is_removed_after_its_pods(on: On) {
    let name = "a Job in the foreground, beside its controller";
    let Some((server, flavour)) = on.audited_manager(name).await.unwrap() else { return };
    let admin = server.admin().await.unwrap();
    let (scope, clock) = (Scope::new(), Clock::system());
    let environment = Environment { client: admin.client().clone(), clock: clock.clone(), spawner: scope.spawner() };
    let fleet = Fleet::start(fake_nodes::Options::with_nodes(2), environment);
    tokio::time::timeout(TIME_LIMIT, fleet.registered()).await.unwrap();
    let observed = ObservedObjects::start(&admin, &scope.spawner());
    let both = format!("{NAME},job-controller");
    let _manager = setup::launch(&server, flavour).unwrap().flag("controllers", &both).started().await.unwrap();

    let (namespace, script) = ("with-a-job", fake_nodes::PREFIX);
    namespaces::create(&admin, namespace).await.unwrap();
    let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    let job = json!({
        "metadata": { "name": "work" },
        "spec": { "parallelism": 3, "completions": 3, "template": {
            "metadata": { "annotations": { format!("{script}stop-after"): "2s" } },
            "spec": { "restartPolicy": "Never", "containers": containers },
        } },
    });
    let job = admin.create(&jobs, &job).await.unwrap();
    let running = eventually("three pods to run", TIME_LIMIT, async || {
        let pods = admin.items(&pods).await?;
        let running = pods.iter().filter(|it| it["status"]["phase"] == "Running").count();
        anyhow::ensure!(running == 3, "{running} run of {}", pods.len());
        Ok(Some(pods))
    });
    let running = running.await.unwrap();
    setup::delete(&admin, &format!("{jobs}/work"), "Foreground").await.unwrap();
    wait_until_gone(&admin, &format!("{jobs}/work")).await.unwrap();
    assert_eq!(admin.items(&pods).await.unwrap(), Vec::<Value>::new(), "the pods go first");

    let ended = ends(&observed, &job).await;
    for pod in &running {
        let before = ends(&observed, pod).await;
        assert!(before < ended, "{} ended at {before}, the Job at {ended}", pod["metadata"]["name"]);
    }
}

/// The version of an object's deletion, which gives the order of deletions.
async fn ends(observed: &ObservedObjects, object: &Value) -> u64 {
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let ended = eventually("the watch to tell of the end", Duration::from_secs(10), async || {
        Ok(observed.find(uid).filter(|it| it.gone))
    });
    ended.await.unwrap().last["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
