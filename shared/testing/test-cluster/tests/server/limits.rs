//! Extreme requests do no harm, and fields that would be ignored are refused.

use serde_json::{Value, json};

use crate::kit::{DEPLOYMENTS, MAPS, PODS, Server, map, names, pod};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[tokio::test(start_paused = true)]
async fn watch_with_largest_timeout_is_opened() {
    let server = Server::new();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds=9223372036854775807")).await;
    server.post(MAPS, map("a")).await.expect(201);
    assert_eq!(watch.names(1).await, ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn highest_generation_does_not_overflow() {
    let server = Server::new();
    let body = json!({ "metadata": { "name": "d", "finalizers": ["x/y"] }, "spec": {} });
    server.make(DEPLOYMENTS, body).await.expect(201);
    server.cluster.update("deployments", "default", "d", |it| it["metadata"]["generation"] = json!(i64::MAX));
    let marked = server.delete(&format!("{DEPLOYMENTS}/d"), Value::Null).await.expect(200);
    assert_eq!(marked["metadata"]["generation"], i64::MAX);
}

#[tokio::test(start_paused = true)]
async fn too_long_grace_periods_overflow_as_on_a_real_server() {
    let server = Server::new();
    server.make(PODS, pod("p", "n")).await.expect(201);
    let path = format!("{PODS}/p");
    for (grace, ends) in [
        (-5, "2026-01-02T03:04:06Z"),
        (60, "2026-01-02T03:05:05Z"),
        // Recorded from a real server: the product of seconds and nanoseconds overflows.
        (i64::MAX, "2026-01-02T03:04:04Z"),
        (9_300_000_000, "1736-02-27T00:49:31Z"),
    ] {
        let options = json!({ "dryRun": ["All"], "gracePeriodSeconds": grace });
        let marked = server.delete(&path, options).await.expect(200);
        assert_eq!(marked["metadata"]["deletionTimestamp"], ends, "{grace}");
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], grace.max(1), "{grace}");
    }
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_json_patch_are_counted() {
    let server = Server::new();
    server.post(MAPS, map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let patch = |times: usize| {
        let copy = json!({ "op": "copy", "from": "/data/k", "path": "/data/l" });
        let mut operations = vec![json!({ "op": "add", "path": "/data", "value": { "k": "x".repeat(100_000) } })];
        operations.extend(std::iter::repeat_n(copy, times));
        Value::from(operations)
    };
    server.patch(&path, "json-patch+json", patch(31)).await.expect(200);
    let why = "the server rejected our request due to an error in our request";
    server.patch(&path, "json-patch+json", patch(32)).await.refused(422, "Invalid", why);
}

#[tokio::test(start_paused = true)]
async fn longer_paths_after_a_subresource_are_not_found() {
    let server = Server::new();
    let body = json!({ "metadata": { "name": "d" }, "spec": {} });
    let created = server.make(DEPLOYMENTS, body).await.expect(201);
    let path = format!("{DEPLOYMENTS}/d");
    let mut next = created;
    next["status"]["replicas"] = json!(7);
    for end in ["status/x", "scale/x", "none/x"] {
        server.put(&format!("{path}/{end}"), next.clone()).await.refused(404, "NotFound", "could not find");
    }
    assert!(server.get(&path).await.expect(200)["status"]["replicas"].is_null());
    server.put(&format!("{path}/status/"), next).await.expect(200);
    assert_eq!(server.get("/api/v1/nodes/n/proxy/a/b").await.code, 501);
    assert_eq!(server.get(&format!("{PODS}/p/log/x")).await.code, 404);
}

fn definition(version: Value) -> Value {
    json!({
        "metadata": { "name": "bars.z.io", "resourceVersion": version },
        "spec": { "group": "z.io", "scope": "Namespaced", "names": { "plural": "bars", "kind": "Bar" }, "versions": [
            { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }] },
    })
}

#[tokio::test(start_paused = true)]
async fn names_of_a_definition_are_immutable() {
    let server = Server::new();
    server.post(DEFINITIONS, definition(Value::Null)).await.expect(201);
    let path = format!("{DEFINITIONS}/bars.z.io");
    let version = server.get(&path).await.expect(200)["metadata"]["resourceVersion"].clone();
    for (at, value) in [
        ("/spec/group", "y.io"),
        ("/spec/names/plural", "cars"),
        ("/spec/scope", "Cluster"),
        ("/spec/names/kind", "Car"),
    ] {
        let mut next = definition(version.clone());
        *next.pointer_mut(at).unwrap() = json!(value);
        let field = at[1..].replace('/', ".");
        let why = format!("{field}: Invalid value: {value:?}: field is immutable");
        server.put(&path, next).await.refused(422, "Invalid", &why);
    }
    let mut next = definition(version.clone());
    next["spec"]["versions"][0]["storage"] = json!(false);
    server.put(&path, next).await.refused(422, "Invalid", "must have exactly one version marked as storage");
    let mut next = definition(version);
    next["spec"]["conversion"] = json!({ "strategy": "Webhook" });
    assert_eq!(server.put(&path, next.clone()).await.code, 501);
    next["metadata"] = json!({ "name": "bars.z.io" });
    assert_eq!(server.post(DEFINITIONS, next).await.code, 501);
}

#[tokio::test(start_paused = true)]
async fn names_that_are_taken_are_not_served_after_an_update() {
    let server = Server::new();
    server.post(DEFINITIONS, definition(Value::Null)).await.expect(201);
    let mut other = definition(Value::Null);
    other["metadata"]["name"] = json!("cars.z.io");
    other["spec"]["names"] = json!({ "plural": "cars", "kind": "Car", "shortNames": ["c"] });
    server.post(DEFINITIONS, other).await.expect(201);
    let taken = json!({ "spec": { "names": { "shortNames": ["bars"] } } });
    let changed = server.merge(&format!("{DEFINITIONS}/cars.z.io"), taken).await.expect(200);
    assert_eq!(changed["spec"]["names"]["shortNames"], json!(["bars"]));
    let resources = server.get("/apis/z.io/v1").await.expect(200);
    let short: Vec<&Value> = resources["resources"].as_array().unwrap().iter().map(|it| &it["shortNames"]).collect();
    assert_eq!(short, [&Value::Null, &json!(["c"])]);
}

#[tokio::test(start_paused = true)]
async fn protobuf_is_handled_like_any_body() {
    // A Namespace "a" with the status phase "x".
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x0c\x0a\x03\x0a\x01a\x12\x00\x1a\x03\x0a\x01x";
    let quiet = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x0b\x0a\x03\x0a\x01a\x12\x00\x1a\x02\x0a\x00";
    let server = Server::new();
    let typed = [("content-type", "application/vnd.kubernetes.protobuf")];
    let send = |path: &'static str, body: &[u8]| server.send("POST", path, &typed, body.to_vec());
    let refused = send("/api/v1/namespaces", body).await;
    assert_eq!(refused.code, 501, "{:?}", refused.text);
    assert_eq!(server.cluster.requests().last().unwrap().body, body.to_vec());
    assert_eq!(send("/api/v1/nothing", body).await.code, 404, "the path is checked first");
    send("/api/v1/namespaces", quiet).await.expect(201);
    let mut large = quiet.to_vec();
    large.resize(4 << 20, 0);
    assert_eq!(send("/api/v1/namespaces", &large).await.code, 413);
}

#[tokio::test(start_paused = true)]
async fn qos_class_of_a_pod_is_immutable() {
    let server = Server::new();
    server.make(PODS, pod("p", "n")).await.expect(201);
    let path = format!("{PODS}/p/status");
    let other = json!({ "status": { "qosClass": "Burstable" } });
    server.merge(&path, other).await.refused(422, "Invalid", "status.qosClass: Invalid value: \"Burstable\": field is");
    let none = server.merge(&path, json!({ "status": { "qosClass": "" } })).await.expect(200);
    assert_eq!(none["status"]["qosClass"], "BestEffort");
}

#[tokio::test(start_paused = true)]
async fn collection_at_future_version_is_not_deleted() {
    let server = Server::new();
    server.post(MAPS, map("a")).await.expect(201);
    let refused = server.delete(&format!("{MAPS}?resourceVersion=99999"), Value::Null).await;
    assert_eq!(refused.code, 504);
    assert!(names(&server.get(MAPS).await.expect(200)).contains(&"a"));
}
