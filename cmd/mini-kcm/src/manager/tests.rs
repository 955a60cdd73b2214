use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use test_cluster::TestCluster;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::*;
use crate::config::tests::typed;

/// The pages of a running manager, requested without a network port.
struct TestSite {
    pages: Router,
    clock: Clock,
}

impl TestSite {
    fn start(cluster: &TestCluster, name: &str) -> Self {
        Self::start_with(cluster, name, &[])
    }

    fn start_with(cluster: &TestCluster, name: &str, args: &[&str]) -> Self {
        let args: Vec<&str> = ["--secure-port=0", "--controllers=namespace"].into_iter().chain(args.to_vec()).collect();
        let config = Config::new(typed(&args)).unwrap();
        let clock = Clock::virtual_from(Timestamp::UNIX_EPOCH);
        let deps = Deps::in_memory(&config, cluster.service(), clock.clone(), name);
        let mut manager = Manager::new(config, deps);
        let pages = pages::router(manager.page_data());
        tokio::spawn(async move { manager.run().await });
        Self { pages, clock }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (parts, body) = self.pages.clone().oneshot(request).await.unwrap().into_parts();
        let text = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        (parts.status.as_u16(), text)
    }

    /// Advances virtual time until controllers run, for one minute at most.
    async fn wait_until_leading(&self) {
        for _ in 0..6_000 {
            if self.get("/healthz?verbose").await.1.contains("namespace-controller") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it does not become leader in time");
    }
}

fn cluster() -> TestCluster {
    TestCluster::new(Clock::virtual_from(Timestamp::UNIX_EPOCH))
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_002_023_a_leader_has_checks_for_lease_and_controllers_and_a_standby_for_the_lease() {
    let cluster = cluster();
    let leader = TestSite::start(&cluster, "a");
    leader.wait_until_leading().await;
    let standby = TestSite::start(&cluster, "b");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lines = "[+]leaderElection ok\n[+]namespace-controller ok\nhealthz check passed\n".to_owned();
    assert_eq!(leader.get("/healthz?verbose").await, (200, lines));
    assert_eq!(standby.get("/healthz?verbose").await, (200, "[+]leaderElection ok\nhealthz check passed\n".to_owned()));
    assert_eq!(leader.get("/healthz/leaderElection").await, (200, "ok".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_024_025_a_leader_stuck_in_its_renewal_fails_its_probe_unless_that_check_is_excluded() {
    let cluster = cluster();
    let leader = TestSite::start(&cluster, "a");
    leader.wait_until_leading().await;
    // The manager's tasks do not run during this time, so it cannot end its term itself. A leader that only fails to
    // renew does end it.
    leader.clock.suspend(Duration::from_secs(30));
    assert_eq!(leader.get("/healthz").await, (200, "ok".to_owned()), "a late renewal is not a failure yet");
    leader.clock.suspend(Duration::from_secs(6));
    let (code, text) = leader.get("/healthz").await;
    assert_eq!(code, 500, "{text}");
    assert!(text.starts_with("[-]leaderElection failed: reason withheld\n"), "{text}");
    assert!(text.ends_with("healthz check failed\n"), "{text}");
    assert_eq!(leader.get("/healthz?exclude=leaderElection").await, (200, "ok".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn controller_that_is_held_back_is_shown_in_the_verbose_readiness_and_is_no_failure() {
    let cluster = cluster();
    cluster.create(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "kube-controller-manager-cp1", "namespace": "kube-system",
            "labels": { "component": "kube-controller-manager" },
        },
        "spec": { "containers": [{ "name": "kube-controller-manager", "command": ["kube-controller-manager"] }] },
    }));
    let leader = TestSite::start_with(&cluster, "a", &["--leader-elect-resource-name=mini-kcm"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (code, text) = leader.get("/readyz?verbose").await;
    let line = "[+]held-back/namespace-controller ok (held back: kube-system/kube-controller-manager-cp1 runs them, by \
                its --controllers)\n";
    assert!(code == 200 && text.contains(line), "{text}");
    let (code, text) = leader.get("/healthz?verbose").await;
    assert_eq!((code, text.as_str()), (200, "[+]leaderElection ok\nhealthz check passed\n"));
    cluster.remove("pods", "kube-system", "kube-controller-manager-cp1");
    leader.wait_until_leading().await;
    assert!(!leader.get("/readyz?verbose").await.1.contains("held-back"));
}

#[tokio::test]
async fn signal_while_the_port_starts_ends_the_manager_at_once() {
    // The port waits for the client CA of the cluster, so it does not start to listen.
    let config = Config::new(typed(&["--controllers=namespace"])).unwrap();
    let cluster = cluster();
    let mut deps = Deps::in_memory(&config, cluster.service(), Clock::system(), "a");
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let silent = Transport::new(tower::service_fn(move |_: Request<client::Body>| {
        sender.send(()).unwrap();
        std::future::pending::<Result<axum::http::Response<client::Incoming>, client::BoxError>>()
    }));
    deps.review_connections.authentication = Some(Connection::in_memory(silent));
    let stop = deps.stop.clone();
    let running = tokio::spawn(run(config, deps));
    receiver.recv().await.unwrap();
    stop.cancel();
    let exit = tokio::time::timeout(Duration::from_secs(2), running).await.expect("at once").unwrap();
    assert_eq!(exit, Exit::Clean);
    // The thread of the port ends too: it drops its client.
    let closed = tokio::time::timeout(Duration::from_secs(2), receiver.recv()).await.expect("at once");
    assert_eq!(closed, None);
}
