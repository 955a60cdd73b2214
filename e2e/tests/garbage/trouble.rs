//! A broken API blocks only the objects that depend on it.

use e2e::{eventually, namespaces, objects, report};
use http::Method;
use serde_json::{Value, json};

use super::setup::{self, DEFINITIONS, Setup, TIME_LIMIT, wait_until_gone, with_owner};
use crate::support::{On, on_both_servers};

on_both_servers! {
    acceptance_gc_044_unavailable_aggregated_api_stops_no_other_kind_and_its_dependents_stay
    acceptance_gc_024_deletions_before_the_start_are_completed
}

/// Only a real server calls conversion webhooks.
mod converting {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn acceptance_gc_046_047_unavailable_conversion_webhook_stops_only_its_kind() {
        super::acceptance_gc_046_047_unavailable_conversion_webhook_stops_only_its_kind(crate::support::On::Real).await;
    }
}

const ERRORS: &str = "garbagecollector_controller_resources_sync_error_total";

async fn acceptance_gc_044_unavailable_aggregated_api_stops_no_other_kind_and_its_dependents_stay(on: On) {
    let Some((server, flavour)) = on.audited_manager("a dead aggregated API beside the collector").await.unwrap()
    else {
        return;
    };
    let admin = server.admin().await.unwrap();
    let group = "dead.example.com";
    let (path, service) = objects::unavailable_api(group);
    admin.create(&path, &service).await.unwrap();
    eventually("the API to be known as dead", TIME_LIMIT, async || {
        Ok((admin.send(Method::GET, &format!("/apis/{group}/v1"), None).await?.code == 503).then_some(()))
    })
    .await
    .unwrap();
    setup::define_graphs(&admin).await.unwrap();
    let setup = Setup::with(server, flavour).await.unwrap();
    let name = "beside-the-dead";
    namespaces::create(&admin, name).await.unwrap();

    // An object whose owner cannot be looked up must remain.
    let (maps, mut map) = objects::config_map(name, "of-the-dead");
    map["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": format!("{group}/v1"), "kind": "Thing", "name": "it", "uid": "of-a-thing" }]);
    admin.create(&maps, &map).await.unwrap();
    setup.wait_until_collecting(name, "sign").await.unwrap();
    let (trees, tree) = (format!("/apis/graphs.mini-kcm.dev/v1/namespaces/{name}/trees"), tree("tree"));
    let tree = admin.create(&trees, &tree).await.unwrap();
    let (_, leaf) = with_owner(objects::config_map(name, "leaf"), &tree, true);
    admin.create(&maps, &leaf).await.unwrap();
    setup::delete(&admin, &format!("{trees}/tree"), "Foreground").await.unwrap();
    wait_until_gone(&admin, &format!("{trees}/tree")).await.unwrap();
    assert!(admin.find(&format!("{maps}/leaf")).await.unwrap().is_none(), "the leaf is deleted first");

    // The removal of the API does not prove that the owner is absent either.
    admin.delete(&format!("{path}/v1.{group}")).await.unwrap();
    setup.wait_until_collecting(name, "later-sign").await.unwrap();
    assert!(admin.find(&format!("{maps}/of-the-dead")).await.unwrap().is_some());
}

fn tree(name: &str) -> Value {
    json!({ "apiVersion": "graphs.mini-kcm.dev/v1", "kind": "Tree", "metadata": { "name": name } })
}

