use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use tempfile::TempDir;
use test_cluster::{Interception, Served, TestCluster};

use super::*;

fn options() -> Options {
    Options {
        nodes: 2,
        seed: Some(1),
        chaos: false,
        kill_node: false,
        until_done: true,
        timeout: Duration::from_secs(120),
        kubeconfig: None,
        write_kubeconfig: None,
        manager: Vec::new(),
    }
}

/// A cluster of another owner, without a manager.
struct OtherCluster {
    cluster: TestCluster,
    folder: TempDir,
    kubeconfig: PathBuf,
    _served: Served,
}

impl OtherCluster {
    async fn new() -> Self {
        let cluster = TestCluster::with_seed(Clock::system(), 1);
        let served = cluster.serve().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("theirs");
        std::fs::write(&kubeconfig, served.kubeconfig()).unwrap();
        Self { cluster, folder, kubeconfig, _served: served }
    }

    /// Runs the playground there and returns its error.
    async fn run(&self, stop: &CancellationToken) -> String {
        let options = Options { kubeconfig: Some(self.kubeconfig.clone()), ..options() };
        let result = run_samples(&options, self.folder.path(), stop, Screen::silent).await;
        result.err().map(|err| format!("{err:#}")).unwrap_or_default()
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let names = |resource: &str| -> Vec<String> {
            let all = self.cluster.list(resource, "");
            all.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        for resource in ["nodes", "leases", "pods"] {
            assert_eq!(names(resource), Vec::<String>::new(), "{resource}");
        }
        let namespaces = names("namespaces");
        assert!(!namespaces.iter().any(|it| it.contains("playground")), "{namespaces:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_exit_is_reported_with_its_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let options = Options { manager: vec![port, "--bind-address=127.0.0.1".to_owned()], ..options() };
    let folder = tempfile::tempdir().unwrap();
    let result = run_samples(&options, folder.path(), &CancellationToken::new(), Screen::silent).await;
    let error = format!("{:#}", result.unwrap_err());
    assert!(error.starts_with("mini-kcm has ended: ") && error.contains("--secure-port"), "{error}");
    assert!(!error.contains("not cleaned up"), "reported once: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_first_namespace_leaves_no_objects() {
    let other = OtherCluster::new().await;
    other.cluster.intercept(|call| match (call.verb, call.resource.as_str()) {
        ("create", "namespaces") => Interception::status(422, "Invalid", "not allowed here"),
        _ => Interception::Pass,
    });
    let error = other.run(&CancellationToken::new()).await;
    assert!(error.starts_with("create Namespace") && error.contains("not allowed here"), "{error}");
    other.assert_nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn early_end_is_cleaned_up_and_running_tasks_create_nothing_more() {
    let other = OtherCluster::new().await;
    let (stop, creates) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let (to_stop, counted) = (stop.clone(), creates.clone());
    other.cluster.intercept(move |call| match (call.verb, call.resource.as_str()) {
        ("create", "namespaces") if call.json()["metadata"]["name"].as_str().unwrap().ends_with("-deleted") => {
            // A task that is not stopped would try again twice a second.
            to_stop.cancel();
            counted.fetch_add(1, Ordering::SeqCst);
            Interception::status(500, "InternalError", "not now")
        }
        ("delete", "namespaces") => Interception::Delay(Duration::from_secs(2)),
        _ => Interception::Pass,
    });
    let error = other.run(&stop).await;
    assert_eq!(error, "interrupted before all samples were done");
    other.assert_nothing_left();
    let creates = creates.load(Ordering::SeqCst);
    assert!((1..=2).contains(&creates), "{creates}");
}
