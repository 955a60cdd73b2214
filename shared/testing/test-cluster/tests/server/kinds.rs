use serde_json::{Value, json};

use crate::kit::Server;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const EVENTS_VIEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const AUTOSCALERS: &str = "namespaces/default/horizontalpodautoscalers";

#[tokio::test(start_paused = true)]
async fn event_is_served_in_both_groups() {
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
async fn autoscaler_is_served_in_both_versions() {
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

const PODS: &str = "/api/v1/namespaces/default/pods";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";

fn template() -> Value {
    json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } })
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_103_defaults_of_a_pod() {
    let server = Server::new();
    let body = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let pod = server.post(PODS, body).await.expect(201);
    let spec = &pod["spec"];
    assert_eq!((&spec["priority"], &spec["enableServiceLinks"]), (&json!(0), &json!(true)));
    assert_eq!((&pod["status"]["phase"], &pod["status"]["qosClass"]), (&json!("Pending"), &json!("BestEffort")));
    let tolerations = spec["tolerations"].as_array().unwrap();
    let keys: Vec<_> = tolerations.iter().map(|it| (it["key"].as_str().unwrap(), &it["tolerationSeconds"])).collect();
    let both = [("node.kubernetes.io/not-ready", &json!(300)), ("node.kubernetes.io/unreachable", &json!(300))];
    assert_eq!(keys, both);
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");

    for (requests, limits, class) in [
        (json!({ "cpu": "1" }), json!({}), "Burstable"),
        (json!({}), json!({ "cpu": "1", "memory": "1Gi" }), "Guaranteed"),
        (json!({ "cpu": "0" }), json!({}), "BestEffort"),
    ] {
        let name = class.to_lowercase();
        let container = json!({ "name": "c", "image": "x:1", "resources": { "requests": requests, "limits": limits } });
        let body = json!({ "metadata": { "name": name }, "spec": { "containers": [container] } });
        let pod = server.post(PODS, body).await.expect(201);
        assert_eq!(pod["status"]["qosClass"], class);
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_104_defaults_of_workloads() {
    let server = Server::new();
    let selector = json!({ "matchLabels": { "a": "b" } });
    let body = json!({ "metadata": { "name": "x" }, "spec": { "selector": selector, "template": template() } });
    let wanted = [
        ("deployments", json!({ "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600 })),
        ("replicasets", json!({ "replicas": 1 })),
        ("statefulsets", json!({ "replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10 })),
        ("daemonsets", json!({ "revisionHistoryLimit": 10 })),
    ];
    for (resource, fields) in wanted {
        let stored = server.post(&format!("{APPS}/{resource}"), body.clone()).await.expect(201);
        for (field, value) in fields.as_object().unwrap() {
            assert_eq!(&stored["spec"][field], value, "{resource} {field}");
        }
        let pod = &stored["spec"]["template"]["spec"];
        assert_eq!(pod["schedulerName"], "default-scheduler", "{resource}");
        assert!(pod["enableServiceLinks"].is_null() && pod["tolerations"].is_null(), "{resource}");
    }
    let set = server.get(&format!("{APPS}/daemonsets/x")).await.expect(200);
    assert_eq!(set["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "1");
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"], json!({ "maxSurge": 0, "maxUnavailable": 1 }));
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_105_defaults_of_a_job() {
    let server = Server::new();
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] });
    let body = json!({ "metadata": { "name": "j" }, "spec": { "template": { "spec": pod } } });
    let job = server.post(&format!("{BATCH}/jobs"), body).await.expect(201);
    let uid = &job["metadata"]["uid"];
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid, "job-name": "j",
    });
    assert_eq!((&job["metadata"]["labels"], &job["spec"]["template"]["metadata"]["labels"]), (&labels, &labels));
    assert_eq!(job["spec"]["selector"]["matchLabels"], json!({ "batch.kubernetes.io/controller-uid": uid }));
    for (field, value) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(job["spec"][field], value, "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_034_the_template_of_a_daemon_set_is_counted() {
    let server = Server::new();
    let selector = json!({ "matchLabels": { "a": "b" } });
    let body = json!({ "metadata": { "name": "x" }, "spec": { "selector": selector, "template": template() } });
    server.post(&format!("{APPS}/daemonsets"), body).await.expect(201);
    let path = format!("{APPS}/daemonsets/x");
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "j" }] } } } });
    let changed = server.smp(&path, image).await.expect(200);
    let counter = |it: &Value| it["metadata"]["annotations"]["deprecated.daemonset.template.generation"].clone();
    assert_eq!((&changed["metadata"]["generation"], counter(&changed)), (&json!(2), json!("2")));
    let other = server.merge(&path, json!({ "spec": { "minReadySeconds": 3 } })).await.expect(200);
    assert_eq!((&other["metadata"]["generation"], counter(&other)), (&json!(3), json!("2")));
}

#[tokio::test(start_paused = true)]
async fn acceptance_api_025_106_admission_sets_fields() {
    let server = Server::new();
    let node = server.post("/api/v1/nodes", json!({ "metadata": { "name": "n" }, "status": { "phase": "x" } })).await;
    let node = node.expect(201);
    let taint = json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }]);
    assert_eq!((&node["spec"]["taints"], &node["status"]["phase"]), (&taint, &json!("x")));
    let pod = |class: &str| {
        let spec = json!({ "priorityClassName": class, "containers": [{ "name": "c", "image": "i" }] });
        json!({ "metadata": { "name": "p" }, "spec": spec })
    };
    let refused = server.post(PODS, pod("nope")).await;
    refused.refused(403, "Forbidden", r#"pods "p" is forbidden: no PriorityClass with name nope was found"#);
    let admitted = server.post(PODS, pod("system-node-critical")).await.expect(201);
    assert_eq!(admitted["spec"]["priority"], 2_000_001_000);
}
