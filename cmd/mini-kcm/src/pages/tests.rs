use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, Request},
};
use controller::{Backoff, Queue};
use serde_json::json;
use tower::ServiceExt;

use super::*;
use crate::health::RunningController;

/// The pages of a manager that can become leader.
struct TestSite {
    health: HealthChecks,
    metrics: Metrics,
    log: klog::Handle,
    clock: Clock,
    pages: Router,
}

struct TestResponse {
    code: u16,
    headers: HeaderMap,
    text: String,
}

impl TestResponse {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

fn site(profiling: bool) -> TestSite {
    let clock = Clock::virtual_from(Timestamp::UNIX_EPOCH);
    let (health, metrics, log) = (HealthChecks::default(), Metrics::new(), klog::Handle::detached());
    let page_data = PageData {
        health: health.clone(),
        metrics: metrics.clone(),
        configuration: json!({ "kind": "KubeControllerManagerConfiguration" }),
        flags: [("v", "2"), ("vmodule", "")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        disabled: Vec::new(),
        version: VersionInfo { emulation: 36, min_compatibility: 35 },
        absent: vec!["job-controller", "ttl-controller"],
        log: log.clone(),
        profiling,
        clock: clock.clone(),
        started: clock.wall(),
    };
    TestSite { health, metrics, log, clock, pages: router(page_data) }
}

impl TestSite {
    fn become_leader(&self) -> Queue<u8> {
        let queue = Queue::new("namespace", Backoff::default(), self.clock.clone(), &self.metrics);
        let worker_health = controller::WorkerHealth::new(&queue, 10, self.clock.clone());
        worker_health.on_started();
        let running =
            RunningController { name: "namespace-controller", worker_health: vec![worker_health], pages: Vec::new() };
        self.health.set_controllers(vec![running]);
        queue
    }

    async fn send(&self, method: &str, path: &str, accept: &str, body: &str) -> TestResponse {
        let mut request = Request::builder().method(method).uri(path);
        if !accept.is_empty() {
            request = request.header("accept", accept);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.pages.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        TestResponse { code: parts.status.as_u16(), headers: parts.headers, text }
    }

    async fn get(&self, path: &str) -> TestResponse {
        self.send("GET", path, "", "").await
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_002_023_the_leader_has_a_line_for_each_running_controller_and_a_standby_none() {
    let site = site(true);
    assert_eq!(site.get("/healthz?verbose").await.text, "healthz check passed\n");
    assert_eq!(site.get("/healthz/namespace-controller").await.code, 404);
    site.become_leader();
    for probe in ["healthz", "livez", "readyz"] {
        let response = site.get(&format!("/{probe}")).await;
        assert_eq!((response.code, &*response.text), (200, "ok"));
        assert_eq!(response.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        let verbose = site.get(&format!("/{probe}?verbose")).await.text;
        assert_eq!(verbose, format!("[+]namespace-controller ok\n{probe} check passed\n"));
        let one = site.get(&format!("/{probe}/namespace-controller")).await;
        assert_eq!((one.code, &*one.text), (200, "ok"));
        assert_eq!(site.get(&format!("/{probe}/job-controller")).await.code, 404);
        assert_eq!(site.send("POST", &format!("/{probe}"), "", "x").await.code, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn page_whose_feature_gate_is_off_is_neither_served_nor_listed() {
    let TestSite { clock, .. } = site(true);
    let version = VersionInfo { emulation: 36, min_compatibility: 35 };
    let disabled = vec!["/flagz"];
    let status = status::StatuszPage { version, absent: Vec::new(), disabled, started: clock.wall(), clock };
    let pages = status::routes(BTreeMap::new(), status);
    for (path, code) in [("/flagz", 404), ("/statusz", 200)] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = pages.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), code, "{path}");
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8_lossy(&text);
        let shown = text.contains("Paths: /configz /healthz /livez /metrics /readyz /version\n");
        assert_eq!(shown, code == 200, "{path}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_031_slis_are_reset_by_a_delete_and_metrics_are_not() {
    let site = site(true);
    site.become_leader();
    site.get("/healthz").await;
    let slis = site.get("/metrics/slis").await;
    let series = "kubernetes_healthcheck{name=\"namespace-controller\",type=\"healthz\"} 1";
    assert!(slis.text.contains(series), "{}", slis.text);
    assert_eq!(slis.header("content-type"), "text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    assert!(slis.header("process-start-time-unix").parse::<u64>().unwrap() > 1_600_000_000);
    let reset = site.send("DELETE", "/metrics/slis", "", "").await;
    assert_eq!((reset.code, &*reset.text), (200, "metrics reset\n"));
    assert!(!site.get("/metrics/slis").await.text.contains("namespace-controller"));
    for method in ["GET", "DELETE"] {
        let metrics = site.send(method, "/metrics", "application/openmetrics-text; version=1.0.0", "").await;
        assert!(metrics.text.contains("workqueue_depth{name=\"namespace\"} 0"), "{method}");
        assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4;"), "as upstream");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_are_plain_text_for_every_accept_header() {
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    for accept in [protobuf, "application/openmetrics-text;version=1.0.0", "application/json", "*/*"] {
        let request = Request::get("/metrics").header("accept", accept).header("accept-encoding", "gzip");
        let response = site(false).pages.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200, "{accept}");
        let format = response.headers()["content-type"].to_str().unwrap();
        assert!(format.starts_with("text/plain; version=0.0.4;"), "{accept}: {format}");
        assert!(!response.headers().contains_key("content-encoding"), "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_028_configz_and_version_are_json() {
    let site = site(false);
    let configz = site.get("/configz").await;
    assert_eq!(configz.header("content-type"), "application/json");
    let kind = &configz.json()["kubecontrollermanager.config.k8s.io"]["kind"];
    assert_eq!(kind, "KubeControllerManagerConfiguration");
    let version = site.get("/version").await.json();
    assert_eq!((&version["major"], &version["emulationMinor"]), (&json!("1"), &json!("36")));
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_029_statusz_is_text_or_an_object_and_names_the_absent_controllers() {
    let site = site(false);
    tokio::time::advance(std::time::Duration::from_secs(3_725)).await;
    let text = site.get("/statusz").await;
    assert_eq!((text.code, text.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert!(text.text.starts_with("\nkube-controller-manager statusz\nWarning: This endpoint is not meant to be"));
    for line in [
        "Started: Thu Jan  1 00:00:00 UTC 1970\n",
        "Up: 1 hr 02 min 05 sec\n",
        "Binary version: 1.37.0\nEmulation version: 1.36\n",
        "Controllers that are not in this binary: job-controller ttl-controller\n",
    ] {
        assert!(text.text.contains(line), "{line} in {}", text.text);
    }
    let structured = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
    let object = site.send("GET", "/statusz", structured, "").await;
    assert_eq!(object.header("content-type"), "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
    let want = json!({
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {
            "name": "kube-controller-manager",
            "annotations": {"mini-kcm.io/absent-controllers": "job-controller,ttl-controller"},
        },
        "startTime": "1970-01-01T00:00:00Z",
        "uptimeSeconds": 3725,
        "goVersion": "",
        "binaryVersion": "1.37.0",
        "emulationVersion": "1.36",
        "paths": ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/version"],
    });
    assert_eq!(object.json(), want);
    let yaml = site.send("GET", "/statusz", &structured.replace("json", "yaml"), "").await;
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml.text).unwrap(), want);
    let old = site.send("GET", "/statusz", &structured.replace("beta", "alpha"), "").await;
    assert!(old.header("warning").starts_with("299 - \"This version of the statusz endpoint is deprecated."));
    let refused = site.send("GET", "/statusz", "application/json", "").await;
    assert_eq!((refused.code, &refused.json()["reason"]), (406, &json!("NotAcceptable")));
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_030_flagz_shows_every_flag() {
    let site = site(false);
    assert!(site.get("/flagz").await.text.ends_with("debugging purposes only.\nv:2\nvmodule:\n"));
    let structured = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
    assert_eq!(site.send("GET", "/flagz", structured, "").await.json()["flags"], json!({"v": "2", "vmodule": ""}));
    assert_eq!(site.send("GET", "/flagz", "application/json", "").await.code, 406);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_026_without_profiling_nothing_is_below_debug_and_profiles_are_nowhere() {
    for profiling in [false, true] {
        let site = site(profiling);
        site.become_leader();
        let code = if profiling { 200 } else { 404 };
        assert_eq!(site.get("/debug/controllers").await.code, code);
        assert_eq!(site.send("PUT", "/debug/flags/v", "", "4").await.code, code);
        for path in ["/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap", "/", "/nope", "/healthz/"] {
            let response = site.get(path).await;
            assert_eq!((response.code, &*response.text), (404, "404 page not found\n"), "{path}");
            assert_eq!(response.header("cache-control"), "no-cache, private");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_027_a_put_changes_the_level_of_the_log() {
    let site = site(true);
    let response = site.send("PUT", "/debug/flags/v", "", "4").await;
    assert_eq!((response.code, &*response.text), (200, "successfully set klog.logging.verbosity to 4\n"));
    assert_eq!(site.log.verbosity(), 4);
    for bad in ["abc", "-1", "", "99999999999999999999", "4 "] {
        assert_eq!(site.send("PUT", "/debug/flags/v", "", bad).await.code, 400, "{bad}");
    }
    for method in ["GET", "POST"] {
        let response = site.send(method, "/debug/flags/v", "", "0").await;
        assert_eq!((response.code, &*response.text), (406, "unsupported http method\n"));
    }
    assert_eq!(site.log.verbosity(), 4);
}

#[tokio::test(start_paused = true)]
async fn leader_shows_the_state_of_its_controllers_and_a_standby_does_not() {
    let site = site(true);
    assert_eq!(site.get("/debug/controllers").await.code, 404);
    let queue = site.become_leader();
    queue.add(1);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let want = json!({"name": "namespace-controller", "queues": [{
        "name": "namespace",
        "depth": 1,
        "oldestSeconds": 60.0,
        "workers": 10,
        "busy": 0,
        "longestSilenceSeconds": null,
        "lastActivity": "1970-01-01T00:00:00Z",
        "stuck": null,
    }]});
    assert_eq!(site.get("/debug/controllers").await.json(), json!({ "controllers": [want] }));
    assert_eq!(site.get("/debug/controllers/namespace-controller").await.json(), want);
    assert_eq!(site.get("/debug/controllers/job-controller").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_032_the_graph_of_the_garbage_collector_is_drawn_on_the_leader_and_nowhere_else() {
    let site = site(true);
    let graph = "/debug/controllers/garbage-collector-controller/graph";
    assert_eq!(site.get(graph).await.code, 404, "a standby");
    let cluster = test_cluster::TestCluster::new(site.clock.clone());
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "owner" } });
    let owner = cluster.create(owner)["metadata"]["uid"].as_str().unwrap().to_owned();
    let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner });
    let owned =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b", "ownerReferences": [reference] } });
    let dependent = cluster.create(owned)["metadata"]["uid"].as_str().unwrap().to_owned();
    let rig = harness::Rig::new(cluster.service(), site.clock.clone(), client::Limits::NONE);
    let mut builder = controller::Builder::new("garbage-collector-controller", rig.deps.clone());
    garbage_collector_controller::start(&mut builder, garbage_collector_controller::Options::default());
    let mut collector = builder.build();
    collector.begin();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    site.health.set_controllers(vec![RunningController::of(&collector)]);
    let drawing = site.get(graph).await;
    assert_eq!((drawing.code, drawing.header("content-type")), (200, "text/vnd.graphviz"));
    assert_eq!(drawing.header("x-content-type-options"), "nosniff");
    assert!(drawing.text.starts_with("strict digraph full {"), "{}", drawing.text);
    assert!(drawing.text.contains(&owner) && drawing.text.contains(&dependent), "{}", drawing.text);
    let both = site.get(&format!("{graph}?uid=unknown&uid={dependent}")).await.text;
    assert!(both.contains(&owner), "repeated uids are all used: {both}");
    let none = site.get(&format!("{graph}?uid=unknown")).await.text;
    assert!(none.starts_with("strict digraph full {") && !none.contains(&owner), "{none}");
    let why = "/debug/controllers/garbage-collector-controller/why";
    let words = site.get(&format!("{why}?uid={dependent}")).await;
    assert_eq!((words.code, words.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert!(words.text.contains(&owner), "{}", words.text);
    for question in ["", "?uid=a&uid=b", "?other=1"] {
        assert_eq!(site.get(&format!("{why}{question}")).await.code, 400, "{question}");
    }
    for path in ["graph/", "graph/more", "other", ""] {
        let path = format!("/debug/controllers/garbage-collector-controller/{path}");
        assert_eq!(site.get(&path).await.code, 404, "{path}");
    }
    assert_eq!(site.get("/debug/controllers/namespace-controller/graph").await.code, 404);
}
