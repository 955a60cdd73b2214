//! A real Prometheus scrapes the manager: which pages, with which identity, and whether the usual dashboards and alerts
//! find their metrics.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

use std::{path::Path, time::Duration};

use e2e::{
    Flavour, Gateway, Identity, Launch, Manager, Options, Prometheus, Rest, Scrape, eventually, namespaces,
    prometheus_or_skip,
};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::On;

/// The limit for everything that works without a fault; rates use a window of one minute.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const DASHBOARD: &str = include_str!("../../mixin/dashboard.promql");
/// Upstream's own names, which promtool complains about. They stay, because existing dashboards use them.
const UPSTREAMS: [&str; 3] = [
    "authenticated_user_requests counter metrics should have \"_total\" suffix",
    "authentication_attempts counter metrics should have \"_total\" suffix",
    "authentication_token_cache_active_fetch_count non-histogram",
];
const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mixin/alerts.yaml");

/// The token of a new ServiceAccount, which has no rights yet.
async fn account(admin: &Rest, name: &str) -> String {
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    admin.create(accounts, &json!({ "metadata": { "name": name } })).await.unwrap();
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let granted = admin.create(&format!("{accounts}/{name}/token"), &request).await.unwrap();
    granted["status"]["token"].as_str().unwrap().to_owned()
}

/// The token of a ServiceAccount with the role `system:monitoring`.
async fn create_monitor(admin: &Rest) -> String {
    let token = account(admin, "prometheus").await;
    let binding = json!({
        "metadata": { "name": "prometheus" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring" },
        "subjects": [{ "kind": "ServiceAccount", "name": "prometheus", "namespace": "kube-system" }],
    });
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.unwrap();
    token
}

/// Title and query of every panel.
fn panels() -> Vec<(&'static str, &'static str)> {
    let lines: Vec<&str> = DASHBOARD.lines().collect();
    lines.chunks(2).map(|it| (it[0].strip_prefix("# ").unwrap(), it[1])).collect()
}

/// Lets the manager empty a namespace, so that there are metrics.
async fn empty_namespace(admin: &Rest, number: &mut u32) {
    *number += 1;
    let name = format!("prometheus-{number}");
    namespaces::create(admin, &name).await.unwrap();
    namespaces::delete(admin, &name).await.unwrap();
    namespaces::wait_until_gone(admin, &name, TIME_LIMIT).await.unwrap();
}

/// Lets the server answer one request for each path with this code.
async fn answer_once(gateway: &Gateway, code: StatusCode) {
    let before = gateway.refused();
    gateway.refuse_next_with(1, code);
    let refused = async || Ok((gateway.refused() > before).then_some(()));
    eventually("a refused request", TIME_LIMIT, refused).await.unwrap();
}

/// The manager's response for a user given as in a kubeconfig.
async fn page(manager: &Manager, path: &str, user: Value) -> (u16, String) {
    let answer = Rest::unverified_as(manager.port(), user).unwrap().send(Method::GET, path, None).await.unwrap();
    (answer.code, answer.text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_prometheus_scrapes_as_service_account_and_has_all_series_of_the_mixin() {
    let scenario = "the mixin's dashboard and alerts";
    let Some(programs) = prometheus_or_skip(scenario) else { return };
    let Some(server) = On::Real.server(scenario, Options::default()).await.unwrap() else { return };
    let admin = server.admin().await.unwrap();
    let token = create_monitor(&admin).await;
    let gateway = Gateway::start(&server).await.unwrap();
    let reviews = server.kubeconfig(Identity::Admin).unwrap().display().to_string();
    let launch = Launch::new(&server, Flavour::from_environment()).unwrap();
    let mut manager = launch
        .kubeconfig(&server.kubeconfig_through(Identity::Admin, gateway.port()).unwrap())
        .flag("authentication-kubeconfig", &reviews)
        .flag("authorization-kubeconfig", &reviews)
        .flag("authorization-always-allow-paths", "/healthz,/readyz,/livez")
        .started()
        .await
        .unwrap();
    // Prometheus gets pages only with its token.
    let unbound = json!({ "token": account(&admin, "unbound").await });
    for (what, user, want) in [
        ("no credentials", json!({}), 403),
        ("a wrong token", json!({ "token": "of-nobody" }), 401),
        ("an account without rights", unbound, 403),
    ] {
        for path in ["/metrics", "/metrics/slis"] {
            let (code, text) = page(&manager, path, user.clone()).await;
            assert_eq!(code, want, "{what} {path}: {text}");
        }
    }
    let scrape = Scrape { port: manager.port(), token: &token, rules: Path::new(ALERTS) };
    let prometheus = Prometheus::start(&programs, server.folder(), scrape).await.unwrap();

    for path in ["/metrics", "/metrics/slis"] {
        let (code, text) = page(&manager, path, json!({ "token": token })).await;
        assert!(code == 200 && !text.is_empty(), "{path}: {code} {text}");
        let found = programs.check(&text).unwrap();
        let ours: Vec<&str> = found.lines().filter(|line| !UPSTREAMS.iter().any(|it| line.starts_with(it))).collect();
        assert_eq!(ours, [""; 0], "promtool check metrics of {path}");
    }
    let mut number = 0;
    empty_namespace(&admin, &mut number).await;
    for code in [StatusCode::FOUND, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        answer_once(&gateway, code).await;
    }
    gateway.refuse_next_with(0, StatusCode::OK);
    for (title, query) in panels() {
        eventually(title, TIME_LIMIT, async || {
            let values = prometheus.query(query).await?;
            if values.iter().any(|it| it.is_finite()) {
                return Ok(Some(()));
            }
            empty_namespace(&admin, &mut number).await;
            anyhow::bail!("{query}: {values:?}")
        })
        .await
        .unwrap();
    }
    let slis = "kubernetes_healthcheck{job=\"kube-controller-manager-slis\"}";
    let healthy = async || Ok(prometheus.query(slis).await?.contains(&1.0).then_some(()));
    eventually("a health check in /metrics/slis", TIME_LIMIT, healthy).await.unwrap();

    alerts(&prometheus, ["inactive", "inactive"]).await;
    manager.signal(e2e::Signal::TERM).unwrap();
    manager.exit(TIME_LIMIT).await.unwrap();
    alerts(&prometheus, ["inactive", "pending"]).await;
}

/// Waits until the two alerts of the mixin are evaluated without an error and have these states.
async fn alerts(prometheus: &Prometheus, states: [&str; 2]) {
    let names = ["KubeControllerManagerDown", "KubeControllerManagerInstanceUnreachable"];
    let wanted: Vec<[&str; 3]> = names.iter().zip(states).map(|(name, state)| [*name, "ok", state]).collect();
    eventually(&format!("the alerts to be {states:?}"), TIME_LIMIT, async || {
        let found = prometheus.alerts().await?;
        anyhow::ensure!(found == wanted, "{found:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}
