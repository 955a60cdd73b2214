use std::time::Duration;

use serde_json::json;

use crate::kit::{MAPS, Server, map, names, version};

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
    assert_eq!(names(&second), ["c", "d"], "the state of the first page");
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
async fn list_waits_for_future_version() {
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
