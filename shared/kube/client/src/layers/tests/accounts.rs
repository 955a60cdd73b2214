//! The identities of controllers: a write that waited for a token is not sent after its term, and a request that is
//! sent twice is counted twice.

use std::sync::atomic::{AtomicUsize, Ordering};

use tasks::Scope;

use super::*;

const TOKEN: &str = r#"{"metadata":{"creationTimestamp":"1970-01-01T00:00:00Z"},
    "status":{"token":"t","expirationTimestamp":"1970-01-01T01:00:00Z"}}"#;

/// A server with a delay for the first token and one for later tokens. It refuses `refuses` other requests.
fn bench([first, later]: [Duration; 2], refuses: usize) -> Bench {
    let (tokens, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Bench::new(Term::new, move |_, request| {
        let path = request.uri().path().to_owned();
        let (token, account) = (path.ends_with("/token"), path.contains("/serviceaccounts/"));
        let number = match (token, account) {
            (true, _) => tokens.fetch_add(1, Ordering::Relaxed),
            (false, true) => 0,
            (false, false) => others.fetch_add(1, Ordering::Relaxed),
        };
        async move {
            match (token, account) {
                (true, _) => {
                    tokio::time::sleep(if number == 0 { first } else { later }).await;
                    Ok(response(201, None, TOKEN))
                }
                (false, true) => Ok(response(200, None, "{}")),
                (false, false) => Ok(response(if number < refuses { 401 } else { 200 }, None, WRITTEN)),
            }
        }
    })
}

/// The client of a controller with its own identity.
fn own_identity_client(bench: &Bench, scope: &Scope) -> Api {
    let account = bench.clients.accounts(Limits::NONE, scope.spawner()).account("job-controller");
    bench.clients.controller_as(&account, "job-controller", Limits::NONE)
}

/// The number of requests whose URI contains `what`.
fn sent(bench: &Bench, what: &str) -> usize {
    bench.requests().iter().filter(|it| it.uri.contains(what)).count()
}

#[tokio::test(start_paused = true)]
async fn write_that_waited_for_its_token_beyond_the_term_is_not_sent() {
    let (none, long) = (Duration::ZERO, 11 * SECOND);
    for (name, delays, refuses, want) in
        [("for the first token", [long, none], 0, 0), ("between a refusal and its retry", [none, long], 1, 1)]
    {
        let (bench, scope) = (bench(delays, refuses), Scope::new());
        let api = own_identity_client(&bench, &scope);
        if refuses > 0 {
            // A refused token that is too new would not be replaced.
            tokio::time::sleep(60 * SECOND).await;
        }
        assert!(bench.term.extend(bench.clock.boot(), TERM));
        let err = create(&api).await.unwrap_err();
        assert!(matches!(err, ApiError::NotSent(NotSent::TermEnded)), "{name}: {err}");
        assert_eq!(sent(&bench, "/pods"), want, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_is_retried_with_another_token_is_counted_twice() {
    let (bench, scope) = (bench([Duration::ZERO; 2], 1), Scope::new());
    let api = own_identity_client(&bench, &scope);
    tokio::time::sleep(60 * SECOND).await;
    api.read("/apis/apps/v1/deployments", "*/*").await.unwrap();
    assert_eq!(sent(&bench, "/deployments"), 2);
    assert_eq!(sent(&bench, "/token"), 2);
    let text = bench.metrics.encode();
    for line in [
        r#"rest_client_requests_total{code="401",host="in-memory",method="GET"} 1"#,
        // The ServiceAccount is read before each token request.
        r#"rest_client_requests_total{code="200",host="in-memory",method="GET"} 3"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn write_that_another_server_may_have_refused_is_not_retried() {
    let (bench, scope) = (bench([Duration::ZERO; 2], 1), Scope::new());
    let api = own_identity_client(&bench, &scope);
    tokio::time::sleep(60 * SECOND).await;
    assert!(bench.term.extend(bench.clock.boot(), TERM));
    let deployments = Resource::namespaced("apps", "v1", "deployments", "Deployment");
    let object = json!({ "kind": "Deployment" });
    let err = api.create(&deployments, "ns", &object).await.map(|_| ()).unwrap_err();
    assert!(matches!(err, ApiError::Refused(_)), "{err}");
    assert_eq!(sent(&bench, "/deployments"), 1);
    // A new token is requested, although no request waits for it here.
    tokio::time::sleep(SECOND).await;
    api.create(&deployments, "ns", &object).await.map(|_| ()).unwrap();
    assert_eq!(sent(&bench, "/token"), 2, "one new token for both");
}
