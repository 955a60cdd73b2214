use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{MAPS, NOW, Server, map};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const VIEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const HOUR: Duration = Duration::from_secs(3600);

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": name },
        "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" }, "firstTimestamp": NOW,
    })
}

#[tokio::test(start_paused = true)]
async fn event_is_removed_after_an_hour() {
    let server = Server::new();
    server.post(MAPS, map("a")).await.expect(201);
    server.post(EVENTS, event("e")).await.expect(201);
    server.cluster.create(json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "direct" } }));
    tokio::time::advance(HOUR - Duration::from_secs(1)).await;
    server.get(&format!("{EVENTS}/e")).await.expect(200);
    assert_eq!(server.cluster.list("events", "").len(), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(server.cluster.list("events", "").is_empty());
    for path in [EVENTS, VIEW] {
        server.get(&format!("{path}/e")).await.refused(404, "NotFound", "not found");
    }
    server.get(&format!("{MAPS}/a")).await.expect(200);
    // The name is free again.
    server.post(EVENTS, event("e")).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn open_watches_get_the_removal_of_an_expired_event() {
    let server = Server::new();
    let query = "watch=1&resourceVersion=0&timeoutSeconds=20000";
    let mut core = server.watch(&format!("{EVENTS}?{query}")).await;
    let mut view = server.watch(&format!("{VIEW}?{query}")).await;
    let began = server.clock.now();
    server.post(EVENTS, event("e")).await.expect(201);
    server.post(EVENTS, event("f")).await.expect(201);
    let written = server.cluster.version();
    assert_eq!(core.names(2).await, ["ADDED e", "ADDED f"]);
    tokio::time::advance(HOUR / 2).await;
    let late = json!({ "count": 2 }).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    server.send("PATCH", &format!("{EVENTS}/e"), &merge, late).await.expect(200);
    assert_eq!(core.names(2).await, ["MODIFIED e", "DELETED f"]);
    let passed = server.clock.now() - began;
    assert_eq!(passed.as_secs(), 3600, "an open watch alone expires it, at the right time");
    // A change of an event extends its lifetime by an hour.
    let (word, last) = core.next().await.unwrap();
    assert_eq!((word.as_str(), &last["metadata"]["name"], &last["count"]), ("DELETED", &json!("e"), &json!(2)));
    assert_eq!((server.clock.now() - began).as_secs(), 5400);
    assert_eq!(server.cluster.version(), written + 3, "each removal has a version of its own");
    assert_eq!(view.names(5).await, ["ADDED e", "ADDED f", "MODIFIED e", "DELETED f", "DELETED e"]);
}

#[tokio::test(start_paused = true)]
async fn recreated_event_has_a_new_lifetime() {
    let server = Server::new();
    server.post(EVENTS, event("e")).await.expect(201);
    tokio::time::advance(HOUR / 2).await;
    server.cluster.delete("events", "default", "e");
    server.post(EVENTS, event("e")).await.expect(201);
    tokio::time::advance(HOUR / 2).await;
    server.get(&format!("{EVENTS}/e")).await.expect(200);
    tokio::time::advance(HOUR / 2).await;
    server.get(&format!("{EVENTS}/e")).await.refused(404, "NotFound", "not found");
}
