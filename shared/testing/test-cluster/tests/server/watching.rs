use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{MAPS, META, PODS, Server, map, pod, version};

const ANNOTATION: &str = "k8s.io/initial-events-end";

fn label(server: &Server, name: &str, value: &str) -> Value {
    server.cluster.update("configmaps", "default", name, |it| it["metadata"]["labels"] = json!({ "x": value }))
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_version_gets_only_later_changes() {
    let server = Server::new();
    server.cluster.create(map("a"));
    let from = server.cluster.version();
    let mut watch = server.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
    assert!(watch.is_silent().await);
    server.cluster.create(map("b"));
    label(&server, "a", "1");
    server.cluster.delete("configmaps", "default", "b");
    server.cluster.create(pod("other", ""));
    assert_eq!(watch.names(3).await, ["ADDED b", "MODIFIED a", "DELETED b"]);
    assert!(watch.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn restored_objects_have_their_old_versions_and_give_no_events() {
    let server = Server::new();
    let a = server.cluster.create(map("a"));
    let snapshot = server.cluster.snapshot();
    server.cluster.remove("configmaps", "default", "a");
    let b = server.cluster.create(map("b"));
    let from = |object: &Value| format!("{MAPS}?watch=1&resourceVersion={}", version(object));
    let mut watch = server.watch(&from(&b)).await;
    server.cluster.restore(&snapshot);
    let stored = |name: &str| server.cluster.get("configmaps", "default", name);
    assert_eq!((stored("a").map(|it| version(&it)), stored("b")), (Some(version(&a)), None));
    let (word, object) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), &object["code"]), ("ERROR", &json!(410)));
    let c = server.cluster.create(map("c"));
    assert!(version(&c) > version(&b));
    // The other way versions begin again, and a watch waits for what is to come.
    let mut watch = server.watch(&from(&c)).await;
    server.cluster.restore_versions_too(&snapshot);
    assert_eq!(version(&server.cluster.create(map("d"))), version(&a) + 1);
    assert!(watch.is_silent().await);
    let mut watch = server.watch(&from(&c)).await;
    assert!(watch.is_silent().await);
    let mut set = server.watch(&format!("{}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", from(&c))).await;
    let (word, object) = set.next().await.unwrap();
    assert_eq!((word.as_str(), &object["code"]), ("ERROR", &json!(504)));
}

#[tokio::test(start_paused = true)]
async fn streamed_list_ends_with_its_bookmark() {
    let server = Server::new();
    server.cluster.create(map("a"));
    server.cluster.compact();
    let stream = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for (accept, kind) in [("application/json", "ConfigMap"), (META, "PartialObjectMetadata")] {
        for start in ["", "&resourceVersion=0", "&resourceVersion=1"] {
            let mut watch = server.watch_as(&format!("{MAPS}?{stream}{start}"), accept).await;
            let now = server.cluster.version();
            let other = server.cluster.create(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "late" }
            }));
            let (word, object) = watch.next().await.unwrap();
            assert_eq!((word.as_str(), &object["kind"]), ("ADDED", &json!(kind)));
            let (word, bookmark) = watch.next().await.unwrap();
            assert_eq!((word.as_str(), &bookmark["kind"], version(&bookmark)), ("BOOKMARK", &json!(kind), now));
            assert_eq!(bookmark["metadata"]["annotations"][ANNOTATION], "true");
            let (word, object) = watch.next().await.unwrap();
            assert_eq!((word.as_str(), version(&object)), ("ADDED", version(&other)));
            server.cluster.delete("configmaps", "default", "late");
        }
    }
    let quiet = stream.replace("&allowWatchBookmarks=true", "");
    let mut watch = server.watch(&format!("{MAPS}?{quiet}")).await;
    assert_eq!(watch.names(1).await, ["ADDED a"]);
    assert!(watch.is_silent().await);
    let none = stream.replace("=true&resource", "=false&resource");
    let mut watch = server.watch(&format!("{MAPS}?{none}")).await;
    assert!(watch.is_silent().await);
    server.cluster.create(map("b"));
    assert_eq!(watch.names(1).await, ["ADDED b"]);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_cleanly_after_its_timeout() {
    let server = Server::new();
    let start = server.clock.now();
    let from = server.cluster.version();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=7")).await;
    assert!(watch.next().await.is_none());
    assert_eq!(start.elapsed(), Duration::from_secs(7));
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    assert!(watch.next().await.is_none());
    let long = start.elapsed().as_secs();
    assert!((1807..=3607).contains(&long), "{long}");
}

