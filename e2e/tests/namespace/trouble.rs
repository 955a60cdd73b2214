//! An obstacle is reported, and blocks only its own part.

use e2e::{Options, eventually, namespaces, objects};
use http::Method;
use serde_json::json;

use super::setup::{CONTENT_FAILURE, DISCOVERY, FINALIZERS, REMAINING, Setup, TIME_LIMIT, flavour, launch};
use crate::support::{On, on_both_servers};

on_both_servers! {
    acceptance_namespace_013_020_remaining_finalizer_is_reported_correctly_and_once
    acceptance_namespace_019_021_refused_kind_stops_no_other_and_its_condition_becomes_false_again
    acceptance_namespace_014_029_unavailable_aggregated_api_is_named_and_blocks_only_finalization
    acceptance_namespace_026_restarted_manager_completes_the_deletion
}

async fn acceptance_namespace_013_020_remaining_finalizer_is_reported_correctly_and_once(on: On) {
    let Some(setup) = Setup::new(on, "a stuck finalizer").await.unwrap() else { return };
    let (name, finalizer) = ("stuck", "custom.io/finalizer");
    let (path, deployment) = objects::with_finalizer(finalizer, objects::deployment(name, "held"));
    let content = vec![(path.clone(), deployment), objects::config_map(name, "a"), objects::secret(name, "b")];
    setup.namespace(name, content).await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let stuck = namespaces::wait_until_true(&setup.admin, name, &[REMAINING, FINALIZERS], TIME_LIMIT).await.unwrap();
    let remaining = namespaces::condition(&stuck, REMAINING).unwrap();
    assert_eq!(remaining.reason, "SomeResourcesRemain");
    assert_eq!(remaining.message, "Some resources are remaining: deployments.apps has 1 resource instances");
    let finalizers = namespaces::condition(&stuck, FINALIZERS).unwrap();
    assert_eq!(finalizers.reason, "SomeFinalizersRemain");
    let message =
        format!("Some content in the namespace has finalizers remaining: {finalizer} in 1 resource instances");
    assert_eq!(finalizers.message, message);
    for (of, reason, message) in [
        (DISCOVERY, "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (CONTENT_FAILURE, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    ] {
        let condition = namespaces::condition(&stuck, of).unwrap();
        assert_eq!((&*condition.reason, &*condition.message), (reason, message));
    }

    // The next passes find the same and write nothing.
    setup.wait_for_passes(name, "deployments", 4).await.unwrap();
    let later = setup.admin.get(&namespaces::path(name)).await.unwrap();
    assert_eq!(later["metadata"]["resourceVersion"], stuck["metadata"]["resourceVersion"]);

    setup.admin.merge(&format!("{path}/held"), &objects::without_finalizers()).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_019_021_refused_kind_stops_no_other_and_its_condition_becomes_false_again(on: On) {
    let Some(setup) = Setup::new(on, "a refused kind").await.unwrap() else { return };
    let name = "refused";
    let (secrets, secret) = objects::secret(name, "kept");
    let (path, deployment) = objects::with_finalizer("custom.io/finalizer", objects::deployment(name, "held"));
    let content = vec![(secrets.clone(), secret), (path.clone(), deployment), objects::config_map(name, "a")];
    setup.namespace(name, content).await.unwrap();
    let ban = setup.server().forbid(name, "secrets", "kept").await.unwrap();
    namespaces::delete(&setup.admin, name).await.unwrap();

    let failed = eventually("the failure", TIME_LIMIT, async || {
        let namespace = setup.admin.get(&namespaces::path(name)).await?;
        let failed = namespaces::condition(&namespace, CONTENT_FAILURE).filter(|it| it.status == "True");
        Ok(failed.filter(|it| it.message.contains("secrets stay")))
    });
    let failed = failed.await.unwrap();
    assert!(failed.message.starts_with("Failed to delete all resource types, 1 remaining: "), "{}", failed.message);
    eventually("the other kinds to be deleted", TIME_LIMIT, async || {
        let maps = setup.admin.items(&format!("/api/v1/namespaces/{name}/configmaps")).await?;
        let deployment = setup.admin.get(&format!("{path}/held")).await?;
        Ok((maps.is_empty() && deployment["metadata"]["deletionTimestamp"].is_string()).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(setup.admin.items(&secrets).await.unwrap().len(), 1);

    setup.server().permit(ban).await.unwrap();
    let flipped = eventually("the failure to end", TIME_LIMIT, async || {
        let namespace = setup.admin.get(&namespaces::path(name)).await?;
        Ok(namespaces::condition(&namespace, CONTENT_FAILURE).filter(|it| it.status == "False"))
    });
    assert!(flipped.await.unwrap().since >= failed.since);
    setup.admin.merge(&format!("{path}/held"), &objects::without_finalizers()).await.unwrap();
    namespaces::wait_until_gone(&setup.admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_014_029_unavailable_aggregated_api_is_named_and_blocks_only_finalization(on: On) {
    let Some(plane) = on.server("a dead aggregated API", Options::default()).await.unwrap() else { return };
    let Some(flavour) = flavour(&plane) else { return };
    let _manager = launch(&plane, flavour).unwrap().started().await.unwrap();
    let admin = plane.admin().await.unwrap();
    let (name, group) = ("cut-off", "dead.example.com");
    let (path, service) = objects::unavailable_api(group);
    admin.create(&path, &service).await.unwrap();
    eventually("the API to be known as dead", TIME_LIMIT, async || {
        Ok((admin.send(Method::GET, &format!("/apis/{group}/v1"), None).await?.code == 503).then_some(()))
    })
    .await
    .unwrap();
    namespaces::create(&admin, name).await.unwrap();
    let mut content = objects::dozen(name, 24);
    content.push(objects::pod(name, "p"));
    let collections: Vec<String> = content.iter().map(|(path, _)| path.clone()).collect();
    admin.create_all(content).await.unwrap();
    namespaces::delete(&admin, name).await.unwrap();

    let cut_off = namespaces::wait_until_true(&admin, name, &[DISCOVERY], TIME_LIMIT).await.unwrap();
    let condition = namespaces::condition(&cut_off, DISCOVERY).unwrap();
    assert_eq!(condition.reason, "DiscoveryFailed");
    assert!(condition.message.contains(group), "{}", condition.message);
    eventually("everything else to be emptied", TIME_LIMIT, async || {
        for path in &collections {
            anyhow::ensure!(admin.items(path).await?.is_empty(), "{path} is not empty");
        }
        Ok(Some(()))
    })
    .await
    .unwrap();
    let emptied = admin.get(&namespaces::path(name)).await.unwrap();
    assert_eq!(emptied["spec"]["finalizers"], json!(["kubernetes"]), "not finalized while a group is unknown");

    admin.delete(&format!("{path}/v1.{group}")).await.unwrap();
    namespaces::wait_until_gone(&admin, name, TIME_LIMIT).await.unwrap();
}

async fn acceptance_namespace_026_restarted_manager_completes_the_deletion(on: On) {
    let Some(plane) = on.server("a restart", Options::default()).await.unwrap() else { return };
    let Some(flavour) = flavour(&plane) else { return };
    let admin = plane.admin().await.unwrap();
    // Without election, because the failover scenarios measure the cost of a crash there.
    let launch = launch(&plane, flavour).unwrap().flag("leader-elect", "false");
    let mut first = launch.clone().started().await.unwrap();
    let names: Vec<String> = (0..30).map(|it| format!("interrupted-{it}")).collect();
    for name in &names {
        namespaces::create(&admin, name).await.unwrap();
        admin.create_all((0..10).map(|it| objects::config_map(name, &format!("c-{it}"))).collect()).await.unwrap();
        namespaces::delete(&admin, name).await.unwrap();
    }
    eventually("the first content to go", TIME_LIMIT, async || {
        Ok((admin.items("/api/v1/configmaps").await?.len() < 300).then_some(()))
    })
    .await
    .unwrap();
    first.signal(e2e::Signal::KILL).unwrap();
    first.exit(TIME_LIMIT).await.unwrap();

    let _second = launch.started().await.unwrap();
    for name in &names {
        namespaces::wait_until_gone(&admin, name, TIME_LIMIT).await.unwrap();
    }
}
