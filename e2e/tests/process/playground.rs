//! The playground as a new user would use it: started, used with a real kubectl, stopped with Ctrl-C.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::{path::Path, time::Duration};

use e2e::{ControlPlane, Identity, Kubectl, Options, Playground, assets_or_skip, eventually, kubectl_or_skip};
use tempfile::TempDir;

/// Long enough for a machine that compiles at the same time.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A playground with a kubectl.
struct PlaygroundTest {
    _playground: Playground,
    kubectl: Kubectl,
    folder: TempDir,
}

impl PlaygroundTest {
    /// `None` after printing that there is no kubectl.
    async fn start(scenario: &str) -> Option<Self> {
        let program = kubectl_or_skip(scenario)?;
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let flag = format!("--write-kubeconfig={}", kubeconfig.display());
        let mut playground = Playground::start(&[&flag, "--seed=1"], folder.path().join("log")).unwrap();
        // Printed at the first update, when nodes and namespace exist.
        playground.wait_for_output(" s  completion", TIME_LIMIT).await.unwrap();
        Some(Self { _playground: playground, kubectl: Kubectl::new(program, &kubeconfig), folder })
    }

    #[track_caller]
    fn run(&self, line: &str) -> String {
        self.kubectl.run(line).unwrap_or_else(|err| panic!("{err:#}"))
    }

    #[track_caller]
    fn expect(&self, line: &str, words: &str) {
        let output = self.run(line);
        assert!(output.contains(words), "kubectl {line} does not print {words:?}:\n{output}");
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: playground}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'example.com/web:1'}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: playground}
data: {key: value}
";

const POD: &str = r"
apiVersion: v1
kind: Pod
metadata:
  name: mine
  namespace: playground
  annotations: {fake-nodes.mini-kcm.dev/start-after: 500ms, fake-nodes.mini-kcm.dev/run-for: 1s}
spec:
  restartPolicy: Never
  containers: [{name: main, image: 'example.com/main:1'}]
";

