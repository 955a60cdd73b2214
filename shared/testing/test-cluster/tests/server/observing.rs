use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use test_cluster::{Change, Written};

use crate::kit::{MAPS, Server, map};

type Told = Arc<Mutex<Vec<String>>>;

fn tell(told: &Told, it: &Written) {
    let data = |state: Option<serde_json::Value>| state.map_or("-".to_owned(), |it| it["data"]["k"].to_string());
    let (resource, namespace, name) = (it.resource(), it.namespace(), it.name());
    let change = match it.change() {
        Change::Added => "added",
        Change::Modified => "modified",
        Change::Removed => "removed",
    };
    let by = it.user_agent().unwrap_or("direct");
    told.lock().push(format!(
        "{} {change} {resource} {namespace}/{name} {} {} by {by}",
        it.version(),
        data(it.before()),
        data(it.after())
    ));
}

#[tokio::test(start_paused = true)]
async fn every_write_is_reported_in_order_with_its_user_agent() {
    let server = Server::new();
    let told = Told::default();
    let ours = told.clone();
    server.cluster.observe(move |it| tell(&ours, it));
    let from = server.cluster.version();
    let agent = [("user-agent", "kcm/1")];
    server.send("POST", MAPS, &agent, r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#).await.expect(201);
    server.cluster.update("configmaps", "default", "a", |it| it["data"]["k"] = json!("2"));
    server.send("PUT", &format!("{MAPS}/a"), &agent, r#"{"metadata":{"name":"a"},"data":{"k":"2"}}"#).await.expect(200);
    server.send("DELETE", &format!("{MAPS}/a"), &[], "").await.expect(200);
    let want = [
        format!("{} added configmaps default/a - \"1\" by kcm/1", from + 1),
        format!("{} modified configmaps default/a \"1\" \"2\" by direct", from + 2),
        format!("{} removed configmaps default/a \"2\" - by ", from + 3),
    ];
    assert_eq!(*told.lock(), want, "an update that changes nothing is no write");
}

#[tokio::test(start_paused = true)]
async fn observer_reads_the_cluster_after_the_write() {
    let server = Server::new();
    let told = Told::default();
    let ours = told.clone();
    server.cluster.observe(move |it| {
        let names: Vec<String> = it
            .list("configmaps", "default")
            .iter()
            .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(it.get("configmaps", it.namespace(), it.name()), it.after());
        ours.lock().push(names.join(","));
    });
    server.cluster.create(map("a"));
    server.cluster.create(map("b"));
    server.cluster.delete("configmaps", "default", "a");
    assert_eq!(*told.lock(), ["a", "a,b", "b"]);
}
