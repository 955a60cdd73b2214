use serde_json::{Value, json};

use crate::kit::{NOW, Server, map, version};

const ALL: &str = "/api/v1/namespaces";

async fn namespace(server: &Server, name: &str) -> Value {
    server.post(ALL, json!({ "metadata": { "name": name } })).await.expect(201)
}

#[tokio::test(start_paused = true)]
async fn new_namespace_has_default_fields() {
    let server = Server::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        server.get(&format!("{ALL}/{name}")).await.expect(200);
    }
    let created = namespace(&server, "ns").await;
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["metadata"]["labels"]["kubernetes.io/metadata.name"], "ns");
    assert_eq!(created["status"]["phase"], "Active");
    let patch = json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "other" } } });
    let patched = server.merge(&format!("{ALL}/ns"), patch).await.expect(200);
    assert_eq!(patched, created, "the label is restored");
    let patch = json!({ "spec": { "finalizers": null } });
    assert_eq!(server.merge(&format!("{ALL}/ns"), patch).await.expect(200), created, "only finalize changes them");
    server.post(ALL, json!({ "metadata": { "name": "a.b" } })).await.refused(422, "Invalid", "must not contain dots");
}

#[tokio::test(start_paused = true)]
async fn namespace_terminates_until_it_is_finalized() {
    let server = Server::new();
    namespace(&server, "ns").await;
    let path = format!("{ALL}/ns");
    let maps = format!("{path}/configmaps");
    let mut body = map("a");
    body["metadata"]["namespace"] = json!("ns");
    server.post(&maps, body.clone()).await.expect(201);

    let terminating = json!({ "status": { "phase": "Terminating" } });
    server.merge(&format!("{path}/status"), terminating).await.refused(422, "Invalid", "may only be 'Active'");
    let marked = server.delete(&path, json!({ "propagationPolicy": "Background" })).await.expect(200);
    assert_eq!(marked["metadata"]["deletionTimestamp"], NOW);
    assert!(marked["metadata"]["deletionGracePeriodSeconds"].is_null());
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert_eq!(server.delete(&path, Value::Null).await.expect(200), marked);

    body["metadata"]["name"] = json!("b");
    let refused = server.post(&maps, body.clone()).await;
    let refused = refused.refused(403, "Forbidden", "unable to create new content in namespace ns because it is being");
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    server.merge(&format!("{maps}/a"), json!({ "data": { "k": "v" } })).await.expect(200);

    let conditions = json!({ "status": { "conditions": [{ "type": "X", "status": "True" }] } });
    let current = server.merge(&format!("{path}/status"), conditions).await.expect(200);
    let mut stale = marked.clone();
    stale["spec"] = json!({});
    server.put(&format!("{path}/finalize"), stale).await.refused(409, "Conflict", "the object has been modified");
    let mut finalized = current.clone();
    finalized["spec"]["finalizers"] = json!(["kubernetes", "x/y"]);
    finalized["status"] = json!({});
    let more = server.put(&format!("{path}/finalize"), finalized).await.expect(200);
    assert_eq!(more["status"], current["status"], "status is kept");
    assert_eq!(more["spec"]["finalizers"], json!(["kubernetes", "x/y"]));
    let mut last = more.clone();
    last["spec"] = json!({ "finalizers": [] });
    server.put(&format!("{path}/finalize"), last).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", r#"namespaces "ns" not found"#);
    server.get(&format!("{maps}/a")).await.expect(200);
    server.post(&maps, body).await.refused(404, "NotFound", r#"namespaces "ns" not found"#);
    server.delete(&format!("{maps}/a"), Value::Null).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_block_a_namespace() {
    let server = Server::new();
    namespace(&server, "ns").await;
    let path = format!("{ALL}/ns");
    server.merge(&path, json!({ "metadata": { "finalizers": ["x/y"] } })).await.expect(200);
    let mut marked = server.delete(&path, Value::Null).await.expect(200);
    marked["spec"] = json!({});
    server.put(&format!("{path}/finalize"), marked.clone()).await.expect(200);
    let left = server.get(&path).await.expect(200);
    assert!(left["spec"]["finalizers"].is_null());
    server.delete(&path, Value::Null).await.expect(200);
    server.merge(&path, json!({ "metadata": { "finalizers": null } })).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test(start_paused = true)]
async fn finalize_without_metadata_finalizers_drops_those_too() {
    let server = Server::new();
    namespace(&server, "ns").await;
    let path = format!("{ALL}/ns");
    server.merge(&path, json!({ "metadata": { "finalizers": ["x/y"] } })).await.expect(200);
    server.delete(&path, Value::Null).await.expect(200);
    server.put(&format!("{path}/finalize"), json!({ "metadata": { "name": "ns" } })).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test(start_paused = true)]
async fn deletes_of_namespaces_that_are_refused_or_immediate() {
    let server = Server::new();
    for name in ["default", "kube-system", "kube-public"] {
        let answer = server.delete(&format!("{ALL}/{name}"), Value::Null).await;
        answer.refused(403, "Forbidden", "this namespace may not be deleted");
    }
    let created = namespace(&server, "ns").await;
    let path = format!("{ALL}/ns");
    let wrong = json!({ "preconditions": { "uid": "x" } });
    server.delete(&path, wrong).await.refused(409, "Conflict", "Precondition failed: UID in precondition: x");
    let mut empty = created.clone();
    empty["spec"] = json!({});
    let empty = server.put(&format!("{path}/finalize"), empty).await.expect(200);
    assert!(empty["spec"]["finalizers"].is_null() && version(&empty) > version(&created));
    server.delete(&path, Value::Null).await.expect(200);
    server.get(&path).await.expect(200);
    server.delete(&path, Value::Null).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");
}
