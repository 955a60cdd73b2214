//! The whole manager with an in-memory API server in virtual time: election, fence, controllers, shutdown.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers may panic")]

#[path = "manager/identity.rs"]
mod identity;
#[path = "manager/interlock.rs"]
mod interlock;
#[path = "manager/preflight.rs"]
mod preflight;

use std::time::Duration;

use clock::{Clock, Instant, Timestamp};
use http::HeaderValue;
use metrics::Metrics;
use mini_kcm::{
    config::Config,
    flags::{self, Invocation},
    manager::{self, Deps, Exit},
};
use serde_json::{Value, json};
use test_cluster::{Call, Interception, Recorded, TestCluster};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// One manager process. The suffix of its User-Agent identifies it.
struct Replica {
    name: &'static str,
    clock: Clock,
    stop: CancellationToken,
    metrics: Metrics,
    exit: JoinHandle<Exit>,
}

impl Replica {
    fn start(cluster: &TestCluster, name: &'static str, args: &[&str]) -> Self {
        let (config, deps) = Self::prepare(cluster, name, args);
        let Deps { clock, stop, metrics, .. } = &deps;
        let (clock, stop, metrics) = (clock.clone(), stop.clone(), metrics.clone());
        let exit = tokio::spawn(manager::run(config, deps));
        Self { name, clock, stop, metrics, exit }
    }

    /// The configuration and dependencies of a replica.
    fn prepare(cluster: &TestCluster, name: &'static str, args: &[&str]) -> (Config, Deps) {
        let args = ["--secure-port=0"].iter().chain(args).map(|it| (*it).to_owned());
        let Invocation::Run(typed) = flags::parse(args) else { panic!("flags") };
        let config = Config::new(typed).unwrap();
        let clock = Clock::virtual_from(epoch());
        let service = cluster.service();
        let transport = client::Transport::new(tower::service_fn(move |mut request: http::Request<client::Body>| {
            let agent = request.headers()[http::header::USER_AGENT].to_str().unwrap().to_owned();
            let agent = HeaderValue::from_str(&format!("{agent}#{name}")).unwrap();
            request.headers_mut().insert(http::header::USER_AGENT, agent);
            service.clone().oneshot(request)
        }));
        let deps = Deps::in_memory(&config, transport, clock, name);
        (config, deps)
    }

    /// The requests of this replica, without the Lease, events and preflight.
    fn requests_of_controllers<'a>(&self, calls: &'a [Recorded]) -> Vec<&'a Recorded> {
        let ours = calls.iter().filter(|it| it.user_agent.ends_with(&format!("#{}", self.name)));
        let ours = ours.filter(|it| !it.user_agent.contains("/preflight#"));
        ours.filter(|it| !it.verb.is_empty() && !matches!(it.resource.as_str(), "leases" | "events")).collect()
    }

    fn writes<'a>(&self, calls: &'a [Recorded]) -> Vec<&'a Recorded> {
        self.requests_of_controllers(calls)
            .into_iter()
            .filter(|it| !matches!(it.verb, "get" | "list" | "watch"))
            .collect()
    }

    async fn wait_until_ended(self) -> Exit {
        tokio::time::timeout(Duration::from_secs(600), self.exit).await.expect("the manager ends").unwrap()
    }
}

/// Virtual time, as in all these tests.
fn now() -> Instant {
    Clock::system().now()
}

fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn cluster() -> TestCluster {
    TestCluster::new(Clock::virtual_from(epoch()))
}

/// Creates a namespace with a ConfigMap, and deletes the namespace.
fn create_terminating_namespace(cluster: &TestCluster, name: &str) {
    cluster.create(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    }));
    cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": name}}));
    cluster.delete("namespaces", "", name);
}

fn is_gone(cluster: &TestCluster, name: &str) -> bool {
    cluster.get("namespaces", "", name).is_none()
}

fn lease(cluster: &TestCluster) -> Value {
    cluster.get("leases", "kube-system", "kube-controller-manager").unwrap_or_default()
}

