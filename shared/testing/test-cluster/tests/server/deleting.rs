use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{DEPLOYMENTS, JOBS, MAPS, META, META_LIST, PODS, Server, map, names, pod, version};

#[tokio::test(start_paused = true)]
async fn responses_to_a_delete() {
    let server = Server::new();
    let created = server.post(MAPS, map("a")).await.expect(201);
    let answer = server.delete(&format!("{MAPS}/a"), Value::Null).await.expect(200);
    assert_eq!(answer["status"], "Success");
    assert_eq!(answer["details"], json!({ "name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"] }));
    assert!(answer["code"].is_null());
    server.delete(&format!("{MAPS}/a"), Value::Null).await.refused(404, "NotFound", "");

    server.post(PODS, pod("p", "")).await.expect(201);
    let gone = server.delete(&format!("{PODS}/p"), Value::Null).await.expect(200);
    assert_eq!(gone["kind"], "Pod");
    assert_eq!(version(&gone), server.cluster.version());

    let mut held = map("h");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    server.post(MAPS, held).await.expect(201);
    let path = format!("{MAPS}/h");
    let stays = server.delete(&path, json!({ "orphanDependents": false })).await.expect(202);
    assert_eq!(stays["kind"], "ConfigMap");
    let shown = server.send("DELETE", &path, &[("accept", META)], "").await.expect(200);
    assert_eq!(shown["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn deleted_bound_pod_waits_for_its_kubelet() {
    let server = Server::new();
    let path = format!("{PODS}/p");
    server.post(PODS, pod("p", "n")).await.expect(201);
    let marked = server.delete(&path, Value::Null).await.expect(200);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-02T03:04:35Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["generation"], 2);
    for again in [Value::Null, json!({ "gracePeriodSeconds": 50, "propagationPolicy": "Orphan" })] {
        let same = server.delete(&path, again).await.expect(200);
        assert_eq!(same, marked, "nothing changes, not even finalizers");
    }
    let sooner = server.delete(&path, json!({ "gracePeriodSeconds": 20 })).await.expect(200);
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-02T03:04:25Z");
    assert_eq!(sooner["metadata"]["generation"], 2);
    tokio::time::advance(Duration::from_secs(15)).await;
    let late = server.delete(&path, json!({ "gracePeriodSeconds": 10 })).await.expect(200);
    assert_eq!(late["metadata"]["deletionTimestamp"], "2026-01-02T03:04:20Z", "the deadline is not in the past");
    assert_eq!(late["metadata"]["deletionGracePeriodSeconds"], 1);
    server.delete(&path, json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test(start_paused = true)]
async fn deleted_unbound_pods_are_removed_at_once_in_two_steps() {
    let server = Server::new();
    for (name, node, phase) in [("unbound", "", "Pending"), ("done", "n", "Succeeded"), ("failed", "n", "Failed")] {
        let mut object = pod(name, node);
        object["status"] = json!({ "phase": phase });
        server.cluster.create(object);
        let from = server.cluster.version();
        let mut watch = server.watch(&format!("{PODS}?watch=1&resourceVersion={from}")).await;
        server.delete(&format!("{PODS}/{name}"), Value::Null).await.expect(200);
        let (word, marked) = watch.next().await.unwrap();
        assert_eq!((word.as_str(), &marked["metadata"]["deletionGracePeriodSeconds"]), ("MODIFIED", &json!(0)));
        let (word, last) = watch.next().await.unwrap();
        assert_eq!((word.as_str(), version(&last)), ("DELETED", from + 2));
    }
}

#[tokio::test(start_paused = true)]
async fn object_remains_until_its_finalizers_are_removed() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    let mut body = map("a");
    body["metadata"]["finalizers"] = json!(["x/a"]);
    server.post(MAPS, body.clone()).await.expect(201);
    let marked = server.delete(&path, Value::Null).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(server.delete(&path, Value::Null).await.expect(200), marked);
    server.post(MAPS, map("a")).await.refused(409, "AlreadyExists", "object is being deleted: ");
    let more = json!({ "metadata": { "finalizers": ["x/a", "x/b"] } });
    server.merge(&path, more).await.refused(422, "Invalid", r#"found new finalizers []string{"x/b"}"#);

    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&marked))).await;
    let last = json!({ "metadata": { "finalizers": null, "labels": { "new": "label" } } });
    let answer = server.merge(&path, last).await.expect(200);
    assert_eq!(version(&answer), version(&marked), "the object as sent, with the old version");
    let (word, gone) = watch.next().await.unwrap();
    assert_eq!(word, "DELETED");
    assert_eq!(
        gone["metadata"]["finalizers"],
        json!(["x/a"]),
        "the update that removes the finalizers is not visible itself"
    );
    assert!(gone["metadata"]["labels"].is_null());
    assert!(version(&gone) > version(&marked));
    server.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test(start_paused = true)]
