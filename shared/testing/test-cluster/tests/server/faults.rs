use std::time::Duration;

use serde_json::json;
use test_cluster::Interception;

use crate::kit::{MAPS, NOW, PODS, Server, map, version};

#[tokio::test(start_paused = true)]
async fn requests_are_recorded_with_their_answers() {
    let server = Server::new();
    server.send("POST", MAPS, &[("user-agent", "kcm/1")], map("a").to_string()).await.expect(201);
    server.get(&format!("{MAPS}/zz?x=1&y=a%20b")).await;
    let calls = server.cluster.requests();
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[0].method.as_str(), calls[0].path.as_str(), calls[0].status), ("POST", MAPS, 201));
    assert_eq!((calls[0].user_agent.as_str(), calls[0].verb), ("kcm/1", "create"));
    assert_eq!(calls[0].json(), map("a"));
    let place = (calls[1].verb, calls[1].resource.as_str(), calls[1].namespace.as_str(), calls[1].name.as_str());
    assert_eq!(place, ("get", "configmaps", "default", "zz"));
    assert_eq!((calls[1].query.as_str(), calls[1].status), ("x=1&y=a%20b", 404));
    assert_eq!(calls[1].parameter("y"), "a b");
    server.cluster.clear_requests();
    assert!(server.cluster.requests().is_empty());
    server.cluster.set_recording(false);
    server.get(MAPS).await;
    assert!(server.cluster.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn verdicts() {
    let server = Server::new();
    server.cluster.intercept(|call| match call.name.as_str() {
        "busy" => Interception::status(429, "TooManyRequests", "slow down").retry_after(3),
        "text" => Interception::text(503, "service unavailable"),
        "fail" => Interception::Fail,
        "hang" => Interception::Hang,
        "slow" => Interception::Delay(Duration::from_secs(5)),
        "late" => Interception::DelayAnswer(Duration::from_secs(5)),
        _ if call.verb == "create" => Interception::LoseAnswer,
        _ => Interception::Pass,
    });
    let busy = server.get(&format!("{MAPS}/busy")).await;
    assert_eq!(busy.header("retry-after"), "3");
    let status = busy.refused(429, "TooManyRequests", "slow down");
    assert_eq!(status["details"]["retryAfterSeconds"], 3);
    let text = server.get(&format!("{MAPS}/text")).await;
    assert_eq!((text.code, &text.text[..]), (503, &b"service unavailable"[..]));

    assert!(server.try_send("POST", MAPS, &[], map("lost").to_string()).await.is_err());
    assert!(server.cluster.get("ConfigMap", "default", "lost").is_some(), "served, but the answer is lost");
    assert!(server.try_send("PUT", &format!("{MAPS}/fail"), &[], "{}").await.is_err());
    let path = format!("{MAPS}/hang");
    let hang = server.try_send("GET", &path, &[], "");
    assert!(tokio::time::timeout(Duration::from_secs(3600), hang).await.is_err());

    let start = server.clock.now();
    for (name, seen) in [("slow", true), ("late", false)] {
        let path = format!("{MAPS}/{name}");
        let read = server.get(&path);
        let write = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.cluster.create(map(name));
        };
        let (answer, ()) = tokio::join!(read, write);
        assert_eq!(answer.code == 200, seen, "{name}");
    }
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    let unanswered = server.cluster.requests().iter().filter(|it| it.status == 0).count();
    assert_eq!(unanswered, 3, "lost, failed, hanging");
    server.cluster.stop_intercepting();
    server.post(MAPS, map("ok")).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn frozen_watches_are_silent_and_continue_when_unfrozen() {
    let server = Server::new();
    let from = server.cluster.version();
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds=30");
    let mut frozen = server.watch(&path).await;
    server.cluster.freeze_watches("configmaps");
    server.cluster.create(map("a"));
    server.cluster.send_bookmarks();
    let mut later = server.watch(&path).await;
    assert_eq!(later.names(1).await, ["ADDED a"], "a watch opened later works");
    assert!(tokio::time::timeout(Duration::from_secs(3600), frozen.next()).await.is_err(), "not even its end comes");
    server.cluster.unfreeze_watches("configmaps");
    assert_eq!(frozen.names(1).await, ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn broken_and_ended_watches() {
    let server = Server::new();
    let from = server.cluster.version();
    let maps = format!("{MAPS}?watch=1&resourceVersion={from}");
    let (mut first, mut pods) = (server.watch(&maps).await, server.watch(&format!("{PODS}?watch=1")).await);
    server.cluster.break_watches("configmaps");
    assert!(first.try_next().await.unwrap().is_err());
    assert!(first.try_next().await.is_none());
    let mut second = server.watch(&maps).await;
    server.cluster.end_watches("configmaps");
    assert!(second.next().await.is_none());
    assert!(pods.is_silent().await, "watches of other resources are not affected");
}

#[tokio::test(start_paused = true)]
async fn direct_access_is_not_validated() {
    let server = Server::new();
    let mut object = map("a");
    object["metadata"]["namespace"] = json!("nowhere");
    object["metadata"]["finalizers"] = json!(["x/y"]);
    let created = server.cluster.create(object);
    assert_eq!(version(&created), server.cluster.version());
    server.cluster.delete("configmaps", "nowhere", "a");
    let held = server.cluster.get("configmaps", "nowhere", "a").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    server.cluster.update("configmaps", "nowhere", "a", |it| it["metadata"]["finalizers"] = json!(null));
    assert!(server.cluster.get("configmaps", "nowhere", "a").is_none());
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "spec": { "parallelism": 1 },
        "metadata": { "name": "j", "namespace": "default", "uid": "given", "deletionTimestamp": NOW, "finalizers": ["x/y"] },
    });
    let created = server.cluster.create(job);
    assert_eq!(
        (&created["metadata"]["uid"], &created["metadata"]["deletionTimestamp"]),
        (&json!("given"), &json!(NOW))
    );
    let changed = server.cluster.update("jobs", "default", "j", |it| it["spec"]["parallelism"] = json!(2));
    assert_eq!(changed["metadata"]["generation"], 2);
    server.cluster.create(map("b"));
    server.cluster.remove("configmaps", "default", "b");
    server.cluster.remove("configmaps", "default", "b");
    assert!(server.cluster.list("configmaps", "").is_empty());
}