fn is_leader(cluster: &TestCluster, replica: &str) -> bool {
    let holder = lease(cluster)["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    holder.starts_with(&format!("{replica}_"))
}

/// Advances virtual time until the condition holds, for ten minutes at most.
async fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within ten minutes: {what}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_052_a_manager_leads_records_events_empties_a_namespace_and_stops_in_order() {
    let cluster = cluster();
    create_terminating_namespace(&cluster, "terminating");
    let replica = Replica::start(&cluster, "a", &[]);
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert!(is_leader(&cluster, "a"));
    assert!(replica.metrics.encode().contains("leader_election_master_status{name=\"kube-controller-manager\"} 1"));
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
    assert_eq!(lease(&cluster)["spec"]["holderIdentity"], "");
    let calls = cluster.requests();
    let released = calls.iter().rposition(|it| it.resource == "leases" && it.verb == "update").unwrap();
    let messages: Vec<String> =
        cluster.list("events", "kube-system").iter().map(|it| it["message"].to_string()).collect();
    for what in ["became leader", "stopped leading"] {
        assert!(
            messages.iter().any(|it| it.contains(what) && it.contains("a_")),
            "acceptance_machinery_052: {what} in {messages:?}"
        );
    }
    let late = calls[released..].iter().filter(|it| it.resource != "leases" && it.resource != "events");
    assert_eq!(
        late.filter(|it| !matches!(it.verb, "get" | "list" | "watch" | "")).count(),
        0,
        "nothing is written after the release"
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_002_a_disabled_controller_sends_no_requests() {
    let cluster = cluster();
    create_terminating_namespace(&cluster, "terminating");
    // The garbage collector is off too, because it watches every type, including namespaces.
    let replica =
        Replica::start(&cluster, "a", &["--controllers=*,-namespace-controller,-garbage-collector-controller"]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let calls = cluster.requests();
    let others = replica.requests_of_controllers(&calls);
    assert!(others.iter().any(|it| it.resource == "jobs"), "other controllers run");
    assert!(others.iter().all(|it| it.resource != "namespaces"), "no informer, no queue, no worker");
    assert!(!replica.metrics.encode().contains("workqueue_depth{name=\"namespace\"}"));
    assert!(!is_gone(&cluster, "terminating"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_033_a_standby_writes_nothing_and_is_warm() {
    for (standby, informers) in [("--standby=warm", true), ("--standby=cold", false)] {
        let cluster = cluster();
        let leader = Replica::start(&cluster, "a", &[]);
        wait_until("a leads", || is_leader(&cluster, "a")).await;
        let other = Replica::start(&cluster, "b", &[standby]);
        create_terminating_namespace(&cluster, "terminating");
        wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
        let calls = cluster.requests();
        assert!(!leader.writes(&calls).is_empty());
        assert!(other.writes(&calls).is_empty(), "{standby}");
        assert_eq!(!other.requests_of_controllers(&calls).is_empty(), informers, "{standby}");
        assert!(is_leader(&cluster, "a"));
        assert!(other.metrics.encode().contains("leader_election_master_status{name=\"kube-controller-manager\"} 0"));
        other.stop.cancel();
        assert_eq!(other.wait_until_ended().await, Exit::Clean, "a standby stops at once");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_036_sigterm_drains_releases_and_the_standby_acts_at_once() {
    let cluster = cluster();
    let leader = Replica::start(&cluster, "a", &[]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    let other = Replica::start(&cluster, "b", &[]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    create_terminating_namespace(&cluster, "terminating");
    leader.stop.cancel();
    assert_eq!(leader.wait_until_ended().await, Exit::Clean);
    wait_until("b works", || !other.writes(&cluster.requests()).is_empty()).await;
    let calls = cluster.requests();
    let released = calls.iter().rfind(|it| it.resource == "leases" && it.user_agent.ends_with("#a")).unwrap().at;
    let took = other.writes(&calls)[0].at - released;
    assert!(took <= Duration::from_millis(150), "{took:?}");
    assert!(is_leader(&cluster, "b"));
    assert_eq!(lease(&cluster)["spec"]["leaseTransitions"], 1);
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    assert!(!other.exit.is_finished());
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_034_a_crashed_leader_is_replaced_when_its_lease_expires() {
    let cluster = cluster();
    let leader = Replica::start(&cluster, "a", &[]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    let other = Replica::start(&cluster, "b", &[]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    leader.exit.abort();
    create_terminating_namespace(&cluster, "terminating");
    wait_until("b works", || !other.writes(&cluster.requests()).is_empty()).await;
    let calls = cluster.requests();
    let renewals = calls
        .iter()
        .filter(|it| it.resource == "leases" && it.user_agent.ends_with("leader-election#a") && it.status == 200);
    let last = renewals.map(|it| it.at).max().unwrap();
    let took = other.writes(&calls)[0].at - last;
    let lease = Duration::from_secs(15);
    assert!(took >= lease && took <= lease + Duration::from_millis(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_035_a_leader_that_cannot_renew_fails_before_another_manager_can_lead() {
    let cluster = cluster();
    let leader = Replica::start(&cluster, "a", &[]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    cluster.intercept(|call| if call.resource == "leases" { Interception::Hang } else { Interception::Pass });
    let begin = now();
    let Exit::Failed(cause) = leader.wait_until_ended().await else { panic!("a lost lease is a failure") };
    assert!(cause.contains("leaderelection lost"), "{cause}");
    assert!(begin.elapsed() <= Duration::from_secs(12), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_037_the_lease_is_not_released_while_controllers_run() {
    let cluster = cluster();
    cluster.intercept(|call| if call.verb == "deletecollection" { Interception::Hang } else { Interception::Pass });
    create_terminating_namespace(&cluster, "terminating");
    let leader = Replica::start(&cluster, "a", &["--controller-shutdown-timeout=7s"]);
    wait_until("a call hangs", || cluster.requests().iter().any(|it| it.verb == "deletecollection")).await;
    let begin = now();
    leader.stop.cancel();
    let Exit::Failed(cause) = leader.wait_until_ended().await else {
        panic!("a controller that does not stop is a failure")
    };
    assert!(cause.contains("namespace-controller"), "{cause}");
    assert_eq!(begin.elapsed().as_secs(), 7);
    assert!(is_leader(&cluster, "a"), "running controllers may still write, so the Lease is not released");
}

#[tokio::test(start_paused = true)]
async fn long_sync_ends_between_two_calls_when_the_manager_stops() {
    let cluster = cluster();
    let slow = |verb: &str| matches!(verb, "list" | "deletecollection");
    cluster.intercept(move |call| {
        if slow(call.verb) { Interception::Delay(Duration::from_millis(3_500)) } else { Interception::Pass }
    });
    for number in 0..40 {
        create_terminating_namespace(&cluster, &format!("terminating-{number}"));
    }
    let leader = Replica::start(&cluster, "a", &[]);
    wait_until("a sync has begun", || cluster.requests().iter().any(|it| it.verb == "deletecollection")).await;
    let begin = now();
    leader.stop.cancel();
    assert_eq!(leader.wait_until_ended().await, Exit::Clean);
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    assert_eq!(lease(&cluster)["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn standby_stops_in_order_after_a_failed_attempt_to_acquire() {
    let cluster = cluster();
    let ours = |call: &Call| call.verb == "create" && call.resource == "leases";
    cluster.intercept(move |call| if ours(call) { Interception::text(500, "etcd failed") } else { Interception::Pass });
    let standby = Replica::start(&cluster, "a", &[]);
    wait_until("it has tried to acquire", || {
        cluster.requests().iter().any(|it| it.verb == "create" && it.resource == "leases")
    })
    .await;
    cluster.create(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "b_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }));
    standby.stop.cancel();
    assert_eq!(standby.wait_until_ended().await, Exit::Clean, "the Lease of another holder is not released");
    assert!(is_leader(&cluster, "b"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_038_a_term_begins_only_on_a_healthy_server() {
    for (unhealthy_for, want) in [(5, None), (60, Some("failed to wait for apiserver being healthy"))] {
        let cluster = cluster();
        let begin = now();
        cluster.intercept(move |call| {
            let is_healthy =
                call.path != "/healthz" || call.at.duration_since(begin) >= Duration::from_secs(unhealthy_for);
            if is_healthy { Interception::Pass } else { Interception::text(500, "etcd failed") }
        });
        create_terminating_namespace(&cluster, "terminating");
        let replica = Replica::start(&cluster, "a", &[]);
        match want {
            None => wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await,
            Some(text) => {
                let Exit::Failed(cause) = replica.wait_until_ended().await else { panic!("unhealthy for too long") };
                assert!(cause.contains(text), "{cause}");
                assert!(begin.elapsed() <= Duration::from_secs(11), "{:?}", begin.elapsed());
                assert_eq!(lease(&cluster)["spec"]["holderIdentity"], "", "the Lease is released");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_039_controllers_start_between_one_and_two_intervals_after_the_term_began() {
    let cluster = cluster();
    create_terminating_namespace(&cluster, "terminating");
    let replica = Replica::start(&cluster, "a", &["--controller-start-interval=10s"]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    let begin = now();
    wait_until("a works", || !replica.writes(&cluster.requests()).is_empty()).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(10) && took <= Duration::from_millis(20_100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_056_a_leader_suspended_past_its_lease_writes_nothing_of_its_old_term() {
    let cluster = cluster();
    // The rate limit is so low that writes of the old term wait for it when the machine is suspended.
    let mut leader = Replica::start(&cluster, "a", &["--kube-api-qps=0.05", "--kube-api-burst=1"]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    for number in 0..50 {
        create_terminating_namespace(&cluster, &format!("terminating-{number}"));
    }
    wait_until("a works", || !leader.writes(&cluster.requests()).is_empty()).await;
    leader.clock.suspend(Duration::from_secs(20));
    let before = leader.writes(&cluster.requests()).len();
    let Exit::Failed(cause) = (&mut leader.exit).await.unwrap() else { panic!("the term is over") };
    assert!(cause.contains("leaderelection lost"), "{cause}");
    assert_eq!(leader.writes(&cluster.requests()).len(), before, "no write after the pause");
}

#[tokio::test(start_paused = true)]
async fn without_leader_election_there_is_no_lease() {
    let cluster = cluster();
    create_terminating_namespace(&cluster, "terminating");
    let replica = Replica::start(&cluster, "a", &["--leader-elect=false"]);
    wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
    // Preflight reads the Leases to find other managers.
    let written =
        |it: &Recorded| it.resource == "leases" && it.namespace == "kube-system" && !matches!(it.verb, "get" | "list");
    let writes: Vec<_> = cluster.requests().into_iter().filter(written).collect();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn standby_that_stops_while_it_acquires_the_lease_releases_it() {
    for delay in [0, 1, 5, 20] {
        let cluster = cluster();
        cluster.intercept(|call| {
            if call.resource == "leases" {
                Interception::DelayAnswer(Duration::from_millis(10))
            } else {
                Interception::Pass
            }
        });
        let replica = Replica::start(&cluster, "a", &[]);
        wait_until("the first try", || cluster.requests().iter().any(|it| it.resource == "leases")).await;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        replica.stop.cancel();
        assert_eq!(replica.wait_until_ended().await, Exit::Clean);
        let holder = lease(&cluster)["spec"]["holderIdentity"].clone();
        assert!(holder.is_null() || holder == "", "{delay} ms: {holder}");
    }
}

#[tokio::test(start_paused = true)]
async fn stop_on_an_unhealthy_server_releases_the_lease_and_is_no_failure() {
    let cluster = cluster();
    cluster.intercept(|call| if call.path == "/healthz" { Interception::Hang } else { Interception::Pass });
    let replica = Replica::start(&cluster, "a", &[]);
    wait_until("a leads", || is_leader(&cluster, "a")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    replica.stop.cancel();
    assert_eq!(replica.wait_until_ended().await, Exit::Clean);
    assert_eq!(lease(&cluster)["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn warm_standby_does_not_wait_again_for_deletions_that_it_observed() {
    for (standby, fast) in [("--standby=warm", true), ("--standby=cold", false)] {
        let cluster = cluster();
        cluster.intercept(|call| {
            let is_blocked = call.subresource == "finalize" && call.user_agent.ends_with("#a");
            if is_blocked { Interception::status(500, "InternalError", "held") } else { Interception::Pass }
        });
        let leader = Replica::start(&cluster, "a", &[]);
        wait_until("a leads", || is_leader(&cluster, "a")).await;
        let _other = Replica::start(&cluster, "b", &[standby]);
        create_terminating_namespace(&cluster, "terminating");
        tokio::time::sleep(Duration::from_secs(30)).await;
        let begin = now();
        leader.stop.cancel();
        wait_until("the namespace is gone", || is_gone(&cluster, "terminating")).await;
        assert_eq!(begin.elapsed() < Duration::from_secs(1), fast, "{standby}: {:?}", begin.elapsed());
    }
}