#[tokio::test(start_paused = true)]
async fn old_versions_are_refused_in_the_stream() {
    let server = Server::new();
    server.cluster.create(map("a"));
    let old = server.cluster.version();
    server.cluster.create(map("b"));
    let mut open = server.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    server.cluster.compact();
    let now = server.cluster.version();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    let (word, status) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    assert_eq!(status["message"], format!("too old resource version: {old} ({now})"));
    assert!(watch.next().await.is_none());
    assert_eq!(open.names(1).await, ["ADDED b"], "an open watch is not affected");
    let mut fresh = server.watch(&format!("{MAPS}?watch=1&resourceVersion={now}")).await;
    assert!(fresh.is_silent().await);
    let mut events = server.watch(&format!("/api/v1/events?watch=1&resourceVersion={old}")).await;
    let (_, status) = events.next().await.unwrap();
    assert_eq!(status["message"], "The resourceVersion for the provided watch is too old.");
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded() {
    let server = Server::with(test_cluster::Options { history: 10, ..Default::default() });
    server.cluster.create(map("a"));
    let from = server.cluster.version();
    let path = format!("{MAPS}?watch=1&resourceVersion={from}");
    let mut slow = server.watch(&path).await;
    for at in 0..20 {
        label(&server, "a", &at.to_string());
    }
    for mut watch in [server.watch(&path).await, slow_of(&mut slow).await] {
        let (word, status) = watch.next().await.unwrap();
        assert_eq!((word.as_str(), &status["code"]), ("ERROR", &json!(410)));
        assert!(watch.next().await.is_none());
    }
}

async fn slow_of(watch: &mut crate::kit::Watch) -> crate::kit::Watch {
    std::mem::replace(watch, Server::new().watch(&format!("{MAPS}?watch=1")).await)
}

#[tokio::test(start_paused = true)]
async fn versions_in_the_future() {
    let server = Server::new();
    let next = server.cluster.version() + 2;
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={next}")).await;
    for name in ["a", "b", "c"] {
        server.cluster.create(map(name));
    }
    assert_eq!(watch.names(1).await, ["ADDED c"], "changes up to the version are skipped");
    let stream = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999";
    let start = server.clock.now();
    let mut watch = server.watch(&format!("{MAPS}?{stream}")).await;
    let (word, status) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), &status["code"]), ("ERROR", &json!(504)));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn change_of_selector_match_gives_added_or_deleted() {
    let server = Server::new();
    server.cluster.create(map("a"));
    let first = label(&server, "a", "1");
    let path = format!("{MAPS}?watch=1&labelSelector=x%3D1&resourceVersion={}", version(&first));
    let mut watch = server.watch(&path).await;
    let left = label(&server, "a", "2");
    label(&server, "a", "3");
    let back = label(&server, "a", "1");
    let (word, object) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), version(&object)), ("DELETED", version(&left)));
    assert_eq!(object["metadata"]["labels"]["x"], "1", "the last matching state");
    let (word, object) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), version(&object)), ("ADDED", version(&back)));
    server.cluster.delete("configmaps", "default", "a");
    assert_eq!(watch.names(1).await, ["DELETED a"]);

    server.cluster.create(pod("p", "n"));
    let from = server.cluster.version();
    let path = format!("{PODS}?watch=1&fieldSelector=status.phase=Pending&resourceVersion={from}");
    let mut watch = server.watch(&path).await;
    for phase in ["Running", "Pending"] {
        server.cluster.update("pods", "default", "p", |it| it["status"]["phase"] = json!(phase));
    }
    assert_eq!(watch.names(2).await, ["DELETED p", "ADDED p"]);
}

#[tokio::test(start_paused = true)]
async fn watch_is_limited_to_namespace_or_name() {
    let server = Server::new();
    let from = server.cluster.version();
    let mut narrow = server.watch(&format!("/api/v1/namespaces/ns/configmaps?watch=1&resourceVersion={from}")).await;
    let mut all = server.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={from}")).await;
    let named = "fieldSelector=metadata.name%3Da";
    let mut one = server.watch(&format!("{MAPS}?watch=1&{named}&resourceVersion={from}")).await;
    for (namespace, name) in [("default", "a"), ("ns", "b"), ("ns-c", "c")] {
        let mut body = map(name);
        body["metadata"]["namespace"] = json!(namespace);
        server.cluster.create(body);
    }
    assert_eq!(narrow.names(1).await, ["ADDED b"]);
    assert!(narrow.is_silent().await);
    assert_eq!(all.names(3).await, ["ADDED a", "ADDED b", "ADDED c"]);
    assert_eq!(one.names(1).await, ["ADDED a"]);
    assert!(one.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_on_demand_every_minute_and_before_the_end() {
    let server = Server::new();
    let from = server.cluster.version();
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds=90");
    let start = server.clock.now();
    let mut watch = server.watch(&path).await;
    let mut plain = server.watch(&path.replace("&allowWatchBookmarks=true", "")).await;
    server.cluster.send_bookmarks();
    assert!(watch.is_silent().await, "a bookmark of the version it started at is dropped");
    server.cluster.create(pod("elsewhere", ""));
    server.cluster.send_bookmarks();
    let (word, bookmark) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), version(&bookmark)), ("BOOKMARK", server.cluster.version()));
    assert!(watch.is_silent().await);
    for seconds in [60, 88] {
        assert_eq!(watch.next().await.unwrap().0, "BOOKMARK");
        assert_eq!(start.elapsed(), Duration::from_secs(seconds));
    }
    assert!(watch.next().await.is_none());
    assert!(plain.next().await.is_none());
    assert_eq!(start.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn bookmark_never_precedes_an_earlier_event() {
    let server = Server::new();
    let from = server.cluster.version();
    let mut watch = server.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}")).await;
    for at in 0..600 {
        server.cluster.create(map(&format!("m{at}")));
    }
    server.cluster.send_bookmarks();
    for at in 0..600 {
        assert_eq!(watch.names(1).await, [format!("ADDED m{at}")]);
    }
    assert_eq!(watch.next().await.unwrap().0, "BOOKMARK");
}