async fn bound_pod_remains_after_its_last_finalizer() {
    let server = Server::new();
    let path = format!("{PODS}/p");
    server.post(PODS, pod("p", "n")).await.expect(201);
    let foreground = server.delete(&path, json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    assert_eq!(foreground["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let same = server.delete(&path, json!({ "propagationPolicy": "Background" })).await.expect(200);
    assert_eq!(same, foreground);
    server.merge(&path, json!({ "metadata": { "finalizers": null } })).await.expect(200);
    server.get(&path).await.expect(200);
    server.delete(&path, json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");

    server.post(PODS, pod("p", "n")).await.expect(201);
    server.delete(&path, json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    let ended = server.delete(&path, json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    assert_eq!(ended["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(ended["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server.merge(&path, json!({ "metadata": { "finalizers": null } })).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test(start_paused = true)]
async fn propagation_policies() {
    let server = Server::new();
    let path = format!("{DEPLOYMENTS}/d");
    server.make(DEPLOYMENTS, json!({ "metadata": { "name": "d" } })).await.expect(201);
    let foreground = server.delete(&path, json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    assert_eq!(foreground["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(foreground["metadata"]["generation"], 2);
    let orphan = server.delete(&path, json!({ "propagationPolicy": "Orphan" })).await.expect(200);
    assert_eq!(orphan["metadata"]["finalizers"], json!(["orphan"]));
    server.delete(&path, json!({ "propagationPolicy": "Background" })).await.expect(200);
    server.get(&path).await.refused(404, "NotFound", "");

    server.make(JOBS, json!({ "metadata": { "name": "j" } })).await.expect(201);
    let job = server.delete(&format!("{JOBS}/j"), Value::Null).await.expect(200);
    assert_eq!(job["metadata"]["finalizers"], json!(["orphan"]), "the default of jobs");

    server.post(MAPS, map("a")).await.expect(201);
    let both = json!({ "propagationPolicy": "Background", "orphanDependents": true });
    server.delete(&format!("{MAPS}/a"), both).await.refused(422, "Invalid", "cannot be both set");
    let odd = json!({ "propagationPolicy": "Foo" });
    server.delete(&format!("{MAPS}/a"), odd).await.refused(422, "Invalid", "Unsupported value");
    let path = format!("{MAPS}/a?propagationPolicy=Orphan");
    server.delete(&path, json!({ "propagationPolicy": "Background" })).await.expect(200);
    server.get(&format!("{MAPS}/a")).await.refused(404, "NotFound", "");
    server.post(MAPS, map("a")).await.expect(201);
    let held = server.delete(&path, Value::Null).await.expect(200);
    assert_eq!(held["metadata"]["finalizers"], json!(["orphan"]), "the query counts without a body");
}

#[tokio::test(start_paused = true)]
async fn preconditions() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    let created = server.post(MAPS, map("a")).await.expect(201);
    let wrong = json!({ "preconditions": { "uid": "abc" } });
    let refused =
        server.delete(&path, wrong.clone()).await.refused(409, "Conflict", "does not match the UID in record");
    assert_eq!(refused["details"]["kind"], "ConfigMap");
    let stale = json!({ "preconditions": { "resourceVersion": "1" } });
    server.delete(&path, stale).await.refused(409, "Conflict", "does not match the ResourceVersion in record");
    server.delete(MAPS, wrong).await.refused(409, "Conflict", "");
    let metadata = &created["metadata"];
    let right = json!({ "preconditions": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] } });
    server.delete(&path, right).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn collections() {
    let server = Server::new();
    for name in ["a", "b", "c", "d"] {
        let mut body = map(name);
        body["metadata"]["labels"] = json!({ "x": if name == "d" { "2" } else { "1" } });
        body["metadata"]["finalizers"] = if name == "a" { json!(["x/y"]) } else { json!([]) };
        server.post(MAPS, body).await.expect(201);
    }
    let path = format!("{MAPS}?labelSelector=x%3D1&limit=2");
    let deleted = server.send("DELETE", &path, &[("accept", META_LIST)], "").await.expect(200);
    assert_eq!(deleted["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&deleted), ["a", "b"]);
    assert!(deleted["items"][0]["metadata"]["deletionTimestamp"].is_null(), "the list is from before");
    assert_eq!(names(&server.get(MAPS).await.expect(200)), ["a", "c", "d"]);
    // The wrong form is refused only after the delete.
    server.send("DELETE", MAPS, &[("accept", META)], "").await.refused(406, "NotAcceptable", "ConfigMapList");
    assert_eq!(names(&server.get(MAPS).await.expect(200)), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn direct_delete_uses_the_policy() {
    let server = Server::new();
    for (policy, finalizers) in [("Foreground", json!(["foregroundDeletion"])), ("Orphan", json!(["orphan"]))] {
        server.post(MAPS, map("a")).await.expect(201);
        server.cluster.delete_with_policy("configmaps", "default", "a", policy);
        let stays = server.get(&format!("{MAPS}/a")).await.expect(200);
        assert_eq!(stays["metadata"]["finalizers"], finalizers, "{policy}");
        assert!(stays["metadata"]["deletionTimestamp"].is_string(), "{policy}");
        // Another policy replaces the finalizer, so the object has none left.
        server.cluster.delete_with_policy("configmaps", "default", "a", "Background");
        server.get(&format!("{MAPS}/a")).await.refused(404, "NotFound", "");
    }
    server.cluster.delete_with_policy("configmaps", "default", "a", "Background");
    assert!(server.cluster.is_served("configmaps") && server.cluster.is_served("jobs.batch"));
    assert!(!server.cluster.is_served("widgets.example.com"));
}
