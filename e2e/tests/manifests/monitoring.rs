//! A real Prometheus scrapes what the ServiceMonitor selects; the alerts evaluate, and each panel has data.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use api::uri;
use e2e::{Build, ControlPlane, Kubectl, Process, Rest, binary, eventually, free_port, namespaces, prometheus_or_skip};
use http::Method;
use serde_json::{Value, json};

use super::{Started, TIME_LIMIT, account, cluster, document, in_cluster, manifest};

const COMPONENT: &str = "components/prometheus-operator";
/// Addresses for documentation (RFC 5737). A pod has no loopback address, so the last relabelling maps these to ports of
/// this machine.
const PODS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// `prometheus` or `promtool`, from the same folder.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let given = std::env::var_os("PROMETHEUS").map(PathBuf::from);
    let prometheus =
        given.or_else(|| std::env::split_paths(&path).map(|it| it.join("prometheus")).find(|it| it.is_file()));
    prometheus.unwrap().with_file_name(name)
}

/// The groups of rules in the PrometheusRule.
fn groups() -> Value {
    document(&format!("{COMPONENT}/prometheusrule.yaml"))["spec"]["groups"].clone()
}

fn alerts(groups: &Value) -> Vec<String> {
    let rules = groups.as_array().unwrap().iter().flat_map(|it| it["rules"].as_array().unwrap());
    rules.map(|it| it["alert"].as_str().unwrap().to_owned()).collect()
}

