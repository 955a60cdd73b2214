//! Custom resources are defined, removed and defined again while objects are collected.

use std::time::Duration;

use e2e::{AuditEvent, eventually, namespaces, objects, report};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use super::setup::{self, DEFINITIONS, Setup, TIME_LIMIT, wait_until_gone, with_owner};
use crate::support::{On, on_both_servers};

on_both_servers! {
    objects_are_collected_while_two_hundred_definitions_are_added_and_removed
    acceptance_gc_048_instances_and_dependents_of_deleted_definition_are_deleted_twice
}

const GROUP: &str = "storm.e2e.mini-kcm.dev";
const DEFINED: usize = 200;
/// The manager sends no requests for a removed kind if there were none for this long.
const QUIET_TIME: Duration = Duration::from_secs(12);
/// The collector has discovered new kinds after this time.
const DISCOVERY_TIME_LIMIT: Duration = Duration::from_secs(100);

async fn objects_are_collected_while_two_hundred_definitions_are_added_and_removed(on: On) {
    let Some(setup) = Setup::new(on, "two hundred definitions come and go").await.unwrap() else { return };
    let name = "storm";
    namespaces::create(&setup.admin, name).await.unwrap();
    setup.wait_until_collecting(name, "before").await.unwrap();

    let storm = async {
        let numbers = stream::iter(0..DEFINED).map(anyhow::Ok);
        let come_and_go = numbers.try_for_each_concurrent(8, async |number| {
            let definition = definition(number);
            setup.admin.create(DEFINITIONS, &definition).await?;
            setup::wait_until_served(&setup.admin, &definition).await?;
            let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
            setup.admin.delete(&path).await?;
            // A definition is removed only after its instances.
            wait_until_gone(&setup.admin, &path).await
        });
        come_and_go.await
    };
    tokio::pin!(storm);
    let mut rounds = 0;
    loop {
        tokio::select! {
            biased;
            ended = &mut storm => break ended.unwrap(),
            collected = collect_round(&setup, name, rounds) => collected.unwrap(),
        }
        rounds += 1;
    }
    report(&format!("{rounds} owners with their dependents were collected meanwhile"));
    assert!(rounds > 0, "nothing was collected while {DEFINED} definitions came and went");
    setup.wait_until_collecting(name, "after").await.unwrap();
    if setup.is_ours() {
        wait_until_no_requests(&setup).await;
    }
}

/// An owner with ten dependents, deleted with the policy Background.
async fn collect_round(setup: &Setup, name: &str, number: usize) -> anyhow::Result<()> {
    let (path, owner) = objects::config_map(name, &format!("owner-{number}"));
    let owner = setup.admin.create(&path, &owner).await?;
    let dependents: Vec<objects::PathAndObject> = (0..10)
        .map(|it| with_owner(objects::secret(name, &format!("dependent-{number}-{it}")), &owner, true))
        .collect();
    let secrets = dependents[0].0.clone();
    setup.admin.create_all(dependents).await?;
    setup::delete(&setup.admin, &format!("{path}/owner-{number}"), "Background").await?;
    eventually("ten dependents to go", TIME_LIMIT, async || {
        let left = setup.admin.items(&secrets).await?.len();
        anyhow::ensure!(left == 0, "{left} left");
        Ok(Some(()))
    })
    .await
}

/// Waits until there are no requests for removed kinds; upstream's collector repeats them for ever.
async fn wait_until_no_requests(setup: &Setup) {
    let mut audit = setup.server.audit();
    let is_request =
        |it: &AuditEvent| it.user().starts_with("system:serviceaccount:") && it.uri.contains(GROUP) && it.verb != "get";
    let quiet = eventually("no more requests for removed kinds", DISCOVERY_TIME_LIMIT, async || {
        let before = audit.count(is_request)?;
        tokio::time::sleep(QUIET_TIME).await;
        let sent = audit.count(is_request)? - before;
        anyhow::ensure!(sent == 0, "{sent} requests within {QUIET_TIME:?}");
        Ok(Some(()))
    });
    quiet.await.unwrap();
}

fn definition(number: usize) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let plural = format!("gusts{number}");
    json!({
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": if number.is_multiple_of(2) { "Namespaced" } else { "Cluster" },
            "names": { "plural": plural, "singular": format!("gust{number}"), "kind": format!("Gust{number}") },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

async fn acceptance_gc_048_instances_and_dependents_of_deleted_definition_are_deleted_twice(on: On) {
    let Some(setup) = Setup::new(on, "a definition goes with its instances").await.unwrap() else { return };
    let (name, plural) = ("defined", "phoenixes");
    namespaces::create(&setup.admin, name).await.unwrap();
    let (_, definition) = objects::definition(plural);
    let of_definition = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap());
    for life in ["first", "second"] {
        setup::define(&setup.admin, &definition).await.unwrap();
        let placed = objects::custom(name, plural, life);
        let path = placed.0.clone();
        let instance = eventually("the custom resource to be served", TIME_LIMIT, async || {
            setup.admin.create(&placed.0, &placed.1).await.map(Some)
        });
        let instance = instance.await.unwrap();
        let (maps, map) = with_owner(objects::config_map(name, life), &instance, true);
        setup.admin.create(&maps, &map).await.unwrap();
        // An object that is created and collected shows that the kind is watched, and so this instance is known.
        wait_until_watched(&setup, name, plural, life).await;
        assert!(setup.admin.find(&format!("{maps}/{life}")).await.unwrap().is_some());

        setup.admin.delete(&of_definition).await.unwrap();
        wait_until_gone(&setup.admin, &format!("{path}/{life}")).await.unwrap();
        wait_until_gone(&setup.admin, &format!("{maps}/{life}")).await.unwrap();
        wait_until_gone(&setup.admin, &of_definition).await.unwrap();
    }
}

/// Waits until an instance with an owner that does not exist is collected, which shows that the collector watches the
/// kind.
async fn wait_until_watched(setup: &Setup, name: &str, plural: &str, life: &str) {
    let probe = format!("probe-of-the-{life}");
    let (path, mut object) = objects::custom(name, plural, &probe);
    let absent = format!("absent-owner-of-the-{life}");
    object["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": absent, "uid": absent }]);
    setup.admin.create(&path, &object).await.unwrap();
    eventually("the kind to be watched", DISCOVERY_TIME_LIMIT, async || {
        Ok(setup.admin.find(&format!("{path}/{probe}")).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
}
