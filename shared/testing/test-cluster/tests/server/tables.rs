use serde_json::{Value, json};

use crate::kit::{LEASES, MAPS, PODS, Server, map, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
    application/json";

fn columns(table: &Value) -> Vec<&str> {
    table["columnDefinitions"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_112_row_of_a_pod() {
    let server = Server::new();
    server.post(PODS, pod("p", "n1")).await.expect(201);
    tokio::time::advance(std::time::Duration::from_secs(125)).await;
    let table = server.get_as(&format!("{PODS}/p"), TABLE).await.expect(200);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let wanted = ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"];
    assert_eq!(columns(&table), wanted);
    let cells = json!(["p", "0/1", "Pending", "0", "2m5s", "<none>", "n1", "<none>", "<none>"]);
    assert_eq!(table["rows"][0]["cells"], cells);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["metadata"]["resourceVersion"], table["rows"][0]["object"]["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_114_object_of_a_row() {
    let server = Server::new();
    let empty = server.get_as(MAPS, TABLE).await.expect(200);
    assert_eq!((columns(&empty), &empty["rows"]), (vec!["Name", "Data", "Age"], &json!([])));
    server.post(MAPS, map("a")).await.expect(201);
    let beside = async |include: &str| {
        let table = server.get_as(&format!("{MAPS}?includeObject={include}"), TABLE).await.expect(200);
        table["rows"][0]["object"].clone()
    };
    assert_eq!(beside("None").await, Value::Null);
    assert_eq!(beside("Object").await["kind"], "ConfigMap");
    assert_eq!(beside("Metadata").await["apiVersion"], "meta.k8s.io/v1");
    let path = format!("{MAPS}?includeObject=Foo");
    server.get_as(&path, TABLE).await.refused(400, "BadRequest", "Unable to convert to Table as requested");
    server.get_as(&path, "application/json").await.expect(200);
    let missing = format!("{MAPS}/none?includeObject=Foo");
    server.get_as(&missing, TABLE).await.refused(404, "NotFound", "not found");
}

#[tokio::test(start_paused = true)]
async fn forms_of_tables() {
    let server = Server::new();
    let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let headers = [("accept", beta)];
    let created = server.send("POST", MAPS, &headers, map("a").to_string()).await.expect(201);
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1beta1")));
    assert_eq!(created["rows"][0]["cells"], json!(["a", 0, "0s"]));
    assert_eq!(created["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1");
    server.post(MAPS, map("b")).await.expect(201);
    let page = server.get_as(&format!("{MAPS}?limit=1"), TABLE).await.expect(200);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    assert!(page["metadata"]["continue"].is_string());
    let v2 = "application/json;as=Table;v=v2;g=meta.k8s.io";
    server.get_as(MAPS, v2).await.refused(406, "NotAcceptable", "only the following media types");
    assert_eq!(server.get_as(MAPS, &format!("{v2},application/json")).await.expect(200)["kind"], "ConfigMapList");
    let leases = server.get_as(LEASES, TABLE).await.expect(200);
    assert_eq!(columns(&leases), ["Name", "Holder", "Age"]);
}

#[tokio::test(start_paused = true)]
async fn watch_of_tables_sends_columns_once() {
    let server = Server::new();
    server.post(MAPS, map("a")).await.expect(201);
    let path = format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
    let mut watch = server.watch_as(&format!("{path}&includeObject=None"), TABLE).await;
    let (word, first) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), columns(&first)), ("ADDED", vec!["Name", "Data", "Age"]));
    assert_eq!(first["rows"][0], json!({ "cells": ["a", 0, "0s"], "object": null }));
    let (word, bookmark) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), &bookmark["columnDefinitions"]), ("BOOKMARK", &Value::Null));
    assert_eq!(bookmark["rows"][0]["cells"], json!(["", 0, "<unknown>"]));
    let annotations = &bookmark["rows"][0]["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    server.delete(&format!("{MAPS}/a"), Value::Null).await.expect(200);
    let (word, gone) = watch.next().await.unwrap();
    assert_eq!((word.as_str(), &gone["columnDefinitions"]), ("DELETED", &Value::Null));
    assert_eq!(gone["rows"][0]["cells"], json!(["a", 0, "30s"]), "as old as it is now");
}
