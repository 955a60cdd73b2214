use std::time::Duration;

use serde_json::json;

use crate::kit::{MAPS, PODS, Server, map, names, pod, version};

fn in_namespace(namespace: &str, name: &str) -> serde_json::Value {
    let mut body = map(name);
    body["metadata"]["namespace"] = json!(namespace);
    body
}

#[tokio::test(start_paused = true)]
async fn lists_are_in_the_order_of_storage_keys() {
    let server = Server::new();
    for namespace in ["la", "la-b"] {
        for name in ["a-b", "a.b", "a"] {
            server.cluster.create(in_namespace(namespace, name));
        }
    }
    let all = server.get("/api/v1/configmaps").await.expect(200);
    assert_eq!(names(&all), ["a", "a-b", "a.b", "a", "a-b", "a.b"]);
    assert_eq!(all["items"][0]["metadata"]["namespace"], "la-b");
    let one = server.get("/api/v1/namespaces/la/configmaps").await.expect(200);
    assert_eq!(one["items"].as_array().unwrap().len(), 3);
    let none = server.get("/api/v1/namespaces/nons/configmaps").await.expect(200);
    assert_eq!((&none["items"], version(&none)), (&json!([]), server.cluster.version()));
    assert_eq!(server.get("/api/v1/namespaces//configmaps/").await.expect(200), all);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_state() {
    let server = Server::new();
    for name in ["a", "b", "c", "d"] {
        server.cluster.create(map(name));
    }
    let first = server.get(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.cluster.create(map("bb"));
    server.cluster.delete("configmaps", "default", "d");
    server.cluster.update("configmaps", "default", "c", |it| it["data"] = json!({ "new": "1" }));
    let second = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(200);
    assert_eq!(names(&second), ["c", "d"], "the old state");
    assert!(second["items"][0]["data"].is_null());
    assert_eq!(version(&second), version(&first));
    assert!(second["metadata"]["continue"].is_null());
    assert_eq!(names(&server.get(MAPS).await.expect(200)), ["a", "b", "bb", "c"]);

    let selected = server.get(&format!("{MAPS}?limit=2&labelSelector=!x")).await.expect(200);
    assert!(selected["metadata"]["continue"].is_string() && selected["metadata"]["remainingItemCount"].is_null());
    let cases = [
        (format!("{MAPS}?continue={token}&resourceVersion=5"), "specifying resource version is not allowed"),
        (format!("{MAPS}?continue=garbage"), "invalid continue token"),
        (format!("{MAPS}?continue=v1.x.61"), "invalid continue token"),
    ];
    for (path, message) in cases {
        server.get(&path).await.refused(400, "BadRequest", message);
    }
}

#[tokio::test(start_paused = true)]
async fn compaction_expires_tokens_and_exact_versions() {
    let server = Server::new();
    for name in ["a", "b", "c"] {
        server.cluster.create(map(name));
    }
    let first = server.get(&format!("{MAPS}?limit=1")).await.expect(200);
    let (old, token) = (version(&first), first["metadata"]["continue"].as_str().unwrap());
    server.cluster.delete("configmaps", "default", "b");
    server.cluster.compact();
    let expired = server.get(&format!("{MAPS}?limit=1&continue={token}")).await;
    let expired = expired.refused(410, "Expired", "The provided continue parameter is too old");
    let rest = expired["metadata"]["continue"].as_str().unwrap();
    let page = server.get(&format!("{MAPS}?continue={rest}")).await.expect(200);
    assert_eq!((names(&page), version(&page)), (vec!["c"], server.cluster.version()));
    for query in ["resourceVersionMatch=Exact", "limit=1"] {
        let path = format!("{MAPS}?resourceVersion={old}&{query}");
        server.get(&path).await.refused(410, "Expired", "The resourceVersion for the provided list is too old.");
    }
}

#[tokio::test(start_paused = true)]
async fn versions_and_matches() {
    let server = Server::new();
    server.cluster.create(map("a"));
    let old = server.cluster.version();
    server.cluster.create(map("b"));
    let cases = [
        ("resourceVersion=0&limit=1".to_owned(), vec!["a", "b"]),
        (format!("resourceVersion={old}"), vec!["a", "b"]),
        (format!("resourceVersion={old}&limit=5"), vec!["a"]),
        (format!("resourceVersion={old}&resourceVersionMatch=Exact"), vec!["a"]),
        (format!("resourceVersion={old}&limit=5&resourceVersionMatch=NotOlderThan"), vec!["a", "b"]),
    ];
    for (query, want) in cases {
        let list = server.get(&format!("{MAPS}?{query}")).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
        assert!(list["metadata"]["continue"].is_null(), "{query}");
    }
    let refused = [
        ("resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422, "forbidden for resourceVersion"),
        ("resourceVersionMatch=Foo&resourceVersion=1", 422, "supported values"),
        ("resourceVersionMatch=Exact&resourceVersion=1&continue=x", 422, "forbidden when continue is provided"),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("resourceVersion=abc", 400, "invalid resource version"),
        ("limit=x", 400, "strconv.ParseInt"),
    ];
    for (query, code, message) in refused {
        let reason = if code == 400 { "BadRequest" } else { "Invalid" };
        server.get(&format!("{MAPS}?{query}")).await.refused(code, reason, message);
    }
    server.get(&format!("{MAPS}/a?resourceVersion=abc")).await.refused(500, "", "strconv.ParseUint");
}

#[tokio::test(start_paused = true)]
async fn a_version_in_the_future_is_waited_for() {
    let server = Server::new();
    server.cluster.create(map("a"));
    let start = server.clock.now();
    for path in [format!("{MAPS}?resourceVersion=99999999"), format!("{MAPS}/a?resourceVersion=99999999")] {
        let answer = server.get(&path).await;
        assert_eq!(answer.header("retry-after"), "1");
        let status = answer.refused(504, "Timeout", "Too large resource version: 99999999");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
    }
    assert_eq!(start.elapsed(), Duration::from_secs(6));

    let next = server.cluster.version() + 1;
    let path = format!("{MAPS}?resourceVersion={next}");
    let read = server.get(&path);
    let write = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.cluster.create(map("b"));
    };
    let (list, ()) = tokio::join!(read, write);
    assert_eq!(names(&list.expect(200)), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn label_selectors() {
    let server = Server::new();
    for (name, labels) in [("none", json!({})), ("v", json!({ "k": "v" })), ("n5", json!({ "k": "5", "e": "" }))] {
        let mut body = map(name);
        body["metadata"]["labels"] = labels;
        server.cluster.create(body);
    }
    let cases: [(&str, &[&str]); 12] = [
        ("k", &["n5", "v"]),
        ("!k", &["none"]),
        ("k=v", &["v"]),
        ("k==v", &["v"]),
        ("k!=v", &["n5", "none"]),
        ("k in (a,v)", &["v"]),
        ("k in (v, 5),e", &["n5"]),
        ("k notin (v)", &["n5", "none"]),
        ("e=", &["n5"]),
        ("k>4", &["n5"]),
        ("k<5", &[]),
        (" k = v ", &["v"]),
    ];
    for (selector, want) in cases {
        let encoded: String = selector.bytes().map(|it| format!("%{it:02X}")).collect();
        let list = server.get(&format!("{MAPS}?labelSelector={encoded}")).await.expect(200);
        assert_eq!(names(&list), want, "{selector}");
    }
    for selector in ["a%3D%3D%3Db", "%20,", "a%20like%20b", "a%20in%20b", "a%3Ex"] {
        let answer = server.get(&format!("{MAPS}?labelSelector={selector}")).await;
        answer.refused(400, "BadRequest", "unable to parse requirement");
    }
}

#[tokio::test(start_paused = true)]
async fn field_selectors() {
    let server = Server::new();
    server.cluster.create(pod("a", "n1"));
    let mut running = pod("b", "n2");
    running["status"] = json!({ "phase": "Running" });
    server.cluster.create(running);
    server.cluster.create(pod("c", ""));
    let cases: [(&str, &[&str]); 6] = [
        ("spec.nodeName=n1", &["a"]),
        ("spec.nodeName=", &["c"]),
        ("status.phase!=Running", &["a", "c"]),
        ("status.phase!=Running,spec.nodeName!=n1", &["c"]),
        ("metadata.name==b", &["b"]),
        ("metadata.namespace=other", &[]),
    ];
    for (selector, want) in cases {
        let list = server.get(&format!("{PODS}?fieldSelector={selector}")).await.expect(200);
        assert_eq!(names(&list), want, "{selector}");
    }
    let refused = [
        ("foo=bar", "BadRequest", "field label not supported: foo", 400),
        ("foo", "BadRequest", "can't understand 'foo'", 400),
    ];
    for (selector, reason, message, code) in refused {
        server.get(&format!("{PODS}?fieldSelector={selector}")).await.refused(code, reason, message);
    }
    server.get("/api/v1/nodes?fieldSelector=metadata.namespace=x").await.refused(400, "BadRequest", "not supported");
    let free = server.get("/api/v1/nodes?fieldSelector=spec.unschedulable=false").await.expect(200);
    assert_eq!(names(&free), [""; 0]);
}
