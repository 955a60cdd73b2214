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
    review::Reviewer,
    testing::{Authority, answer, api},
    trust::{Bundle, Proxies, ProxyHeaders},
};

struct World {
    authentication: Authentication,
    trust: watch::Sender<Arc<Trust>>,
    clients: Authority,
    proxies: Authority,
    calls: Arc<AtomicU32>,
    metrics: Metrics,
}

fn bundle(authority: &Authority) -> Bundle {
    Bundle::read(authority.pem().as_bytes()).unwrap()
}

/// The token `good` belongs to Jane, `unknown` to no user, and `spoiled` gets an error from the server.
fn world() -> World {
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let text = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let headers = ProxyHeaders {
        username: text(&["X-Remote-User"]),
        uid: text(&["X-Remote-Uid"]),
        group: text(&["X-Remote-Group"]),
        extra_prefix: text(&["X-Remote-Extra-"]),
    };
    let trust = Trust {
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
        answer(201, &json!({ "status": status }))
    });
    let (metrics, clock) = (Metrics::new(), Clock::system());
    let measured = Arc::new(Measured::new(&metrics));
    let reviewer = Reviewer::new(api, TOKENS, "authn", &metrics, clock.clone(), 1);
    let tokens = Some(Tokens::new(reviewer, Duration::from_secs(10), clock.clone(), measured.clone()).unwrap());
    let (sender, trust) = watch::channel(Arc::new(trust));
    let authentication = Authentication { trust, tokens, clock, measured };
    World { authentication, trust: sender, clients, proxies, calls, metrics }
}

impl World {
    async fn who(&self, chain: &[CertificateDer<'_>], headers: &[(&str, &str)]) -> Result<User, String> {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::try_from(*name).unwrap(), header::HeaderValue::try_from(*value).unwrap())
        });
        // A header may occur more than once.
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        self.authentication.who(chain, &map).await
    }

    async fn token(&self, token: &str) -> Result<User, String> {
        self.who(&[], &[("authorization", &format!("Bearer {token}"))]).await
    }
}

#[tokio::test]
async fn acceptance_shell_019_without_any_proof_the_user_is_anonymous() {
    let world = world();
    for headers in [&[][..], &[("authorization", "Basic abc")], &[("x-remote-user", "root")]] {
        let user = world.who(&[], headers).await.unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("system:anonymous", vec!["system:unauthenticated".to_owned()]));
    }
    assert_eq!(world.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_certificate_names_user_group_and_uid() {
    let world = world();
    let user = world.who(&[world.clients.client("root", &["system:masters"]).certificate], &[]).await.unwrap();
    assert_eq!(user.name, "root");
    assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    let user = world.who(&[world.clients.client_with_uid("jane", "42").certificate], &[]).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
}

#[tokio::test]
async fn a_strangers_certificate_is_refused_unless_a_token_is_good() {
    let world = world();
    let stranger = [Authority::new("other").client("root", &[]).certificate];
    assert!(world.who(&stranger, &[]).await.is_err());
    let user = world.who(&stranger, &[("authorization", "Bearer good")]).await.unwrap();
    assert_eq!(user.name, "jane");
}

#[tokio::test]
async fn only_the_allowed_front_proxy_speaks_for_others() {
    let world = world();
    let said = [
        ("x-remote-user", "jane"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-Scopes%2fx", "s"),
    ];
    let front = [world.proxies.client("front", &[]).certificate];
    let user = world.who(&front, &said).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
    assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
    assert_eq!(user.extra["scopes/x"], ["s"]);

    assert!(world.who(&[world.proxies.client("other", &[]).certificate], &said).await.is_err());
    // With a client certificate the front proxy headers are ignored.
    let user = world.who(&[world.clients.client("front", &[]).certificate], &said).await.unwrap();
    assert_eq!(user.name, "front");
}

#[tokio::test]
async fn an_authority_that_counts_no_more_counts_no_more_on_open_connections() {
    let world = world();
    // A connection keeps only the certificate of its client.
    let chain = [world.clients.client("root", &["system:masters"]).certificate];
    assert_eq!(world.who(&chain, &[]).await.unwrap().name, "root");
    let other = Trust { clients: Some(bundle(&Authority::new("other"))), proxies: None };
    world.trust.send_replace(Arc::new(other));
    assert!(world.who(&chain, &[]).await.is_err());
    world.trust.send_replace(Arc::new(Trust::default()));
    assert!(world.who(&chain, &[]).await.unwrap().is_anonymous());
}

#[tokio::test(start_paused = true)]
async fn tokens_are_asked_about_once_and_remembered() {
    let world = world();
    let users = join_all((0..20).map(|_| world.token("good"))).await;
    for user in users {
        let user = user.unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["g", "system:authenticated"]);
    }
    assert!(world.token("unknown").await.is_err());
    assert!(world.token("unknown").await.is_err());
    assert_eq!(world.calls.load(Ordering::SeqCst), 2, "a refusal is remembered too");
    assert!(world.token("spoiled").await.is_err());
    let err = world.token("spoiled").await.unwrap_err();
    assert_eq!(world.calls.load(Ordering::SeqCst), 4, "an error is not");
    assert!(!err.contains("spoiled"), "no token in a message: {err}");
    tokio::time::advance(Duration::from_secs(10)).await;
    world.token("good").await.unwrap();
    assert_eq!(world.calls.load(Ordering::SeqCst), 5);

    let metrics = world.metrics.encode();
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
