use serde_json::json;

use crate::kit::Server;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const EVENTS_VIEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const AUTOSCALERS: &str = "namespaces/default/horizontalpodautoscalers";

#[tokio::test(start_paused = true)]
async fn one_event_shows_in_both_groups() {
    let server = Server::new();
    let event = json!({
        "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "name": "p", "namespace": "default" },
        "message": "m", "count": 2, "source": { "component": "c" },
    });
    let created = server.post(EVENTS, event).await.expect(201);
    let view = server.get(&format!("{EVENTS_VIEW}/e")).await.expect(200);
    assert_eq!((&view["apiVersion"], &view["note"]), (&json!("events.k8s.io/v1"), &json!("m")));
    assert_eq!((&view["regarding"]["name"], &view["deprecatedCount"]), (&json!("p"), &json!(2)));
    assert_eq!(view["metadata"]["uid"], created["metadata"]["uid"]);
    assert!(view["message"].is_null());

    let patch = json!({ "metadata": { "labels": { "a": "b" } } });
    let patched = server.merge(&format!("{EVENTS_VIEW}/e"), patch).await.expect(200);
    assert_eq!(patched["apiVersion"], "events.k8s.io/v1");
    let core = server.get(&format!("{EVENTS}/e")).await.expect(200);
    assert_eq!((&core["message"], &core["metadata"]["labels"]["a"]), (&json!("m"), &json!("b")));

    for (path, selector, found) in [
        (EVENTS, "involvedObject.name=p", 1),
        (EVENTS, "involvedObject.name=q", 0),
        (EVENTS_VIEW, "regarding.name=p", 1),
        (EVENTS_VIEW, "regarding.name=q", 0),
    ] {
        let list = server.get(&format!("{path}?fieldSelector={selector}")).await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), found, "{selector}");
    }
    assert_eq!(server.get(&format!("{EVENTS_VIEW}?fieldSelector=involvedObject.name=p")).await.code, 400);
    let missing = server.get(&format!("{EVENTS_VIEW}/x")).await;
    missing.refused(404, "NotFound", r#"events.events.k8s.io "x" not found"#);
}

#[tokio::test(start_paused = true)]
async fn one_autoscaler_shows_in_both_versions() {
    let server = Server::new();
    let target = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
    let spec = json!({ "maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 60 });
    let body = json!({ "metadata": { "name": "h" }, "spec": spec });
    let first = server.post(&format!("/apis/autoscaling/v1/{AUTOSCALERS}"), body).await.expect(201);
    assert_eq!(first["spec"]["targetCPUUtilizationPercentage"], 60);
    let second = server.get(&format!("/apis/autoscaling/v2/{AUTOSCALERS}/h")).await.expect(200);
    assert_eq!(second["apiVersion"], "autoscaling/v2");
    assert_eq!(second["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    assert!(second["spec"]["targetCPUUtilizationPercentage"].is_null());
}

#[tokio::test(start_paused = true)]
async fn reviews_are_answered_and_not_stored() {
    let server = Server::new();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = server.post(path, json!({ "spec": { "resourceAttributes": { "verb": "get" } } })).await.expect(201);
    assert_eq!(review["status"]["allowed"], true);
    assert_eq!(server.get(path).await.code, 405);
}
