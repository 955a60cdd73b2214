use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use tempfile::TempDir;
use test_cluster::{Served, TestCluster, Verdict};

use super::*;

fn options() -> Options {
    Options {
        nodes: 2,
        seed: Some(1),
        chaos: false,
        until_done: true,
        timeout: Duration::from_secs(120),
        kubeconfig: None,
        write_kubeconfig: None,
        manager: Vec::new(),
    }
}

/// A cluster of another owner, without a manager.
struct OwnNodes {
    cluster: TestCluster,
    folder: TempDir,
    kubeconfig: PathBuf,
    _served: Served,
}

impl OwnNodes {
    async fn new() -> Self {
        let cluster = TestCluster::with_seed(Clock::system(), 1);
        let served = cluster.serve().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("theirs");
        std::fs::write(&kubeconfig, served.kubeconfig()).unwrap();
        Self { cluster, folder, kubeconfig, _served: served }
    }

    /// Runs the playground there and returns its error.
    async fn play(&self, stop: &CancellationToken) -> String {
        let options = Options { kubeconfig: Some(self.kubeconfig.clone()), ..options() };
        let played = play(&options, self.folder.path(), stop, Screen::dark).await;
        played.err().map(|err| format!("{err:#}")).unwrap_or_default()
    }

    #[track_caller]
    fn has_nothing_of_ours(&self) {
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
async fn a_manager_that_exits_is_reported_with_its_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let options = Options { manager: vec![port, "--bind-address=127.0.0.1".to_owned()], ..options() };
    let folder = tempfile::tempdir().unwrap();
    let played = play(&options, folder.path(), &CancellationToken::new(), Screen::dark).await;
    let told = format!("{:#}", played.unwrap_err());
    assert!(told.starts_with("mini-kcm has ended: ") && told.contains("--secure-port"), "{told}");
    assert!(!told.contains("not cleaned up"), "reported once: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_refuses_the_first_namespace_keeps_nothing() {
    let abroad = OwnNodes::new().await;
    abroad.cluster.intercept(|call| match (call.verb, call.resource.as_str()) {
        ("create", "namespaces") => Verdict::status(422, "Invalid", "none of that here"),
        _ => Verdict::Pass,
    });
    let told = abroad.play(&CancellationToken::new()).await;
    assert!(told.starts_with("create Namespace") && told.contains("none of that here"), "{told}");
    abroad.has_nothing_of_ours();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_end_is_cleaned_up_and_not_undone_by_what_was_under_way() {
    let abroad = OwnNodes::new().await;
    let (stop, creates) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let (asked, counted) = (stop.clone(), creates.clone());
    abroad.cluster.intercept(move |call| match (call.verb, call.resource.as_str()) {
        ("create", "namespaces") if call.json()["metadata"]["name"].as_str().unwrap().ends_with("-farewell") => {
            // A task that is not stopped would try again twice a second.
            asked.cancel();
            counted.fetch_add(1, Ordering::SeqCst);
            Verdict::status(500, "InternalError", "not now")
        }
        ("delete", "namespaces") => Verdict::Delay(Duration::from_secs(2)),
        _ => Verdict::Pass,
    });
    let told = abroad.play(&stop).await;
    assert_eq!(told, "interrupted before all samples were done");
    abroad.has_nothing_of_ours();
    let creates = creates.load(Ordering::SeqCst);
    assert!((1..=2).contains(&creates), "{creates}");
}