fn promtool(arguments: &[&str]) {
    let output = Command::new(program("promtool")).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

#[test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    if prometheus_or_skip("cases of the alerts").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let mut groups = groups();
    std::fs::write(file("complete.yaml"), json!({ "groups": groups }).to_string()).unwrap();
    promtool(&["check", "rules", &file("complete.yaml")]);
    // Cases would have to repeat the texts of annotations.
    for rule in groups[0]["rules"].as_array_mut().unwrap() {
        rule.as_object_mut().unwrap().remove("annotations");
    }
    std::fs::write(file("rules.yaml"), json!({ "groups": groups }).to_string()).unwrap();
    let cases = include_str!("alerts.test.yaml");
    std::fs::write(file("alerts.test.yaml"), cases).unwrap();
    promtool(&["test", "rules", &file("alerts.test.yaml")]);

    let cases = super::documents(cases).remove(0);
    let (mut fires, mut is_silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases["tests"].as_array().unwrap().iter().flat_map(|it| it["alert_rule_test"].as_array().unwrap()) {
        let alert = case["alertname"].as_str().unwrap().to_owned();
        if case["exp_alerts"].as_array().unwrap().is_empty() {
            is_silent.insert(alert)
        } else {
            fires.insert(alert)
        };
    }
    let all: BTreeSet<String> = alerts(&groups).into_iter().collect();
    assert_eq!((&fires, &is_silent), (&all, &all));
}

/// The name of a label in the discovery of Prometheus.
fn label(name: &str) -> String {
    name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect()
}

/// A relabelling of a ServiceMonitor in the syntax of Prometheus.
fn relabelling(rule: &Value) -> Value {
    let mut config = serde_json::Map::new();
    for (key, value) in rule.as_object().unwrap() {
        let name =
            key.chars().flat_map(|it| if it.is_uppercase() { vec!['_', it.to_ascii_lowercase()] } else { vec![it] });
        config.insert(name.collect(), value.clone());
    }
    Value::Object(config)
}

/// The targets that Prometheus discovers in a namespace with the role `endpointslice`, with their labels. Debian's
/// Prometheus is built without this discovery.
async fn discovered(admin: &Rest, namespace: &str) -> Vec<Value> {
    let services = admin.items(&format!("/api/v1/namespaces/{namespace}/services")).await.unwrap();
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let mut targets = Vec::new();
    for slice in admin.items(&slices).await.unwrap() {
        let name = &slice["metadata"]["labels"]["kubernetes.io/service-name"];
        let service = services.iter().find(|it| it["metadata"]["name"] == *name).unwrap();
        let mut of_service = serde_json::Map::new();
        for (key, value) in service["metadata"]["labels"].as_object().into_iter().flatten() {
            of_service.insert(format!("__meta_kubernetes_service_label_{}", label(key)), value.clone());
            of_service.insert(format!("__meta_kubernetes_service_labelpresent_{}", label(key)), json!("true"));
        }
        let port = &slice["ports"][0];
        for endpoint in slice["endpoints"].as_array().unwrap() {
            let mut labels = of_service.clone();
            for (key, value) in [
                ("namespace", &json!(namespace)),
                ("service_name", name),
                ("endpointslice_port_name", &port["name"]),
                ("endpointslice_address_target_kind", &endpoint["targetRef"]["kind"]),
                ("endpointslice_address_target_name", &endpoint["targetRef"]["name"]),
            ] {
                labels.insert(format!("__meta_kubernetes_{key}"), json!(value.as_str().unwrap_or_default()));
            }
            let address = format!("{}:{}", endpoint["addresses"][0].as_str().unwrap(), port["port"]);
            targets.push(json!({ "targets": [address], "labels": labels }));
        }
    }
    targets
}

/// The scrape configurations that the operator generates for the ServiceMonitor, with the token of Prometheus, and with
/// a last step that maps the addresses of the pods to ports of this machine.
async fn scrape_configs(admin: &Rest, token: &Path, ports: [u16; 2]) -> Vec<Value> {
    let monitor = document(&format!("{COMPONENT}/servicemonitor.yaml"));
    let spec = &monitor["spec"];
    let authorization = json!({ "credentials_file": token });
    let namespaces = spec["namespaceSelector"]["matchNames"].as_array().unwrap();
    assert_eq!(namespaces.len(), 1);
    let targets = discovered(admin, namespaces[0].as_str().unwrap()).await;
    assert_eq!(targets.len(), PODS.len() + 1, "those of another Service too");
    let config = |(number, endpoint): (usize, &Value)| {
        let mut steps = Vec::new();
        for (key, value) in spec["selector"]["matchLabels"].as_object().unwrap() {
            let key = label(key);
            steps.push(json!({ "action": "keep", "regex": format!("({});true", value.as_str().unwrap()), "source_labels":
                [format!("__meta_kubernetes_service_label_{key}"), format!("__meta_kubernetes_service_labelpresent_{key}")] }));
        }
        steps.push(json!({ "action": "keep", "regex": endpoint["port"],
            "source_labels": ["__meta_kubernetes_endpointslice_port_name"] }));
        let kind_and_name = ["kind", "name"].map(|it| format!("__meta_kubernetes_endpointslice_address_target_{it}"));
        steps.push(json!({ "source_labels": kind_and_name, "regex": "Pod;(.*)", "target_label": "pod" }));
        for (source, target) in [("namespace", "namespace"), ("service_name", "service"), ("service_name", "job")] {
            steps.push(json!({ "source_labels": [format!("__meta_kubernetes_{source}")], "target_label": target }));
        }
        let job = format!("__meta_kubernetes_service_label_{}", label(spec["jobLabel"].as_str().unwrap()));
        steps.push(json!({ "source_labels": [job], "regex": "(.+)", "target_label": "job" }));
        steps.push(json!({ "target_label": "endpoint", "replacement": endpoint["port"] }));
        steps.extend(endpoint["relabelings"].as_array().into_iter().flatten().map(relabelling));
        for (pod, port) in PODS.into_iter().zip(ports) {
            steps.push(json!({ "source_labels": ["__address__"], "regex": format!("{pod}:.*"),
                "target_label": "__address__", "replacement": format!("127.0.0.1:{port}") }));
        }
        assert!(endpoint["bearerTokenFile"].is_string());
        let of_metrics = endpoint["metricRelabelings"].as_array().into_iter().flatten();
        json!({
            "job_name": format!("serviceMonitor/kube-system/mini-kcm/{number}"),
            "static_configs": targets, "scheme": endpoint["scheme"],
            "metrics_path": endpoint["path"].as_str().unwrap_or("/metrics"), "authorization": authorization,
            "tls_config": { "insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"] },
            "relabel_configs": steps, "metric_relabel_configs": of_metrics.map(relabelling).collect::<Vec<_>>(),
        })
    };
    spec["endpoints"].as_array().unwrap().iter().enumerate().map(config).collect()
}

/// Prometheus, and a client for its API.
struct Prometheus {
    _process: Process,
    rest: Rest,
}