async fn acceptance_gc_046_047_unavailable_conversion_webhook_stops_only_its_kind(on: On) {
    let Some((server, flavour)) = on.audited_manager("a dead conversion webhook").await.unwrap() else { return };
    let admin = server.admin().await.unwrap();
    let name = "beside-the-broken";
    namespaces::create(&admin, name).await.unwrap();
    let broken = json!({ "strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": { "url": "https://127.0.0.1:1/convert" },
    } });
    let of_definition = format!("{DEFINITIONS}/relics.broken.e2e.mini-kcm.dev");
    let relics = |version: &str| format!("/apis/broken.e2e.mini-kcm.dev/{version}/namespaces/{name}/relics");
    // One object is stored in the old version, which no client requests.
    setup::define(&admin, &relic(json!({ "strategy": "None" }), "v1")).await.unwrap();
    let nobody = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody-of-a-relic" }]);
    let stored = json!({
        "apiVersion": "broken.e2e.mini-kcm.dev/v1", "kind": "Relic",
        "metadata": { "name": "old", "ownerReferences": nobody },
    });
    eventually("the custom resource to be served", TIME_LIMIT, async || {
        admin.create(&relics("v1"), &stored).await.map(Some)
    })
    .await
    .unwrap();
    admin.merge(&of_definition, &relic(broken, "v2")).await.unwrap();
    eventually("lists to fail", TIME_LIMIT, async || {
        let answer = admin.send(Method::GET, &relics("v2"), None).await?;
        // The server has no cache of them either; 429 means that it is trying to build one.
        anyhow::ensure!(matches!(answer.code, 429 | 500..600), "{} {}", answer.code, answer.text);
        Ok(Some(()))
    })
    .await
    .unwrap();

    let setup = Setup::with(server, flavour).await.unwrap();
    let (maps, owner) = objects::config_map(name, "owner");
    let owner = admin.create(&maps, &owner).await.unwrap();
    let (_, dependent) = with_owner(objects::config_map(name, "dependent"), &owner, true);
    admin.create(&maps, &dependent).await.unwrap();
    setup::delete(&admin, &format!("{maps}/owner"), "Foreground").await.unwrap();
    wait_until_gone(&admin, &format!("{maps}/owner")).await.unwrap();
    setup.wait_until_collecting(name, "sign").await.unwrap();
    let told = eventually("the failure to be counted", TIME_LIMIT, async || {
        Ok(setup.manager.metric(ERRORS, &[]).await?.filter(|it| *it > 0.0))
    });
    report(&format!("{} failures to synchronise were counted", told.await.unwrap()));
    if setup.is_ours() {
        is_named(&setup).await;
    }

    // After the repair the kind is collected like all others.
    let healed = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    admin.merge(&of_definition, &healed).await.unwrap();
    wait_until_gone(&admin, &format!("{}/old", relics("v2"))).await.unwrap();
}

/// Waits until a metric and the log name the kind.
async fn is_named(setup: &Setup) {
    eventually("the log to name the kind", TIME_LIMIT, async || {
        Ok(setup.manager.log()?.lines().any(|it| it.contains("relics")).then_some(()))
    })
    .await
    .unwrap();
    let page = setup.manager.endpoints().unwrap().send(Method::GET, "/metrics", None).await.unwrap().text;
    let named = page.lines().any(|it| it.contains("garbage_collector") && it.contains("relics"));
    assert!(named, "no metric of the collector names the kind:\n{page}");
}

/// The definition of relics, with two versions of which one is stored.
fn relic(conversion: Value, stored: &str) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |it: &str| json!({ "name": it, "served": true, "storage": it == stored, "schema": schema });
    json!({
        "metadata": { "name": "relics.broken.e2e.mini-kcm.dev" },
        "spec": {
            "group": "broken.e2e.mini-kcm.dev",
            "scope": "Namespaced",
            "names": { "plural": "relics", "singular": "relic", "kind": "Relic" },
            "conversion": conversion,
            "versions": [version("v1"), version("v2")],
        },
    })
}

async fn acceptance_gc_024_deletions_before_the_start_are_completed(on: On) {
    let Some((server, flavour)) = on.audited_manager("deleted while nobody collected").await.unwrap() else { return };
    let admin = server.admin().await.unwrap();
    let name = "made-up-for";
    namespaces::create(&admin, name).await.unwrap();
    let maps = format!("/api/v1/namespaces/{name}/configmaps");
    for policy in ["Background", "Foreground", "Orphan"] {
        let word = policy.to_lowercase();
        let owner = admin.create(&maps, &objects::config_map(name, &word).1).await.unwrap();
        let (_, child) = with_owner(objects::config_map(name, &format!("{word}-child")), &owner, true);
        admin.create(&maps, &child).await.unwrap();
        setup::delete(&admin, &format!("{maps}/{word}"), policy).await.unwrap();
    }
    let deleting = |it: Option<Value>| it.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string());
    for word in ["foreground", "orphan"] {
        assert!(deleting(admin.find(&format!("{maps}/{word}")).await.unwrap()), "{word} waits for somebody");
    }
    let setup = Setup::with(server, flavour).await.unwrap();
    for it in ["background-child", "foreground-child", "foreground", "orphan"] {
        wait_until_gone(&setup.admin, &format!("{maps}/{it}")).await.unwrap();
    }
    let child = setup.admin.get(&format!("{maps}/orphan-child")).await.unwrap();
    assert!(child["metadata"]["ownerReferences"].is_null() && child["metadata"]["deletionTimestamp"].is_null());
}