#[tokio::test(flavor = "multi_thread")]
async fn manifest_is_applied_twice_changed_scaled_and_patched() {
    let Some(test) = PlaygroundTest::start("apply, scale and patch on the playground").await else { return };
    let file = test.file("web.yaml", DEPLOYMENT);
    let apply = format!("apply -f {file}");
    test.expect(&apply, "deployment.apps/web created");
    let rollout = |words: &str| test.run(&format!("rollout {words} deployment/web -n playground"));
    let status = || assert!(rollout("status").contains("successfully rolled out"));
    status();
    test.expect(&apply, "deployment.apps/web unchanged");
    test.expect(&apply, "configmap/settings unchanged");
    test.file("web.yaml", &DEPLOYMENT.replace("web:1", "web:2"));
    test.expect(&apply, "deployment.apps/web configured");
    test.expect("get deployment web -n playground -o wide", "example.com/web:2");
    test.expect("scale deployment web --replicas=5 -n playground", "deployment.apps/web scaled");
    test.expect("get deployment web -n playground -o jsonpath={.spec.replicas}", "5");
    status();
    test.run("set image deployment/web web=example.com/web:3 -n playground");
    status();
    let history = rollout("history");
    assert!(history.lines().any(|it| it.starts_with("3 ")), "{history}");
    rollout("undo");
    status();
    test.expect("get deployment web -n playground -o wide", "example.com/web:2");
    for words in ["pause", "resume", "restart", "status"] {
        rollout(words);
    }
    let patch = r#"patch configmap settings -n playground --type=merge -p {"data":{"more":"yes"}}"#;
    test.expect(patch, "configmap/settings patched");
    test.expect("label configmap settings -n playground seen=true", "configmap/settings labeled");
    test.expect("get configmap -l seen=true -n playground -o name", "configmap/settings");
    test.expect("create configmap other -n playground --from-literal=a=b", "configmap/other created");
    test.expect(&format!("delete -f {file}"), "configmap \"settings\" deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_is_watched_described_and_deleted() {
    let Some(test) = PlaygroundTest::start("watch, describe and delete on the playground").await else { return };
    test.expect("get nodes", "NAME     STATUS   ROLES    AGE");
    let nodes = test.run("get nodes --no-headers");
    assert_eq!(nodes.lines().filter(|it| it.contains(" Ready ")).count(), 3, "{nodes}");
    let log = test.folder.path().join("watch");
    let mut watch = test.kubectl.start("get pods -n playground -w --no-headers", log.clone()).unwrap();
    // It lists first, so it cannot miss later changes.
    eventually("the watch to show a pod of a sample", TIME_LIMIT, async || {
        Ok(std::fs::read_to_string(&log)?.contains("flaky ").then_some(()))
    })
    .await
    .unwrap();
    let file = test.file("pod.yaml", POD);
    test.expect(&format!("apply -f {file}"), "pod/mine created");
    eventually("the watch to show the whole life of the pod", TIME_LIMIT, async || {
        let seen = std::fs::read_to_string(&log)?;
        let life = ["Pending", "ContainerCreating", "Running", "Completed"];
        let lines = || seen.lines().filter(|it| it.starts_with("mine "));
        let missing = life.iter().find(|word| !lines().any(|it| it.contains(*word)));
        anyhow::ensure!(missing.is_none(), "no {missing:?} in:\n{seen}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    watch.kill().unwrap();
    let described = test.run("describe pod mine -n playground");
    for words in ["Status:", "Succeeded", "Exit Code:", "Events:", "Scheduled", "Started"] {
        assert!(described.contains(words), "{words} is not in:\n{described}");
    }
    test.expect("events -n playground --for pod/mine", "Successfully assigned playground/mine to node-");
    test.expect("get events -n playground", "Scheduled");
    test.expect("describe node node-1", "Allocatable:");

    test.run("run stays -n playground --image=example.com/main:1");
    test.expect("wait --for=condition=Ready pod/stays -n playground --timeout=30s", "pod/stays condition met");
    test.expect("delete pod stays -n playground --wait=false", "pod \"stays\" deleted");
    test.run("wait --for=delete pod/stays -n playground --timeout=30s");
    let left = test.run("get pods -n playground --field-selector=metadata.name=stays --ignore-not-found -o name");
    assert_eq!(left.trim(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn manually_created_job_completes_and_unserved_requests_are_refused() {
    let Some(test) = PlaygroundTest::start("a job by hand, logs and explain on the playground").await else { return };
    test.expect("create job pi -n playground --image=perl", "job.batch/pi created");
    test.expect("create cronjob tick -n playground --image=perl --schedule=@daily", "cronjob.batch/tick created");
    test.expect("create job tock -n playground --from=cronjob/tick", "job.batch/tock created");
    for job in ["pi", "tock"] {
        test.expect(&format!("wait --for=condition=Complete job/{job} -n playground --timeout=60s"), "condition met");
    }
    for (line, words) in [
        ("logs job/pi -n playground", "pods/log is not served by this test cluster: no container runs here"),
        ("explain job.spec", "kubectl explain is not served by this test cluster: no field is described here"),
    ] {
        let output = format!("{:#}", test.kubectl.run(line).unwrap_err());
        assert!(output.contains(words), "kubectl {line} does not print {words:?}:\n{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_deleted_with_or_without_its_dependents() {
    let Some(test) = PlaygroundTest::start("deletion three ways on the playground").await else { return };
    for way in ["background", "foreground", "orphan"] {
        test.run(&format!("apply -f {}", test.file("web.yaml", DEPLOYMENT)));
        let uid = test.run("get deployment web -n playground -o jsonpath={.metadata.uid}");
        let owner = format!(
            r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"{}","blockOwnerDeletion":true}}]}}}}"#,
            uid.trim()
        );
        test.run(&format!("patch configmap settings -n playground --type=merge -p {owner}"));
        // kubectl waits for the removal of the Deployment.
        test.expect(&format!("delete deployment web -n playground --cascade={way} --timeout=30s"), "deleted");
        let owners = "get configmap settings -n playground --ignore-not-found -o jsonpath={.metadata.name}{.metadata.ownerReferences}";
        match way {
            "background" => drop(test.run("wait --for=delete configmap/settings -n playground --timeout=30s")),
            "foreground" => assert_eq!(test.run(owners).trim(), "", "it was deleted before the Deployment"),
            _ => assert_eq!(test.run(owners).trim(), "settings", "it stays without an owner"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_removes_everything() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let flag = format!("--write-kubeconfig={}", kubeconfig.display());
    let mut playground = Playground::start(&[&flag], folder.path().join("log")).unwrap();
    playground.wait_for_output("all samples are done", TIME_LIMIT).await.unwrap();
    assert!(kubeconfig.is_file());
    let server = server_of(&kubeconfig);
    assert!(std::net::TcpStream::connect(&server).is_ok());
    playground.interrupt().unwrap();
    let status = playground.exit(Duration::from_secs(30)).await.unwrap();
    assert_eq!(status.code(), Some(0), "{}", playground.output().unwrap());
    assert!(!kubeconfig.exists(), "the kubeconfig is removed");
    assert!(std::net::TcpStream::connect(&server).is_err(), "the port is closed");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["log"], "its temporary folder is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn until_done_exits_with_zero_and_shows_every_sample() {
    let output = completed_run(&["--until-done", "--nodes=2", "--seed=5"]).await;
    let samples = [
        "completion",
        "crash-loop",
        "capacity",
        "job",
        "job-indexed",
        "job-suspend",
        "cronjob",
        "deployment",
        "statefulset",
        "daemonset",
        "background",
        "foreground",
        "orphan",
        "ns-deletion",
    ];
    for sample in samples {
        let of = |it: &str| it.split_whitespace().nth(2) == Some(sample);
        let done = output.lines().any(|it| of(it) && it.ends_with("(done)"));
        assert!(done, "{sample} is not done in:\n{output}");
    }
    let first = output.lines().find(|it| it.ends_with("(done)")).unwrap();
    let seconds: f64 = first.split_whitespace().next().unwrap().parse().unwrap();
    e2e::report(&format!("playground, built for development: the first sample is done {seconds} s after the start"));
    assert!(output.contains("$ kubectl delete namespace playground-deleted"), "{output}");
    assert!(output.contains("finalizers remaining"), "the conditions are shown:\n{output}");
    for words in [
        "4 of 4 succeeded, 0 active; Complete",
        "indexes succeeded: 0,1,3; failed: 2; 2 pods failed, 0 active; Failed: FailedIndexes",
        "$ kubectl patch job pausable -n playground",
        "Suspended, 0 of 2 succeeded, 0 active, 0 pods",
        "$ kubectl patch cronjob chime -n playground",
        "$ kubectl set image deployment/shop -n playground main=example.com/main:2",
        "$ kubectl rollout undo deployment/shop -n playground",
        "revision 3, 2 ReplicaSets; 3 pods ready; 3 with the old image, 0 with the new; rolled back",
        "$ kubectl set image daemonset/agent -n playground main=example.com/main:2",
        "1 of 1 ready, 1 pods with the new image, none on the tainted node; rolled out",
        "$ kubectl delete configmap foreground -n playground --cascade=foreground",
        "owner waits for its dependents; part waits for its dependents; its pods ending",
        "owner gone; part stays without an owner, with its pods",
    ] {
        assert!(output.contains(words), "{words:?} is not in:\n{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_complete_under_chaos_and_faults_are_shown() {
    // A creation whose outcome is unknown is resolved by the next bookmark, after a minute at most. Several can follow one
    // another.
    let output = completed_run(&["--until-done", "--chaos", "--seed=3", "--timeout=280s"]).await;
    assert!(output.contains("fault: "), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_killed_node_are_evicted_and_replaced_and_the_node_comes_back() {
    let output = completed_run(&["--until-done", "--kill-node", "--nodes=2", "--seed=7"]).await;
    for words in [
        "$ kubectl annotate node node-3 fake-nodes.mini-kcm.dev/silent=true",
        "node-3 Unknown, tainted ",
        "unreachable:NoSchedule",
        "unreachable:NoExecute",
        "$ kubectl annotate node node-3 fake-nodes.mini-kcm.dev/silent-",
        "node-3 Ready; 0 pods on it, 0 evicted; 4 elsewhere; 4 of 4 succeeded; Complete",
    ] {
        assert!(output.contains(words), "{words:?} is not in:\n{output}");
    }
    let evicted = output.lines().any(|it| it.contains("node-3 Unknown") && !it.contains(" 0 evicted"));
    assert!(evicted, "no pod was evicted:\n{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn annotated_node_is_silent_until_the_annotation_is_removed() {
    let Some(test) = PlaygroundTest::start("a silent node on the playground").await else { return };
    let taints = "get node node-1 -o jsonpath={.spec.taints[*].key}";
    test.run("annotate node node-1 fake-nodes.mini-kcm.dev/silent=true");
    test.expect("wait --for=condition=Ready=Unknown node/node-1 --timeout=60s", "condition met");
    eventually("the taints", TIME_LIMIT, async || Ok(test.run(taints).contains("unreachable").then_some(())))
        .await
        .unwrap();
    test.expect("get nodes", "NotReady");
    test.run("annotate node node-1 fake-nodes.mini-kcm.dev/silent-");
    test.expect("wait --for=condition=Ready node/node-1 --timeout=60s", "condition met");
    eventually("the taints to be removed", TIME_LIMIT, async || Ok(test.run(taints).trim().is_empty().then_some(())))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "mine").unwrap();
    let write = format!("--write-kubeconfig={}", taken.display());
    for (number, (flags, words)) in [
        (&["--until-done", "--timeout=1s"][..], "--timeout"),
        (&["--kubeconfig=/nowhere/at-all"], "--kubeconfig /nowhere/at-all"),
        (&[&*write], "--write-kubeconfig"),
        (&["--", "--standby=hot"], "--standby"),
        (&["--until-done", "--timeout=5s", "--", "--controllers=unknown"], "--controllers"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut playground = Playground::start(flags, folder.path().join(format!("log-{number}"))).unwrap();
        let status = playground.exit(TIME_LIMIT).await.unwrap();
        let output = playground.output().unwrap();
        assert_eq!(status.code(), Some(1), "{flags:?}: {output}");
        assert!(output.contains(words), "{words} is not reported for {flags:?}: {output}");
    }
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_cluster_runs_all_samples_and_keeps_no_objects() {
    let Some(assets) = assets_or_skip("the playground on a real cluster") else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let flag = format!("--kubeconfig={}", plane.kubeconfig(Identity::Admin).unwrap().display());
    let output = completed_run(&[&flag, "--until-done", "--nodes=2", "--timeout=100s"]).await;
    assert!(output.contains("ns-deletion") && output.contains("all samples are done"), "{output}");
    let admin = plane.admin().await.unwrap();
    for path in ["/api/v1/nodes", "/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"] {
        assert_eq!(admin.items(path).await.unwrap().len(), 0, "{path}");
    }
    for path in ["/api/v1/namespaces", "/apis/coordination.k8s.io/v1/leases"] {
        let items = admin.items(path).await.unwrap();
        let ours = items.iter().filter(|it| it["metadata"]["name"].as_str().unwrap().contains("playground"));
        assert_eq!(ours.count(), 0, "{path}: {items:?}");
    }
}

/// Runs a playground that must exit with 0 and returns its output.
async fn completed_run(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut playground = Playground::start(flags, folder.path().join("log")).unwrap();
    let status = playground.exit(Duration::from_secs(300)).await.unwrap();
    let output = playground.output().unwrap();
    assert_eq!(status.code(), Some(0), "{output}");
    output
}

fn server_of(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let line = text.lines().find_map(|it| it.trim().strip_prefix("server: https://")).unwrap();
    line.to_owned()
}