impl Prometheus {
    async fn start(folder: &Path, scrape_configs: Vec<Value>, rules: &[PathBuf]) -> Self {
        let config = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s",
                // The label that dashboards and alerts of the mixin group by.
                "external_labels": { "cluster": "e2e" } },
            "rule_files": rules, "scrape_configs": scrape_configs,
        });
        std::fs::write(folder.join("prometheus.yml"), config.to_string()).unwrap();
        let port = free_port().unwrap();
        let mut command = Command::new(program("prometheus"));
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start("prometheus", &mut command, folder.join("prometheus.log")).unwrap();
        let rest = Rest::plain(port).unwrap();
        let ready = async || Ok((rest.send(Method::GET, "/-/ready", None).await?.code == 200).then_some(()));
        if let Err(err) = eventually("Prometheus to be ready", TIME_LIMIT, ready).await {
            panic!("{err}: {}", process.log().unwrap());
        }
        Self { _process: process, rest }
    }

    /// The series of a query: their labels and values.
    async fn query(&self, query: &str) -> anyhow::Result<Vec<(Value, f64)>> {
        let data = self.data(&format!("/api/v1/query?query={}", uri::value(query))).await?;
        let series = data["result"].as_array().cloned().unwrap_or_default();
        Ok(series.iter().map(|it| (it["metric"].clone(), it["value"][1].as_str().unwrap().parse().unwrap())).collect())
    }

    async fn data(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.rest.send(Method::GET, path, None).await?;
        anyhow::ensure!(answer.code == 200, "{path}: {} {}", answer.code, answer.text);
        Ok(answer.json()["data"].take())
    }
}

/// The token of an account for Prometheus, which has the role `system:monitoring`.
async fn token(plane: &ControlPlane, kubectl: &Kubectl, admin: &Rest) -> PathBuf {
    for line in [
        "create namespace monitoring",
        "-n monitoring create serviceaccount prometheus-k8s",
        "create clusterrolebinding prometheus-k8s --clusterrole=system:monitoring --serviceaccount=monitoring:prometheus-k8s",
    ] {
        kubectl.run(line).unwrap();
    }
    let path = "/api/v1/namespaces/monitoring/serviceaccounts/prometheus-k8s/token";
    let token = admin.create(path, &json!({})).await.unwrap();
    let file = plane.folder().join("prometheus-token");
    std::fs::write(&file, token["status"]["token"].as_str().unwrap()).unwrap();
    file
}

