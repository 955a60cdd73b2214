use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures::future::join_all;
use http::{HeaderName, header};
use metrics::Metrics;
use serde_json::{Value, json};

use super::*;
use crate::{
    authorities::{Bundle, Proxies, ProxyHeaders},
    review::ReviewClient,
    testing::{Authority, api, response},
};

struct Fixture {
    authentication: Authentication,
    authorities: watch::Sender<Arc<Authorities>>,
    clients: Authority,
    proxies: Authority,
    calls: Arc<AtomicU32>,
    metrics: Metrics,
}

fn bundle(authority: &Authority) -> Bundle {
    Bundle::read(authority.pem().as_bytes()).unwrap()
}

/// The token `good` belongs to Jane, `unknown` to no user, and `spoiled` gets an error from the server.
fn fixture() -> Fixture {
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let text = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let headers = ProxyHeaders {
        username: text(&["X-Remote-User"]),
        uid: text(&["X-Remote-Uid"]),
        group: text(&["X-Remote-Group"]),
        extra_prefix: text(&["X-Remote-Extra-"]),
    };
    let authorities = Authorities {
        clients: Some(bundle(&clients)),
        proxies: Some(Proxies { authorities: Some(bundle(&proxies)), allowed: text(&["front"]), headers }),
    };
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let api = api(move |path, question: Value| {
        assert_eq!(path, "/apis/authentication.k8s.io/v1/tokenreviews");
        counted.fetch_add(1, Ordering::SeqCst);
        let status = match question["spec"]["token"].as_str().unwrap() {
            "good" => {
                json!({ "authenticated": true, "user": { "username": "jane", "uid": "7", "groups": ["g"], "extra": { "k": ["v"] } } })
            }
            "spoiled" => json!({ "error": "[spoiled is invalid]" }),
            _ => json!({}),
        };
        response(201, &json!({ "status": status }))
    });
    let (metrics, clock) = (Metrics::new(), Clock::system());
    let auth_metrics = Arc::new(AuthMetrics::new(&metrics));
    let review_client = ReviewClient::new(api, TOKENS, "authn", &metrics, clock.clone(), 1);
    let tokens =
        Some(TokenReviews::new(review_client, Duration::from_secs(10), clock.clone(), auth_metrics.clone()).unwrap());
    let (sender, authorities) = watch::channel(Arc::new(authorities));
    let authentication = Authentication { authorities, tokens, clock, auth_metrics };
    Fixture { authentication, authorities: sender, clients, proxies, calls, metrics }
}

impl Fixture {
    async fn authenticate(&self, chain: &[CertificateDer<'_>], headers: &[(&str, &str)]) -> Result<User, String> {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::try_from(*name).unwrap(), header::HeaderValue::try_from(*value).unwrap())
        });
        // A header may occur more than once.
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        self.authentication.authenticate(chain, &map).await
    }

    async fn token(&self, token: &str) -> Result<User, String> {
        self.authenticate(&[], &[("authorization", &format!("Bearer {token}"))]).await
    }
}

#[tokio::test]
async fn acceptance_shell_019_without_a_credential_the_user_is_anonymous() {
    let fixture = fixture();
    for headers in [&[][..], &[("authorization", "Basic abc")], &[("x-remote-user", "root")]] {
        let user = fixture.authenticate(&[], headers).await.unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("system:anonymous", vec!["system:unauthenticated".to_owned()]));
    }
    assert_eq!(fixture.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn certificate_contains_user_group_and_uid() {
    let fixture = fixture();
    let user =
        fixture.authenticate(&[fixture.clients.client("root", &["system:masters"]).certificate], &[]).await.unwrap();
    assert_eq!(user.name, "root");
    assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    let user = fixture.authenticate(&[fixture.clients.client_with_uid("jane", "42").certificate], &[]).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
}

#[tokio::test]
async fn certificate_of_an_unknown_authority_is_refused_unless_a_token_is_valid() {
    let fixture = fixture();
    let unknown = [Authority::new("other").client("root", &[]).certificate];
    assert!(fixture.authenticate(&unknown, &[]).await.is_err());
    let user = fixture.authenticate(&unknown, &[("authorization", "Bearer good")]).await.unwrap();
    assert_eq!(user.name, "jane");
}

#[tokio::test]
async fn only_an_allowed_front_proxy_may_set_the_user() {
    let fixture = fixture();
    let headers = [
        ("x-remote-user", "jane"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-Scopes%2fx", "s"),
    ];
    let front = [fixture.proxies.client("front", &[]).certificate];
    let user = fixture.authenticate(&front, &headers).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
    assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
    assert_eq!(user.extra["scopes/x"], ["s"]);

    assert!(fixture.authenticate(&[fixture.proxies.client("other", &[]).certificate], &headers).await.is_err());
    // With a client certificate the front proxy headers are ignored.
    let user = fixture.authenticate(&[fixture.clients.client("front", &[]).certificate], &headers).await.unwrap();
    assert_eq!(user.name, "front");
}

#[tokio::test]
async fn removed_authority_is_not_trusted_on_open_connections() {
    let fixture = fixture();
    // A connection keeps only the certificate of its client.
    let chain = [fixture.clients.client("root", &["system:masters"]).certificate];
    assert_eq!(fixture.authenticate(&chain, &[]).await.unwrap().name, "root");
    let other = Authorities { clients: Some(bundle(&Authority::new("other"))), proxies: None };
    fixture.authorities.send_replace(Arc::new(other));
    assert!(fixture.authenticate(&chain, &[]).await.is_err());
    fixture.authorities.send_replace(Arc::new(Authorities::default()));
    assert!(fixture.authenticate(&chain, &[]).await.unwrap().is_anonymous());
}

#[tokio::test(start_paused = true)]
async fn token_is_reviewed_once_and_cached() {
    let fixture = fixture();
    let users = join_all((0..20).map(|_| fixture.token("good"))).await;
    for user in users {
        let user = user.unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["g", "system:authenticated"]);
    }
    assert!(fixture.token("unknown").await.is_err());
    assert!(fixture.token("unknown").await.is_err());
    assert_eq!(fixture.calls.load(Ordering::SeqCst), 2, "a refusal is cached too");
    assert!(fixture.token("spoiled").await.is_err());
    let err = fixture.token("spoiled").await.unwrap_err();
    assert_eq!(fixture.calls.load(Ordering::SeqCst), 4, "an error is not");
    assert!(!err.contains("spoiled"), "no token in a message: {err}");
    tokio::time::advance(Duration::from_secs(10)).await;
    fixture.token("good").await.unwrap();
    assert_eq!(fixture.calls.load(Ordering::SeqCst), 5);

    let metrics = fixture.metrics.encode();
    for line in [
        "authentication_token_cache_fetch_total{status=\"error\"} 2",
        "authentication_token_cache_fetch_total{status=\"ok\"} 3",
        "authentication_token_cache_request_total{status=\"hit\"} 20",
        "authentication_token_cache_active_fetch_count{status=\"in_flight\"} 0",
        "authentication_attempts{result=\"error\"} 4",
        "apiserver_delegated_authn_request_total{code=\"201\"} 5",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    for secret in ["good", "unknown", "spoiled"] {
        assert!(!metrics.contains(secret), "{metrics}");
    }
}
