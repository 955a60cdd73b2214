//! The identities of controllers at the API server: tokens are requested, renewed, expire and are refused, in virtual
//! time.

use super::*;

const OWN_ACCOUNTS: &str = "--use-service-account-credentials";
/// One controller has one account.
const ONLY_NAMESPACE: &str = "--controllers=namespace";
const USER: &str = "system:serviceaccount:kube-system:namespace-controller";
const MINUTE: Duration = Duration::from_secs(60);

fn token_requests(calls: &[Recorded]) -> Vec<&Recorded> {
    calls.iter().filter(|it| it.resource == "serviceaccounts" && it.subresource == "token").collect()
}

/// The writes of the namespace controller: its deletions and finalize calls.
fn controller_writes(calls: &[Recorded]) -> Vec<&Recorded> {
    let is_write = |it: &&Recorded| {
        matches!(it.verb, "update" | "delete" | "deletecollection" | "patch") && it.resource != "leases"
    };
    calls.iter().filter(is_write).collect()
}

/// Deletes a namespace and waits until it is gone.
async fn terminate_namespace(cluster: &TestCluster, name: &str) {
    create_terminating_namespace(cluster, name);
    wait_until("the namespace is gone", || is_gone(cluster, name)).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_040_controllers_use_their_own_service_accounts_and_missing_ones_are_created() {
    let cluster = cluster();
    cluster.remove("namespaces", "", "kube-system");
    let replica = Replica::start(&cluster, "a", &[OWN_ACCOUNTS, ONLY_NAMESPACE]);
    terminate_namespace(&cluster, "terminating").await;
    assert!(cluster.get("serviceaccounts", "kube-system", "namespace-controller").is_some());
    assert!(cluster.get("namespaces", "", "kube-system").is_some(), "created when it is missing");
    let calls = cluster.requests();
    assert!(controller_writes(&calls).len() >= 3);
    for call in controller_writes(&calls) {
        assert_eq!(call.user, USER, "{} {}", call.method, call.path);
    }
    // All requests are checked, not only writes: the manager has the same read permissions, so a wrong identity would
    // not be visible.
    let own: Vec<&Recorded> = calls.iter().filter(|it| it.user_agent.ends_with("/namespace-controller#a")).collect();
    assert!(own.iter().any(|it| it.verb == "list"));
    for call in own {
        assert_eq!(call.user, USER, "{} {}", call.method, call.path);
    }
    let election = |it: &&Recorded| it.resource == "leases" && !it.namespace.is_empty();
    for call in calls.iter().filter(|it| it.verb == "watch" || election(it) || it.subresource == "token") {
        assert_eq!(call.user, "", "with the manager's own identity: {} {}", call.method, call.path);
    }
    assert_eq!(token_requests(&calls).len(), 1);
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_041_without_the_flag_only_the_user_agent_differs_between_controllers() {
    let cluster = cluster();
    let _replica = Replica::start(&cluster, "a", &[]);
    terminate_namespace(&cluster, "terminating").await;
    let calls = cluster.requests();
    assert!(controller_writes(&calls).len() >= 3);
    assert!(calls.iter().all(|it| it.user.is_empty()));
    assert!(token_requests(&calls).is_empty());
    for call in controller_writes(&calls) {
        assert!(call.user_agent.ends_with("/namespace-controller#a"), "{}", call.user_agent);
        assert!(call.user_agent.starts_with("mini-kcm/v"), "{}", call.user_agent);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_before_they_expire() {
    let cluster = cluster();
    let _replica = Replica::start(&cluster, "a", &[OWN_ACCOUNTS, ONLY_NAMESPACE]);
    for number in 0..50 {
        terminate_namespace(&cluster, &format!("terminating-{number}")).await;
        tokio::time::sleep(MINUTE * 59).await;
    }
    let calls = cluster.requests();
    assert!(calls.iter().all(|it| it.status != 401));
    let minutes: Vec<u64> = token_requests(&calls).windows(2).map(|it| (it[1].at - it[0].at).as_secs() / 60).collect();
    assert!(minutes.len() > 50, "{minutes:?}");
    assert!(minutes.iter().all(|it| *it == 48), "a fifth of the hour is left: {minutes:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_counted_and_the_old_token_is_used_until_it_expires() {
    let cluster = cluster();
    let replica = Replica::start(&cluster, "a", &[OWN_ACCOUNTS, ONLY_NAMESPACE]);
    terminate_namespace(&cluster, "first").await;
    let begun = now();
    cluster.intercept(move |call: &Call| match call.subresource.as_str() {
        "token" if now() - begun < MINUTE * 70 => Interception::status(500, "InternalError", "no tokens today"),
        _ => Interception::Pass,
    });
    tokio::time::sleep(MINUTE * 55).await;
    terminate_namespace(&cluster, "with-the-old-token").await;
    let failed = "mini_kcm_service_account_token_requests_total{account=\"namespace-controller\",result=\"failed\"}";
    assert!(replica.metrics.encode().contains(failed), "{}", replica.metrics.encode());
    tokio::time::sleep(MINUTE * 10).await;
    create_terminating_namespace(&cluster, "without-a-token");
    tokio::time::sleep(MINUTE).await;
    assert!(!is_gone(&cluster, "without-a-token"));
    assert!(cluster.requests().iter().all(|it| it.status != 401), "an expired token is not sent");
    wait_until("a token is issued again", || is_gone(&cluster, "without-a-token")).await;
    assert!(now() - begun < MINUTE * 85, "soon after tokens are issued again");
}

#[tokio::test(start_paused = true)]
async fn refused_token_is_replaced_once_and_the_request_is_retried() {
    let cluster = cluster();
    let _replica = Replica::start(&cluster, "a", &[OWN_ACCOUNTS, ONLY_NAMESPACE]);
    terminate_namespace(&cluster, "first").await;
    tokio::time::sleep(MINUTE).await;
    cluster.delete("serviceaccounts", "kube-system", "namespace-controller");
    cluster.clear_requests();
    let before = now();
    terminate_namespace(&cluster, "second").await;
    assert!(now() - before < MINUTE, "no request waits for a back-off");
    let calls = cluster.requests();
    assert_eq!(token_requests(&calls).len(), 1, "one token for all refused requests");
    assert!(calls.iter().any(|it| it.status == 401));
    assert!(cluster.get("serviceaccounts", "kube-system", "namespace-controller").is_some(), "created again");
}

#[tokio::test(start_paused = true)]
async fn standby_requests_its_tokens_and_creates_only_its_accounts() {
    let cluster = cluster();
    let _leader = Replica::start(&cluster, "a", &[]);
    wait_until("it leads", || is_leader(&cluster, "a")).await;
    let standby = Replica::start(&cluster, "b", &[OWN_ACCOUNTS, ONLY_NAMESPACE]);
    tokio::time::sleep(MINUTE).await;
    let calls = cluster.requests();
    let wrote: Vec<String> =
        standby.writes(&calls).iter().map(|it| format!("{} {}", it.resource, it.subresource)).collect();
    assert_eq!(wrote, ["serviceaccounts ", "serviceaccounts token"]);
}
