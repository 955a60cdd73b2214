//! Access to the manager's own port, its serving certificate, and its limits.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod support;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clock::Clock;
use e2e::{Flavour, Identity, Launch, Manager, Options, Rest, Site, Usage, eventually, report};
use http::Method;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, task::JoinSet};

use support::{
    On, on_both_servers,
    tls::{connected, served_certificate, socket, unreading},
};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Upstream's default.
const OPEN: &str = "/healthz,/readyz,/livez";

on_both_servers! {
    acceptance_shell_018_renewed_certificate_is_served_without_restart
    many_connections_do_not_stop_leader_or_probes_and_memory_is_bounded
    many_unread_responses_do_not_stop_leader_or_probes_and_memory_is_bounded
}

/// These need a server that checks tokens and rights.
mod deciding {
    use super::On;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn acceptance_shell_019_020_022_probes_are_public_and_the_api_server_decides_about_the_rest() {
        super::acceptance_shell_019_020_022(On::Real).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn acceptance_shell_021_without_authorizer_only_system_masters_get_more_than_probes() {
        super::acceptance_shell_021(On::Real).await;
    }
}

/// A manager that delegates to the API server of `kubeconfig`.
fn delegating_manager(site: &Site, kubeconfig: &Path) -> Launch {
    let kubeconfig = kubeconfig.display().to_string();
    Launch::new(site, Flavour::from_environment())
        .unwrap()
        .flag("authorization-always-allow-paths", OPEN)
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
}

async fn code(manager: &Manager, path: &str, user: Value) -> (u16, String) {
    let answer = Rest::unverified_as(manager.port(), user).unwrap().send(Method::GET, path, None).await.unwrap();
    (answer.code, answer.text)
}

/// A ServiceAccount that may get /metrics, and a token of it.
async fn create_monitor(admin: &Rest) -> String {
    let account = json!({ "metadata": { "name": "monitor" } });
    admin.create("/api/v1/namespaces/default/serviceaccounts", &account).await.unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]);
    admin
        .create(&format!("{rbac}/clusterroles"), &json!({ "metadata": { "name": "e2e" }, "rules": rules }))
        .await
        .unwrap();
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e" });
    let subjects = json!([{ "kind": "ServiceAccount", "name": "monitor", "namespace": "default" }]);
    let binding = json!({ "metadata": { "name": "e2e" }, "roleRef": role, "subjects": subjects });
    admin.create(&format!("{rbac}/clusterrolebindings"), &binding).await.unwrap();
    let request = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {} });
    let token = admin.create("/api/v1/namespaces/default/serviceaccounts/monitor/token", &request).await.unwrap();
    token["status"]["token"].as_str().unwrap().to_owned()
}

