use serde_json::{Value, json};
use test_cluster::DiscoveryFault;

use crate::kit::Server;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

fn group_names(document: &Value) -> Vec<&str> {
    document["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str().unwrap_or("")).collect()
}

fn version_of<'a>(document: &'a Value, group: &str) -> &'a Value {
    let found = document["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == group);
    &found.unwrap()["versions"][0]
}

#[tokio::test(start_paused = true)]
async fn the_aggregated_form() {
    let server = Server::new();
    let answer = server.get_as("/apis", KUBECTL).await;
    assert_eq!(answer.header("content-type"), AGGREGATED);
    let tag = answer.header("etag").to_owned();
    assert!(tag.starts_with('"'));
    let document = answer.expect(200);
    assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
    let groups = group_names(&document);
    assert_eq!(groups[..4], ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io"]);
    assert_eq!(groups[12..], ["coordination.k8s.io", "discovery.k8s.io"]);
    let apps = version_of(&document, "apps");
    assert_eq!((&apps["version"], &apps["freshness"]), (&json!("v1"), &json!("Current")));
    let deployments = &apps["resources"][2];
    assert_eq!((&deployments["resource"], &deployments["scope"]), (&json!("deployments"), &json!("Namespaced")));
    let subresources = deployments["subresources"].as_array().unwrap();
    assert!(subresources.iter().any(|it| it["subresource"] == "status"));

    let headers = [("accept", AGGREGATED), ("if-none-match", tag.as_str())];
    let fresh = server.send("GET", "/apis", &headers, "").await;
    assert_eq!((fresh.code, fresh.text.len()), (304, 0));
    let unquoted = [("accept", AGGREGATED), ("if-none-match", tag.trim_matches('"'))];
    assert_eq!(server.send("GET", "/apis", &unquoted, "").await.code, 200);

    let core = server.get_as("/api", AGGREGATED).await.expect(200);
    assert_eq!(core["items"][0]["metadata"], json!({}));
    let namespaces = core["items"][0]["versions"][0]["resources"].as_array().unwrap().iter();
    let namespaces = namespaces.clone().find(|it| it["resource"] == "namespaces").unwrap();
    assert!(!namespaces["verbs"].as_array().unwrap().contains(&json!("deletecollection")));
}

#[tokio::test(start_paused = true)]
async fn the_legacy_forms() {
    let server = Server::new();
    assert_eq!(server.get("/api").await.expect(200)["versions"], json!(["v1"]));
    let groups = server.get("/apis").await.expect(200);
    assert_eq!(groups["groups"][1]["preferredVersion"]["groupVersion"], "apps/v1");
    assert_eq!(server.get("/apis/apps").await.expect(200)["kind"], "APIGroup");
    let core = server.get("/api/v1").await.expect(200);
    let resource = |name: &str| core["resources"].as_array().unwrap().iter().find(|it| it["name"] == name).cloned();
    let pods = resource("pods").unwrap();
    assert_eq!((&pods["shortNames"], &pods["categories"]), (&json!(["po"]), &json!(["all"])));
    assert_eq!(resource("namespaces/finalize").unwrap()["verbs"], json!(["update"]));
    assert!(resource("pods/eviction").is_none(), "what is not served is not listed");
    assert_eq!(server.get("/apis/batch/v1").await.expect(200)["groupVersion"], "batch/v1");
    assert_eq!(server.get("/apis/batch/v9").await.code, 404);
    assert_eq!(server.get("/apis/nope").await.code, 404);
    server.post("/apis", json!({})).await.refused(405, "MethodNotAllowed", "");
}

#[tokio::test(start_paused = true)]
async fn version_and_health() {
    let server = Server::new();
    assert_eq!(server.get("/version").await.expect(200)["minor"], "36");
    for path in ["/healthz", "/livez", "/readyz", "/readyz/"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, &answer.text[..]), (200, &b"ok"[..]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_group_fails() {
    let server = Server::new();
    server.cluster.fail_discovery("batch", DiscoveryFault::Stale);
    let document = server.get_as("/apis", AGGREGATED).await.expect(200);
    let batch = version_of(&document, "batch");
    assert_eq!((&batch["freshness"], &batch["resources"]), (&json!("Stale"), &json!([])));
    assert_eq!(version_of(&document, "apps")["freshness"], "Current");
    let legacy = server.get("/apis/batch/v1").await;
    assert_eq!((legacy.code, &legacy.text[..]), (503, &b"service unavailable\n"[..]));
    server.get("/apis/batch").await.expect(200);
    server.get("/apis/batch/v1/jobs").await.expect(200);

    server.cluster.fail_discovery("batch", DiscoveryFault::Missing);
    let document = server.get_as("/apis", AGGREGATED).await.expect(200);
    assert!(!group_names(&document).contains(&"batch"));
    assert_eq!(server.get("/apis/batch/v1").await.code, 404);

    server.cluster.break_group("apps");
    let down = server.get("/apis/apps/v1/deployments").await;
    assert_eq!((down.code, down.header("content-type")), (503, "text/plain; charset=utf-8"));
    assert_eq!(server.get("/apis/apps/v1").await.code, 503);
    server.get("/api/v1/pods").await.expect(200);
    for group in ["apps", "batch"] {
        server.cluster.mend_group(group);
    }
    let document = server.get_as("/apis", AGGREGATED).await.expect(200);
    assert_eq!(version_of(&document, "batch")["freshness"], "Current");
    server.get("/apis/apps/v1/deployments").await.expect(200);
}
