use serde_json::{Value, json};

use crate::kit::{DEPLOYMENTS, MAPS, PODS, Server, map};

#[tokio::test(start_paused = true)]
async fn json_patches() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    let mut body = map("a");
    body["data"] = json!({ "k": "v", "s/l": "1" });
    // Validation would refuse this key of data, so the object is stored directly.
    body["kind"] = json!("ConfigMap");
    body["apiVersion"] = json!("v1");
    server.cluster.create(body);
    let cases = [
        ("add", json!([{ "op": "add", "path": "/data/n", "value": "1" }]), json!({ "k": "v", "s/l": "1", "n": "1" })),
        (
            "replace",
            json!([{ "op": "replace", "path": "/data/k", "value": "w" }]),
            json!({ "k": "w", "s/l": "1", "n": "1" }),
        ),
        ("escape", json!([{ "op": "remove", "path": "/data/s~1l" }]), json!({ "k": "w", "n": "1" })),
        (
            "replace adds",
            json!([{ "op": "replace", "path": "/data/z", "value": "9" }]),
            json!({ "k": "w", "n": "1", "z": "9" }),
        ),
        (
            "test",
            json!([{ "op": "test", "path": "/data/k", "value": "w" }, { "op": "remove", "path": "/data/z" }]),
            json!({ "k": "w", "n": "1" }),
        ),
        ("move", json!([{ "op": "move", "from": "/data/n", "path": "/data/m" }]), json!({ "k": "w", "m": "1" })),
        (
            "copy",
            json!([{ "op": "copy", "from": "/data/m", "path": "/data/c" }]),
            json!({ "k": "w", "m": "1", "c": "1" }),
        ),
    ];
    for (name, patch, data) in cases {
        let patched = server.patch(&path, "json-patch+json", patch).await.expect(200);
        assert_eq!(patched["data"], data, "{name}");
    }
    let refused = [
        json!([{ "op": "test", "path": "/data/k", "value": "no" }]),
        json!([{ "op": "remove", "path": "/data/nothing" }]),
        json!([{ "op": "add", "path": "/no/parent", "value": 1 }]),
        json!([{ "op": "odd", "path": "/data" }]),
    ];
    for patch in refused {
        let answer = server.patch(&path, "json-patch+json", patch).await;
        answer.refused(422, "Invalid", "the server rejected our request due to an error in our request");
    }
    server.patch(&path, "json-patch+json", json!({})).await.refused(400, "BadRequest", "error decoding patch");
    let lists = [
        (
            "append",
            json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "x/c" }]),
            json!(["x/a", "x/b", "x/c"]),
        ),
        (
            "insert",
            json!([{ "op": "add", "path": "/metadata/finalizers/0", "value": "x/0" }]),
            json!(["x/0", "x/a", "x/b", "x/c"]),
        ),
        ("negative", json!([{ "op": "remove", "path": "/metadata/finalizers/-1" }]), json!(["x/0", "x/a", "x/b"])),
    ];
    server.merge(&path, json!({ "metadata": { "finalizers": ["x/a", "x/b"] } })).await.expect(200);
    for (name, patch, finalizers) in lists {
        let patched = server.patch(&path, "json-patch+json", patch).await.expect(200);
        assert_eq!(patched["metadata"]["finalizers"], finalizers, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn merge_patches() {
    let server = Server::new();
    let path = format!("{MAPS}/a");
    server.post(MAPS, map("a")).await.expect(201);
    server.merge(&path, json!({ "data": { "k": "v", "l": "w" } })).await.expect(200);
    let patched = server.merge(&path, json!({ "data": { "k": null, "m": "x" } })).await.expect(200);
    assert_eq!(patched["data"], json!({ "l": "w", "m": "x" }));
    server.merge(&path, json!([])).await.refused(400, "BadRequest", "error decoding patch");
    server.merge(&path, json!({ "kind": "Secret" })).await.refused(422, "Invalid", "patch: Invalid value");
    server.merge(&path, json!({ "metadata": { "labels": [] } })).await.refused(422, "Invalid", "cannot unmarshal");
    server.merge(&path, json!({ "metadata": { "name": "b" } })).await.refused(400, "BadRequest", "does not match");
    server.merge(&format!("{MAPS}/zz"), json!({})).await.refused(404, "NotFound", "");
}

#[tokio::test(start_paused = true)]
async fn patch_types() {
    let server = Server::new();
    server.post(MAPS, map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let other = server.send("PATCH", &path, &[("content-type", "text/x")], "{}").await;
    other.refused(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    let apply = server.send("PATCH", &path, &[("content-type", "application/apply-patch+yaml")], "{}").await;
    apply.refused(415, "UnsupportedMediaType", "server-side apply is not supported");
}

/// Applies patches one after another to one object and checks one field.
async fn check(path: &str, object: Value, field: &str, steps: &[(&str, Value, Value)]) {
    let server = Server::new();
    server.make(path, object).await.expect(201);
    for (name, patch, want) in steps {
        let patched = server.smp(&format!("{path}/x"), patch.clone()).await.expect(200);
        assert_eq!(&bare(patched.pointer(field).unwrap_or(&Value::Null)), want, "{name}");
    }
}

/// Removes the defaults of containers.
fn bare(value: &Value) -> Value {
    let mut value = value.clone();
    for container in value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let filled = ["imagePullPolicy", "resources", "terminationMessagePath", "terminationMessagePolicy"];
        container.retain(|field, _| !filled.contains(&field.as_str()));
    }
    value
}

#[tokio::test(start_paused = true)]
async fn strategic_owner_references_merge_by_uid() {
    let owner = |uid: &str, kind: &str| json!({ "apiVersion": "v1", "kind": kind, "name": "n", "uid": uid });
    let object = json!({ "metadata": { "name": "x", "ownerReferences": [owner("u1", "Pod"), owner("u2", "Pod")] } });
    let patch = |list: Value| json!({ "metadata": { "ownerReferences": list } });
    check(
        PODS,
        object,
        "/metadata/ownerReferences",
        &[
            (
                "changes u2 and adds u3",
                patch(json!([owner("u2", "Node"), owner("u3", "Pod")])),
                json!([owner("u1", "Pod"), owner("u2", "Node"), owner("u3", "Pod")]),
            ),
            (
                "removes u1",
                patch(json!([{ "$patch": "delete", "uid": "u1" }])),
                json!([owner("u2", "Node"), owner("u3", "Pod")]),
            ),
            (
                "removing what is not there is fine",
                patch(json!([{ "$patch": "delete", "uid": "zz" }])),
                json!([owner("u2", "Node"), owner("u3", "Pod")]),
            ),
            ("replaces all", patch(json!([{ "$patch": "replace" }, owner("u4", "Pod")])), json!([owner("u4", "Pod")])),
            ("the last one takes the field along", patch(json!([{ "$patch": "delete", "uid": "u4" }])), Value::Null),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn strategic_finalizers_are_a_set() {
    let object = json!({ "metadata": { "name": "x", "finalizers": ["x/a", "x/b"] } });
    check(
        PODS,
        object,
        "/metadata/finalizers",
        &[
            ("adds in front", json!({ "metadata": { "finalizers": ["x/c", "x/a"] } }), json!(["x/c", "x/a", "x/b"])),
            (
                "removes by value",
                json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["x/a", "x/zz"] } }),
                json!(["x/c", "x/b"]),
            ),
            (
                "removes and adds",
                json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["x/b"], "finalizers": ["x/d"] } }),
                json!(["x/d", "x/c"]),
            ),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn strategic_containers_and_maps() {
    let spec = |it: Value| json!({ "spec": { "template": { "spec": it } } });
    let mut object = spec(json!({
        "nodeSelector": { "a": "1" },
        "tolerations": [{ "key": "t1" }, { "key": "t2" }],
        "containers": [{ "name": "c1", "image": "i" }, { "name": "c2", "image": "i", "args": ["1", "2"] }],
    }));
    object["metadata"] = json!({ "name": "x" });
    check(DEPLOYMENTS, object.clone(), "/spec/template/spec/containers", &[
        (
            "a new one lands in front",
            spec(json!({ "containers": [{ "name": "c3", "image": "i" }] })),
            json!([{ "name": "c3", "image": "i" }, { "name": "c1", "image": "i" }, { "name": "c2", "image": "i", "args": ["1", "2"] }]),
        ),
        (
            "other lists are replaced",
            spec(json!({ "containers": [{ "name": "c2", "args": ["3"] }, { "name": "c3", "$patch": "delete" }] })),
            json!([{ "name": "c1", "image": "i" }, { "name": "c2", "image": "i", "args": ["3"] }]),
        ),
    ])
    .await;
    check(
        DEPLOYMENTS,
        object.clone(),
        "/spec/template/spec/nodeSelector",
        &[
            ("merges", spec(json!({ "nodeSelector": { "b": "2" } })), json!({ "a": "1", "b": "2" })),
            ("null deletes", spec(json!({ "nodeSelector": { "a": null } })), json!({ "b": "2" })),
            ("replaces", spec(json!({ "nodeSelector": { "$patch": "replace", "c": "3" } })), json!({ "c": "3" })),
        ],
    )
    .await;
    let tolerations = spec(json!({ "tolerations": [{ "operator": "Exists" }] }));
    let replaced = ("replaced as a whole", tolerations, json!([{ "operator": "Exists" }]));
    check(DEPLOYMENTS, object, "/spec/template/spec/tolerations", &[replaced]).await;
}

#[tokio::test(start_paused = true)]
async fn strategic_env_of_templates() {
    let container =
        |env: Value| json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "env": env }] } } } });
    let mut object = container(json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]));
    object["metadata"] = json!({ "name": "x" });
    let patch = container(
        json!([{ "name": "A", "value": null, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } }, { "name": "C" }]),
    );
    let want = json!([{ "name": "A", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } }, { "name": "C" }, { "name": "B", "value": "2" }]);
    check(DEPLOYMENTS, object, "/spec/template/spec/containers/0/env", &[("A, C, B", patch, want)]).await;
}