async fn acceptance_shell_019_020_022(on: On) {
    let Some(mut plane) = on.server("who may see the manager's port", Options::default()).await.unwrap() else {
        return;
    };
    let admin = plane.admin().await.unwrap();
    let token = json!({ "token": create_monitor(&admin).await });
    let kubeconfig = plane.kubeconfig(Identity::ControllerManager).unwrap();
    let manager = delegating_manager(&plane, &kubeconfig).flag("leader-elect", "false").started().await.unwrap();
    let anonymous = json!({});

    assert_eq!(code(&manager, "/healthz", anonymous.clone()).await, (200, "ok".to_owned()));
    let (got, text) = code(&manager, "/metrics", anonymous.clone()).await;
    assert_eq!(got, 403, "{text}");
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["message"], "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"");
    // New rights reach the API server's authorizer a moment after they are written.
    eventually("a token that may to be let in", TIME_LIMIT, async || {
        let (got, text) = code(&manager, "/metrics", token.clone()).await;
        assert!(matches!(got, 200 | 403), "{got} {text}");
        Ok((got == 200).then_some(()))
    })
    .await
    .unwrap();
    let (got, text) = code(&manager, "/configz", token.clone()).await;
    assert_eq!(got, 403, "{text}");
    let wrong = json!({ "token": "not-a-token-of-anybody" });
    for path in ["/healthz", "/metrics"] {
        let (got, text) = code(&manager, path, wrong.clone()).await;
        assert_eq!((got, text.contains("\"message\":\"Unauthorized\"")), (401, true), "{text}");
    }
    assert!(!manager.log().unwrap().contains("not-a-token-of-anybody"));

    let open = delegating_manager(&plane, &kubeconfig).flag("authorization-always-allow-paths", "/healthz,/metrics");
    let open = open.flag("leader-elect", "false").started().await.unwrap();
    assert_eq!(code(&open, "/metrics", anonymous.clone()).await.0, 200);
    drop(open);

    let support::Server::Real(plane) = &mut plane else { return };
    plane.stop_apiserver().unwrap();
    // Cached decisions expire after ten seconds.
    eventually("an error without an authorizer", TIME_LIMIT, async || {
        let (got, text) = code(&manager, "/metrics", json!({})).await;
        assert!(
            got == 403 || (got == 500 && text.starts_with("Internal Server Error: \"/metrics\": ")),
            "{got} {text}"
        );
        Ok((got == 500).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(code(&manager, "/healthz", anonymous).await, (200, "ok".to_owned()));
}

async fn acceptance_shell_021(on: On) {
    let Some(plane) = on.server("a manager without an authorizer", Options::default()).await.unwrap() else { return };
    let folder = plane.folder().join("clients");
    let clients = Clients::new(&folder);
    let manager = Launch::new(&plane, Flavour::from_environment())
        .unwrap()
        .flag("authorization-always-allow-paths", OPEN)
        .flag("authentication-skip-lookup", "true")
        .flag("client-ca-file", &clients.authority.display().to_string())
        .started()
        .await
        .unwrap();
    let (plain, master) = (clients.issue("plain", "ordinary"), clients.issue("master", "system:masters"));
    for (what, user, path, want) in [
        ("no credentials", json!({}), "/healthz", 200),
        ("no credentials", json!({}), "/metrics", 403),
        ("a user", plain.clone(), "/metrics", 403),
        ("a user", plain, "/healthz", 200),
        ("a master", master.clone(), "/metrics", 200),
        (
            "a stranger",
            Clients::new(&plane.folder().join("strangers")).issue("master", "system:masters"),
            "/metrics",
            401,
        ),
    ] {
        let (got, text) = code(&manager, path, user).await;
        assert_eq!(got, want, "{what} {path}: {text}");
    }
}

/// An authority for client certificates, as files.
struct Clients {
    folder: PathBuf,
    authority: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Clients {
    fn new(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "e2e-clients");
        let key = KeyPair::generate().unwrap();
        let authority = folder.join("ca.crt");
        std::fs::write(&authority, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder: folder.to_owned(), authority, issuer: Issuer::new(params, key) }
    }

    /// The `user` of a kubeconfig with such a certificate.
    fn issue(&self, name: &str, group: &str) -> Value {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().unwrap();
        let (certificate_file, key_file) =
            (self.folder.join(format!("{name}.crt")), self.folder.join(format!("{name}.key")));
        std::fs::write(&certificate_file, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        json!({ "client-certificate": certificate_file, "client-key": key_file })
    }
}

async fn acceptance_shell_018_renewed_certificate_is_served_without_restart(on: On) {
    let Some(plane) = on.server("a renewed serving certificate", Options::default()).await.unwrap() else { return };
    let (certificate, key) = (plane.folder().join("serving.crt"), plane.folder().join("serving.key"));
    let write = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().to_vec()
    };
    let first = write();
    let mut manager = Launch::new(&plane, Flavour::from_environment())
        .unwrap()
        .flag("tls-cert-file", &certificate.display().to_string())
        .flag("tls-private-key-file", &key.display().to_string())
        .started()
        .await
        .unwrap();
    assert_eq!(served_certificate(manager.port()).await.unwrap().as_ref(), first);
    // A partly written key must not be used.
    std::fs::write(&key, "half a").unwrap();
    let second = write();
    eventually("the renewed certificate", TIME_LIMIT, async || {
        Ok((served_certificate(manager.port()).await?.as_ref() == second).then_some(()))
    })
    .await
    .unwrap();
    assert!(manager.status().unwrap().is_none(), "it still runs");
}

async fn many_connections_do_not_stop_leader_or_probes_and_memory_is_bounded(on: On) {
    check_under_load(on, "a flood of connections", |port| {
        let held = Duration::from_secs(20);
        let mut flood = JoinSet::new();
        for number in 0..150_u32 {
            let late = held * number / 150;
            for _ in 0..4 {
                // Sends nothing.
                flood.spawn(open_repeatedly(late, async move || {
                    keep_open(socket(port).await?, held).await;
                    Ok(())
                }));
            }
            // Never completes its request.
            flood.spawn(open_repeatedly(late, async move || {
                let mut stream = connected(socket(port).await?).await?;
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ").await?;
                keep_open(stream, held).await;
                Ok(())
            }));
            // Never reads its responses.
            flood.spawn(open_repeatedly(late, async move || {
                let mut stream = connected(socket(port).await?).await?;
                for _ in 0..200 {
                    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await?;
                }
                keep_open(stream, held).await;
                Ok(())
            }));
        }
        flood
    })
    .await;
}

async fn many_unread_responses_do_not_stop_leader_or_probes_and_memory_is_bounded(on: On) {
    check_under_load(on, "a flood that reads no answer", |port| {
        let held = Duration::from_secs(5);
        let mut flood = JoinSet::new();
        for number in 0..300_u32 {
            flood.spawn(open_repeatedly(held * number / 300, async move || {
                keep_open(unreading(socket(port).await?).await?, held).await;
                Ok(())
            }));
        }
        flood
    })
    .await;
}

/// Checks that a leader and its probes work during a flood. The flood comes from the same address as the probes, at a
/// steady rate: some hundred connections in two seconds, which is fewer than the limit, and many times that in total.
async fn check_under_load(on: On, what: &str, begin: fn(u16) -> JoinSet<()>) {
    let Some(plane) = on.server(what, Options::default()).await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let launch = Launch::new(&plane, Flavour::Ours).unwrap().flag("leader-elect-resource-name", "flooded");
    // A leader that cannot renew for ten seconds loses its lease.
    let mut manager = launch.lease(15_000, 10_000, 2000).started().await.unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/flooded";
    let led = async || {
        Ok(admin.find(lease).await?.filter(|it| it["spec"]["holderIdentity"].as_str().is_some_and(|it| !it.is_empty())))
    };
    let before = eventually("a leader", TIME_LIMIT, led).await.unwrap();
    let usage = Usage::of(manager.pid()).unwrap();

    let port = manager.port();
    let mut flood = begin(port);
    let clock = Clock::system();
    let end = clock.now() + Duration::from_secs(15);
    let (mut probes, mut slowest) = (0, Duration::ZERO);
    while clock.now() < end {
        let begun = clock.now();
        // Like the kubelet in a kubeadm cluster: a new connection for each probe, and a timeout of 15 s.
        let probe = tokio::time::timeout(Duration::from_secs(15), async {
            Rest::unverified(port)?.send(Method::GET, "/healthz", None).await
        });
        let answer = probe.await.unwrap_or_else(|_| panic!("probe {probes} was not answered")).unwrap();
        assert_eq!(answer.code, 200, "{}", answer.text);
        (probes, slowest) = (probes + 1, slowest.max(clock.now() - begun));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let grown = Usage::of(manager.pid()).unwrap().peak_kib.saturating_sub(usage.resident_kib);
    report(&format!("{what}, 15 s: {probes} probes, the slowest {slowest:?}; {grown} KiB more at the peak"));
    assert!(grown < 64 << 10, "{grown} KiB");
    flood.shutdown().await;

    assert!(manager.status().unwrap().is_none(), "it still runs");
    let after = admin.get(lease).await.unwrap();
    for field in ["holderIdentity", "leaseTransitions", "acquireTime"] {
        assert_eq!(before["spec"][field], after["spec"][field], "{field}");
    }
    assert_ne!(before["spec"]["renewTime"], after["spec"]["renewTime"], "it was renewed");
}

/// Opens one connection after another; the first one after `late`.
async fn open_repeatedly(late: Duration, connect: impl AsyncFn() -> anyhow::Result<()>) {
    tokio::time::sleep(late).await;
    loop {
        // The connection may be refused.
        let _ = connect().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Keeps a connection open, even when the other side has closed it, and reads no data from it.
async fn keep_open(stream: impl std::any::Any, held: Duration) {
    let _stream = stream;
    tokio::time::sleep(held).await;
}
