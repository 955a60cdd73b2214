use serde_json::{Value, json};

use crate::kit::{META_LIST, Server, names, version};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/z.io/v1/namespaces/default/bars";

fn definition(status: bool) -> Value {
    let subresources = if status { json!({ "status": {} }) } else { json!({}) };
    let version = |name: &str, storage: bool| {
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": { "type": "object" } },
                "subresources": subresources })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "bars.z.io" },
        "spec": { "group": "z.io", "scope": "Namespaced", "names": { "plural": "bars", "kind": "Bar" },
                  "versions": [version("v1alpha1", false), version("v1", true)] },
    })
}

fn bar(name: &str) -> Value {
    json!({ "apiVersion": "z.io/v1", "kind": "Bar", "metadata": { "name": name }, "spec": { "a": 1 }, "status": { "b": 1 } })
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_115_definition_is_established_and_served_at_once() {
    let server = Server::new();
    let from = server.cluster.version();
    let mut watch = server.watch(&format!("{DEFINITIONS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(server.get(BARS).await.code, 404);
    let created = server.post(DEFINITIONS, definition(true)).await.expect(201);
    assert_eq!(created["spec"]["names"]["listKind"], "BarList");
    assert_eq!(created["spec"]["names"]["singular"], "bar");
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(watch.names(3).await, ["ADDED bars.z.io", "MODIFIED bars.z.io", "MODIFIED bars.z.io"]);
    let stored = server.get(&format!("{DEFINITIONS}/bars.z.io")).await.expect(200);
    let established = &stored["status"]["conditions"][1];
    assert_eq!((&established["type"], &established["status"]), (&json!("Established"), &json!("True")));
    assert_eq!(stored["metadata"]["generation"], 1);

    let created = server.post(BARS, bar("b")).await.expect(201);
    assert_eq!(created["metadata"]["generation"], 1);
    let list = server.get(BARS).await.expect(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("BarList"), &json!("z.io/v1")));
    assert_eq!(list["items"][0]["kind"], "Bar", "items of custom lists carry their kind");
    let other = server.get("/apis/z.io/v1alpha1/namespaces/default/bars/b").await.expect(200);
    assert_eq!(other["apiVersion"], "z.io/v1alpha1");
    let shown = server.get_as("/apis/z.io/v1/bars", META_LIST).await.expect(200);
    assert_eq!(shown["items"][0]["kind"], "PartialObjectMetadata");
    let resources = server.get("/apis/z.io/v1").await.expect(200);
    assert_eq!(resources["resources"][1]["name"], "bars/status");
    let group = server.get("/apis/z.io").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v1", "v1 before v1alpha1");
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_116_rules_of_custom_objects() {
    let server = Server::new();
    server.post(DEFINITIONS, definition(true)).await.expect(201);
    let created = server.post(BARS, bar("b")).await.expect(201);
    assert!(created["status"].is_null(), "only the status subresource sets the status");
    let path = format!("{BARS}/b");
    server.put(&path, bar("b")).await.refused(422, "Invalid", "must be specified for an update");
    let mut body = bar("b");
    body.as_object_mut().unwrap().remove("kind");
    server.post(BARS, body).await.refused(400, "BadRequest", "Object 'Kind' is missing");
    let patch = json!({ "metadata": { "labels": { "l": "1" } }, "spec": { "a": 9 }, "status": { "b": 2 } });
    let status = server.merge(&format!("{path}/status"), patch.clone()).await.expect(200);
    assert_eq!((&status["status"]["b"], &status["spec"]["a"]), (&json!(2), &json!(1)));
    assert!(status["metadata"]["labels"].is_null(), "the status subresource changes no metadata");
    let main = server.merge(&path, patch).await.expect(200);
    assert_eq!(main["metadata"]["generation"], 2);
    assert_eq!(main["metadata"]["labels"]["l"], "1");
    server.smp(&path, json!({})).await.refused(415, "UnsupportedMediaType", "accepted media types include");
    server.get(&format!("{path}/foo")).await.refused(404, "NotFound", r#"bars.z.io "b" not found"#);
    let answer = server.delete(&path, Value::Null).await.expect(200);
    assert_eq!(answer["kind"], "Status");
}

#[tokio::test(start_paused = true)]
async fn status_without_a_subresource_is_data() {
    let server = Server::new();
    server.post(DEFINITIONS, definition(false)).await.expect(201);
    let created = server.post(BARS, bar("b")).await.expect(201);
    assert_eq!(created["status"]["b"], 1);
    let patched = server.merge(&format!("{BARS}/b"), json!({ "status": { "b": 2 } })).await.expect(200);
    assert_eq!((&patched["status"]["b"], &patched["metadata"]["generation"]), (&json!(2), &json!(2)));
    assert_eq!(server.get(&format!("{BARS}/b/status")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn definitions_that_are_refused() {
    let server = Server::new();
    let mut named = definition(true);
    named["metadata"]["name"] = json!("foos.z.io");
    server.post(DEFINITIONS, named).await.refused(422, "Invalid", "must be spec.names.plural");
    let mut bare = definition(true);
    bare["spec"]["versions"][0]["schema"] = Value::Null;
    let field = "spec.versions[0].schema.openAPIV3Schema: Required value";
    server.post(DEFINITIONS, bare).await.refused(422, "Invalid", field);
    server.post(DEFINITIONS, definition(true)).await.expect(201);
    let mut second = definition(true);
    second["metadata"]["name"] = json!("others.z.io");
    second["spec"]["names"]["plural"] = json!("others");
    server.post(DEFINITIONS, second).await.expect(201);
    let stored = server.get(&format!("{DEFINITIONS}/others.z.io")).await.expect(200);
    assert_eq!(stored["status"]["conditions"][0]["reason"], "ListKindConflict");
    assert_eq!(server.get("/apis/z.io/v1/others").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_117_instances_are_deleted_with_their_definition() {
    let server = Server::new();
    server.post(DEFINITIONS, definition(true)).await.expect(201);
    let mut held = bar("held");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    server.post(BARS, held).await.expect(201);
    server.post(BARS, bar("free")).await.expect(201);
    let from = server.cluster.version();
    let mut watch = server.watch(&format!("{BARS}?watch=1&resourceVersion={from}")).await;

    let path = format!("{DEFINITIONS}/bars.z.io");
    let marked = server.delete(&path, Value::Null).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(marked["status"]["conditions"][2]["reason"], "InstanceDeletionPending");
    assert_eq!(marked["metadata"]["generation"], 1);
    assert_eq!(watch.names(2).await, ["DELETED free", "MODIFIED held"]);
    assert_eq!(names(&server.get(BARS).await.expect(200)), ["held"]);
    let refused = server.post(BARS, bar("new")).await;
    refused.refused(403, "Forbidden", "create not allowed while custom resource definition is terminating");

    server.merge(&format!("{BARS}/held"), json!({ "metadata": { "finalizers": null } })).await.expect(200);
    assert_eq!(watch.names(1).await, ["DELETED held"]);
    assert!(watch.next().await.is_none());
    server.get(&path).await.refused(404, "NotFound", "");
    assert_eq!(server.get(BARS).await.code, 404);

    server.post(DEFINITIONS, definition(true)).await.expect(201);
    let empty = server.get(BARS).await.expect(200);
    assert_eq!(empty["items"], json!([]));
    let mut watch = server.watch(&format!("{BARS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(watch.next().await.unwrap().0, "ERROR", "versions of the earlier definition are too old");
    assert!(version(&empty) > from);
}

#[tokio::test(start_paused = true)]
async fn versions_declare_subresources_columns_and_fields_of_their_own() {
    let server = Server::new();
    let mut wanted = definition(true);
    let version = &mut wanted["spec"]["versions"][0];
    version["subresources"] = json!({});
    version["selectableFields"] = json!([{ "jsonPath": ".spec.color" }]);
    version["additionalPrinterColumns"] = json!([
        { "name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "d", "priority": 1 },
        { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
        { "name": "Big", "type": "boolean", "jsonPath": ".spec.big" },
        { "name": "Since", "type": "date", "jsonPath": ".spec.since" },
        { "name": "Ready", "type": "string", "jsonPath": ".conditions[?(@.type==\"Ready\")].status" },
    ]);
    server.post(DEFINITIONS, wanted).await.expect(201);
    let mut red = bar("red");
    red["spec"] = json!({ "color": "red", "size": 3.7, "big": true, "since": "2026-01-02T03:03:05Z" });
    red["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    server.post(BARS, red).await.expect(201);
    server.post(BARS, bar("plain")).await.expect(201);

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let alpha = "/apis/z.io/v1alpha1/namespaces/default/bars";
    let shown = server.get_as(alpha, table).await.expect(200);
    let color = json!({ "name": "Color", "type": "string", "format": "", "description": "d", "priority": 1 });
    assert_eq!(shown["columnDefinitions"][1], color);
    assert_eq!(shown["rows"][0]["cells"], json!(["plain", null, null, null, null, null]));
    assert_eq!(shown["rows"][1]["cells"], json!(["red", "red", 3, true, "60s", "True"]));
    let plain = server.get_as(BARS, table).await.expect(200);
    assert_eq!(plain["columnDefinitions"][1]["name"], "Age");
    assert_eq!(plain["rows"][0]["cells"], json!(["plain", "0s"]));

    let selected = server.get(&format!("{alpha}?fieldSelector=spec.color%3Dred")).await.expect(200);
    assert_eq!(names(&selected), ["red"]);
    let refused = server.get(&format!("{alpha}?fieldSelector=spec.size%3D3")).await;
    refused.refused(400, "BadRequest", "field label not supported: spec.size");
    server.get(&format!("{BARS}/red/status")).await.expect(200);
    assert_eq!(server.get(&format!("{alpha}/red/status")).await.code, 404, "this version has no status subresource");
}
