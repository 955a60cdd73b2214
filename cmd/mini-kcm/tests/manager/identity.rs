//! The identities of controllers at the API server: tokens are requested, renewed, expire and are refused, in virtual
//! time.

use super::*;

const OWN: &str = "--use-service-account-credentials";
/// One controller has one account.
const ALONE: &str = "--controllers=namespace";
const USER: &str = "system:serviceaccount:kube-system:namespace-controller";
const MINUTE: Duration = Duration::from_secs(60);

fn token_requests(calls: &[Recorded]) -> Vec<&Recorded> {
    calls.iter().filter(|it| it.resource == "serviceaccounts" && it.subresource == "token").collect()
}

/// The writes of the namespace controller: its deletions and finalize calls.
fn deeds(calls: &[Recorded]) -> Vec<&Recorded> {
    let deed = |it: &&Recorded| {
        matches!(it.verb, "update" | "delete" | "deletecollection" | "patch") && it.resource != "leases"
    };
    calls.iter().filter(deed).collect()
}

/// Deletes a namespace and waits until it is gone.
async fn empties(cluster: &TestCluster, name: &str) {
    condemn(cluster, name);
    until("the namespace is gone", || gone(cluster, name)).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_040_controllers_act_as_accounts_of_their_own_which_are_created() {
    let cluster = cluster();
    cluster.remove("namespaces", "", "kube-system");
    let replica = Replica::start(&cluster, "a", &[OWN, ALONE]);
    empties(&cluster, "doomed").await;
    assert!(cluster.get("serviceaccounts", "kube-system", "namespace-controller").is_some());
    assert!(cluster.get("namespaces", "", "kube-system").is_some(), "created when it is missing");
    let calls = cluster.requests();
    assert!(deeds(&calls).len() >= 3);
    for call in deeds(&calls) {
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
        assert_eq!(call.user, "", "as the manager itself: {} {}", call.method, call.path);
    }
    assert_eq!(token_requests(&calls).len(), 1);
    replica.stop.cancel();
    assert_eq!(replica.ended().await, Exit::Clean);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_041_without_the_flag_only_the_user_agent_tells_controllers_apart() {
    let cluster = cluster();
    let _replica = Replica::start(&cluster, "a", &[]);
    empties(&cluster, "doomed").await;
    let calls = cluster.requests();
    assert!(deeds(&calls).len() >= 3);
    assert!(calls.iter().all(|it| it.user.is_empty()));
    assert!(token_requests(&calls).is_empty());
    for call in deeds(&calls) {
        assert!(call.user_agent.ends_with("/namespace-controller#a"), "{}", call.user_agent);
        assert!(call.user_agent.starts_with("mini-kcm/v"), "{}", call.user_agent);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_ahead_for_days_and_nobody_notices() {
    let cluster = cluster();
    let _replica = Replica::start(&cluster, "a", &[OWN, ALONE]);
    for number in 0..50 {
        empties(&cluster, &format!("doomed-{number}")).await;
        tokio::time::sleep(MINUTE * 59).await;
    }
    let calls = cluster.requests();
    assert!(calls.iter().all(|it| it.status != 401));
    let asked: Vec<u64> = token_requests(&calls).windows(2).map(|it| (it[1].at - it[0].at).as_secs() / 60).collect();
    assert!(asked.len() > 50, "{asked:?}");
    assert!(asked.iter().all(|it| *it == 48), "a fifth of the hour is left: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_renewal_is_told_and_the_old_token_used_until_its_end() {
    let cluster = cluster();
    let replica = Replica::start(&cluster, "a", &[OWN, ALONE]);
    empties(&cluster, "first").await;
    let begun = now();
    cluster.intercept(move |call: &Call| match call.subresource.as_str() {
        "token" if now() - begun < MINUTE * 70 => Verdict::status(500, "InternalError", "no tokens today"),
        _ => Verdict::Pass,
    });
    tokio::time::sleep(MINUTE * 55).await;
    empties(&cluster, "with-the-old-token").await;
    let failed = "mini_kcm_service_account_token_requests_total{account=\"namespace-controller\",result=\"failed\"}";
    assert!(replica.metrics.encode().contains(failed), "{}", replica.metrics.encode());
    tokio::time::sleep(MINUTE * 10).await;
    condemn(&cluster, "without-a-token");
    tokio::time::sleep(MINUTE).await;
    assert!(!gone(&cluster, "without-a-token"));
    assert!(cluster.requests().iter().all(|it| it.status != 401), "a token that has ended is not shown");
    until("a token comes again", || gone(&cluster, "without-a-token")).await;
    assert!(now() - begun < MINUTE * 85, "soon after it can be had");
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_leads_to_one_new_one_and_the_request_is_repeated() {
    let cluster = cluster();
    let _replica = Replica::start(&cluster, "a", &[OWN, ALONE]);
    empties(&cluster, "first").await;
    tokio::time::sleep(MINUTE).await;
    cluster.delete("serviceaccounts", "kube-system", "namespace-controller");
    cluster.clear_requests();
    let before = now();
    empties(&cluster, "second").await;
    assert!(now() - before < MINUTE, "nobody waits for a back-off");
    let calls = cluster.requests();
    assert_eq!(token_requests(&calls).len(), 1, "one token for all that were refused");
    assert!(calls.iter().any(|it| it.status == 401));
    assert!(cluster.get("serviceaccounts", "kube-system", "namespace-controller").is_some(), "created anew");
}

#[tokio::test(start_paused = true)]
async fn a_standby_has_its_tokens_ready_and_creates_nothing_but_its_accounts() {
    let cluster = cluster();
    let _leader = Replica::start(&cluster, "a", &[]);
    until("it leads", || leads(&cluster, "a")).await;
    let standby = Replica::start(&cluster, "b", &[OWN, ALONE]);
    tokio::time::sleep(MINUTE).await;
    let calls = cluster.requests();
    let wrote: Vec<String> =
        standby.writes(&calls).iter().map(|it| format!("{} {}", it.resource, it.subresource)).collect();
    assert_eq!(wrote, ["serviceaccounts ", "serviceaccounts token"]);
}
