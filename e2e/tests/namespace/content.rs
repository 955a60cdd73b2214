//! Content is deleted, then the namespace is removed, and objects of other namespaces remain.

use std::time::Duration;

use e2e::{AuditEvent, Identity, eventually, namespaces, objects};
use futures::StreamExt;
use serde_json::json;

use super::setup::{FINALIZERS, REMAINING, SAFETY_DELAY, Setup, TIME_LIMIT};
use crate::support::{On, on_both_servers};

on_both_servers! {
    acceptance_namespace_022_two_thousand_objects_of_twelve_kinds_and_pods_with_finalizers_are_deleted
    acceptance_namespace_002_nothing_is_finalized_within_five_seconds
    acceptance_namespace_005_empty_namespace_gets_five_false_conditions_and_is_removed
    acceptance_namespace_006_foreign_spec_finalizer_stays_and_blocks_the_namespace
    acceptance_namespace_024_hundred_namespaces_are_gone_within_150_seconds
    acceptance_namespace_025_recreated_namespace_is_empty
    acceptance_namespace_027_custom_resource_defined_after_the_start_is_deleted_too
}

async fn acceptance_namespace_022_two_thousand_objects_of_twelve_kinds_and_pods_with_finalizers_are_deleted(on: On) {
    let Some(setup) = Setup::new(on, "two thousand objects").await.unwrap() else { return };
    let name = "crowded";
    let (path, definition) = objects::definition("crowds");
    setup.admin.create(&path, &definition).await.unwrap();
    setup.namespace(name, objects::dozen(name, 1_900)).await.unwrap();
    let custom = objects::custom(name, "crowds", "first");
    eventually("the custom resource to be served", TIME_LIMIT, async || {
        setup.admin.create(&custom.0, &custom.1).await.map(Some)
    })
    .await
    .unwrap();
    let customs = (0..60).map(|it| objects::custom(name, "crowds", &format!("c-{it}")));
    let pods =
        (0..40).map(|it| objects::with_finalizer("e2e.mini-kcm.dev/hold", objects::pod(name, &format!("p-{it}"))));
    setup.admin.create_all(customs.chain(pods).collect()).await.unwrap();

    namespaces::delete(&setup.admin, name).await.unwrap();
    let pods = format!("/api/v1/namespaces/{name}/pods");
    let condemned = eventually("all pods to be deleted", TIME_LIMIT, async || {
        let pods = setup.admin.items(&pods).await?;
        Ok(pods.iter().all(|it| it["metadata"]["deletionTimestamp"].is_string()).then_some(pods))
    });
    for pod in condemned.await.unwrap() {
        let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap());
        setup.admin.merge(&path, &objects::without_finalizers()).await.unwrap();
    }
    // No garbage collector runs here, so an object with the orphan finalizer would remain for ever.
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_002_nothing_is_finalized_within_five_seconds(on: On) {
    let Some(setup) = Setup::new(on, "the safety delay").await.unwrap() else { return };
    let name = "delayed";
    setup.namespace(name, vec![objects::config_map(name, "a")]).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();
    let deleted = namespaces::deleted_at(&setup.admin.get(&namespaces::path(name)).await.unwrap()).unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();

    let by_manager = |it: &AuditEvent| it.user() == Identity::Replica(0).user() && it.is_write();
    let mut audit = setup.audit();
    let finalize = audit.first("finalize", TIME_LIMIT, |it| {
        by_manager(it) && it.resource() == "namespaces/finalize" && it.name() == name && it.succeeded()
    });
    let delay = finalize.await.unwrap().received.duration_since(deleted);
    assert!(delay >= SAFETY_DELAY.try_into().unwrap(), "finalized after {delay}");
    if setup.is_ours() {
        let content = audit.first("deletion of the ConfigMap", TIME_LIMIT, |it| {
            by_manager(it) && it.resource() == "configmaps" && it.namespace() == name
        });
        let delay = content.await.unwrap().received.duration_since(deleted);
        assert!(delay < SAFETY_DELAY.try_into().unwrap(), "content goes at once, but went after {delay}");
    }
}