/// What the EndpointSlice controller would create for two pods of the Service.
async fn create_endpoints(admin: &Rest) {
    let endpoint = |(number, address): (usize, &str)| {
        json!({ "addresses": [address], "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "namespace": "kube-system", "name": format!("mini-kcm-{number}") } })
    };
    let slice = json!({
        "metadata": { "name": "mini-kcm-a", "labels": { "kubernetes.io/service-name": "mini-kcm" } },
        "addressType": "IPv4", "ports": [{ "name": "https-metrics", "port": 10257, "protocol": "TCP" }],
        "endpoints": PODS.into_iter().enumerate().map(endpoint).collect::<Vec<_>>(),
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    admin.create(slices, &slice).await.unwrap();
    // A Service that must not be scraped.
    let labels = json!({ "app.kubernetes.io/name": "kube-scheduler" });
    let other = json!({ "metadata": { "name": "other", "labels": labels }, "spec": {
        "clusterIP": "None", "ports": [{ "name": "https-metrics", "port": 10257 }] } });
    admin.create("/api/v1/namespaces/kube-system/services", &other).await.unwrap();
    let mut slice = slice;
    slice["metadata"] = json!({ "name": "other-a", "labels": { "kubernetes.io/service-name": "other" } });
    slice["endpoints"] = json!([{ "addresses": ["192.0.2.9"], "conditions": { "ready": true } }]);
    admin.create(slices, &slice).await.unwrap();
}

/// Title and query of every panel, with the variables that Grafana replaces.
fn panels() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(manifest("dashboards/mini-kcm.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$job", "kube-controller-manager").replace("$instance", ".+");
            found.push((panel["title"].as_str().unwrap().to_owned(), query.replace("$__rate_interval", "1m")));
        }
    }
    found
}

/// Objects that give work to several controllers.
async fn work(admin: &Rest, number: &mut u32) {
    *number += 1;
    let name = format!("monitored-{number}");
    namespaces::create(admin, &name).await.unwrap();
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a" }] } });
    let job = json!({ "metadata": { "name": "a" }, "spec": { "template": template } });
    admin.create(&format!("/apis/batch/v1/namespaces/{name}/jobs"), &job).await.unwrap();
    namespaces::delete(admin, &name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_prometheus_finds_both_replicas_and_has_data_for_each_panel() {
    let scenario = "ServiceMonitor, alerts and dashboard";
    if prometheus_or_skip(scenario).is_none() {
        return;
    }
    let Some((plane, kubectl)) = cluster(scenario).await else { return };
    kubectl.run(&format!("apply -k {}", manifest("base").display())).unwrap();
    let admin = plane.admin().await.unwrap();
    let token = token(&plane, &kubectl, &admin).await;
    create_endpoints(&admin).await;
    let (kubeconfig, program) = (account(&plane, &admin, "mini-kcm").await, binary(Build::Release).unwrap());
    let ports = [free_port().unwrap(), free_port().unwrap()];
    let arguments = |port| [super::arguments(&kubectl, "base"), in_cluster(&kubeconfig, port)].concat();
    let mut leader = Started::leading(&plane, program, &arguments(ports[0]), ports[0]).await.unwrap();
    let mut standby = Started::start(&plane, program, &arguments(ports[1]), ports[1]).unwrap();

    let rules = plane.folder().join("rules.yaml");
    std::fs::write(&rules, json!({ "groups": groups() }).to_string()).unwrap();
    let mixin = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/mixin/alerts.yaml"));
    let configs = scrape_configs(&admin, &token, ports).await;
    let prometheus = Prometheus::start(plane.folder(), configs, &[rules, mixin]).await;

    // Each replica is scraped on both pages, under the labels of the mixin.
    let up = "up{job=\"kube-controller-manager\", namespace=\"kube-system\", service=\"mini-kcm\", endpoint=\"https-metrics\"}";
    eventually("four targets", TIME_LIMIT, async || {
        let found = prometheus.query(up).await?;
        let pages: BTreeSet<(String, String)> = found
            .iter()
            .filter(|it| (it.1 - 1.0).abs() < f64::EPSILON)
            .map(|(labels, _)| (labels["pod"].to_string(), labels["metrics_path"].to_string()))
            .collect();
        anyhow::ensure!(pages.len() == 4 && found.len() == 4, "{found:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    assert_eq!(prometheus.query("up").await.unwrap().len(), 4, "nothing else is scraped");
    let healthy = "kubernetes_healthcheck{metrics_path=\"/metrics/slis\"}";
    let has_checks = async || Ok((!prometheus.query(healthy).await?.is_empty()).then_some(()));
    eventually("health checks", TIME_LIMIT, has_checks).await.unwrap();

    let mut number = 0;
    for (title, query) in panels() {
        eventually(&title, TIME_LIMIT, async || {
            let found = prometheus.query(&query).await?;
            if found.iter().any(|it| it.1.is_finite()) {
                return Ok(Some(()));
            }
            work(&admin, &mut number).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            anyhow::bail!("{query}: {found:?}")
        })
        .await
        .unwrap();
    }
    // All rules evaluate, and nothing is wrong here.
    let wanted: BTreeSet<String> = alerts(&groups()).into_iter().collect();
    eventually("the rules", TIME_LIMIT, async || {
        let data = prometheus.data("/api/v1/rules?type=alert").await?;
        let rules =
            data["groups"].as_array().into_iter().flatten().flat_map(|it| it["rules"].as_array().cloned().unwrap());
        let rules: Vec<Value> = rules.collect();
        let names: BTreeSet<String> = rules.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        anyhow::ensure!(names.is_superset(&wanted) && names.len() == wanted.len() + 2, "{names:?}");
        let wrong: Vec<&Value> = rules.iter().filter(|it| it["health"] != "ok" || it["state"] != "inactive").collect();
        anyhow::ensure!(wrong.is_empty(), "{wrong:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    // Without a replica there is no leader.
    for manager in [&mut standby, &mut leader] {
        manager.process.kill().unwrap();
    }
    eventually("MiniKcmNoLeader to be pending", TIME_LIMIT, async || {
        let found = prometheus.query("ALERTS{alertname=\"MiniKcmNoLeader\"}").await?;
        Ok((found.len() == 1).then_some(()))
    })
    .await
    .unwrap();
}
