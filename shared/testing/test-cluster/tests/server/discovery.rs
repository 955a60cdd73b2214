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
async fn acceptance_api_013_the_aggregated_form() {
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
async fn acceptance_api_014_the_legacy_forms() {
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
    assert_eq!(resource("pods/eviction").unwrap()["verbs"], json!(["create"]));
    assert!(resource("pods/exec").is_none(), "what is not served is not listed");
    assert_eq!(server.get("/apis/batch/v1").await.expect(200)["groupVersion"], "batch/v1");
    assert_eq!(server.get("/apis/batch/v9").await.code, 404);
    assert_eq!(server.get("/apis/nope").await.code, 404);
    server.post("/apis", json!({})).await.expect(200);
    server.post("/api/v1", json!({})).await.refused(405, "MethodNotAllowed", "");
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
    assert_eq!((&batch["freshness"], &batch["resources"]), (&json!("Stale"), &Value::Null));
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
        server.cluster.restore_group(group);
    }
    let document = server.get_as("/apis", AGGREGATED).await.expect(200);
    assert_eq!(version_of(&document, "batch")["freshness"], "Current");
    server.get("/apis/apps/v1/deployments").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_118_an_api_service_without_a_service() {
    const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
    let server = Server::new();
    let service = json!({
        "metadata": { "name": "v1.none.io" },
        "spec": { "group": "none.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 1,
                  "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "nosvc" } },
    });
    let mut misnamed = service.clone();
    misnamed["metadata"]["name"] = json!("none");
    server.post(SERVICES, misnamed).await.refused(422, "Invalid", "metadata.name");
    server.post(SERVICES, service).await.expect(201);
    let stored = server.get(&format!("{SERVICES}/v1.none.io")).await.expect(200);
    let condition = &stored["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("ServiceNotFound")));
    assert_eq!(condition["message"], r#"service/nosvc in "default" is not present"#);
    assert_eq!(stored["spec"]["service"]["port"], 443);

    let document = server.get_as("/apis", AGGREGATED).await.expect(200);
    assert_eq!(group_names(&document).last(), Some(&"none.io"));
    let last = document["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["versions"], json!([{ "version": "v1", "freshness": "Stale" }]));
    for path in ["/apis/none.io/v1", "/apis/none.io/v1/foos", "/apis/none.io/v1/namespaces/default/foos/x"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, &answer.text[..]), (503, &b"service unavailable\n"[..]), "{path}");
    }
    server.get("/apis/none.io").await.expect(200);
    server.get("/apis/apps/v1").await.expect(200);

    server.delete(&format!("{SERVICES}/v1.none.io"), Value::Null).await.expect(200);
    assert_eq!(server.get("/apis/none.io/v1").await.code, 404);
    let document = server.get_as("/apis", AGGREGATED).await.expect(200);
    assert!(!group_names(&document).contains(&"none.io"));
}

#[tokio::test(start_paused = true)]
async fn every_group_version_that_is_served_has_its_api_service() {
    let server = Server::new();
    let names = |server: &Server| -> Vec<String> {
        let all = server.cluster.list("APIService", "");
        all.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let builtin = names(&server);
    assert!(builtin.contains(&"v1.".to_owned()) && builtin.contains(&"v2.autoscaling".to_owned()), "{builtin:?}");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "bars.z.io" },
        "spec": { "group": "z.io", "scope": "Cluster", "names": { "plural": "bars", "kind": "Bar" },
            "versions": [
                { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } },
                { "name": "v2", "served": false, "storage": false, "schema": { "openAPIV3Schema": { "type": "object" } } },
            ] },
    });
    server.cluster.create(definition);
    assert!(names(&server).contains(&"v1.z.io".to_owned()) && !names(&server).contains(&"v2.z.io".to_owned()));
    server.cluster.update("CustomResourceDefinition", "", "bars.z.io", |it| {
        it["spec"]["versions"][1]["served"] = json!(true);
    });
    assert!(names(&server).contains(&"v2.z.io".to_owned()));
    let group = server.get("/apis/z.io").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v2");
    server.cluster.delete("CustomResourceDefinition", "", "bars.z.io");
    assert_eq!(names(&server), builtin);
    assert_eq!(server.get("/apis/z.io").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn open_api_as_far_as_kubectl_looks() {
    let server = Server::new();
    let index = server.get("/openapi/v3").await.expect(200);
    let path = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert!(index["paths"]["api/v1"].is_object());
    let apps = server.get(&path).await.expect(200);
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let gvk = json!({ "group": "apps", "version": "v1", "kind": "Deployment" });
    assert_eq!(patch["x-kubernetes-group-version-kind"], gvk);
    assert_eq!(patch["parameters"][0]["name"], "fieldValidation");
    assert!(patch["requestBody"].is_null());
    assert_eq!(server.get("/openapi/v3/apis/nope/v1").await.code, 404);
    assert_eq!(server.get("/openapi/v2").await.expect(200)["paths"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn explain_and_logs_are_refused_with_a_reason() {
    let server = Server::new();
    for path in ["/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v2"] {
        let answer = server.send("GET", path, &[("kubectl-command", "kubectl explain")], "").await;
        let text = "kubectl explain is not served by this test cluster: no field is described here";
        assert_eq!((answer.code, answer.header("content-type")), (501, "text/plain; charset=utf-8"));
        assert_eq!(answer.text, text);
        assert_eq!(server.send("GET", path, &[("kubectl-command", "kubectl apply")], "").await.code, 200);
    }
    for (sub, why) in [("log", ": no container runs here"), ("proxy", "")] {
        let answer = server.get(&format!("/api/v1/namespaces/default/pods/p/{sub}")).await;
        let message = answer.refused(501, "NotImplemented", "is not served")["message"].clone();
        assert_eq!(message, format!("pods/{sub} is not served by this test cluster{why}"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_documents_accept() {
    let server = Server::new();
    for accept in ["text/html", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"] {
        server.get_as("/apis", accept).await.refused(406, "NotAcceptable", "only the following media types");
    }
    for accept in ["", "*/*", "application/*", "application/json", "text/html, application/json"] {
        assert_eq!(server.get_as("/apis", accept).await.expect(200)["kind"], "APIGroupList", "{accept}");
    }
    server.get_as("/apis/apps/v1", AGGREGATED).await.refused(406, "NotAcceptable", "");
    let before = server.get_as("/apis", AGGREGATED).await;
    let again = server.get_as("/apis", AGGREGATED).await;
    assert_eq!(before.header("etag"), again.header("etag"));
}
