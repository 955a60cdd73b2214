use serde_json::json;

use crate::kit::{DEPLOYMENTS, JOBS, LEASES, MAPS, META, META_LIST, NOW, PODS, Server, map, pod, version};

#[tokio::test(start_paused = true)]
async fn create_sets_the_fields_of_the_server() {
    let server = Server::new();
    let mut body = map("a");
    body["metadata"]["uid"] = json!("mine");
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["selfLink"] = json!("/x");
    body["metadata"]["generation"] = json!(7);
    let created = server.post(MAPS, body).await.expect(201);
    let metadata = &created["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(&metadata["uid"].as_str().unwrap()[14..15], "4");
    assert_eq!(metadata["creationTimestamp"], NOW);
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["generation"], 7, "a ConfigMap keeps what was sent");
    assert!(metadata["deletionTimestamp"].is_null() && metadata["selfLink"].is_null());
    assert_eq!(version(&created), server.cluster.version());
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), created);
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_uids() {
    let uid = |seed| {
        let server = Server::with(test_cluster::Options { seed, ..Default::default() });
        server.cluster.create(map("a"))["metadata"]["uid"].clone()
    };
    assert_eq!(uid(3), uid(3));
    assert_ne!(uid(3), uid(4));
}

#[tokio::test(start_paused = true)]
async fn creations_that_are_refused() {
    let server = Server::new();
    server.post(MAPS, map("a")).await.expect(201);
    let with = |field: &str, value: serde_json::Value| {
        let mut body = map("b");
        body["metadata"][field] = value;
        body
    };
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "b" } });
    let cases = [
        ("exists", map("a"), 409, "AlreadyExists", r#"configmaps "a" already exists"#),
        ("version", with("resourceVersion", json!("5")), 500, "", "resourceVersion should not be set"),
        ("namespace", with("namespace", json!("other")), 400, "BadRequest", "does not match the namespace sent"),
        ("name", with("name", json!("Bad_name")), 422, "Invalid", "a lowercase RFC 1123 subdomain"),
        ("no name", with("name", json!("")), 422, "Invalid", "name or generateName is required"),
        ("type", with("name", json!(5)), 400, "BadRequest", "cannot unmarshal number"),
        ("finalizer", with("finalizers", json!(["x"])), 422, "Invalid", "nor is it fully qualified"),
        ("owner", with("ownerReferences", json!([{"uid": "u"}])), 422, "Invalid", "must not be empty"),
        ("data", json!({ "metadata": { "name": "b" }, "data": "text" }), 400, "BadRequest", "cannot unmarshal"),
        ("kind", secret, 400, "BadRequest", "unknown conversion"),
    ];
    for (name, body, code, reason, message) in cases {
        let answer = server.post(MAPS, body).await;
        assert_eq!(answer.code, code, "{name}");
        answer.refused(code, reason, message);
    }
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "a": "b" } });
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = server.post(secrets, secret).await.expect(201);
    assert_eq!(secret["data"], json!({ "a": "Yg==" }));
    let two = json!([
        { "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true },
        { "apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2", "controller": true },
    ]);
    let body = with("ownerReferences", two);
    server.post(MAPS, body).await.refused(422, "Invalid", "Only one reference can have Controller set to true");
    server.post("/api/v1/namespaces/nons/configmaps", json!({ "metadata": { "name": "Bad_" } })).await.refused(
        404,
        "NotFound",
        r#"namespaces "nons" not found"#,
    );
    server.send("POST", MAPS, &[("content-type", "text/plain")], "{}").await.refused(
        415,
        "UnsupportedMediaType",
        "accepted media types include: application/json, application/yaml",
    );
    server.post("/api/v1/configmaps", map("x")).await.refused(405, "MethodNotAllowed", "");
    server.send("POST", MAPS, &[], "{").await.refused(400, "BadRequest", "json parse error");
    server.post(&format!("{MAPS}?dryRun=Foo"), map("x")).await.refused(422, "Invalid", "dryRun: Unsupported value");
}

#[tokio::test(start_paused = true)]
async fn generated_names() {
    let server = Server::new();
    let created = server.post(MAPS, json!({ "metadata": { "generateName": "dd-" } })).await.expect(201);
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("dd-") && name.len() == 8, "{name}");
    assert!(name[3..].chars().all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it)), "{name}");
    assert_eq!(created["metadata"]["generateName"], "dd-");
    let long = server.post(MAPS, json!({ "metadata": { "generateName": "x".repeat(250) } })).await.expect(201);
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
}

