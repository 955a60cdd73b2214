//! Which front proxies a manager trusts: those that the real API server publishes, also after a change.

#![expect(clippy::unwrap_used, reason = "scenarios are tests")]

use std::{path::Path, time::Duration};

use e2e::{ControlPlane, Flavour, Identity, Launch, Manager, Options, Rest, assets_or_skip, eventually};
use http::Method;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The manager reads it again every 30 s; the rest is for a machine that compiles at the same time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(45);
const AUTHENTICATION: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const AUTHORITIES: &str = "requestheader-client-ca-file";

/// The `user` of a kubeconfig with the certificate `name` in this folder.
fn client_certificate(folder: &Path, name: &str) -> Value {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    json!({ "client-certificate": file("crt"), "client-key": file("key") })
}

/// Creates a front proxy of another authority, as the certificate `other` in this folder; returns that authority.
fn other_proxy(folder: &Path) -> String {
    let named = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let (mut authority, key) = (named("e2e-other-front-proxy"), KeyPair::generate().unwrap());
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let certificate = named("front-proxy-client").signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("other.crt"), certificate.pem()).unwrap();
    std::fs::write(folder.join("other.key"), key.serialize_pem()).unwrap();
    pem
}

/// The response for /metrics, on a new connection.
async fn get_metrics(manager: &Manager, user: Value, headers: &[(&str, &str)]) -> (u16, String) {
    let rest = Rest::unverified_with_headers(manager.port(), user, headers).unwrap();
    let answer = rest.send(Method::GET, "/metrics", None).await.unwrap();
    (answer.code, answer.text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn front_proxies_are_those_that_the_cluster_publishes_also_after_a_change() {
    let Some(assets) = assets_or_skip("front proxies") else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let told = eventually("the server to publish its front proxies", TIME_LIMIT, async || {
        let found = admin.find(AUTHENTICATION).await?;
        Ok(found.and_then(|it| it["data"][AUTHORITIES].as_str().map(str::to_owned)))
    })
    .await
    .unwrap();
    let kubeconfig = plane.kubeconfig(Identity::ControllerManager).unwrap().display().to_string();
    let manager = Launch::new(&plane, Flavour::from_environment())
        .unwrap()
        .flag("authorization-always-allow-paths", "/healthz,/readyz,/livez")
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
        .started()
        .await
        .unwrap();

    let scraper = [("X-Remote-User", "scraper")];
    let master = [("X-Remote-User", "scraper"), ("X-Remote-Group", "system:masters")];
    let proxy = client_certificate(plane.certificates(), "front-proxy-client");
    let (code, text) = get_metrics(&manager, proxy.clone(), &scraper).await;
    assert!(code == 403 && text.contains("User \\\"scraper\\\""), "the user in the headers: {code} {text}");
    let (code, text) = get_metrics(&manager, proxy, &master).await;
    assert_eq!(code, 200, "{text}");
    // A client certificate of the clients' authority determines the user, whatever the headers contain.
    let (code, text) =
        get_metrics(&manager, client_certificate(plane.certificates(), "controller-manager"), &master).await;
    assert!(code == 403 && text.contains("system:kube-controller-manager"), "{code} {text}");

    let pem = other_proxy(plane.folder());
    let other = client_certificate(plane.folder(), "other");
    let (code, text) = get_metrics(&manager, other.clone(), &master).await;
    assert_eq!(code, 401, "{text}");
    // The server restores its own authority when it is removed, but does not remove authorities that others add.
    for (authorities, want) in [(format!("{}\n{pem}", told.trim_end()), 200), (told.clone(), 401)] {
        admin.merge(AUTHENTICATION, &json!({ "data": { AUTHORITIES: authorities } })).await.unwrap();
        eventually("the manager to notice the change", REFRESH_INTERVAL, async || {
            let (code, text) = get_metrics(&manager, other.clone(), &master).await;
            anyhow::ensure!(code == want, "{code} {text}");
            Ok(Some(()))
        })
        .await
        .unwrap();
    }
}