async fn acceptance_namespace_005_empty_namespace_gets_five_false_conditions_and_is_removed(on: On) {
    let Some(setup) = Setup::new(on, "an empty namespace").await.unwrap() else { return };
    let name = "empty";
    setup.namespace(name, Vec::new()).await.unwrap();
    let watch = format!("/api/v1/namespaces?watch=true&fieldSelector=metadata.name={name}");
    let mut events = setup.admin.watch(&watch).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let last = async {
        while let Some(event) = events.next().await {
            let event = event?;
            if event["type"] == "DELETED" {
                return Ok(event["object"].clone());
            }
        }
        anyhow::bail!("the watch ended")
    };
    let last = tokio::time::timeout(TIME_LIMIT, last).await.unwrap().unwrap();
    for of in namespaces::CONDITIONS {
        let condition = namespaces::condition(&last, of).unwrap_or_else(|| panic!("no {of}"));
        assert_eq!(condition.status, "False", "{of}: {condition:?}");
    }
    let order: Vec<_> = last["status"]["conditions"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
    assert_eq!(order, namespaces::CONDITIONS);
    assert_eq!(last["status"]["phase"], "Terminating");
}

async fn acceptance_namespace_006_foreign_spec_finalizer_stays_and_blocks_the_namespace(on: On) {
    let Some(setup) = Setup::new(on, "a foreign finalizer").await.unwrap() else { return };
    let name = "foreign";
    let foreign = "e2e.mini-kcm.dev/guard";
    let object =
        json!({ "metadata": { "name": name, "labels": { "kept": "yes" } }, "spec": { "finalizers": [foreign] } });
    setup.admin.create("/api/v1/namespaces", &object).await.unwrap();
    let (path, map) = objects::config_map(name, "a");
    setup.admin.create(&path, &map).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let finalized = eventually("only the foreign finalizer to be left", TIME_LIMIT, async || {
        let namespace = setup.admin.get(&namespaces::path(name)).await?;
        Ok((namespace["spec"]["finalizers"] == json!([foreign])).then_some(namespace))
    });
    let namespace = finalized.await.unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(namespace["metadata"]["labels"]["kept"], "yes", "foreign metadata survives the finalize call");
    assert_eq!(setup.admin.items(&path).await.unwrap(), Vec::<serde_json::Value>::new());

    let mut namespace = namespace;
    namespace["spec"]["finalizers"] = json!([]);
    setup.admin.put(&format!("{}/finalize", namespaces::path(name)), &namespace).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_024_hundred_namespaces_are_gone_within_150_seconds(on: On) {
    let Some(setup) = Setup::new(on, "a hundred namespaces").await.unwrap() else { return };
    let names: Vec<String> = (0..100).map(|it| format!("one-of-many-{it}")).collect();
    for name in &names {
        setup.namespace(name, vec![objects::config_map(name, "a"), objects::secret(name, "b")]).await.unwrap();
    }
    for name in &names {
        namespaces::delete(&setup.admin, name).await.unwrap();
    }
    eventually("all of them to go", Duration::from_secs(150), async || {
        let there = setup.admin.items("/api/v1/namespaces").await?;
        let left =
            there.iter().filter(|it| it["metadata"]["name"].as_str().is_some_and(|it| it.starts_with("one-of-")));
        let left = left.count();
        anyhow::ensure!(left == 0, "{left} left");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

async fn acceptance_namespace_025_recreated_namespace_is_empty(on: On) {
    let Some(setup) = Setup::new(on, "a namespace comes back").await.unwrap() else { return };
    let name = "phoenix";
    let content = || vec![objects::pod(name, "p"), objects::service(name, "s"), objects::config_map(name, "c")];
    setup.namespace(name, content()).await.unwrap();
    let uid = setup.admin.get(&namespaces::path(name)).await.unwrap()["metadata"]["uid"].clone();
    namespaces::delete(&setup.admin, name).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();

    namespaces::create(&setup.admin, name).await.unwrap();
    for plural in ["pods", "services", "configmaps"] {
        let items = setup.admin.items(&format!("{}/{plural}", namespaces::path(name))).await.unwrap();
        assert!(items.is_empty(), "{plural}: {items:?}");
    }
    let namespace = setup.admin.get(&namespaces::path(name)).await.unwrap();
    assert_ne!(namespace["metadata"]["uid"], uid);
    assert_eq!(namespace["status"]["phase"], "Active");
    // The successor of the same name must not be emptied.
    setup.admin.create_all(content()).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_027_custom_resource_defined_after_the_start_is_deleted_too(on: On) {
    let Some(setup) = Setup::new(on, "a late definition").await.unwrap() else { return };
    let name = "late-definition";
    // A namespace is removed before the definition is created, so that the manager has cached discovery already.
    setup.namespace("early-bird", Vec::new()).await.unwrap();
    namespaces::delete(&setup.admin, "early-bird").await.unwrap();
    namespaces::wait_until_gone(&setup.admin, "early-bird", TIME_LIMIT).await.unwrap();

    let (path, definition) = objects::definition("latecomers");
    setup.admin.create(&path, &definition).await.unwrap();
    setup.namespace(name, Vec::new()).await.unwrap();
    let (path, object) = objects::with_finalizer("e2e.mini-kcm.dev/hold", objects::custom(name, "latecomers", "one"));
    eventually("the custom resource to be served", TIME_LIMIT, async || {
        setup.admin.create(&path, &object).await.map(Some)
    })
    .await
    .unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let stuck = namespaces::wait_until_true(&setup.admin, name, &[REMAINING, FINALIZERS], TIME_LIMIT).await.unwrap();
    let message = namespaces::condition(&stuck, REMAINING).unwrap().message;
    assert_eq!(message, "Some resources are remaining: latecomers.e2e.mini-kcm.dev has 1 resource instances");
    setup.admin.merge(&format!("{path}/one"), &objects::without_finalizers()).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}