#[tokio::test(start_paused = true)]
async fn optimistic_concurrency() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    let first = server.post(MAPS, map("a")).await.expect(201);
    let mut second = first.clone();
    second["data"] = json!({ "k": "v" });
    let stored = server.put(&path, second.clone()).await.expect(200);
    assert!(version(&stored) > version(&first));
    server.put(&path, second).await.refused(409, "Conflict", "the object has been modified; please apply your changes");
    server.put(&path, first.clone()).await.refused(409, "Conflict", r#"fulfilled on configmaps "a""#);

    let mut other = stored.clone();
    other["metadata"]["uid"] = json!("abc");
    server.put(&path, other.clone()).await.refused(409, "Conflict", "Precondition failed: UID in precondition: abc");
    server.merge(&path, json!({ "metadata": { "uid": "abc" } })).await.refused(422, "Invalid", "field is immutable");
    server.merge(&path, json!({ "metadata": { "resourceVersion": "1" } })).await.refused(409, "Conflict", "");

    let mut free = map("a");
    free["data"] = json!({ "k": "w" });
    server.put(&path, free.clone()).await.expect(200);
    free["metadata"]["name"] = json!("b");
    server.put(&path, free.clone()).await.refused(400, "BadRequest", "does not match the name on the URL (a)");
    free["metadata"].as_object_mut().unwrap().remove("name");
    server.put(&path, free).await.refused(400, "BadRequest", "name must be provided");
    server.put(&format!("{MAPS}/zz"), map("zz")).await.refused(404, "NotFound", r#"configmaps "zz" not found"#);
    let mut text = map("a");
    text["metadata"]["resourceVersion"] = json!("abc");
    server.put(&path, text).await.refused(500, "", "strconv.ParseUint");
}

#[tokio::test(start_paused = true)]
async fn update_without_change_keeps_the_version() {
    let server = Server::new();
    let created = server.post(MAPS, map("a")).await.expect(201);
    let before = server.cluster.version();
    let mut same = created.clone();
    same["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let stored = server.put(&format!("{MAPS}/a"), same).await.expect(200);
    assert_eq!(version(&stored), version(&created));
    server.merge(&format!("{MAPS}/a"), json!({})).await.expect(200);
    assert_eq!(server.cluster.version(), before);
}

#[tokio::test(start_paused = true)]
async fn put_without_metadata_fields_removes_them() {
    let server = Server::new();
    let mut body = map("a");
    body["metadata"]["labels"] = json!({ "l": "1" });
    body["metadata"]["annotations"] = json!({ "a": "1" });
    body["metadata"]["finalizers"] = json!(["x/y"]);
    server.post(MAPS, body).await.expect(201);
    let stored = server.put(&format!("{MAPS}/a"), map("a")).await.expect(200);
    for field in ["labels", "annotations", "finalizers"] {
        assert!(stored["metadata"][field].is_null(), "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_need_a_version_and_are_created_by_put() {
    let server = Server::new();
    let path = format!("{LEASES}/l");
    let lease = |time: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "l" },
                "spec": { "renewTime": time, "leaseDurationSeconds": 15 } })
    };
    server.put(&path, lease("2026-01-01T00:00:00Z")).await.refused(400, "BadRequest", ".000000");
    server.put(&path, lease("2026-01-01T00:00:00.123456789Z")).await.refused(400, "BadRequest", ".000000");
    let created = server.put(&path, lease("2026-01-01T02:00:00.123456+02:00")).await.expect(201);
    assert_eq!(created["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    let time = "2026-01-01T00:00:00.123456Z";
    server.put(&path, lease(time)).await.refused(422, "Invalid", "must be specified for an update");
    let mut next = created;
    next["spec"]["leaseDurationSeconds"] = json!(0);
    server.put(&path, next.clone()).await.refused(422, "Invalid", "must be greater than 0");
    next["spec"]["leaseDurationSeconds"] = json!(20);
    server.put(&path, next).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn generations_count_what_the_kind_calls_a_change() {
    let server = Server::new();
    let deployment = json!({ "metadata": { "name": "d" }, "spec": { "replicas": 2 }, "status": { "replicas": 9 } });
    let created = server.make(DEPLOYMENTS, deployment).await.expect(201);
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["status"], json!({}), "a creation wipes status");
    let job = server.make(JOBS, json!({ "metadata": { "name": "j" }, "spec": {} })).await.expect(201);
    assert_eq!(job["metadata"]["generation"], 1);
    let cases = [
        ("label", format!("{DEPLOYMENTS}/d"), json!({ "metadata": { "labels": { "a": "b" } } }), 1),
        ("annotation", format!("{DEPLOYMENTS}/d"), json!({ "metadata": { "annotations": { "a": "b" } } }), 2),
        ("spec", format!("{DEPLOYMENTS}/d"), json!({ "spec": { "replicas": 3 } }), 3),
        ("status on main", format!("{DEPLOYMENTS}/d"), json!({ "status": { "replicas": 3 } }), 3),
        ("status", format!("{DEPLOYMENTS}/d/status"), json!({ "status": { "replicas": 3 } }), 3),
        ("spec on status", format!("{DEPLOYMENTS}/d/status"), json!({ "spec": { "replicas": 7 } }), 3),
        ("annotation of a job", format!("{JOBS}/j"), json!({ "metadata": { "annotations": { "a": "b" } } }), 1),
        ("spec of a job", format!("{JOBS}/j"), json!({ "spec": { "suspend": true } }), 2),
    ];
    for (name, path, patch, generation) in cases {
        let patched = server.merge(&path, patch).await.expect(200);
        assert_eq!(patched["metadata"]["generation"], generation, "{name}");
    }
    let d = server.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!((&d["spec"]["replicas"], &d["status"]["replicas"]), (&json!(3), &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn a_status_put_replaces_status_and_metadata_and_keeps_spec() {
    let server = Server::new();
    let rich = json!({ "labels": { "l": "1" }, "annotations": { "a": "1" }, "finalizers": ["x/y"],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u" }] });
    let poor = |of: &serde_json::Value| {
        json!({ "metadata": { "name": of["metadata"]["name"], "resourceVersion": of["metadata"]["resourceVersion"] },
                "status": { "conditions": [{ "type": "A", "status": "True" }] }, "spec": { "changed": true } })
    };
    // What remains of the metadata, by kind.
    let cases = [(JOBS, vec!["labels"]), (DEPLOYMENTS, vec!["labels"]), (PODS, vec!["ownerReferences"])];
    for (path, kept) in cases {
        let mut body = json!({ "metadata": rich, "spec": { "a": 1 } });
        body["metadata"]["name"] = json!("x");
        let created = server.make(path, body).await.expect(201);
        let stored = server.put(&format!("{path}/x/status"), poor(&created)).await.expect(200);
        assert_eq!(stored["spec"], created["spec"], "{path}");
        assert_eq!(stored["status"]["conditions"][0]["type"], "A", "{path}");
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            assert_eq!(!stored["metadata"][field].is_null(), kept.contains(&field), "{path} {field}");
        }
        // The labels of a Job are restored from its template.
        assert_eq!(stored["metadata"]["labels"]["l"].is_null(), path != DEPLOYMENTS, "{path}");
        server.put(&format!("{path}/x/status"), poor(&created)).await.refused(409, "Conflict", "");
        assert_eq!(server.get(&format!("{path}/x/status")).await.expect(200), stored);
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_and_events_keep_the_status_they_are_created_with() {
    let server = Server::new();
    let node = json!({ "metadata": { "name": "n" }, "status": { "phase": "x" } });
    assert_eq!(server.post("/api/v1/nodes", node).await.expect(201)["status"]["phase"], "x");
    let pod = server.post(PODS, pod("p", "")).await.expect(201);
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 30);
    let event = |namespace: &str| json!({ "metadata": { "generateName": "e." }, "involvedObject": { "namespace": namespace }, "reason": "R" });
    let events = "/api/v1/namespaces/default/events";
    server.post(events, event("other")).await.refused(422, "Invalid", "does not match event.namespace");
    let created = server.post(events, event("default")).await.expect(201);
    let path = format!("{events}/{}", created["metadata"]["name"].as_str().unwrap());
    let patched = server.smp(&path, json!({ "count": 2, "lastTimestamp": NOW, "message": "m" })).await.expect(200);
    assert_eq!((&patched["count"], &patched["message"]), (&json!(2), &json!("m")));
}

#[tokio::test(start_paused = true)]
async fn negotiation() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    server.post(MAPS, map("a")).await.expect(201);
    assert_eq!(server.get_as(&path, META).await.expect(200)["kind"], "PartialObjectMetadata");
    assert_eq!(server.get_as(&path, "text/html, application/json;q=0.5").await.expect(200)["kind"], "ConfigMap");
    let list = server.get_as(MAPS, META_LIST).await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    let plain = server.get(MAPS).await.expect(200);
    assert_eq!(plain["kind"], "ConfigMapList");
    assert!(plain["items"][0]["kind"].is_null() && plain["items"][0]["apiVersion"].is_null());
    server.get_as(MAPS, META).await.refused(406, "NotAcceptable", "(*core.ConfigMapList)");
    server.get_as(&path, META_LIST).await.refused(406, "NotAcceptable", "is not a list (*core.ConfigMap)");
    for accept in ["text/html", "application/*"] {
        server.get_as(&path, accept).await.refused(406, "NotAcceptable", "406: Not Acceptable");
        server.send("DELETE", &path, &[("accept", accept)], "").await.refused(406, "NotAcceptable", "");
    }
    assert!(server.cluster.get("configmaps", "default", "a").is_some());
    let foo = "application/json;as=Foo;v=v1;g=meta.k8s.io";
    server.get_as(MAPS, foo).await.refused(406, "NotAcceptable", "only the following media types");
    server.get_as(MAPS, &format!("{foo},application/json")).await.expect(200);
    let created = server.send("POST", MAPS, &[("accept", META)], map("b").to_string()).await.expect(201);
    assert_eq!(created["kind"], "PartialObjectMetadata");
    assert_eq!(created["metadata"]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn missing_objects_and_unserved_resources() {
    let server = Server::new();
    let missing = server.get(&format!("{JOBS}/x")).await.refused(404, "NotFound", r#"jobs.batch "x" not found"#);
    assert_eq!(missing["details"], json!({ "name": "x", "group": "batch", "kind": "jobs" }));
    let cases = [
        ("GET", "/apis/apps/v9", 404),
        ("GET", "/apis/apps/v9/namespaces/default/deployments", 404),
        ("GET", "/apis/apps/v1/namespaces/default/nothings", 404),
        ("GET", "/apis/batch/v1/namespaces/default/jobs/x/scale", 404),
        ("POST", "/api/v1/namespaces/default/pods/p/exec", 501),
        ("GET", "/api/v1/namespaces/default/pods/p/log", 501),
        ("GET", "/api/v1/namespaces/default/serviceaccounts/s/token", 405),
        ("GET", "/metrics", 501),
        ("DELETE", "/api/v1/namespaces", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("HEAD", "/api/v1/nodes", 405),
        ("PUT", "/api/v1/nodes", 405),
        ("GET", "/api/v1/namespaces/default/finalize", 405),
    ];
    for (method, path, code) in cases {
        let answer = server.send(method, path, &[], "").await;
        assert_eq!(answer.code, code, "{method} {path}");
        let status = answer.json();
        assert_eq!(status["kind"], "Status", "{method} {path}");
        assert!(status["details"]["name"].is_null(), "{method} {path}");
    }
    for path in ["/apis/nope/v1", "/apis/nope/v1/foos", "/apis/node.k8s.io/v1/runtimeclasses", "/logs"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, &answer.text[..]), (404, &b"404 page not found\n"[..]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn managed_fields_on_request() {
    let server = Server::with(test_cluster::Options { managed_fields: true, ..Default::default() });
    let created = server.post(MAPS, map("a")).await.expect(201);
    assert!(created["metadata"]["managedFields"].is_array());
    let mut body = map("a");
    body["data"] = json!({ "a": "b" });
    let stored = server.put(&format!("{MAPS}/a"), body).await.expect(200);
    assert_eq!(stored["metadata"]["managedFields"], created["metadata"]["managedFields"]);
}

#[tokio::test(start_paused = true)]
async fn bodies_have_a_limit() {
    let server = Server::new();
    let answer = server.send("POST", MAPS, &[], vec![b' '; 3 * 1024 * 1024 + 1]).await;
    answer.refused(413, "RequestEntityTooLarge", "limit is 3145728");
}

#[tokio::test(start_paused = true)]
async fn write_returns_the_same_as_a_read() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    let mut body = map("a");
    body["data"] = json!({ "k": "v" });
    let created = server.post(MAPS, body.clone()).await;
    assert_eq!((created.code, &created.text), (201, &server.get(&path).await.text));
    body["data"]["k"] = json!("w");
    let tried = server.put(&format!("{path}?dryRun=All"), body.clone()).await.expect(200);
    assert_eq!(tried["data"]["k"], "w", "a dry run shows what is not stored");
    let replaced = server.put(&path, body).await;
    assert_eq!((replaced.code, &replaced.text), (200, &server.get(&path).await.text));
    assert_eq!(replaced.json()["data"]["k"], "w");
    let patched = server.merge(&path, json!({ "data": null })).await;
    assert_eq!((patched.code, &patched.text), (200, &server.get(&path).await.text));
}
