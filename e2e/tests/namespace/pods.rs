//! Pods are deleted first.

use std::time::Duration;

use e2e::{eventually, namespaces, objects, report};

use super::setup::{CONTENT_FAILURE, FINALIZERS, REMAINING, SAFETY_DELAY, Setup, TIME_LIMIT};
use crate::support::{On, on_both_servers};

on_both_servers! {
    acceptance_namespace_009_031_pods_are_deleted_first_and_conditions_show_the_remaining_pod
    acceptance_namespace_010_nothing_else_is_deleted_within_the_grace_of_a_pod
    acceptance_namespace_012_pod_past_its_grace_is_an_error_that_names_pods
    acceptance_namespace_030_nothing_else_is_deleted_while_pods_cannot_be_deleted
}

async fn acceptance_namespace_009_031_pods_are_deleted_first_and_conditions_show_the_remaining_pod(on: On) {
    let Some(setup) = Setup::new(on, "pods first").await.unwrap() else { return };
    let (name, finalizer) = ("pods-first", "e2e.mini-kcm.dev/hold");
    let (pods, pod) = objects::with_finalizer(finalizer, objects::pod(name, "held"));
    let (maps, map) = objects::config_map(name, "a");
    setup.namespace(name, vec![(pods.clone(), pod), (maps.clone(), map)]).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let pod = format!("{pods}/held");
    eventually("the pod to be deleted", TIME_LIMIT, async || {
        let pod = setup.admin.get(&pod).await?;
        Ok(pod["metadata"]["deletionTimestamp"].is_string().then_some(()))
    })
    .await
    .unwrap();
    if setup.is_ours() {
        let wanted = [REMAINING, FINALIZERS];
        let namespace = namespaces::wait_until_true(&setup.admin, name, &wanted, TIME_LIMIT).await.unwrap();
        let remaining = namespaces::condition(&namespace, REMAINING).unwrap();
        assert_eq!(remaining.message, "Some resources are remaining: pods. has 1 resource instances");
        let finalizers = namespaces::condition(&namespace, FINALIZERS).unwrap();
        let message =
            format!("Some content in the namespace has finalizers remaining: {finalizer} in 1 resource instances");
        assert_eq!(finalizers.message, message);
    }
    // After several passes the ConfigMap still exists.
    setup.wait_for_passes(name, "pods", 2).await.unwrap();
    assert_eq!(setup.admin.items(&maps).await.unwrap().len(), 1, "other content waits for the last pod");
    let namespace = setup.admin.get(&namespaces::path(name)).await.unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert!(namespaces::condition(&namespace, CONTENT_FAILURE).is_some(), "{namespace}");

    setup.admin.merge(&pod, &objects::without_finalizers()).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_010_nothing_else_is_deleted_within_the_grace_of_a_pod(on: On) {
    let Some(setup) = Setup::new(on, "grace").await.unwrap() else { return };
    let name = "graceful";
    let (pods, pod) = objects::scheduled_pod(name, "slow", 30);
    let (maps, map) = objects::config_map(name, "a");
    setup.namespace(name, vec![(pods.clone(), pod), (maps.clone(), map)]).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let pod = format!("{pods}/slow");
    eventually("the pod to be deleted", TIME_LIMIT, async || {
        Ok(setup.admin.get(&pod).await?["metadata"]["deletionTimestamp"].is_string().then_some(()))
    })
    .await
    .unwrap();
    // The conditions are written at the end of the pass that found the pod.
    eventually("the conditions", TIME_LIMIT, async || {
        let namespace = setup.admin.get(&namespaces::path(name)).await?;
        Ok(namespaces::condition(&namespace, REMAINING).map(drop))
    })
    .await
    .unwrap();
    let namespace = setup.admin.get(&namespaces::path(name)).await.unwrap();
    assert_eq!(setup.admin.items(&maps).await.unwrap().len(), 1);
    assert_eq!(namespaces::condition(&namespace, CONTENT_FAILURE).unwrap().status, "False", "grace is no failure");

    // The containers have ended, so the kubelet would delete the pod without grace.
    setup.admin.delete_now(&pod).await.unwrap();
    // Upstream tries again 16 s after its last pass; our manager syncs at the pod's deletion and waits only for the
    // safety delay.
    let within = if setup.is_ours() { SAFETY_DELAY + Duration::from_secs(5) } else { TIME_LIMIT };
    namespaces::wait_until_gone(&setup.admin, name, within).await.unwrap();
}

async fn acceptance_namespace_012_pod_past_its_grace_is_an_error_that_names_pods(on: On) {
    let Some(setup) = Setup::new(on, "a pod beyond its grace").await.unwrap() else { return };
    let name = "overdue";
    let (pods, pod) = objects::scheduled_pod(name, "stuck", 1);
    setup.namespace(name, vec![(pods.clone(), pod)]).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let failed = eventually("the failure", TIME_LIMIT, async || {
        let namespace = setup.admin.get(&namespaces::path(name)).await?;
        Ok(namespaces::condition(&namespace, CONTENT_FAILURE).filter(|it| it.status == "True"))
    });
    let failed = failed.await.unwrap();
    assert_eq!(failed.reason, "ContentDeletionFailed");
    let wanted = format!("unexpected items still remain in namespace: {name} for gvr: /v1, Resource=pods");
    assert!(failed.message.contains(&wanted), "{}", failed.message);

    setup.admin.delete_now(&format!("{pods}/stuck")).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_030_nothing_else_is_deleted_while_pods_cannot_be_deleted(on: On) {
    let Some(setup) = Setup::new(on, "refused pods").await.unwrap() else { return };
    if !setup.is_ours() {
        return report("upstream deletes other kinds when the pod step fails: not run with it");
    }
    let name = "refused-pods";
    let (pods, pod) = objects::pod(name, "kept");
    let (maps, map) = objects::config_map(name, "a");
    setup.namespace(name, vec![(pods, pod), (maps.clone(), map)]).await.unwrap();
    let ban = setup.server().forbid(name, "pods", "kept").await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    eventually("the failure", TIME_LIMIT, async || {
        let namespace = setup.admin.get(&namespaces::path(name)).await?;
        let failed = namespaces::condition(&namespace, CONTENT_FAILURE).filter(|it| it.status == "True");
        Ok(failed.filter(|it| it.message.contains("pods stay")))
    })
    .await
    .unwrap();
    assert_eq!(setup.admin.items(&maps).await.unwrap().len(), 1);
    setup.server().permit(ban).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}