#[tokio::test(start_paused = true)]
async fn strategic_conditions_merge_by_type_through_status() {
    let server = Server::new();
    server.make(PODS, json!({ "metadata": { "name": "x" } })).await.expect(201);
    let path = format!("{PODS}/x/status");
    let conditions = |list: Value| json!({ "status": { "conditions": list } });
    server.smp(&path, conditions(json!([{ "type": "A", "status": "True" }]))).await.expect(200);
    let patched = server.smp(&path, conditions(json!([{ "type": "B", "status": "True" }]))).await.expect(200);
    let said = |object: &Value| -> Vec<(Value, Value)> {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().map(|it| (it["type"].clone(), it["status"].clone())).collect()
    };
    assert_eq!(said(&patched), [(json!("B"), json!("True")), (json!("A"), json!("True"))]);
    let patched = server.smp(&path, conditions(json!([{ "type": "A", "status": "False" }]))).await.expect(200);
    assert_eq!(said(&patched)[1], (json!("A"), json!("False")));
    assert_eq!(patched["status"]["phase"], "Pending");
}

#[tokio::test(start_paused = true)]
async fn strategic_directives_that_are_refused() {
    let server = Server::new();
    let spec = json!({ "containers": [{ "name": "c" }], "nodeSelector": { "a": "1" } });
    let pod = json!({ "metadata": { "name": "x" }, "spec": spec });
    server.make(PODS, pod).await.expect(201);
    let path = format!("{PODS}/x");
    let cases = [
        (
            json!({ "spec": { "$setElementOrder/containers": [{ "name": "c" }], "containers": [{ "name": "d" }] } }),
            500,
            "",
            "The order in patch list:\n[map[name:d]]\n doesn't match $setElementOrder list:\n[map[name:c]]\n",
        ),
        (json!({ "spec": { "$retainKeys": ["a"], "b": 1 } }), 400, "BadRequest", "invalid patch format of retainKeys"),
        (json!({ "spec": { "containers": [{ "image": "i" }] } }), 500, "", "does not contain declared merge key: name"),
        (json!({ "spec": { "nodeSelector": { "$patch": "foo" } } }), 500, "", "unknown patch type: foo"),
    ];
    let before = server.cluster.version();
    for (patch, code, reason, message) in cases {
        server.smp(&path, patch).await.refused(code, reason, message);
    }
    assert_eq!(server.cluster.version(), before);
}
